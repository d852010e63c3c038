package snapshots

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"

	"github.com/signalbox/signalbox/store/damage"
)

const (
	// FileName is the file of the snapshots in a data folder.
	FileName = "snapshots.db"
	// maxKept is how many snapshots are kept: the newest, and one to fall back to.
	maxKept = 2
)

// The buckets of the snapshots' file: "meta" has a record for each snapshot
// under its id; "data" has a bucket for each, named by its id, with the chunks
// under their numbers.
var (
	metaBucket = []byte("meta")
	dataBucket = []byte("data")
)

// Config is what a Store works with.
type Config struct {
	Folder  string
	Guard   *damage.Guard
	Witness Witness
	Logger  hclog.Logger
	// Newest is set to the index of the first snapshot that List returns. It may be nil.
	Newest *atomic.Uint64
}

// Witness keeps a lower bound of the newest snapshot's index.
type Witness interface {
	// RaiseSnapshot raises the bound. It is called after the snapshot is stored.
	RaiseSnapshot(index uint64)
	// LowerSnapshot makes the bound at most index, durably. It is called before a newer
	// snapshot is removed. Its error has been judged by the guard.
	LowerSnapshot(index uint64) error
}

// Store is a raft.SnapshotStore in a separate bbolt file. In one file with the log, the large
// transactions of snapshots would delay the small transactions of the log, since bbolt has one
// writer's lock for each file.
//
// A snapshot exists exactly when its meta record does. The last transaction writes the record,
// together with the last chunks, and removes the snapshots that are now too many. A crash or an
// error before that leaves chunks without a record: the next Tidy or Create removes them.
type Store struct {
	db      *bbolt.DB
	guard   *damage.Guard
	witness Witness
	logger  hclog.Logger
	newest  *atomic.Uint64     // Config.Newest
	step    func(string) error // a test's fault before each transaction and after it; nil otherwise

	publishing sync.Mutex // held from the choice of what to remove until it is removed

	mu     sync.Mutex // never held during a transaction
	stored []snapshotRecord
	open   map[string]int  // readers of a snapshot: it isn't removed under them
	begun  map[string]bool // being written: chunks without a record that are no orphans
	dying  map[string]bool // being removed
	stamp  uint64          // the highest stamp given out
}

var _ raft.SnapshotStore = (*Store)(nil)

// Create makes the file for a new folder.
func Create(folder string) error {
	db, err := bbolt.Open(filepath.Join(folder, FileName), 0o600, damage.BoltOptions())
	if err != nil {
		return err
	}
	return errors.Join(db.Update(func(tx *bbolt.Tx) error {
		_, metaErr := tx.CreateBucket(metaBucket)
		_, dataErr := tx.CreateBucket(dataBucket)
		return errors.Join(metaErr, dataErr)
	}), db.Close())
}

