package store

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"
)

const (
	// DefaultMinFree is the free space below which Space reports low: 64 MiB.
	DefaultMinFree = 64 << 20

	// cachedEntries is how many of the latest log entries are kept in memory.
	cachedEntries = 128
	// initialMap is what bbolt maps of a file at first: a growing file is mapped
	// anew, and that waits for all readers.
	initialMap = 64 << 20
	// boltTimeout bounds how long bbolt waits for its own lock on a file. We hold
	// that of the folder, so only a tool that someone runs on the file can have it.
	boltTimeout = 2 * time.Second
	// maxIDBytes bounds the ids of nodes and clusters.
	maxIDBytes = 255
)

// Options says which data folder to open, and how.
type Options struct {
	// Folder is the data folder. It may be missing or empty; it is made then.
	// Required, but for an ephemeral store, which has none.
	Folder string
	// NodeID is the id of the node whose folder it is. Required; 1 to 255 bytes of
	// text without control characters.
	NodeID string
	// ClusterID is the id of the node's cluster, if it is known; see SetClusterID.
	ClusterID string
	// Ephemeral keeps everything in memory: no folder, no lock, and all is gone
	// with the Store.
	Ephemeral bool
	// Logger receives what happens in the folder. nil: nothing is logged.
	Logger hclog.Logger
	// OnDamage is called once, when damage is first found in an open Store, with a
	// DamagedError. It is called by the goroutine that read, often Raft's main one,
	// so it must return soon and must not wait for Raft or close the Store; what
	// it may well do is log and end the process. Raft itself panics right after it
	// when a committed entry can't be read. nil: reads just fail.
	OnDamage func(error)
	// MinFree is the free space, in bytes, below which Space reports low; 0 for
	// DefaultMinFree.
	MinFree uint64
	// WrapLog is for tests: what it returns takes the place of the log as it is on
	// the disk, beneath the cache, the checksums and the watch over writes. A
	// wrapper that delays, fails or hangs its calls is seen like a disk that does.
	WrapLog func(raft.LogStore) raft.LogStore
}

// check makes sure that the options can be used, and fills in what isn't given.
func (o *Options) check() error {
	if o.Folder == "" && !o.Ephemeral {
		return fmt.Errorf("no data folder is given")
	}
	if o.NodeID == "" {
		return fmt.Errorf("no node id is given")
	}
	for _, id := range []string{o.NodeID, o.ClusterID} {
		if err := checkID(id); err != nil {
			return err
		}
	}
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	if o.MinFree == 0 {
		o.MinFree = DefaultMinFree
	}
	return nil
}

// checkID makes sure that an id can be stored and shown.
func checkID(id string) error {
	if len(id) > maxIDBytes || !utf8.ValidString(id) || strings.ContainsFunc(id, unicode.IsControl) {
		return fmt.Errorf("%q is not an id: up to %d bytes of text without control characters", id, maxIDBytes)
	}
	return nil
}

// boltOptions is how both bolt files are opened. Each commit is synced.
func (o Options) boltOptions() *bbolt.Options {
	return &bbolt.Options{
		Timeout: boltTimeout,
		// With the list of free pages in the file, each commit writes all of it,
		// and a burst leaves it long for ever. Without, opening looks through the
		// file's structure; verify.go does as much anyway.
		NoFreelistSync:  true,
		FreelistType:    bbolt.FreelistMapType,
		InitialMmapSize: initialMap,
	}
}
