package folder

import "github.com/signalbox/signalbox/store/damage"

// NodeID returns the id of the node to which the folder belongs. It never changes.
func (f *Folder) NodeID() string { return f.config.NodeID }

// FolderID returns the folder's id. It never changes.
func (f *Folder) FolderID() ID { return f.now().folder }

// ClusterID returns the id of the cluster, or "" while it is not known.
func (f *Folder) ClusterID() string { return f.now().cluster }

// SetClusterID records the cluster to which the node belongs. It is durable on return. If the record has another id,
// SetClusterID fails with an IdentityError. Only while the node has stored no entry, term or snapshot (empty) may the
// id change, since the node has not yet promised anything to the other cluster.
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

// RestoredTerm returns the last argument of SetRestoredTerm, or 0.
func (f *Folder) RestoredTerm() uint64 { return f.now().restored }

// SetRestoredTerm records that the folder was restored from a backup or a copy when it had that term. The mark stays
// until a call with 0, after a leader of a later term has handled the restore. It is durable on return.
func (f *Folder) SetRestoredTerm(term uint64) error {
	return f.changeRecord(func(r *record) error {
		r.restored = term
		return nil
	})
}

// Journal reports whether the log has a journal before it.
func (f *Folder) Journal() bool { return f.now().journal == twoHalves }

// SetJournal records whether the log has a journal before it. It is durable on return. The caller makes the journal
// before it passes true, and drains the journal before it passes false.
func (f *Folder) SetJournal(journal bool) error {
	return f.changeRecord(func(r *record) error {
		if r.journal = noJournal; journal {
			r.journal = twoHalves
		}
		return nil
	})
}

func (f *Folder) now() record {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.record
}

// changeRecord applies a change to the record and, if the record differs, writes it.
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
