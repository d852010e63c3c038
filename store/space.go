package store

import (
	"fmt"
	"math"
	"sync"

	"golang.org/x/sys/unix"
)

// Watermark says when free space is low, with some distance between "low" and
// "enough again", so that a node at the edge doesn't give up leadership, free
// its share, take leadership and lose it again. Its zero value is never low.
// Safe for concurrent use.
type Watermark struct {
	minFree, enough uint64 // bytes

	mu  sync.Mutex
	low bool
}

// NewWatermark is low below minFree bytes, and stays so until a quarter more than
// that is free.
func NewWatermark(minFree uint64) *Watermark {
	enough := minFree + minFree/4
	if enough < minFree {
		enough = math.MaxUint64
	}
	return &Watermark{minFree: minFree, enough: enough}
}

// Observe takes in how many bytes are free now, and reports whether that is low.
func (w *Watermark) Observe(free uint64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.low {
		w.low = free < w.enough
	} else {
		w.low = free < w.minFree
	}
	return w.low
}

// reserveShare says which part of Options.MinFree is the reserve: a quarter.
const reserveShare = 4

// Space is how things stand on the disk that holds the data folder.
type Space struct {
	Free uint64 // bytes that this process may still use; the maximum for an ephemeral store
	// Low is the first mark: below Options.MinFree, and since then not a quarter
	// above it. The room from here down to the reserve is for what keeps or ends
	// leases.
	Low bool
	// Spent is the second mark: below the reserve, a quarter of Options.MinFree, and
	// since then not a quarter above it. It implies Low.
	Spent bool
}

// Free returns the bytes that this process may still write to the disk of the
// data folder. For an ephemeral store it is the maximum. It asks the kernel,
// which is fast; it never waits for the disk.
func (s *Store) Free() (uint64, error) {
	if s.folder == "" {
		return math.MaxUint64, nil
	}
	var stat unix.Statfs_t
	if err := unix.Statfs(s.folder, &stat); err != nil {
		return 0, fmt.Errorf("free space of data folder %s: %w", s.folder, err)
	}
	return uint64(stat.Bavail) * uint64(stat.Bsize), nil
}

// Space returns the free space and whether it is low. It is meant to be polled,
// each second or so: it also makes the reserve (reserve.go) anew once there is
// room for it.
func (s *Store) Space() (Space, error) {
	free, err := s.Free()
	if err != nil {
		return Space{}, err
	}
	low, spent := s.watermark.Observe(free), s.reserveMark.Observe(free)
	if !low && s.reserve != nil {
		s.reserve.refill(s.logger)
	}
	return Space{Free: free, Low: low, Spent: spent}, nil
}
