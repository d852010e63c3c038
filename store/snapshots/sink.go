package snapshots

import (
	"errors"
	"fmt"
	"sync"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"
)

// sink receives a snapshot. It holds up to chunksPerWrite chunks (4 MiB) in memory. Safe for
// concurrent use.
type sink struct {
	store *Store

	mu      sync.Mutex
	record  snapshotRecord
	chunks  [][]byte // full ones, and at the end the one being filled; each has room for its head
	spare   [][]byte // buffers of chunks that are stored
	written bool     // some chunks are in the file
	done    bool     // by Close, by Cancel or by a failed Write
	result  error    // of the first that ended it
}

var _ raft.SnapshotSink = (*sink)(nil)

// errCancelled: Close after Cancel must not look like success, since Raft would
// cut off the log that the snapshot was to replace.
var errCancelled = errors.New("the snapshot was cancelled")

// ID returns the id under which the snapshot can be opened after Close.
func (s *sink) ID() string { return s.record.meta.ID }

// Write receives the next bytes of the snapshot; at times it waits for the disk. After an error
// the snapshot can't be finished.
func (s *sink) Write(content []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done {
		return 0, s.noMore()
	}
	taken := 0
	for taken < len(content) {
		chunk, err := s.room()
		if err != nil {
			_ = s.end(err) // what it can't remove now is swept later
			return taken, err
		}
		n := min(len(content)-taken, chunkHead+chunkBytes-len(*chunk))
		*chunk = append(*chunk, content[taken:taken+n]...)
		taken += n
		s.record.meta.Size += int64(n)
	}
	return taken, nil
}

// noMore returns the reason why the sink takes no more.
func (s *sink) noMore() error {
	if s.result != nil {
		return fmt.Errorf("snapshot %s takes no more: %w", s.record.meta.ID, s.result)
	}
	return fmt.Errorf("snapshot %s is finished", s.record.meta.ID)
}

// room returns a chunk that isn't full; it stores the full chunks first, when there are
// chunksPerWrite of them.
func (s *sink) room() (*[]byte, error) {
	last := len(s.chunks) - 1
	if last >= 0 && len(s.chunks[last]) < chunkHead+chunkBytes {
		return &s.chunks[last], nil
	}
	if len(s.chunks) == chunksPerWrite {
		name := fmt.Sprintf("write %s from %d", s.record.meta.ID, s.record.chunks)
		if err := s.store.update(name, s.put); err != nil {
			return nil, err
		}
		s.written = true
		s.record.chunks += uint64(len(s.chunks))
		s.spare, s.chunks = append(s.spare, s.chunks...), s.chunks[:0]
	}
	if n := len(s.spare); n > 0 {
		s.chunks = append(s.chunks, s.spare[n-1][:chunkHead])
		s.spare = s.spare[:n-1]
	} else {
		s.chunks = append(s.chunks, make([]byte, chunkHead, chunkHead+chunkBytes))
	}
	return &s.chunks[len(s.chunks)-1], nil
}

// put stores the chunks in memory, in a transaction.
func (s *sink) put(tx *bbolt.Tx) error {
	if len(s.chunks) == 0 {
		return nil
	}
	bucket, err := tx.Bucket(dataBucket).CreateBucketIfNotExists([]byte(s.record.meta.ID))
	if err != nil {
		return err
	}
	bucket.FillPercent = 1 // keys only ever rise
	for i, chunk := range s.chunks {
		number := s.record.chunks + uint64(i)
		sealChunk(s.record.meta.ID, number, chunk)
		if err := bucket.Put(chunkKey(number), chunk); err != nil {
			return err
		}
	}
	return nil
}

// Close finishes the snapshot: when it returns nil the snapshot is listed, and
// durable. Further calls return the same again; Raft closes a sink once more
// after the state machine did.
func (s *sink) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done {
		return s.result
	}
	finished := s.record
	finished.chunks += uint64(len(s.chunks))
	_ = s.end(s.store.publish(finished, s.put)) // what it can't remove now is swept later
	return s.result
}

// Cancel drops the snapshot, unless it is closed.
func (s *sink) Cancel() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done {
		return nil
	}
	return s.end(errCancelled)
}

// end frees what the sink holds; if the snapshot failed, it also removes its chunks from the
// file. If that fails they remain for the next sweep, and the error says so.
func (s *sink) end(result error) error {
	s.done, s.result = true, result
	s.chunks, s.spare = nil, nil
	var err error
	if result != nil && s.written {
		err = s.store.removeData(s.record.meta.ID)
	}
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	delete(s.store.begun, s.record.meta.ID)
	return err
}
