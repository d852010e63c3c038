package folder

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync"

	"github.com/hashicorp/go-hclog"
)

// watermark says when free space is low, with some distance between "low" and
// "enough again", so that a node at the edge doesn't give up leadership, free
// its share, take leadership and lose it again. Its zero value is never low.
type watermark struct {
	minFree, enough uint64 // bytes

	mu  sync.Mutex
	low bool
}

// newWatermark is low below minFree bytes, and stays so until a quarter more than
// that is free.
func newWatermark(minFree uint64) *watermark {
	enough := minFree + minFree/4
	if enough < minFree {
		enough = math.MaxUint64
	}
	return &watermark{minFree: minFree, enough: enough}
}

// observe records how many bytes are free now, and reports whether that is low.
func (w *watermark) observe(free uint64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.low {
		w.low = free < w.enough
	} else {
		w.low = free < w.minFree
	}
	return w.low
}

// reserveShare says which part of Config.MinFree is the reserve: a quarter.
const reserveShare = 4

// Space is the state of the disk that holds the data folder.
type Space struct {
	Free uint64 // bytes that this process may still use; the maximum for a folder in memory
	// Low is the first mark: below Config.MinFree, and since then not a quarter
	// above it. The room from here down to the reserve is for what keeps or ends
	// leases.
	Low bool
	// Spent is the second mark: below the reserve, a quarter of Config.MinFree, and
	// since then not a quarter above it. It implies Low.
	Spent bool
}

// Space returns the free space and whether it is low. It asks the kernel, which is
// fast, and never waits for the disk. It is meant to be polled, each second or so: it
// also makes the reserve again once there is room for it.
func (f *Folder) Space() (Space, error) {
	free, err := f.free()
	if err != nil {
		return Space{}, err
	}
	low, spent := f.low.observe(free), f.spent.observe(free)
	if !low && f.reserve != nil {
		f.reserve.Refill()
	}
	return Space{Free: free, Low: low, Spent: spent}, nil
}

// RoomFor reports whether the disk would not be low on space if so many more bytes of it were
// in use.
func (f *Folder) RoomFor(bytes uint64) (bool, error) {
	free, err := f.free()
	return err == nil && free >= bytes && free-bytes >= f.low.enough, err
}

// free returns the bytes that this process may still write to the disk of the
// folder; for one in memory it is the maximum.
func (f *Folder) free() (uint64, error) {
	if f.config.Path == "" {
		return math.MaxUint64, nil
	}
	free, err := freeBytes(f.config.Path)
	if err != nil {
		return 0, fmt.Errorf("free space of data folder %s: %w", f.config.Path, err)
	}
	return free, nil
}

// reserveBytes is the size of the reserve: room for many writes of a term or a
// vote, each of a few pages.
const reserveBytes = 1 << 20

// Reserve is a file of zeros that keeps some room on the disk for a term or a vote. Raft ends
// the process when it can't store a new term, and a full disk leads to new terms, since it
// makes a leader step down. So a stable write that finds no room releases the reserve and is
// tried again. Folder.Space makes the reserve again when there is room. Safe for concurrent
// use.
type Reserve struct {
	folder string
	logger hclog.Logger

	mu   sync.Mutex
	held bool // the file is there
}

// Release frees the reserved room, and reports whether there was any.
func (r *Reserve) Release() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.held {
		return false
	}
	r.held = false
	return os.Remove(filepath.Join(r.folder, reserveFile)) == nil
}

// Refill makes the reserve, unless it exists. Without room it returns, and the next call tries
// again.
func (r *Reserve) Refill() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held {
		return
	}
	path := filepath.Join(r.folder, reserveFile)
	// Written, not only extended: a file with holes has no blocks.
	if err := writeSynced(path, make([]byte, reserveBytes)); err != nil {
		r.logger.Debug("no room to reserve yet", "bytes", reserveBytes, "error", errors.Join(err, os.Remove(path)))
		return
	}
	r.held = true
}

// openReserve takes over the reserve that is there.
func openReserve(folder string, logger hclog.Logger) *Reserve {
	info, err := os.Stat(filepath.Join(folder, reserveFile))
	return &Reserve{folder: folder, logger: logger, held: err == nil && info.Size() == reserveBytes}
}
