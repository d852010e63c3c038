package store

import (
	"errors"
	"path/filepath"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// DefaultMinFree is the default of Options.MinFree: 64 MiB.
const DefaultMinFree = 64 << 20

// Options says which data folder to open, and how.
type Options struct {
	// Folder is the path of the data folder. Open makes the folder if it is missing. Required unless Ephemeral is set.
	Folder string
	// NodeID is the id of the node to which the folder belongs. Required; 1 to 255 bytes of text without control
	// characters.
	NodeID string
	// ClusterID is the id of the node's cluster, or "" if not known; see SetClusterID.
	ClusterID string
	// Ephemeral keeps everything in memory, without a folder and a lock, until Close.
	Ephemeral bool
	// Logger gets messages about the folder. nil: no messages.
	Logger hclog.Logger
	// OnDamage is called once, with a damage.Error, when an open Store finds damage for the first time. The reading
	// goroutine calls it, often Raft's main goroutine. So it must return soon, and must not wait for Raft or close the
	// Store. It may, for example, log the error and end the process. If a committed entry can't be read, Raft panics
	// after OnDamage. nil: the reads only fail.
	OnDamage func(error)
	// MinFree is the number of free bytes below which Space reports low; 0 for DefaultMinFree.
	MinFree uint64
	// Journal puts a journal before the log, so that an append is one synced write. The journal takes 16 MiB of the
	// disk; without that room, the folder is opened without a journal. The value may change between two starts.
	// Programs that don't know journals refuse a folder with a journal.
	Journal bool
	// JournalHalf is for tests: the size of each half of a new journal in bytes, 0 for the default.
	JournalHalf int64
	// WrapLog is for tests: it replaces the log on the disk, below the cache, the checksums and the measuring of
	// writes. A wrapper that delays or fails calls acts like a slow or failing disk.
	WrapLog func(raft.LogStore) raft.LogStore
}

// complete returns the options with the defaults and an absolute folder. It fails if a folder is missing.
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
