package store

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"
)

// snapshotsKept is how many snapshots are kept: the newest, and one to fall back
// to.
const snapshotsKept = 2

// The buckets of the snapshots' file: "meta" has a record for each snapshot
// under its id; "data" has a bucket for each, named by its id, with the chunks
// under their numbers.
var (
	metaBucket = []byte("meta")
	dataBucket = []byte("data")
)

// boltSnapshots is a raft.SnapshotStore in a bbolt file of its own: in one file
// with the log, its large transactions would hold up the log's small ones, which
// wait for the same writer's lock.
//
// A snapshot exists exactly when its meta record does. That is written in the
// last transaction, together with the last chunks and with the removal of the
// snapshots that are now too many. What a crash or an error leaves before is
// chunks without a record: they are removed at the next open or Create.
type boltSnapshots struct {
	db      *bbolt.DB
	guard   *guard
	witness *witness
	logger  hclog.Logger
	step    func(string) error // a test's fault before each transaction and after it; nil otherwise

	publishing sync.Mutex // held from the choice of what to remove until it is removed

	mu     sync.Mutex // never held during a transaction
	stored []snapshotRecord
	open   map[string]int  // readers of a snapshot: it isn't removed under them
	begun  map[string]bool // being written: chunks without a record that are no orphans
	dying  map[string]bool // being removed
	stamp  uint64          // the highest one given out
}

var _ raft.SnapshotStore = (*boltSnapshots)(nil)

// createSnapshotsFile makes the file for a new folder.
func createSnapshotsFile(o Options) error {
	db, err := bbolt.Open(filepath.Join(o.Folder, snapshotsFile), 0o600, o.boltOptions())
	if err != nil {
		return err
	}
	return errors.Join(db.Update(func(tx *bbolt.Tx) error {
		_, metaErr := tx.CreateBucket(metaBucket)
		_, dataErr := tx.CreateBucket(dataBucket)
		return errors.Join(metaErr, dataErr)
	}), db.Close())
}

// newBoltSnapshots takes over an open file with the snapshots that were found
// readable in it, removes those that were not, and sweeps out orphans.
func newBoltSnapshots(db *bbolt.DB, g *guard, w *witness, logger hclog.Logger, found snapshotFacts) (*boltSnapshots, error) {
	s := &boltSnapshots{
		db: db, guard: g, witness: w, logger: logger, stored: found.readable,
		open: map[string]int{}, begun: map[string]bool{}, dying: map[string]bool{},
	}
	slices.SortFunc(s.stored, newerFirst)
	for _, record := range s.stored {
		s.stamp = max(s.stamp, record.stamp)
	}
	if len(found.damaged) > 0 {
		if err := s.witness.lowerSnapshot(s.newest()); err != nil {
			return nil, g.writeFailed(witnessFile, err)
		}
	}
	for _, bad := range found.damaged {
		logger.Warn("a damaged snapshot is removed; the log makes up for it", "id", bad.id, "index", bad.index, "error", bad.err)
		remove := func(tx *bbolt.Tx) error { return tx.Bucket(metaBucket).Delete([]byte(bad.id)) }
		if err := s.update("remove "+bad.id, remove); err != nil {
			return nil, err
		}
	}
	return s, s.sweep()
}

// newest is the index of the newest snapshot, 0 if there is none.
func (s *boltSnapshots) newest() uint64 {
	if len(s.stored) == 0 {
		return 0
	}
	return s.stored[0].meta.Index
}

// update runs a transaction. On an error nothing of it is stored.
func (s *boltSnapshots) update(name string, change func(*bbolt.Tx) error) error {
	err := s.guard.run(snapshotsFile, 0, func() error {
		if s.step != nil {
			if err := s.step("before " + name); err != nil {
				return err
			}
		}
		if err := s.db.Update(change); err != nil {
			return err
		}
		if s.step != nil {
			return s.step("after " + name)
		}
		return nil
	})
	return s.guard.writeFailed(snapshotsFile, err)
}

// sweep removes chunks that no record speaks of and nobody is writing.
func (s *boltSnapshots) sweep() error {
	var orphans []string
	err := s.guard.run(snapshotsFile, 0, func() error {
		return s.db.View(func(tx *bbolt.Tx) error {
			return tx.Bucket(dataBucket).ForEachBucket(func(id []byte) error {
				if s.orphan(string(id)) {
					orphans = append(orphans, string(id))
				}
				return nil
			})
		})
	})
	for _, id := range orphans {
		if err == nil {
			s.logger.Info("removing a snapshot that was never finished", "id", id)
			err = s.removeData(id)
		}
	}
	return err
}

func (s *boltSnapshots) orphan(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, found := s.find(id)
	return !found && !s.begun[id]
}

