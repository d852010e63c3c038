package snapshots

import (
	"errors"
	"fmt"
	"sync"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"
)

// sink receives a snapshot. It buffers up to chunksPerWrite chunks (4 MiB). Safe for concurrent use.
type sink struct {
	store *Store

	mu      sync.Mutex
	record  snapshotRecord
	chunks  [][]byte // not stored yet; all but the last are full; each begins with room for its head
	spare   [][]byte // buffers of stored chunks, to be used again
	written bool     // some chunks are in the file
	done    bool     // after Close, Cancel or a failed Write
	result  error    // error of the call that set done
}

var _ raft.SnapshotSink = (*sink)(nil)

// errCancelled is the error of Close after Cancel. If Close returned nil, Raft would remove the log entries that the
// snapshot covers.
var errCancelled = errors.New("the snapshot was cancelled")

// ID returns the id under which the snapshot can be opened after Close.
func (s *sink) ID() string { return s.record.meta.ID }

// Write adds the next bytes to the snapshot; sometimes it waits for the disk. After an error the snapshot can't be
// finished.
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
			_ = s.end(err) // if chunks can't be removed now, sweep removes them later
			return taken, err
		}
		n := min(len(content)-taken, chunkHead+chunkBytes-len(*chunk))
		*chunk = append(*chunk, content[taken:taken+n]...)
		taken += n
		s.record.meta.Size += int64(n)
	}
	return taken, nil
}

// noMore returns the error for calls after the end of the snapshot.
func (s *sink) noMore() error {
	if s.result != nil {
		return fmt.Errorf("snapshot %s takes no more: %w", s.record.meta.ID, s.result)
	}
	return fmt.Errorf("snapshot %s is finished", s.record.meta.ID)
}

// room returns a chunk that isn't full. When chunksPerWrite chunks are full, it stores them first.
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

// put stores the buffered chunks in a transaction.
func (s *sink) put(tx *bbolt.Tx) error {
	if len(s.chunks) == 0 {
		return nil
	}
	bucket, err := tx.Bucket(dataBucket).CreateBucketIfNotExists([]byte(s.record.meta.ID))
	if err != nil {
		return err
	}
	bucket.FillPercent = 1 // keys only rise, so fill pages completely
	for i, chunk := range s.chunks {
		number := s.record.chunks + uint64(i)
		sealChunk(s.record.meta.ID, number, chunk)
		if err := bucket.Put(chunkKey(number), chunk); err != nil {
			return err
		}
	}
	return nil
}

// Close finishes the snapshot. When it returns nil, the snapshot is listed and durable. Further calls return the same
// result; Raft closes a sink again after the state machine has closed it.
func (s *sink) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done {
		return s.result
	}
	finished := s.record
	finished.chunks += uint64(len(s.chunks))
	_ = s.end(s.store.publish(finished, s.put)) // if chunks can't be removed now, sweep removes them later
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

// end frees the buffers and, if the snapshot failed, removes its chunks from the file. If it can't, it returns an
// error, and the next sweep removes them.
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
