package verbs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/signalbox/signalbox/store/archive"
)

const (
	// askTimeout bounds one question to one node.
	askTimeout = 10 * time.Second
	// leaderPatience is how long a restore looks for the leader.
	leaderPatience = 10 * time.Second
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
		Args: oneArgument("the file to read"),
	}
	open := addService(command, lookup)
	command.Flags().StringVar(&sessions, "sessions", sessions, "keep: with the time that they had left; end: all end")
	command.RunE = func(command *cobra.Command, arguments []string) error {
		if sessions != "keep" && sessions != "end" {
			return fmt.Errorf("--sessions: %q is neither keep nor end", sessions)
		}
		if _, _, err := archive.Verify(arguments[0]); err != nil {
			return fmt.Errorf("%s: %w", arguments[0], err)
		}
		s, err := open()
		if err != nil {
			return err
		}
		index, err := s.restore(command.Context(), arguments[0], sessions)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(command.OutOrStdout(), "restored, at index %d\n", index)
		return err
	}
	return command
}

// restore sends a file to the leader, and to the next one if the leadership has moved.
func (s *service) restore(ctx context.Context, name, sessions string) (index uint64, err error) {
	for began := time.Now(); ; {
		var base *url.URL
		if base, err = s.leader(ctx); err == nil {
			index, err = s.put(ctx, base, name, sessions)
		}
		var refused *refusal
		moved := base == nil || errors.As(err, &refused) && (refused.Code == "not-leader" || refused.Code == "no-leader")
		if err == nil || !moved || time.Since(began) > leaderPatience {
			return index, err
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

func (s *service) put(ctx context.Context, base *url.URL, name, sessions string) (index uint64, err error) {
	file, err := os.Open(name)
	if err != nil {
		return 0, err
	}
	defer func() { _ = file.Close() }() // it was only read
	info, err := file.Stat()
	if err != nil {
		return 0, err
	}
	reply, err := s.send(ctx, http.MethodPut, base, "/v1/snapshot?sessions="+sessions, file, info.Size())
	if err != nil {
		return 0, err
	}
	defer func() { _ = reply.Body.Close() }() // it was only read
	var done struct {
		Index uint64 `json:"index"`
	}
	if err := json.NewDecoder(io.LimitReader(reply.Body, replyBytes)).Decode(&done); err != nil {
		return 0, fmt.Errorf("%s has restored the backup, and its reply can't be read: %w", base, err)
	}
	return done.Index, nil
}

// leader returns the base URL of the node that leads. Each node knows only itself by its
// URL: so all are asked.
func (s *service) leader(ctx context.Context) (*url.URL, error) {
	failed := []error{errors.New("no node of those given leads")}
	for _, base := range s.bases {
		asking, cancel := context.WithTimeout(ctx, askTimeout)
		reply, err := s.send(asking, http.MethodGet, base, "/v1/cluster", nil, 0)
		var status struct {
			Node, Leader string
		}
		if err == nil {
			err = json.NewDecoder(io.LimitReader(reply.Body, replyBytes)).Decode(&status)
			_ = reply.Body.Close() // it was only read
		}
		cancel()
		switch {
		case err != nil:
			failed = append(failed, err)
		case status.Node == status.Leader && status.Node != "":
			return base, nil
		case status.Leader != "":
			failed = append(failed, fmt.Errorf("%s says that %s leads", base, status.Leader))
		}
	}
	return nil, errors.Join(failed...)
}
