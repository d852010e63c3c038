package verbs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/signalbox/signalbox/store/archive"
)

// Backup makes the subcommand that fetches a backup.
func Backup(lookup func(string) (string, bool)) *cobra.Command {
	command := &cobra.Command{
		Use:   "backup FILE",
		Short: "Fetch a backup of the cluster into a file",
		Long: "Fetch a backup of the whole state from any node, and verify it. FILE is complete and durable once the command\n" +
			"has ended well; before that it is as it was. With - for FILE the backup goes to standard output: its reader has\n" +
			"to look at the exit status, or to verify it with \"signalbox inspect\".",
		Args: oneArgument("the file to write, or -"),
	}
	open := addService(command, lookup)
	command.RunE = func(command *cobra.Command, arguments []string) error {
		s, err := open()
		if err != nil {
			return err
		}
		if arguments[0] == "-" {
			return s.fetch(command.Context(), command.OutOrStdout())
		}
		h, size, err := archive.Save(arguments[0], func(w io.Writer) error { return s.fetch(command.Context(), w) })
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(command.OutOrStdout(), "%s: index %d of cluster %x, %d bytes\n", arguments[0], h.Index, h.Cluster, size)
		return err
	}
	return command
}

// fetch copies a backup from the first node that gives one, and verifies it on the way.
func (s *service) fetch(ctx context.Context, w io.Writer) error {
	var failed []error
	for _, base := range s.bases {
		reply, err := s.send(ctx, http.MethodGet, base, "/v1/snapshot", nil, 0)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		defer func() { _ = reply.Body.Close() }() // it was only read
		return verified(reply.Body, w)
	}
	return errors.Join(failed...)
}

// verified copies a backup, and fails if it is not whole.
func verified(from io.Reader, w io.Writer) error {
	a, err := archive.NewReader(io.TeeReader(from, w))
	if err == nil {
		_, err = io.Copy(io.Discard, a)
	}
	return err
}
