package store

import (
	"errors"
	"path/filepath"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// DefaultMinFree is the free space below which Space reports low: 64 MiB.
const DefaultMinFree = 64 << 20

// Options says which data folder to open, and how.
type Options struct {
	// Folder is the data folder. It may be missing or empty; it is made then.
	// Required, but for an ephemeral store, which has no folder.
	Folder string
	// NodeID is the id of the node whose folder it is. Required; 1 to 255 bytes of
	// text without control characters.
	NodeID string
	// ClusterID is the id of the node's cluster, if it is known; see SetClusterID.
	ClusterID string
	// Ephemeral keeps everything in memory: no folder, no lock, and all is gone
	// with the Store.
	Ephemeral bool
	// Logger receives what happens in the folder. nil: no log.
	Logger hclog.Logger
	// OnDamage is called once, when damage is first found in an open Store, with a
	// damage.Error. The goroutine that read calls it, often Raft's main goroutine, so it must
	// return soon and must not wait for Raft or close the Store. For example, it may log and
	// end the process. Raft panics right after it when a committed entry can't be read. nil:
	// reads just fail.
	OnDamage func(error)
	// MinFree is the free space, in bytes, below which Space reports low; 0 for
	// DefaultMinFree.
	MinFree uint64
	// Journal puts a journal before the log, so that an append is one synced write. It takes
	// 16 MiB of the disk; where there is no room, the folder is opened without one. A folder may
	// be opened either way, whatever it was before. Programs that don't know journals refuse a
	// folder that has one.
	Journal bool
	// JournalHalf is for tests: the size of the halves of a new journal in bytes, 0 for the
	// default.
	JournalHalf int64
	// WrapLog is for tests: what it returns takes the place of the log as it is on
	// the disk, beneath the cache, the checksums and the watch over writes. A
	// wrapper that delays, fails or hangs its calls is seen like a disk that does.
	WrapLog func(raft.LogStore) raft.LogStore
}

// complete makes sure that a folder is given unless the store is ephemeral, and returns
// the options with its absolute path and with the defaults.
func (o Options) complete() (_ Options, err error) {
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	if o.MinFree == 0 {
		o.MinFree = DefaultMinFree
	}
	switch {
	case o.Ephemeral:
		o.Folder = ""
	case o.Folder == "":
		err = errors.New("no data folder is given")
	default:
		o.Folder, err = filepath.Abs(o.Folder)
	}
	return o, err
}
