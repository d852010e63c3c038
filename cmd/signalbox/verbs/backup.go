package verbs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	signalbox "github.com/signalbox/signalbox/client"
	"github.com/signalbox/signalbox/client/operator"
	"github.com/signalbox/signalbox/cmd/signalbox/internal/cli"
	"github.com/signalbox/signalbox/store/archive"
)

// patience bounds how long a verb looks for a node that can carry out its request.
const patience = 10 * time.Second

// newBackup makes the subcommand that fetches a backup.
func newBackup(lookup func(string) (string, bool)) *cobra.Command {
	command := &cobra.Command{
		Use:   "backup FILE",
		Short: "Fetch a backup of the cluster into a file",
		Long: "Fetch a backup of the whole state from any node, and verify it. FILE is complete and durable once the command\n" +
			"has ended well; before that it is as it was. With - for FILE the backup goes to standard output: its reader has\n" +
			"to look at the exit status, or to verify it with \"signalbox inspect\".",
		Args: cli.Arguments(1, 1),
	}
	flags := cli.AddClusterFlags(command.Flags(), lookup)
	var cfg signalbox.Config
	command.PreRunE = func(_ *cobra.Command, arguments []string) (err error) {
		if info, err := os.Stat(arguments[0]); err == nil && info.IsDir() {
			return fmt.Errorf("%s is a folder: give a file in it, such as %s", arguments[0], filepath.Join(arguments[0], "signalbox.backup"))
		}
		if _, err := os.Stat(filepath.Dir(arguments[0])); err != nil {
			return fmt.Errorf("the folder of %s: %w", arguments[0], err) // the error of archive.Save would name a temporary file
		}
		cfg, err = flags.Client()
		cfg.GiveUpAfter = patience
		return err
	}
	command.RunE = func(command *cobra.Command, arguments []string) error {
		fetch := func(w io.Writer) error { return fetch(command.Context(), cfg, w) }
		if arguments[0] == "-" {
			return failed(fetch(command.OutOrStdout()))
		}
		h, size, err := archive.Save(arguments[0], fetch)
		if err != nil {
			return failed(err)
		}
		_, err = fmt.Fprintf(command.OutOrStdout(), "%s: index %d of cluster %x, %d bytes\n", arguments[0], h.Index, h.Cluster, size)
		return err
	}
	return command
}

// fetch copies a backup from the first node that sends one, and verifies it meanwhile.
func fetch(ctx context.Context, cfg signalbox.Config, w io.Writer) error {
	from, to := io.Pipe()
	defer func() { _ = from.Close() }()
	go func() {
		to.CloseWithError(operate(cfg, func(o *operator.Operator) error {
			_, err := o.Backup(ctx, to)
			return err
		}))
	}()
	a, err := archive.NewReader(io.TeeReader(from, w))
	if err == nil {
		_, err = io.Copy(io.Discard, a)
	}
	if err == nil {
		_, err = from.Read(make([]byte, 1)) // returns io.EOF at the end, or the error of the backup
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// operate calls do with an operator's client, and closes the client.
func operate(cfg signalbox.Config, do func(*operator.Operator) error) error {
	c, err := signalbox.New(cfg)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close(context.Background()) }() // the client has no session
	return do(operator.New(c))
}
