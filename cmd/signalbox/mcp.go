package main

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	signalbox "github.com/signalbox/signalbox/client"
	"github.com/signalbox/signalbox/cmd/signalbox/internal/cli"
	"github.com/signalbox/signalbox/cmd/signalbox/internal/mcp"
)

// newMCP makes the subcommand that lets a language model hold permits. lookup reads an environment variable.
func newMCP(lookup func(string) (string, bool)) *cobra.Command {
	var ttl time.Duration
	var cluster *cli.ClusterFlags
	command := &cobra.Command{
		Use:   "mcp",
		Short: "Let a language model acquire permits, as a server of the Model Context Protocol",
		Long: "Serve the Model Context Protocol on stdin and stdout, for a program that runs a language model. The tools are list,\n" +
			"why, acquire, release and settle. One session holds what the model acquires; it ends, and all is given back,\n" +
			"when stdin closes.",
		Args: cli.Arguments(0, 0),
		RunE: func(command *cobra.Command, _ []string) error {
			if ttl < time.Second {
				return cli.UsageError(errors.New("--ttl must be 1s at least"))
			}
			cfg, err := cluster.Client()
			if err != nil {
				return cli.UsageError(err)
			}
			c, err := signalbox.New(cfg)
			if err != nil {
				return cli.UsageError(err)
			}
			defer func() { _ = c.Close(command.Context()) }() // the server has already ended its session
			number, _ := version()
			return mcp.New(c, number, ttl, command.OutOrStdout()).Serve(command.Context(), command.InOrStdin())
		},
	}
	flags := command.Flags()
	flags.SortFlags = false
	flags.DurationVar(&ttl, "ttl", 30*time.Second, "how long the permits outlive this program when it is killed")
	cluster = cli.AddClusterFlags(flags, lookup)
	return command
}
