package store

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// Store is an open data folder, or an ephemeral stand-in for one. Safe for
// concurrent use.
type Store struct {
	folder    string // "" for an ephemeral one
	logger    hclog.Logger
	guard     *guard
	watermark *Watermark
	// reserveMark is the second mark, below watermark.
	reserveMark *Watermark
	reserve     *reserve // nil for an ephemeral one
	identity    identity

	logs      *checkedLog
	watched   *watchedLog
	stable    raft.StableStore
	snapshots raft.SnapshotStore

	files openFiles
}

// openFiles is what Close has to close; nothing for an ephemeral store.
type openFiles struct {
	lock      *folderLock
	witness   *witness
	raft      *raftboltdb.BoltStore
	snapshots *bbolt.DB
}

// closeTimeout bounds how long Close waits for bbolt after a panic in it, which
// may have left its locks held.
const closeTimeout = 2 * time.Second

// Open opens a data folder; a missing or empty one is made first. It reads and
// checks all of it, so it takes time with the size of the log and the snapshots:
// about as long as reading those files. On return the folder is on the disk, and
// nobody else can open it before Close.
//
// Errors: LockedError, ForeignError, NewerFormatError, IdentityError (the folder
// was not changed), DamagedError, FullError, and those of the system.
func Open(o Options) (*Store, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if o.Ephemeral {
		return openEphemeral(o)
	}
	logger := o.Logger.Named("store")
	folder, err := filepath.Abs(o.Folder)
	if err != nil {
		return nil, err
	}
	o.Folder = folder
	found, lock, err := prepareFolder(o, logger)
	if err != nil {
		return nil, err
	}
	s := &Store{
		folder: folder, logger: logger, watermark: NewWatermark(o.MinFree), reserveMark: NewWatermark(o.MinFree / reserveShare),
		guard: &guard{folder: folder}, // damage found during Open is returned, not reported
		files: openFiles{lock: lock},
	}
	s.identity.record = found
	if err := s.openFiles(o); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.guard.onDamage = o.OnDamage
	return s, nil
}

// openFiles checks the files of a locked and complete folder, and opens them.
func (s *Store) openFiles(o Options) error {
	var err error
	if s.files.witness, err = openWitness(s.folder); err != nil {
		return err
	}
	facts, err := verifyFolder(s.folder, s.files.witness.known())
	if err != nil {
		return err
	}
	s.reserve = newReserve(s.folder, s.logger)
	err = s.guard.run(raftFile, 0, func() (err error) {
		s.files.raft, err = openRaftBolt(o)
		return err
	})
	if err != nil {
		return s.openFailed(raftFile, err)
	}
	err = s.guard.run(snapshotsFile, 0, func() (err error) {
		s.files.snapshots, err = bbolt.Open(filepath.Join(s.folder, snapshotsFile), 0o600, o.boltOptions())
		return err
	})
	if err != nil {
		return s.openFailed(snapshotsFile, err)
	}
	snapshots, err := newBoltSnapshots(s.files.snapshots, s.guard, s.files.witness, s.logger, facts.snapshots)
	if err != nil {
		return err
	}
	s.snapshots = snapshots
	if err := s.wireStable(facts); err != nil {
		return err
	}
	return s.wireLog(o, &boltLog{
		bolt: s.files.raft, guard: s.guard, witness: s.files.witness, logger: s.logger, extent: facts.log,
	}, raftFile, true)
}

// openFailed makes an error of opening a bolt file say which one it was.
func (s *Store) openFailed(file string, err error) error {
	if errors.Is(err, ErrDamaged) {
		return err
	}
	if errors.Is(err, bolterrors.ErrTimeout) { // a tool that someone runs on the file
		return &LockedError{Folder: s.folder}
	}
	return asFull(file, fmt.Errorf("%s in %s can't be opened: %w", file, s.folder, err))
}

