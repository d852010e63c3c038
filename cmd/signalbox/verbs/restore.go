package verbs

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"os"
	"time"

	"github.com/spf13/cobra"

	signalbox "github.com/signalbox/signalbox/client"
	"github.com/signalbox/signalbox/client/operator"
	"github.com/signalbox/signalbox/cmd/signalbox/internal/cli"
	"github.com/signalbox/signalbox/store/archive"
)

// restoration has the flags of restore, and the backup that they name.
type restoration struct {
	target            *cli.ClusterFlags
	sessions          string
	yes, otherCluster bool

	name   string // path of the file
	header archive.Header
}

func newRestore(lookup func(string) (string, bool)) *cobra.Command {
	r := restoration{sessions: "keep"}
	command := &cobra.Command{
		Use:   "restore FILE",
		Short: "Put the state of a backup into the place of the cluster's",
		Long: "Put the state of a backup into the place of the cluster's, which is lost: all semaphores, sessions and leases are\n" +
			"then the backup's. It asks first, and names both. The file is verified before, and again by the node that\n" +
			"restores it: any node of the cluster, which takes the leadership over if it does not lead. No fencing token is\n" +
			"given twice. A backup of another cluster is refused without --other-cluster.",
		Args: cli.Arguments(1, 1),
	}
	r.target = cli.AddClusterFlags(command.Flags(), lookup)
	command.Flags().StringVar(&r.sessions, "sessions", r.sessions, "keep: with the time that they had left; end: all end")
	command.Flags().BoolVar(&r.otherCluster, "other-cluster", false, "restore a backup of another cluster")
	command.Flags().BoolVarP(&r.yes, "yes", "y", false, "don't ask")
	var cfg signalbox.Config
	command.PreRunE = func(*cobra.Command, []string) (err error) {
		if r.sessions != "keep" && r.sessions != "end" {
			return fmt.Errorf("--sessions: %q is neither keep nor end", r.sessions)
		}
		cfg, err = r.target.Client()
		cfg.GiveUpAfter = patience
		return err
	}
	command.RunE = func(command *cobra.Command, arguments []string) (err error) {
		r.name = arguments[0]
		if r.header, _, err = archive.Verify(r.name); err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
		c, err := signalbox.New(cfg)
		if err != nil {
			return err
		}
		defer func() { _ = c.Close(context.Background()) }() // the client has no session
		return failed(r.run(command, c))
	}
	return command
}

// run reads the cluster, asks for confirmation, and restores.
func (r *restoration) run(command *cobra.Command, c *signalbox.Client) error {
	ctx, o := command.Context(), operator.New(c)
	reading, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cluster, err := o.Cluster(reading)
	if err != nil {
		return err
	}
	if cluster.ID == "" {
		return &cli.ExitError{Status: cli.StatusUnreachable, Err: &cli.Advice{Err: fmt.Errorf("%s is in no cluster yet", cluster.Node),
			Next: "See the state of the cluster with \"signalbox status\"."}}
	}
	from := hex.EncodeToString(r.header.Cluster[:])
	if from != cluster.ID && !r.otherCluster {
		return &cli.ExitError{Status: cli.StatusRefused, Err: &cli.Advice{Err: fmt.Errorf("%s is a backup of cluster %s, and %s is cluster %s. The state was not changed",
			r.name, from, r.target.Name(), cluster.ID), Next: "Name the other cluster by --context or --addr, or restore it here by --other-cluster."}}
	}
	if !r.yes {
		question, err := r.question(ctx, c, o, cluster)
		if err == nil {
			err = cli.Confirm(ctx, command.InOrStdin(), command.ErrOrStderr(), question)
		}
		if err != nil {
			return err
		}
	}
	options := []operator.RestoreOption{operator.OfCluster(from)}
	if r.sessions == "end" {
		options = append(options, operator.EndSessions())
	}
	index, err := send(ctx, o, cluster.ID, r.name, options)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(command.OutOrStdout(), "restored, at index %d\n", index)
	return err
}

// question describes the present state, the backup's state, and what will be lost.
func (r *restoration) question(ctx context.Context, c *signalbox.Client, o *operator.Operator, cluster *operator.Cluster) (string, error) {
	semaphores, err := number(c.List(ctx, "", signalbox.PageSize(maxCounted)))
	if err != nil {
		return "", err
	}
	sessions, err := number(o.ListSessions(ctx, operator.PageSize(maxCounted)))
	if err != nil {
		return "", err
	}
	lost := fmt.Sprintf("Its changes since then, up to %d in the log, are lost, grants and their tokens included.", cluster.CommitIndex-min(r.header.Index, cluster.CommitIndex))
	if from := hex.EncodeToString(r.header.Cluster[:]); from != cluster.ID {
		lost = "THE BACKUP IS OF ANOTHER CLUSTER: all that this one has is lost."
	}
	fate := "The backup's sessions go on with the time that they had left."
	if r.sessions == "end" {
		fate = "All sessions end."
	}
	return fmt.Sprintf("Replace the whole state of cluster %s (%s).\nIt is at index %d now, with semaphores: %s, sessions: %s.\n"+
		"%s is of cluster %x at index %d, made %s, %s ago.\n%s %s",
		cluster.ID, r.target.Name(), cluster.CommitIndex, semaphores, sessions,
		r.name, r.header.Cluster, r.header.Index, r.header.WallTime.Format(time.RFC3339), cli.ShortDuration(max(0, time.Since(r.header.WallTime))), lost, fate), nil
}

// maxCounted bounds the number of members that a question counts, to one page.
const maxCounted = 1000

func number[T any](list iter.Seq2[T, error]) (string, error) {
	n := 0
	for _, err := range list {
		if err != nil {
			return "", err
		}
		if n++; n == maxCounted {
			return fmt.Sprintf("%d or more", n), nil
		}
	}
	return fmt.Sprint(n), nil
}

// send sends a backup to a cluster, and returns the index at which its state comes into force.
func send(ctx context.Context, o *operator.Operator, cluster, name string, options []operator.RestoreOption) (index uint64, err error) {
	file, err := os.Open(name)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	info, err := file.Stat()
	if err != nil {
		return 0, err
	}
	return o.Restore(ctx, cluster, file, info.Size(), options...)
}
