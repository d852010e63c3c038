package folder

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"sync"

	"github.com/hashicorp/go-hclog"
)

// watermark decides when free space is low. Space must rise well above the mark to be enough again; otherwise a node at
// the edge would give up leadership, free space, and take leadership again and again. The zero value is never low.
type watermark struct {
	minFree, enough uint64 // bytes

	mu  sync.Mutex
	low bool
}

// newWatermark returns a watermark: space is low once it falls below minFree bytes, until minFree plus a quarter is
// free.
func newWatermark(minFree uint64) *watermark {
	enough := minFree + minFree/4
	if enough < minFree {
		enough = math.MaxUint64
	}
	return &watermark{minFree: minFree, enough: enough}
}

// observe records the number of free bytes, and reports whether it is low.
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

// reserveShare: the reserve is this fraction, a quarter, of Config.MinFree.
const reserveShare = 4

// Space is the state of the disk that holds the data folder.
type Space struct {
	Free uint64 // bytes that this process may still use; the maximum for a folder in memory
	// Low: the free space fell below Config.MinFree, and has not risen to a quarter above it since. Between MinFree and
	// the reserve, only commands that keep or end leases may use the disk.
	Low bool
	// Spent: the free space fell below the reserve, a quarter of Config.MinFree, and has not risen to a quarter above
	// the reserve since. It implies Low.
	Spent bool
}

// Space returns the free space and whether it is low. It asks the kernel, which is fast, and never waits for the disk.
// Poll it about once a second: it also makes the reserve again when there is room. It fails with ErrGone if the folder
// was deleted or replaced: what is written then is lost when the process ends.
func (f *Folder) Space() (Space, error) {
	if err := f.checkPresent(); err != nil {
		return Space{}, err
	}
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

// checkPresent fails with ErrGone if the folder's path does not lead to the lock file that this process has locked.
func (f *Folder) checkPresent() error {
	if f.lock == nil {
		return nil
	}
	locked, err := f.lock.Stat()
	if err != nil {
		return err
	}
	found, err := os.Stat(f.lock.Name())
	if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(locked, found) {
		return fmt.Errorf("%w: %s", ErrGone, f.config.Path)
	}
	return err
}

// RoomFor reports whether the disk would still have enough space after that many more bytes were used.
func (f *Folder) RoomFor(bytes uint64) (bool, error) {
	free, err := f.free()
	return err == nil && free >= bytes && free-bytes >= f.low.enough, err
}

// free returns the bytes that this process may still write to the folder's disk; in memory it is the maximum.
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

// reserveBytes is the size of the reserve: enough for many writes of a term or a vote, each of a few pages.
const reserveBytes = 1 << 20

// Reserve is a file of zeros that reserves disk space for a term or a vote. Raft ends the process if it can't store a
// new term, and a full disk causes new terms because the leader steps down. So if the disk is full, a stable write
// releases the reserve and tries again. Folder.Space makes the reserve again when there is room. Safe for concurrent
// use.
type Reserve struct {
	folder string
	logger hclog.Logger

	mu   sync.Mutex
	held bool // the file exists
}

// Release frees the reserved space, and reports whether there was any.
func (r *Reserve) Release() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.held {
		return false
	}
	r.held = false
	return os.Remove(filepath.Join(r.folder, reserveFile)) == nil
}

// Refill makes the reserve, unless it exists. If there is no room, the next call tries again.
func (r *Reserve) Refill() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held {
		return
	}
	path := filepath.Join(r.folder, reserveFile)
	// Write zeros: a file that is only extended has holes, which take no blocks.
	if err := writeSynced(path, make([]byte, reserveBytes)); err != nil {
		r.logger.Debug("no room to reserve yet", "bytes", reserveBytes, "error", errors.Join(err, os.Remove(path)))
		return
	}
	r.held = true
}

// openReserve uses an existing reserve.
func openReserve(folder string, logger hclog.Logger) *Reserve {
	info, err := os.Stat(filepath.Join(folder, reserveFile))
	return &Reserve{folder: folder, logger: logger, held: err == nil && info.Size() == reserveBytes}
}
