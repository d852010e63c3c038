package operator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/signalbox/signalbox/client/internal/calls"
)

// backupIdleTimeout is how long a backup may bring no byte before it fails.
const backupIdleTimeout = time.Minute

// Backup copies a backup of the whole state into w and returns its index. It does not verify the bytes; "signalbox
// inspect" and a restore do.
func (o *Operator) Backup(ctx context.Context, w io.Writer) (index uint64, err error) {
	s, err := calls.Open(ctx, o.calls, []string{"v1", "snapshot"}, nil, backupIdleTimeout)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if _, err = io.Copy(w, s); err != nil {
		return 0, fmt.Errorf("signalbox: the backup is not complete: %w", err)
	}
	return s.Index, nil
}

// RestoreOption is an option of Restore: EndSessions, OfCluster.
type RestoreOption func(url.Values)

// EndSessions ends all sessions of the backup. Without it they live on for the time that they had left.
func EndSessions() RestoreOption { return func(q url.Values) { q.Set("sessions", "end") } }

// OfCluster accepts a backup of the cluster with that id. Without it, the backup must be of the same cluster that
// Restore changes.
func OfCluster(id string) RestoreOption { return func(q url.Values) { q.Set("from", id) } }

// Restore replaces the cluster's state by the state of a backup of size bytes, and returns the index from which the
// restored state applies. The old state is lost. cluster is the id of the cluster to change, as Cluster returns it;
// another cluster refuses. A node that does not lead first takes over the leadership; if it can't, Restore asks the
// next address, for up to GiveUpAfter. The node verifies the whole backup first: with ErrBackupRefused, or with
// ErrLevelUnknown if a member does not know the backup's feature level, the old state stays. After
// client.ErrOutcomeUnknown, read the state and, if needed, restore again: Restore never repeats an attempt that may
// have been carried out.
func (o *Operator) Restore(ctx context.Context, cluster string, backup io.ReaderAt, size int64, opts ...RestoreOption) (index uint64, err error) {
	query := url.Values{"cluster": {cluster}}
	for _, option := range opts {
		option(query)
	}
	k := calls.Call{Method: http.MethodPut, Path: []string{"v1", "snapshot"}, Query: query}
	r, err := calls.Upload(ctx, o.calls, k, backup, size)
	if err != nil {
		return 0, err
	}
	var done struct {
		Index uint64 `json:"index"`
	}
	err = r.Decode(&done)
	return done.Index, err
}