// find returns the record of a snapshot. The lock is held.
func (s *boltSnapshots) find(id string) (snapshotRecord, bool) {
	for _, record := range s.stored {
		if record.meta.ID == id {
			return record, true
		}
	}
	return snapshotRecord{}, false
}

// removeData removes the chunks of a snapshot, if it has any.
func (s *boltSnapshots) removeData(id string) error {
	return s.update("remove "+id, func(tx *bbolt.Tx) error { return dropData(tx, id) })
}

func dropData(tx *bbolt.Tx, id string) error {
	data := tx.Bucket(dataBucket)
	if data.Bucket([]byte(id)) == nil {
		return nil
	}
	return data.DeleteBucket([]byte(id))
}

// Create begins a snapshot. It isn't listed before the sink's Close, and it
// takes no room before the sink has 4 MiB. The transport isn't used: it would
// serve to encode peers for versions of the protocol that are not spoken here.
func (s *boltSnapshots) Create(version raft.SnapshotVersion, index, term uint64, configuration raft.Configuration,
	configurationIndex uint64, _ raft.Transport) (raft.SnapshotSink, error) {
	if version != 1 {
		return nil, fmt.Errorf("snapshots of version %d are not supported", version)
	}
	if err := s.sweep(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stamp = max(s.stamp+1, uint64(max(time.Now().UnixMilli(), 0)))
	record := snapshotRecord{stamp: s.stamp, meta: raft.SnapshotMeta{
		Version: version, ID: snapshotID(term, index, s.stamp), Index: index, Term: term,
		Configuration: configuration.Clone(), ConfigurationIndex: configurationIndex,
	}}
	s.begun[record.meta.ID] = true
	return &boltSink{store: s, record: record}, nil
}

// List returns the snapshots, the newest first.
func (s *boltSnapshots) List() ([]*raft.SnapshotMeta, error) {
	if err := s.guard.refusal(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var listed []*raft.SnapshotMeta
	for _, record := range s.stored {
		if len(listed) < snapshotsKept && !s.dying[record.meta.ID] {
			listed = append(listed, cloneMeta(record.meta))
		}
	}
	return listed, nil
}

func cloneMeta(meta raft.SnapshotMeta) *raft.SnapshotMeta {
	meta.Configuration = meta.Configuration.Clone()
	return &meta
}

// Open checks the whole snapshot and returns a reader of it. The snapshot stays
// until the reader is closed, also when newer ones come.
func (s *boltSnapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	if err := s.guard.refusal(); err != nil {
		return nil, nil, err
	}
	s.mu.Lock()
	record, found := s.find(id)
	if !found || s.dying[id] {
		s.mu.Unlock()
		return nil, nil, fmt.Errorf("there is no snapshot %q", id)
	}
	s.open[id]++
	s.mu.Unlock()

	reader := &boltReader{store: s, record: record}
	if err := reader.check(); err != nil {
		return nil, nil, errors.Join(err, reader.Close())
	}
	return cloneMeta(record.meta), reader, nil
}

// publish stores the record of a finished snapshot with its last chunks, and
// removes what is too many. A snapshot that is being read is left to the next
// time.
func (s *boltSnapshots) publish(record snapshotRecord, put func(*bbolt.Tx) error) error {
	s.publishing.Lock()
	defer s.publishing.Unlock()
	s.mu.Lock()
	next := append(slices.Clone(s.stored), record)
	slices.SortFunc(next, newerFirst)
	for _, old := range next[min(len(next), snapshotsKept):] {
		if id := old.meta.ID; s.open[id] == 0 && id != record.meta.ID {
			s.dying[id] = true
		}
	}
	next = slices.DeleteFunc(next, func(r snapshotRecord) bool { return s.dying[r.meta.ID] })
	s.mu.Unlock()

	err := s.witness.lowerSnapshot(next[0].meta.Index)
	if err != nil {
		err = s.guard.writeFailed(witnessFile, err)
	} else {
		err = s.update("publish "+record.meta.ID, func(tx *bbolt.Tx) error {
			err := errors.Join(put(tx), tx.Bucket(metaBucket).Put([]byte(record.meta.ID), record.encode()))
			for id := range s.dying { // only changed under publishing
				err = errors.Join(err, tx.Bucket(metaBucket).Delete([]byte(id)), dropData(tx, id))
			}
			return err
		})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.dying)
	if err != nil {
		return err
	}
	s.stored = next
	if err := s.witness.raise(bounds{snapshot: next[0].meta.Index}); err != nil {
		s.logger.Warn("the witness of the snapshots can't be kept up", "index", next[0].meta.Index, "error", err)
	}
	return nil
}
