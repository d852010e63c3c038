package main

import (
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/signalbox/signalbox/cmd/signalbox/internal/hold"
	"github.com/signalbox/signalbox/cmd/signalbox/internal/settings"
	"github.com/signalbox/signalbox/cmd/signalbox/internal/target"
)

// newElect makes the subcommand that leads while another program runs. lookup reads an
// environment variable.
func newElect(lookup func(string) (string, bool)) *cobra.Command {
	c := hold.Config{Elect: true, Count: 1}
	var cluster *target.Flags
	command := &cobra.Command{
		Use:   "elect NAME [flags] -- COMMAND [ARGUMENT…]",
		Short: "Run a command on one machine of many: the one that leads",
		Long: "Run a command while no other process leads by the item NAME: wait for that, run the command, keep the\n" +
			"session renewed, and give the item back when the command ends.\n\n" +
			"The item's value says who leads; \"signalbox item get NAME\" shows it. The command finds SIGNALBOX_ITEM,\n" +
			"SIGNALBOX_SESSION, SIGNALBOX_TOKEN (a fencing token, larger for each leader) and SIGNALBOX_ADDR in its environment.\n\n" +
			"It ends, as a command of \"signalbox run\" does, before another process could lead, and when an operator deletes\n" +
			"the item. The order of those who wait is not promised: \"signalbox run\" has a line.\n\n" +
			"Exit status: as \"signalbox run\".",
		PersistentPreRunE: func(command *cobra.Command, _ []string) error {
			return hold.Usage(settings.Apply(command.Flags(), lookup))
		},
		RunE: func(command *cobra.Command, arguments []string) error {
			if !command.Flags().Changed("value") {
				if host, err := os.Hostname(); err == nil {
					c.Value = host
				}
			}
			return holdFor(command, &c, cluster, arguments)
		},
	}
	command.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return hold.Usage(err) })
	flags := command.Flags()
	flags.SortFlags = false
	flags.StringVar(&c.Value, "value", "", "of the item while this process leads; default: the name of the machine")
	flags.DurationVar(&c.TTL, "ttl", 30*time.Second, "how long the session outlives its last renewal; it is renewed every third of that")
	flags.DurationVar(&c.Wait, "wait", 5*time.Minute, "how long to wait to lead")
	flags.DurationVar(&c.Grace, "grace", 0, "how long the command has between TERM and KILL; default: a sixth of --ttl, at most 10s")
	cluster = target.Add(flags, lookup)
	return command
}
