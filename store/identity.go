package store

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"sync"
)

// FolderID tells data folders apart, also those of one node: 128 random bits,
// drawn when the folder is made. A copy of a folder has the same.
type FolderID [16]byte

// String returns 32 hexadecimal digits.
func (id FolderID) String() string { return hex.EncodeToString(id[:]) }

// MarshalText writes what String returns.
func (id FolderID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (id *FolderID) UnmarshalText(text []byte) error {
	if len(text) != 2*len(id) {
		return errors.New("a folder id has 32 hexadecimal digits")
	}
	_, err := hex.Decode(id[:], text)
	return err
}

// drawFolderID returns a new id.
func drawFolderID() (id FolderID) {
	_, _ = rand.Read(id[:]) // never fails
	return id
}

// newRecord returns the record of a folder that is about to be made.
func newRecord(o Options) record {
	return record{format: knownFormat, node: o.NodeID, cluster: o.ClusterID, folder: drawFolderID(), journal: noJournal}
}

// identity is whose folder it is.
type identity struct {
	mu     sync.Mutex
	record record
}

// NodeID returns the id of the node whose folder it is. It never changes.
func (s *Store) NodeID() string {
	s.identity.mu.Lock()
	defer s.identity.mu.Unlock()
	return s.identity.record.node
}

// FolderID returns the folder's own id. It never changes.
func (s *Store) FolderID() FolderID {
	s.identity.mu.Lock()
	defer s.identity.mu.Unlock()
	return s.identity.record.folder
}

// ClusterID returns the id of the cluster, or "" as long as it isn't known.
func (s *Store) ClusterID() string {
	s.identity.mu.Lock()
	defer s.identity.mu.Unlock()
	return s.identity.record.cluster
}

// SetClusterID records which cluster the node belongs to. It is durable on
// return. When another id is recorded the error is an IdentityError, and nothing
// changes; but as long as the store is empty another id replaces it, since the
// node has promised nothing to that cluster yet.
func (s *Store) SetClusterID(id string) error {
	if err := checkID(id); err != nil {
		return err
	}
	empty := s.Empty()
	return s.changeRecord(func(r *record) error {
		if r.cluster != "" && r.cluster != id && !empty {
			return &IdentityError{Folder: s.folder, What: "cluster", Found: r.cluster, Wanted: id}
		}
		r.cluster = id
		return nil
	})
}

// Restored returns the term that SetRestored was given last, 0 if none was.
func (s *Store) Restored() uint64 {
	s.identity.mu.Lock()
	defer s.identity.mu.Unlock()
	return s.identity.record.restored
}

// SetRestored records that the folder was put back from a backup or a copy, and
// that this has not been dealt with in a term above the given one; 0 records that
// it has. It is durable on return.
func (s *Store) SetRestored(term uint64) error {
	return s.changeRecord(func(r *record) error {
		r.restored = term
		return nil
	})
}

// changeRecord writes a changed record, if the change doesn't fail and makes a
// difference.
func (s *Store) changeRecord(change func(*record) error) error {
	s.identity.mu.Lock()
	defer s.identity.mu.Unlock()
	next := s.identity.record
	if err := change(&next); err != nil || next == s.identity.record {
		return err
	}
	if err := s.guard.refusal(); err != nil {
		return err
	}
	if s.folder != "" {
		if err := next.write(s.folder); err != nil {
			return asFull(recordFile, err)
		}
	}
	s.identity.record = next
	return nil
}
