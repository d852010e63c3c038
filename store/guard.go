package store

import (
	"errors"
	"fmt"
	"runtime/debug"
	"sync"

	bolterrors "go.etcd.io/bbolt/errors"
)

// guard stands between the Store and bbolt. It turns what bbolt does on damaged
// data, a panic, or a fault of the processor where its memory map reaches past
// the end of a shortened file (SIGBUS), into a DamagedError, and remembers it:
// after the first one nothing is read or written any more. A panic may have left
// bbolt's locks held, so going on could hang; and a node that has seen damage
// must not vote or acknowledge on the strength of the rest.
//
// What it can't catch ends the process, and so is not silent either: a fault in
// the goroutine that bbolt starts to look for free pages, and a tree that leads
// back into itself, which overflows the stack. At open neither can happen, since
// the file has just been checked with plain reads (boltfile.go); both need a file
// that is damaged under a running node, the first a failed commit besides.
type guard struct {
	folder   string
	onDamage func(error)

	mu       sync.Mutex
	err      error // the first damage found
	panicked bool  // bbolt's locks may be held for ever
	closed   bool
}

// run calls f, which uses bbolt on the named file, unless damage was found
// earlier or the store is closed. index is that of the entry or snapshot being
// read, 0 for none.
func (g *guard) run(file string, index uint64, f func() error) (err error) {
	if err := g.refusal(); err != nil {
		return err
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if cause := recover(); cause != nil {
			g.mu.Lock()
			g.panicked = true
			g.mu.Unlock()
			err = g.damaged(file, index, "reading it failed", fmt.Errorf("%v", cause))
		}
	}()
	err = f()
	if errors.Is(err, bolterrors.ErrDatabaseNotOpen) {
		return ErrClosed
	}
	return err
}

// refusal says why nothing may be read or written, or nil.
func (g *guard) refusal() error {
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

// damaged records damage and returns the error to be returned for it. The first
// one is also reported to onDamage, once, from this goroutine.
func (g *guard) damaged(file string, index uint64, detail string, cause error) error {
	found := &DamagedError{Folder: g.folder, File: file, Index: index, Detail: detail, Err: cause}
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

// writeFailed judges an error of a write to the named file: no room is a
// FullError and passes; ErrClosed passes; after any other nobody knows what the
// disk holds (a failed fsync may have dropped what it should have written, and
// will not say so again), so that it counts as damage.
func (g *guard) writeFailed(file string, err error) error {
	switch {
	case err == nil, errors.Is(err, ErrDamaged), errors.Is(err, ErrClosed):
		return err
	case isFull(err):
		return asFull(file, err)
	default:
		return g.damaged(file, 0, "writing to it failed, and what it holds now is not known", err)
	}
}

// close refuses everything from now on, and reports whether this call did it and
// whether bbolt's locks can be relied on.
func (g *guard) close() (first, sound bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	first = !g.closed
	g.closed = true
	return first, !g.panicked
}