// Open opens the file; found is what Read found in it. Call Tidy next. Open syncs the file, since a killed
// program may have left writes without a sync, and the node continues from a snapshot that is listed.
func Open(c Config, found Contents) (*Store, error) {
	s := &Store{
		guard: c.Guard, witness: c.Witness, logger: c.Logger, newest: cmp.Or(c.Newest, new(atomic.Uint64)), stored: found.readable,
		open: map[string]int{}, begun: map[string]bool{}, dying: map[string]bool{},
	}
	for _, record := range s.stored {
		s.stamp = max(s.stamp, record.stamp)
	}
	if len(s.stored) > 0 {
		s.newest.Store(s.stored[0].meta.Index)
	}
	err := c.Guard.Open(FileName, func() (err error) {
		s.db, err = bbolt.Open(filepath.Join(c.Folder, FileName), 0o600, damage.BoltOptions())
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := c.Guard.WriteFailed(FileName, s.db.Sync()); err != nil {
		return nil, errors.Join(err, s.db.Close())
	}
	return s, nil
}

// Close closes the file. After a panic in bbolt it may never return; see damage.Guard.
func (s *Store) Close() error { return s.db.Close() }

// Tidy removes the snapshots that were found damaged, and unfinished snapshots.
func (s *Store) Tidy(found Contents) error {
	if len(found.bad) > 0 {
		if err := s.witness.LowerSnapshot(found.Newest()); err != nil {
			return err
		}
	}
	for _, bad := range found.bad {
		s.logger.Warn("a damaged snapshot is removed; the log makes up for it", "id", bad.ID, "index", bad.Index, "error", bad.Err)
		remove := func(tx *bbolt.Tx) error { return tx.Bucket(metaBucket).Delete([]byte(bad.ID)) }
		if err := s.update("remove "+bad.ID, remove); err != nil {
			return err
		}
	}
	return s.sweep()
}

// update runs a transaction. After an error no part of it is stored.
func (s *Store) update(name string, change func(*bbolt.Tx) error) error {
	err := s.guard.Run(FileName, 0, func() error {
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
	return s.guard.WriteFailed(FileName, err)
}

// sweep removes chunks of snapshots that have no record and are not being written.
func (s *Store) sweep() error {
	var orphans []string
	err := s.guard.Run(FileName, 0, func() error {
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

func (s *Store) orphan(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, found := s.find(id)
	return !found && !s.begun[id]
}

// find returns the record of a snapshot. The lock is held.
func (s *Store) find(id string) (snapshotRecord, bool) {
	for _, record := range s.stored {
		if record.meta.ID == id {
			return record, true
		}
	}
	return snapshotRecord{}, false
}

// removeData removes the chunks of a snapshot, if it has any, and the record that a failed
// publish may have left.
func (s *Store) removeData(id string) error {
	return s.update("remove "+id, func(tx *bbolt.Tx) error {
		return errors.Join(tx.Bucket(metaBucket).Delete([]byte(id)), dropData(tx, id))
	})
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
func (s *Store) Create(version raft.SnapshotVersion, index, term uint64, configuration raft.Configuration,
	configurationIndex uint64, _ raft.Transport) (raft.SnapshotSink, error) {
	if err := s.sweep(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	record, err := begin(s.stamp, version, index, term, configuration, configurationIndex)
	if err != nil {
		return nil, err
	}
	s.stamp = record.stamp
	s.begun[record.meta.ID] = true
	return &sink{store: s, record: record}, nil
}

// begin returns the record of a new snapshot, with a stamp above last.
func begin(last uint64, version raft.SnapshotVersion, index, term uint64, configuration raft.Configuration,
	configurationIndex uint64) (snapshotRecord, error) {
	if version != 1 {
		return snapshotRecord{}, fmt.Errorf("snapshots of version %d are not supported", version)
	}
	stamp := max(last+1, uint64(max(time.Now().UnixMilli(), 0)))
	return snapshotRecord{stamp: stamp, meta: raft.SnapshotMeta{
		Version: version, ID: snapshotID(term, index, stamp), Index: index, Term: term,
		Configuration: configuration.Clone(), ConfigurationIndex: configurationIndex,
	}}, nil
}

// List returns the snapshots, the newest first.
func (s *Store) List() ([]*raft.SnapshotMeta, error) {
	if err := s.guard.Refusal(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var listed []*raft.SnapshotMeta
	for _, record := range s.stored {
		if len(listed) < maxKept && !s.dying[record.meta.ID] {
			listed = append(listed, cloneMeta(record.meta))
		}
	}
	return listed, nil
}

func cloneMeta(meta raft.SnapshotMeta) *raft.SnapshotMeta {
	meta.Configuration = meta.Configuration.Clone()
	return &meta
}

// Open checks the whole snapshot and returns a reader of it. The snapshot stays until the
// reader is closed, also when newer snapshots come.
func (s *Store) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	if err := s.guard.Refusal(); err != nil {
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

	reader := &reader{store: s, record: record}
	if err := reader.check(); err != nil {
		return nil, nil, errors.Join(err, reader.Close())
	}
	return cloneMeta(record.meta), reader, nil
}

// Drop removes a snapshot that is not being read, durably.
func (s *Store) Drop(id string) error {
	s.publishing.Lock()
	defer s.publishing.Unlock()
	s.mu.Lock()
	next := slices.DeleteFunc(slices.Clone(s.stored), func(r snapshotRecord) bool { return r.meta.ID == id })
	s.mu.Unlock()
	newest := Contents{readable: next}.Newest()
	if err := s.witness.LowerSnapshot(newest); err != nil {
		return err
	}
	err := s.update("drop "+id, func(tx *bbolt.Tx) error {
		return errors.Join(tx.Bucket(metaBucket).Delete([]byte(id)), dropData(tx, id))
	})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stored = next
	s.newest.Store(newest)
	return nil
}

// publish stores the record of a finished snapshot with its last chunks, and removes the oldest
// snapshots beyond maxKept. It leaves a snapshot that is being read to the next call.
func (s *Store) publish(record snapshotRecord, write func(*bbolt.Tx) error) error {
	s.publishing.Lock()
	defer s.publishing.Unlock()
	s.mu.Lock()
	next := append(slices.Clone(s.stored), record)
	slices.SortFunc(next, newerFirst)
	for _, old := range next[min(len(next), maxKept):] {
		if id := old.meta.ID; s.open[id] == 0 && id != record.meta.ID {
			s.dying[id] = true
		}
	}
	next = slices.DeleteFunc(next, func(r snapshotRecord) bool { return s.dying[r.meta.ID] })
	s.mu.Unlock()

	err := s.witness.LowerSnapshot(next[0].meta.Index)
	if err == nil {
		err = s.update("publish "+record.meta.ID, func(tx *bbolt.Tx) error {
			err := errors.Join(write(tx), tx.Bucket(metaBucket).Put([]byte(record.meta.ID), record.encode()))
			for id := range s.dying { // only changed under publishing
				err = errors.Join(err, tx.Bucket(metaBucket).Delete([]byte(id)), dropData(tx, id))
			}
			return err
		})
	}
	if err != nil { // the record may be on the disk nevertheless; if this fails too, sweep does it
		if again := s.removeData(record.meta.ID); again != nil {
			s.logger.Warn("a snapshot that failed may be there after a restart", "id", record.meta.ID, "error", again)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.dying)
	if err != nil {
		return err
	}
	s.stored = next
	s.newest.Store(next[0].meta.Index)
	s.witness.RaiseSnapshot(next[0].meta.Index)
	return nil
}
