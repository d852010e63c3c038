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
	// initialMap is how much of a file bbolt maps at first. When a file outgrows its map, bbolt waits for all readers
	// and maps it again.
	initialMap = 64 << 20
	// lockTimeout bounds how long bbolt waits for its own lock on a file. The node has locked the folder, so only a
	// tool that someone runs on the file can hold this lock.
	lockTimeout = 2 * time.Second
	// closeTimeout bounds how long Close waits for bbolt after a panic in bbolt.
	closeTimeout = 2 * time.Second
)

// BoltOptions returns the options with which bbolt opens files. Each commit is synced. Opening also syncs the last
// commit of an earlier process.
func BoltOptions() *bbolt.Options {
	return &bbolt.Options{
		OpenFile: openSynced,
		Timeout:  lockTimeout,
		// A stored list of free pages would be written whole in each commit, and stays long after a burst. Without the
		// list, bbolt scans the file when it opens it. Walk scans it anyway, and refuses a file with a list.
		NoFreelistSync:  true,
		FreelistType:    bbolt.FreelistMapType,
		InitialMmapSize: initialMap,
	}
}

// metaReach is the greatest offset at which the second meta page can end: pages have up to 64 KiB.
const metaReach = 128 << 10

// openSynced opens a bbolt file, writes its meta pages again and syncs them. The newest meta page may exist only in the
// page cache, because its sync failed or the program was killed before it. Our first commit reuses pages of the older
// tree. If that commit reached the disk before the newest meta page, a power loss would destroy both trees.
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

// Walk checks the structure of a closed bbolt file in the folder, and visits its keys. It fails with an Error for
// damage, with visit's error, or with an error of the system.
func Walk(folder, name string, visit func(boltcheck.Item) error) error {
	file, err := os.Open(filepath.Join(folder, name))
	if err != nil {
		return fmt.Errorf("data folder %s can't be read: %w", folder, err)
	}
	defer func() { _ = file.Close() }()
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

// Guard runs every call of a store into bbolt. If data is damaged, bbolt panics, or the processor faults (SIGBUS)
// because the memory map reaches past the end of a shortened file. Guard turns both into an Error. After the first
// Error it refuses all reads and writes: a panic may have left bbolt's locks held, so that the next call would hang,
// and a node that has seen damage must not vote or acknowledge with the rest of its data.
//
// Guard can't catch two faults, which end the process: a fault in bbolt's goroutine that looks for free pages, and a
// stack overflow from a tree with a loop. They need a file that is damaged while the node runs, the first also a failed
// commit. At open they can't happen, since Walk has just checked the file.
//
// Safe for concurrent use.
type Guard struct {
	folder   string
	onDamage func(error)

	mu       sync.Mutex
	err      error // the first damage
	panicked bool  // bbolt may hold its locks for ever
	closed   bool
}

// NewGuard returns the guard of the files of a folder, or of a store in memory if folder is "". onDamage is called
// once, with the first damage; it may be nil.
func NewGuard(folder string, onDamage func(error)) *Guard {
	return &Guard{folder: folder, onDamage: onDamage}
}

// Run calls f, which uses bbolt on the named file. After damage or Close it returns an error instead. index is the
// index of the entry or snapshot that f reads, or 0.
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

// Open calls f, which opens the named file with bbolt. Its error names that file.
func (g *Guard) Open(file string, f func() error) error {
	err := g.Run(file, 0, f)
	if err == nil || errors.Is(err, ErrDamaged) {
		return err
	}
	return AsFull(file, fmt.Errorf("%s in %s can't be opened: %w", file, g.folder, err))
}

// Refusal returns the first damage, or ErrClosed, or nil if the store may read and write.
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

// Found returns the first damage, or nil.
func (g *Guard) Found() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

// Damaged records damage and returns the error for the caller. If it is the first damage, it calls onDamage.
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

// WriteFailed decides what an error of a write to the named file means. A full disk gives a FullError, after which
// writes may succeed again. ErrClosed is returned as it is. Any other error counts as damage, since we don't know what
// the disk holds: a failed fsync may have dropped data, and the next fsync does not report it again.
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

// Close makes the guard refuse all calls, and calls files, which closes bbolt's files. Further calls only
// return first = false. After a panic in bbolt, its locks may be held for ever, so Close waits for files only for
// closeTimeout.
func (g *Guard) Close(files func() error) (first bool, err error) {
	g.mu.Lock()
	closed, panicked := g.closed, g.panicked
	g.closed = true
	g.mu.Unlock()
	switch {
	case closed:
		return false, nil
	case panicked:
		var failed error // not err: files may still set it after the timeout
		if !wake.Within(closeTimeout, func() { failed = files() }) {
			return true, errors.New("a damaged file could not be closed; it stays open until the process ends")
		}
		return true, failed
	}
	return true, files()
}
