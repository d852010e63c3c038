package damage

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/signalbox/signalbox/internal/wake"
	"github.com/signalbox/signalbox/store/boltcheck"
)

const (
	// initialMap is what bbolt maps of a file at first: a growing file is mapped
	// again, and the mapping waits for all readers.
	initialMap = 64 << 20
	// lockTimeout bounds how long bbolt waits for its own lock on a file. The node
	// holds the lock of the folder, so only a tool that someone runs on the file can
	// have it.
	lockTimeout = 2 * time.Second
	// closeTimeout bounds how long Close waits for bbolt after a panic in it.
	closeTimeout = 2 * time.Second
)

// BoltOptions returns the options that bbolt's files are opened with. Each commit is
// synced, and so is the last one of the program before.
func BoltOptions() *bbolt.Options {
	return &bbolt.Options{
		OpenFile: openSynced,
		Timeout:  lockTimeout,
		// With the list of free pages in the file, each commit writes all of it,
		// and a burst leaves it long for ever. Without, opening looks through the
		// file's structure; Walk does as much anyway, and refuses a file with a list.
		NoFreelistSync:  true,
		FreelistType:    bbolt.FreelistMapType,
		InitialMmapSize: initialMap,
	}
}

// metaReach is where the second meta page ends at most: pages have up to 64 KiB.
const metaReach = 128 << 10

// openSynced opens a bbolt file, writes its meta pages again and syncs them. The newest meta page may be only in the
// page cache: its sync failed, or the program was killed before the sync. Our first commit reuses pages of the tree
// before. If that commit reached the disk before the meta page, a power loss would leave neither tree.
func openSynced(path string, flag int, mode os.FileMode) (*os.File, error) {
	file, err := os.OpenFile(path, flag, mode)
	if err != nil {
		return nil, err
	}
	head := make([]byte, metaReach)
	n, err := file.ReadAt(head, 0)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if err == nil && n > 0 {
		_, err = file.WriteAt(head[:n], 0)
		err = errors.Join(err, file.Sync())
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// Walk checks the structure of a closed bbolt file of the folder, and visits its keys.
// The error is an Error for damage, visit's error, or an error of the system.
func Walk(folder, name string, visit func(boltcheck.Item) error) error {
	file, err := os.Open(filepath.Join(folder, name))
	if err != nil {
		return fmt.Errorf("data folder %s can't be read: %w", folder, err)
	}
	defer func() { _ = file.Close() }() // only read
	info, err := file.Stat()
	if err != nil {
		return fmt.Errorf("data folder %s can't be read: %w", folder, err)
	}
	err = boltcheck.Walk(file, info.Size(), visit)
	if broken := (*boltcheck.PageError)(nil); errors.As(err, &broken) {
		return &Error{Folder: folder, File: name, Detail: broken.Error()}
	}
	return err
}

// Guard runs every call of a store into bbolt. On damaged data bbolt panics, or the processor
// faults (SIGBUS) where the memory map reaches past the end of a shortened file. Guard turns
// both into an Error and remembers it: after the first Error it refuses all reads and writes. A
// panic may have left bbolt's locks held, so the next call could hang; and a node that has seen
// damage must not vote or acknowledge on the strength of the rest.
//
// A guard can't catch two faults, which end the process: a fault in the goroutine that bbolt
// starts to look for free pages, and a tree that leads back into itself, which overflows the
// stack. Neither can happen at open, since Walk has just checked the file with plain reads.
// Both need a file that is damaged under a running node; the first also needs a failed commit.
//
// Safe for concurrent use.
type Guard struct {
	folder   string
	onDamage func(error)

	mu       sync.Mutex
	err      error // the first damage found
	panicked bool  // bbolt's locks may be held for ever
	closed   bool
}

// NewGuard returns the guard of the files of a folder; folder is "" for a store in
// memory. onDamage receives the first damage, once; it may be nil.
func NewGuard(folder string, onDamage func(error)) *Guard {
	return &Guard{folder: folder, onDamage: onDamage}
}

// Run calls f, which uses bbolt on the named file, unless damage was found earlier or the guard
// is closed. index is the index of the entry or snapshot that f reads, or 0.
func (g *Guard) Run(file string, index uint64, f func() error) (err error) {
	if err := g.Refusal(); err != nil {
		return err
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if cause := recover(); cause != nil {
			g.mu.Lock()
			g.panicked = true
			g.mu.Unlock()
			err = g.Damaged(file, index, "reading it failed", fmt.Errorf("%v", cause))
		}
	}()
	err = f()
	if errors.Is(err, bolterrors.ErrDatabaseNotOpen) {
		return ErrClosed
	}
	return err
}

// Open calls f, which opens the named file with bbolt. Its error names the file that can't be
// opened.
func (g *Guard) Open(file string, f func() error) error {
	err := g.Run(file, 0, f)
	if err == nil || errors.Is(err, ErrDamaged) {
		return err
	}
	return AsFull(file, fmt.Errorf("%s in %s can't be opened: %w", file, g.folder, err))
}

// Refusal returns why the store must not read or write, or nil: the damage that was found
// first, or ErrClosed.
func (g *Guard) Refusal() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err != nil {
		return g.err
	}
	if g.closed {
		return ErrClosed
	}
	return nil
}

// Found returns the damage that was found first, or nil.
func (g *Guard) Found() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

// Damaged records damage and returns the error for the caller. It also calls onDamage with the
// first damage, from this goroutine.
func (g *Guard) Damaged(file string, index uint64, detail string, cause error) error {
	found := &Error{Folder: g.folder, File: file, Index: index, Detail: detail, Err: cause}
	g.mu.Lock()
	first := g.err == nil
	if first {
		g.err = found
	}
	g.mu.Unlock()
	if first && g.onDamage != nil {
		g.onDamage(found)
	}
	return found
}

// WriteFailed decides what an error of a write to the named file means. No room is a FullError
// and passes; ErrClosed passes. Any other error counts as damage, since we don't know what the
// disk holds: a failed fsync may have dropped what it should have written, and the next fsync
// does not report it again.
func (g *Guard) WriteFailed(file string, err error) error {
	switch {
	case err == nil, errors.Is(err, ErrDamaged), errors.Is(err, ErrClosed):
		return err
	case IsFull(err):
		return AsFull(file, err)
	default:
		return g.Damaged(file, 0, "writing to it failed, and what it holds now is not known", err)
	}
}

// Close refuses everything from now on, and calls files, which closes bbolt's files. If the
// guard is closed already, first is false and Close does no more. After a panic in bbolt, which
// may have left its locks held, Close waits for files no longer than closeTimeout.
func (g *Guard) Close(files func() error) (first bool, err error) {
	g.mu.Lock()
	closed, panicked := g.closed, g.panicked
	g.closed = true
	g.mu.Unlock()
	switch {
	case closed:
		return false, nil
	case panicked:
		var failed error // not err: a close that is given up may still set it
		if !wake.Within(closeTimeout, func() { failed = files() }) {
			return true, errors.New("a damaged file could not be closed; it stays open until the process ends")
		}
		return true, failed
	}
	return true, files()
}
