package store

import (
	"errors"
	"os"
	"path/filepath"
	"sync"

	"github.com/hashicorp/go-hclog"
)

// reserveBytes is the size of the reserve: room for many writes of a term or a
// vote, each of a few pages.
const reserveBytes = 1 << 20

// reserve is a file of zeros that keeps some room on a disk that runs full. Raft
// ends the process when it can't store a new term, and terms change just then:
// a full disk makes a leader give way. So a stable write that finds no room
// removes this file and is tried again (stable.go). It is made anew when there
// is room (Store.Space). Safe for concurrent use.
type reserve struct {
	folder string

	mu   sync.Mutex
	held bool // the file is there
}

// release frees the reserved room, and reports whether there was any.
func (r *reserve) release() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.held {
		return false
	}
	r.held = false
	return os.Remove(filepath.Join(r.folder, reserveFile)) == nil
}

// refill reserves room unless that is done. Not finding any is no error: it is
// tried again at the next call.
func (r *reserve) refill(logger hclog.Logger) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held {
		return
	}
	path := filepath.Join(r.folder, reserveFile)
	// Written, not only extended: a file with holes has no room of its own.
	if err := writeSynced(path, make([]byte, reserveBytes)); err != nil {
		logger.Debug("no room to reserve yet", "bytes", reserveBytes, "error", errors.Join(err, os.Remove(path)))
		return
	}
	r.held = true
}

// newReserve takes over the reserve that is there, or makes one.
func newReserve(folder string, logger hclog.Logger) *reserve {
	r := &reserve{folder: folder}
	info, err := os.Stat(filepath.Join(folder, reserveFile))
	r.held = err == nil && info.Size() == reserveBytes
	r.refill(logger)
	return r
}
