package snapshots

import (
	"fmt"
	"io"

	"go.etcd.io/bbolt"
)

// reader reads a snapshot chunk by chunk, each in its own read transaction. A single transaction would last as long as
// a transfer to a slow follower; bbolt could not reuse freed pages meanwhile, and the file would grow. For one
// goroutine at a time.
type reader struct {
	store  *Store
	record snapshotRecord
	next   uint64 // number of the next chunk
	rest   []byte // the part of the present chunk that was not returned yet
	chunk  []byte // buffer of the present chunk
	closed bool
}

// check reads all chunks and returns an error unless together they match the record. Then it returns to the first
// chunk.
func (r *reader) check() error {
	var size int64
	for r.next = 0; r.next < r.record.chunks; {
		if err := r.load(); err != nil {
			return err
		}
		size += int64(len(r.rest))
	}
	if size != r.record.meta.Size {
		detail := fmt.Sprintf("snapshot %s has %d bytes instead of %d", r.record.meta.ID, size, r.record.meta.Size)
		return r.store.guard.Damaged(FileName, r.record.meta.Index, detail, nil)
	}
	r.next, r.rest = 0, nil
	return nil
}

// load reads the next chunk into memory.
func (r *reader) load() error {
	id, index := r.record.meta.ID, r.record.meta.Index
	found := false
	err := r.store.guard.Run(FileName, index, func() error {
		return r.store.db.View(func(tx *bbolt.Tx) error {
			bucket := tx.Bucket(dataBucket).Bucket([]byte(id))
			if bucket == nil {
				return nil
			}
			stored := bucket.Get(chunkKey(r.next))
			found = stored != nil
			r.chunk = append(r.chunk[:0], stored...)
			return nil
		})
	})
	if err != nil {
		return err
	}
	if !found {
		return r.store.guard.Damaged(FileName, index, fmt.Sprintf("chunk %d of snapshot %s is missing", r.next, id), nil)
	}
	if r.rest, err = openChunk(id, r.next, r.chunk); err != nil {
		return r.store.guard.Damaged(FileName, index, fmt.Sprintf("chunk %d of snapshot %s is not what was stored", r.next, id), nil)
	}
	r.next++
	return nil
}

// Read returns the next bytes of the snapshot, after another check of their chunk.
func (r *reader) Read(into []byte) (int, error) {
	if r.closed {
		return 0, fmt.Errorf("the reader of snapshot %s is closed", r.record.meta.ID)
	}
	for len(r.rest) == 0 {
		if r.next == r.record.chunks {
			return 0, io.EOF
		}
		if err := r.load(); err != nil {
			return 0, err
		}
	}
	n := copy(into, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// Close allows the removal of the snapshot. Further calls have no effect.
func (r *reader) Close() error {
	if r.closed {
		return nil
	}
	r.closed = true
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	if id := r.record.meta.ID; r.store.open[id] > 1 {
		r.store.open[id]--
	} else {
		delete(r.store.open, id)
	}
	return nil
}
