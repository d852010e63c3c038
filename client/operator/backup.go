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

// backupQuiet is how long a node may send no byte of a backup.
const backupQuiet = time.Minute

// Backup copies a backup of the whole state into w and returns its index. The bytes
// are not verified: "signalbox inspect" does that, and so does a restore.
func (o *Operator) Backup(ctx context.Context, w io.Writer) (index uint64, err error) {
	s, err := calls.Open(ctx, o.calls, []string{"v1", "snapshot"}, nil, backupQuiet)
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

// EndSessions makes all sessions of the backup end. Without it they go on, with the time that they had left.
func EndSessions() RestoreOption { return func(q url.Values) { q.Set("sessions", "end") } }

// OfCluster lets the backup be of the cluster with that id. Without it, it must be of the cluster
// that Restore changes.
func OfCluster(id string) RestoreOption { return func(q url.Values) { q.Set("from", id) } }

// Restore replaces the cluster's state, which is lost, by the state of a backup of size bytes, and returns the
// index at which it is in force. cluster is the id of that cluster, as Cluster returns it: another cluster
// refuses. A node that does not lead takes the leadership over first; if it can't, the next address is asked,
// for up to GiveUpAfter. The node verifies the whole backup first: the state stays with ErrBackupRefused, or
// with ErrLevelUnknown if a member does not know the backup's feature level. With client.ErrOutcomeUnknown
// either state may come into force: read it, and restore again. A restore that may have been carried out is
// never repeated.
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
