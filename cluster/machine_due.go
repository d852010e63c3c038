package cluster

import (
	"io"
	"sync/atomic"
)

const (
	// entryCost is what an entry costs beside its bytes, however small it is. An
	// idle tick of 9 bytes takes about 170 on the disk; read twice and applied at a
	// restart it takes as long as 400 bytes of a full entry.
	entryCost = 512
	// snapshotCost is the cost of entries after which a snapshot is due while the
	// state is small. It bounds the time that a restart spends on the log to about
	// a second.
	snapshotCost = 32 << 20
	// snapshotShare says which part of the last snapshot's size is added to that: a
	// half. A large state takes long to write and to restore anyway, and would else
	// be written again and again for little.
	snapshotShare = 2
)

// snapshotMeter counts what a restart would have to read and apply from the log,
// and says when a snapshot saves more than it costs. size is safe for concurrent
// use; the rest is the apply goroutine's.
type snapshotMeter struct {
	base int64        // snapshotCost, but in tests
	cost int64        // of the entries since the last snapshot
	size atomic.Int64 // of the last snapshot that was written or restored
}

// count adds an entry of so many bytes, and reports whether a snapshot is due. It
// does not do so again until as much more has come.
func (s *snapshotMeter) count(bytes int) (due bool) {
	s.cost += int64(bytes) + entryCost
	if s.cost < s.base+s.size.Load()/snapshotShare {
		return false
	}
	s.cost = 0
	return true
}

// countingWriter counts what passes.
type countingWriter struct {
	w     io.Writer
	bytes int64
}

func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.bytes += int64(n)
	return n, err
}

// countingReader counts what passes.
type countingReader struct {
	r     io.Reader
	bytes int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.bytes += int64(n)
	return n, err
}
