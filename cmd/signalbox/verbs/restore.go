package verbs

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	signalbox "github.com/signalbox/signalbox/client"
	"github.com/signalbox/signalbox/client/operator"
	"github.com/signalbox/signalbox/cmd/signalbox/internal/exit"
	"github.com/signalbox/signalbox/cmd/signalbox/internal/target"
	"github.com/signalbox/signalbox/store/archive"
)

// Restore makes the subcommand that restores a backup.
func Restore(lookup func(string) (string, bool)) *cobra.Command {
	sessions := "keep"
	command := &cobra.Command{
		Use:   "restore FILE",
		Short: "Put the state of a backup into the place of the cluster's",
		Long: "Put the state of a backup into the place of the cluster's, which is lost: all semaphores, sessions and leases are\n" +
			"then those of the backup. The file is verified first, and again by the node that leads, which the command finds\n" +
			"by itself. No fencing token is given twice.",
		Args: target.Arguments(1, 1),
	}
	flags := target.Add(command.Flags(), lookup)
	command.Flags().StringVar(&sessions, "sessions", sessions, "keep: with the time that they had left; end: all end")
	command.RunE = func(command *cobra.Command, arguments []string) error {
		var options []operator.RestoreOption
		switch sessions {
		case "keep":
		case "end":
			options = append(options, operator.EndSessions())
		default:
			return exit.Usage(fmt.Errorf("--sessions: %q is neither keep nor end", sessions))
		}
		if _, _, err := archive.Verify(arguments[0]); err != nil {
			return fmt.Errorf("%s: %w", arguments[0], err)
		}
		cfg, err := flags.Client()
		if err != nil {
			return err
		}
		index, err := restore(command.Context(), cfg, arguments[0], options)
		if err != nil {
			return failed(err)
		}
		_, err = fmt.Fprintf(command.OutOrStdout(), "restored, at index %d\n", index)
		return err
	}
	return command
}

// restore sends a file to the node that leads, and returns the index at which its state is
// in force.
func restore(ctx context.Context, cfg signalbox.Config, name string, options []operator.RestoreOption) (index uint64, err error) {
	file, err := os.Open(name)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	info, err := file.Stat()
	if err != nil {
		return 0, err
	}
	cfg.GiveUpAfter = patience
	err = operate(cfg, func(o *operator.Operator) error {
		index, err = o.Restore(ctx, file, info.Size(), options...)
		return err
	})
	return index, err
}
