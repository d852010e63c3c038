package recorder

//lint:file-ignore ST1003 bbolt uses the names of package os

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// Functions of package os that change nothing on the disk.
var (
	Exit        = os.Exit
	Getpagesize = os.Getpagesize
	Getpid      = os.Getpid
	Hostname    = os.Hostname
	ReadDir     = os.ReadDir
	ReadFile    = os.ReadFile
	SameFile    = os.SameFile
	Stat        = os.Stat
)

// FileMode is os.FileMode.
type FileMode = os.FileMode

// The flags of package os.
const (
	O_RDONLY = os.O_RDONLY
	O_WRONLY = os.O_WRONLY
	O_RDWR   = os.O_RDWR
	O_CREATE = os.O_CREATE
	O_EXCL   = os.O_EXCL
	O_TRUNC  = os.O_TRUNC
)

// osFile has the methods of *os.File that store and bbolt use, so that a build fails when they begin to use another one.
// Fd is for locks and maps to read: a record would not have other changes through it.
type osFile interface {
	io.ReadSeekCloser
	io.ReaderAt
	io.WriterAt
	Truncate(size int64) error
	Stat() (os.FileInfo, error)
	Name() string
	Fd() uintptr
}

// File is a file or a folder that is open. Its methods are as in package os.
type File struct {
	osFile
	record *Record
	node   int // 0: it is not in the recorded folder
	synced bool
}

// Open is as in package os.
func Open(path string) (*File, error) { return OpenFile(path, O_RDONLY, 0) }

// OpenFile is as in package os.
func OpenFile(path string, flags int, mode FileMode) (*File, error) {
	f := &File{record: current.Load(), synced: flags&syscall.O_DSYNC != 0}
	if f.record == nil {
		f.record = &Record{}
	}
	r := f.record
	r.mu.Lock()
	folder, name := r.find(path)
	if folder != 0 {
		f.node = r.node(path)
	}
	r.mu.Unlock()
	if folder == 0 || f.node != 0 && flags&O_TRUNC == 0 || f.node == 0 && flags&O_CREATE == 0 {
		var err error
		f.osFile, err = os.OpenFile(path, flags, mode)
		return f, err
	}
	err := r.do(func() (e event, err error) {
		if f.osFile, err = os.OpenFile(path, flags, mode); err != nil {
			return e, err
		}
		if f.node != 0 {
			return event{kind: truncate, node: f.node, note: name}, nil
		}
		r.nodes++
		f.node = r.nodes
		return event{kind: names, parts: []part{{folder, name, f.node}}, note: "create " + name}, nil
	})
	return f, err
}

// Mkdir is as in package os.
func Mkdir(path string, mode FileMode) error {
	return change(path, func() error { return os.Mkdir(path, mode) }, func(r *Record, folder int, name string) event {
		r.nodes++
		r.folders[r.nodes] = map[string]int{}
		return event{kind: names, parts: []part{{folder, name, r.nodes}}, note: "mkdir " + name}
	})
}

// Rename is as in package os.
func Rename(from, to string) error {
	return change(from, func() error { return os.Rename(from, to) }, func(r *Record, folder int, name string) event {
		target, otherName := r.find(to)
		parts := []part{{target, otherName, r.folders[folder][name]}, {folder, name, 0}}
		return event{kind: names, parts: parts, note: "rename " + name + " " + otherName}
	})
}

// Remove is as in package os.
func Remove(path string) error {
	return change(path, func() error { return os.Remove(path) }, func(_ *Record, folder int, name string) event {
		return event{kind: names, parts: []part{{folder, name, 0}}, note: "remove " + name}
	})
}

// change makes a change of names, which the current record has as an event.
func change(path string, act func() error, recorded func(r *Record, folder int, name string) event) error {
	r := current.Load()
	if r == nil {
		return act()
	}
	return r.do(func() (event, error) {
		folder, name := r.find(path)
		if err := act(); err != nil || folder == 0 {
			return event{}, err
		}
		return recorded(r, folder, name), nil
	})
}

// RemoveAll is as in package os; each removal is a separate change.
func RemoveAll(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return nil
	}
	if info.IsDir() {
		entries, err := os.ReadDir(path)
		if err != nil {
			return err
		}
		for _, entry := range entries {
			if err := RemoveAll(filepath.Join(path, entry.Name())); err != nil {
				return err
			}
		}
	}
	return Remove(path)
}

// do makes a change of the file; synced says that it is one with its sync.
func (f *File) do(synced bool, change func() (event, error)) error {
	if f.node == 0 {
		_, err := change()
		return err
	}
	return f.record.doSynced(synced, func() (event, error) {
		e, err := change()
		e.node, e.note = f.node, filepath.Base(f.Name())
		return e, err
	})
}

// WriteAt is as in package os.
func (f *File) WriteAt(bytes []byte, at int64) (n int, err error) {
	err = f.do(f.synced, func() (event, error) {
		var err error
		n, err = f.osFile.WriteAt(bytes, at)
		e := event{kind: write, at: at, bytes: slices.Clone(bytes)}
		if f.synced {
			e.kind = syncedWrite
		}
		return e, err
	})
	return n, err
}

// Write is as in package os.
func (f *File) Write(bytes []byte) (int, error) {
	at, err := f.Seek(0, io.SeekCurrent)
	if err != nil {
		return 0, err
	}
	n, err := f.WriteAt(bytes, at)
	if _, seekErr := f.Seek(at+int64(n), io.SeekStart); err == nil {
		err = seekErr
	}
	return n, err
}

// Truncate is as in package os.
func (f *File) Truncate(size int64) error {
	return f.do(false, func() (event, error) { return event{kind: truncate, at: size}, f.osFile.Truncate(size) })
}

// Sync is as in package os, without a sync of the real disk.
func (f *File) Sync() error {
	return f.do(false, func() (event, error) {
		info, err := f.Stat()
		if err != nil {
			return event{}, fmt.Errorf("sync: %w", err)
		}
		if info.IsDir() {
			return event{kind: syncNames}, nil
		}
		return event{kind: syncFile}, nil
	})
}
