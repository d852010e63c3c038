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

// The buckets of the snapshots' file. "meta" has a record for each snapshot, under its id. "data" has, for each
// snapshot, a bucket with its id as the name, which has the chunks under their numbers.
var (
	metaBucket = []byte("meta")
	dataBucket = []byte("data")
)

// Config has what a Store needs.
type Config struct {
	Folder  string
	Guard   *damage.Guard
	Witness Witness
	Logger  hclog.Logger
	// Newest is kept at the index of the first snapshot that List returns. It may be nil.
	Newest *atomic.Uint64
}

// Witness keeps a lower bound of the newest snapshot's index.
type Witness interface {
	// RaiseSnapshot raises the bound. It is called after the snapshot is stored.
	RaiseSnapshot(index uint64)
	// LowerSnapshot lowers the bound to at most index, durably. It is called before a newer snapshot is removed. Its
	// error has already passed through the guard.
	LowerSnapshot(index uint64) error
}

// Store is a raft.SnapshotStore in a separate bbolt file. bbolt allows one writer per file, so in the log's file the
// large transactions of snapshots would delay the log's small transactions.
//
// A snapshot exists if and only if its meta record exists. The last transaction of a snapshot writes this record with
// the last chunks, and removes old snapshots beyond maxKept. After a crash or an error before that, the file has chunks
// without a record, which the next Tidy or Create removes.
type Store struct {
	db      *bbolt.DB
	guard   *damage.Guard
	witness Witness
	logger  hclog.Logger
	newest  *atomic.Uint64     // kept at the index of the first listed snapshot
	step    func(string) error // for tests: a fault before and after each transaction; else nil

	publishing sync.Mutex // held while old snapshots are chosen and removed

	mu     sync.Mutex // not held during a transaction
	stored []snapshotRecord
	open   map[string]int  // by id: number of readers, during which the snapshot isn't removed
	begun  map[string]bool // by id: being written, so chunks without a record are no orphans
	dying  map[string]bool // by id: being removed
	stamp  uint64          // the highest stamp so far
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

// Open opens the file. found is the result of Read. The caller then calls Tidy. Opening syncs the file, see
// [damage.BoltOptions]: a killed process may have left writes that are not synced, and the node will rely on the listed
// snapshots.
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
	return s, nil
}

// Close closes the file. After a panic in bbolt it may never return; see damage.Guard.
func (s *Store) Close() error { return s.db.Close() }

// Tidy removes damaged snapshots and unfinished snapshots.
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

// update runs a transaction. If it fails, usually no part of the change is stored. But a commit that failed because the
// disk was full may have stored all of it.
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

// sweep removes the chunks of snapshots that have no record and are not being written.
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

// find returns the record of a snapshot. The caller holds mu.
func (s *Store) find(id string) (snapshotRecord, bool) {
	for _, record := range s.stored {
		if record.meta.ID == id {
			return record, true
		}
	}
	return snapshotRecord{}, false
}

// removeData removes the chunks of a snapshot, and the record that a failed publish may have left.
func (s *Store) removeData(id string) error {
	return s.update("remove "+id, func(tx *bbolt.Tx) error {
		return errors.Join(tx.Bucket(metaBucket).Delete([]byte(id)), dropData(tx, id))
	})
}

// recorded returns the ids of the snapshots in the file; an empty set if the file can't be read.
func (s *Store) recorded() map[string]bool {
	ids := map[string]bool{}
	_ = s.guard.Run(FileName, 0, func() error {
		return s.db.View(func(tx *bbolt.Tx) error {
			return tx.Bucket(metaBucket).ForEach(func(id, _ []byte) error { ids[string(id)] = true; return nil })
		})
	})
	return ids
}

func dropData(tx *bbolt.Tx, id string) error {
	data := tx.Bucket(dataBucket)
	if data.Bucket([]byte(id)) == nil {
		return nil
	}
	return data.DeleteBucket([]byte(id))
}

// Create begins a snapshot. It is not listed before the sink's Close, and takes no disk space before the sink has 4
// MiB. The transport is not used; it would encode peers for old versions of the protocol.
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

// begin returns the record of a new snapshot. Its stamp is above last.
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

// List returns the snapshots, newest first.
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

// Open checks the whole snapshot and returns a reader of it. The snapshot is not removed before the reader is closed.
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

// Drop removes a snapshot durably. The snapshot must not have a reader.
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

// publish stores the record of a finished snapshot with its last chunks, and removes the oldest snapshots beyond
// maxKept. A snapshot with a reader is left to the next call.
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

	// Usually this changes no bound. But a snapshot of an earlier term may have a higher index than next[0].
	err := s.witness.LowerSnapshot(next[0].meta.Index)
	if err == nil {
		err = s.update("publish "+record.meta.ID, func(tx *bbolt.Tx) error {
			err := errors.Join(write(tx), tx.Bucket(metaBucket).Put([]byte(record.meta.ID), record.encode()))
			for id := range s.dying { // changed only under publishing
				err = errors.Join(err, tx.Bucket(metaBucket).Delete([]byte(id)), dropData(tx, id))
			}
			return err
		})
	}
	var left map[string]bool
	if err != nil { // the commit may have stored the change nevertheless; if removeData fails, sweep removes the record later
		if again := s.removeData(record.meta.ID); again != nil {
			s.logger.Warn("a snapshot that failed may be there after a restart", "id", record.meta.ID, "error", again)
		}
		left = s.recorded()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.stored = slices.DeleteFunc(slices.Clone(s.stored), func(r snapshotRecord) bool { return s.dying[r.meta.ID] && !left[r.meta.ID] })
		clear(s.dying)
		return err
	}
	clear(s.dying)
	s.stored = next
	s.newest.Store(next[0].meta.Index)
	s.witness.RaiseSnapshot(next[0].meta.Index)
	return nil
}
