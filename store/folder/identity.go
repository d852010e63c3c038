package folder

import "github.com/signalbox/signalbox/store/damage"

// NodeID returns the id of the node whose folder it is. It never changes.
func (f *Folder) NodeID() string { return f.config.NodeID }

// FolderID returns the folder's own id. It never changes.
func (f *Folder) FolderID() ID { return f.now().folder }

// ClusterID returns the id of the cluster, or "" as long as it isn't known.
func (f *Folder) ClusterID() string { return f.now().cluster }

// SetClusterID records which cluster the node belongs to. It is durable on
// return. When another id is recorded the error is an IdentityError, and the record
// stays; but while the node has stored no entry, term or snapshot (empty), another id
// replaces it: the node has not promised anything to that cluster yet.
func (f *Folder) SetClusterID(id string, empty bool) error {
	if err := checkID(id); err != nil {
		return err
	}
	return f.changeRecord(func(r *record) error {
		if r.cluster != "" && r.cluster != id && !empty {
			return &IdentityError{Folder: f.config.Path, What: "cluster", Found: r.cluster, Wanted: id}
		}
		r.cluster = id
		return nil
	})
}

// RestoredTerm returns the term that SetRestoredTerm was given last, 0 if it was not called.
func (f *Folder) RestoredTerm() uint64 { return f.now().restored }

// SetRestoredTerm records that the folder was put back from a backup or a copy, and that this has
// not been dealt with in a term above the given term; 0 records that it has been. It is durable
// on return.
func (f *Folder) SetRestoredTerm(term uint64) error {
	return f.changeRecord(func(r *record) error {
		r.restored = term
		return nil
	})
}

// Journal reports whether the log has a journal before it.
func (f *Folder) Journal() bool { return f.now().journal == twoHalves }

// SetJournal records whether the log has a journal in front of it. The record is durable on return. The caller makes
// the journal before it passes true, and drains the journal before it passes false.
func (f *Folder) SetJournal(journal bool) error {
	return f.changeRecord(func(r *record) error {
		if r.journal = noJournal; journal {
			r.journal = twoHalves
		}
		return nil
	})
}

// now returns the record as it is now.
func (f *Folder) now() record {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.record
}

// changeRecord writes a changed record, if the change doesn't fail and makes a
// difference.
func (f *Folder) changeRecord(change func(*record) error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	next := f.record
	if err := change(&next); err != nil || next == f.record {
		return err
	}
	if err := f.config.Guard.Refusal(); err != nil {
		return err
	}
	if f.config.Path != "" {
		if err := next.write(f.config.Path); err != nil {
			return damage.AsFull(recordFile, err)
		}
	}
	f.record = next
	return nil
}