// wireStable takes over the stable values that were found. A term alone, with no
// vote, no log and no snapshot, is what a crash in the middle of
// raft.BootstrapCluster leaves: the node would count as having state, could
// not be bootstrapped any more, and would have no configuration to start with.
// It has promised nothing to anyone yet, so its term is forgotten.
func (s *Store) wireStable(facts folderFacts) error {
	stable := &stableValues{
		bolt: s.files.raft, guard: s.guard, witness: s.files.witness, reserve: s.reserve, logger: s.logger, now: facts.stable,
	}
	s.stable = stable
	term, err := stable.GetUint64([]byte(keyCurrentTerm))
	bare := facts.log.last == 0 && len(facts.snapshots.readable) == 0 && len(facts.stable.values) == 1
	if err != nil || term != 1 || !bare {
		return nil
	}
	s.logger.Info("an interrupted bootstrap is undone")
	return stable.SetUint64([]byte(keyCurrentTerm), 0)
}

// wireLog puts the layers over the log, from the disk outwards: injected faults,
// the watch over writes, the cache, the checksums.
func (s *Store) wireLog(o Options, bottom raft.LogStore, file string, cached bool) error {
	if o.WrapLog != nil {
		bottom = o.WrapLog(bottom)
	}
	s.watched = newWatchedLog(bottom, file)
	s.logs = &checkedLog{top: s.watched, below: s.watched, guard: s.guard, file: file}
	if cached {
		cache, err := raft.NewLogCache(cachedEntries, s.watched)
		if err != nil {
			return err
		}
		s.logs.top = cache
	}
	return nil
}

// Logs returns the log. Entries are durable when StoreLogs returns. Each has a
// checksum in its Extensions: StoreLogs adds it where there is none, and refuses
// an entry that doesn't match the one it has (EntryError). Other errors are
// FullError, DamagedError and ErrClosed; GetLog returns raft.ErrLogNotFound for
// an entry that isn't stored. Entries passed in must not be changed afterwards;
// those read must not be changed either, since the cache has the same bytes.
func (s *Store) Logs() raft.LogStore { return s.logs }

// Stable returns the store of Raft's term and vote. Values are durable when Set
// returns, but for the term of a vote, which is stored together with its
// candidate (see stableValues). The text of the error for a missing key is "not
// found", as Raft expects.
func (s *Store) Stable() raft.StableStore { return s.stable }

// Snapshots returns the store of snapshots. It keeps the newest two. One is
// durable when its sink's Close returns nil, and not to be seen before.
func (s *Store) Snapshots() raft.SnapshotStore { return s.snapshots }

// Empty reports whether nothing was ever stored: no log, no term, no snapshot.
// It is false when that can't be told, since the Store is damaged or closed.
func (s *Store) Empty() bool {
	some, err := raft.HasExistingState(s.Logs(), s.Stable(), s.Snapshots())
	return err == nil && !some
}

// StuckFor returns how long the oldest write to the log that is under way has
// taken so far; 0 when there is none. It never waits.
func (s *Store) StuckFor() time.Duration { return s.watched.stuckFor() }

// Damage returns the DamagedError that was found first since Open, or nil. Once
// there is one, everything is refused with it.
func (s *Store) Damage() error {
	s.guard.mu.Lock()
	defer s.guard.mu.Unlock()
	return s.guard.err
}

// Path returns the absolute path of the data folder, "" for an ephemeral store.
func (s *Store) Path() string { return s.folder }

// Close closes the files and gives the folder free. It waits for calls that are
// under way: as long as a write hangs on the disk, so does Close. Further calls
// return nil at once.
func (s *Store) Close() error {
	first, sound := s.guard.close()
	if !first {
		return nil
	}
	closeBolt := func() error {
		var errs []error
		if s.files.raft != nil {
			errs = append(errs, s.files.raft.Close())
		}
		if s.files.snapshots != nil {
			errs = append(errs, s.files.snapshots.Close())
		}
		return errors.Join(errs...)
	}
	var err error
	if sound {
		err = closeBolt()
	} else {
		err = closeWithin(closeTimeout, closeBolt)
	}
	if s.files.witness != nil {
		err = errors.Join(err, s.files.witness.close())
	}
	if s.files.lock != nil {
		err = errors.Join(err, s.files.lock.release())
	}
	return err
}

// closeWithin runs a close that may never return, for as long as it is given.
func closeWithin(limit time.Duration, run func() error) error {
	done := make(chan error, 1)
	go func() { done <- run() }()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		return errors.New("a damaged file could not be closed; it stays open until the process ends")
	}
}
