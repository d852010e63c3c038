package backup

import (
	"fmt"
	"io"
	"time"

	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/store/archive"
)

// Backup is the state of the cluster at one index, which can be written to a file. It does not change; while later
// entries change records, the Backup keeps their old versions in memory.
type Backup struct {
	Header archive.Header
	state  *fsm.Frozen
}

// Of returns the backup of a state. began is the wall-clock time of this node at which the state was taken.
func Of(state *fsm.Frozen, began time.Time) *Backup {
	header := state.StateHeader()
	return &Backup{state: state, Header: archive.Header{
		Index: header.Index(), Term: header.Term(), ClusterTimeMS: header.NowMS(), WallTime: time.UnixMilli(began.UnixMilli()).UTC(),
		Level: header.FeatureLevel(), Cluster: header.ClusterID(),
	}}
}

// Write writes the whole backup. Only one goroutine may call it.
func (b *Backup) Write(w io.Writer) error {
	a, err := archive.NewWriter(w, b.Header)
	if err != nil {
		return err
	}
	if err := b.state.Write(a); err != nil {
		return err
	}
	return a.Close()
}

// Read reads a whole backup and checks all bytes and all invariants of its state. It fails with
// outcome.ErrBackupRefused and the reason, or with the reader's error.
func Read(r io.Reader) (archive.Header, *fsm.Machine, error) {
	a, err := archive.NewReader(r)
	if err != nil {
		return archive.Header{}, nil, refused(err)
	}
	state, err := Check(a)
	return a.Header(), state, err
}

// Check reads and checks the state of a backup whose header has been read.
func Check(a *archive.Reader) (*fsm.Machine, error) {
	h := a.Header()
	if err := fsm.CheckLevel(uint64(h.Level)); err != nil {
		return nil, refused(fmt.Errorf("%w: %w", archive.ErrNewer, err))
	}
	state, err := fsm.Restore(a)
	if err != nil {
		if _, damage := io.Copy(io.Discard, a); damage != nil { // report damage of the file first, since it may be the cause
			err = damage
		}
		return nil, refused(err)
	}
	header := state.StateHeader()
	if h.Index != header.Index() || h.Term != header.Term() || h.ClusterTimeMS != header.NowMS() || h.Level != header.FeatureLevel() || h.Cluster != header.ClusterID() {
		return nil, refused(fmt.Errorf("%w: its header is that of another state", archive.ErrDamaged))
	}
	if header.Term() == 0 || state.RestorePending() {
		return nil, refused(fmt.Errorf("%w: no leader has begun a term in its state", archive.ErrDamaged))
	}
	return state, nil
}

func refused(reason error) error { return fmt.Errorf("%w: %w", outcome.ErrBackupRefused, reason) }
