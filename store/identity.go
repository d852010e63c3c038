package store

import "sync"

// identity is whose folder it is.
type identity struct {
	mu     sync.Mutex
	record record
}

// NodeID returns the id of the node whose folder it is.
func (s *Store) NodeID() string { return s.identity.record.node } // never changes

// ClusterID returns the id of the cluster, or "" as long as it isn't known.
func (s *Store) ClusterID() string {
	s.identity.mu.Lock()
	defer s.identity.mu.Unlock()
	return s.identity.record.cluster
}

// SetClusterID records which cluster the node belongs to, once and for all. It
// is durable on return. When another id is recorded the error is an
// IdentityError, and nothing changes.
func (s *Store) SetClusterID(id string) error {
	if err := checkID(id); err != nil {
		return err
	}
	s.identity.mu.Lock()
	defer s.identity.mu.Unlock()
	next := s.identity.record
	switch {
	case next.cluster == id:
		return nil
	case next.cluster != "":
		return &IdentityError{Folder: s.folder, What: "cluster", Found: next.cluster, Wanted: id}
	}
	if err := s.guard.refusal(); err != nil {
		return err
	}
	next.cluster = id
	if s.folder != "" {
		if err := next.write(s.folder); err != nil {
			return asFull(recordFile, err)
		}
	}
	s.identity.record = next
	return nil
}
