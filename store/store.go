package store

import (
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/signalbox/signalbox/store/damage"
	"github.com/signalbox/signalbox/store/folder"
	"github.com/signalbox/signalbox/store/logs"
	"github.com/signalbox/signalbox/store/snapshots"
)

// Space is the state of the disk that holds the data folder.
type Space = folder.Space

// ErrGone is the error of [folder.Folder.Space] for a data folder that was deleted or replaced.
var ErrGone = folder.ErrGone

// files are the files of the other packages.
var files = []folder.File{{Name: logs.FileName, Create: logs.Create}, {Name: snapshots.FileName, Create: snapshots.Create}}

// Store is an open data folder, or an ephemeral store without a folder. Safe for concurrent use.
type Store struct {
	*folder.Folder // its identity and its disk space
	*logs.Stores   // log, term and vote
	snapshots      raft.SnapshotStore
	guard          *damage.Guard
	logger         hclog.Logger
	bolt           []io.Closer // the open bbolt files
}

// Open opens a data folder, and makes it if it is missing or empty. It reads and checks all files, which takes about as
// long as reading them. On return the folder is durable, and no other process can open it before Close.
//
// Errors: the errors of folder.Open (for example, another process has the folder open, or it belongs to another node),
// damage.Error, damage.FullError, and errors of the system.
func Open(o Options) (*Store, error) {
	o, err := o.complete()
	if err != nil {
		return nil, err
	}
	logger := o.Logger.Named("store")
	var opened atomic.Bool // until then damage is returned and not reported
	guard := damage.NewGuard(o.Folder, func(err error) {
		if opened.Load() && o.OnDamage != nil {
			o.OnDamage(err)
		}
	})
	home, err := folder.Open(folder.Config{
		Path: o.Folder, NodeID: o.NodeID, ClusterID: o.ClusterID, MinFree: o.MinFree, Guard: guard, Logger: logger,
		Files: files,
	})
	if err != nil {
		return nil, err
	}
	config := logs.Config{Folder: o.Folder, Guard: guard, Witness: home.Witness(), Reserve: home.Reserve(), Logger: logger, Wrap: o.WrapLog}
	s, err := openParts(o, home, config)
	if errors.Is(err, bolterrors.ErrTimeout) { // someone runs a tool on the file
		err = &folder.LockedError{Folder: o.Folder}
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	opened.Store(true)
	return s, nil
}

// OpenEphemeral returns a store that keeps everything in memory until Close. Open with Options.Ephemeral accepts
// further options.
func OpenEphemeral(nodeID string) (*Store, error) {
	return Open(Options{NodeID: nodeID, Ephemeral: true})
}

// openParts opens log, stable values and snapshots of an open folder. After an error it returns the parts that are
// open, for the caller to close.
func openParts(o Options, home *folder.Folder, c logs.Config) (s *Store, err error) {
	s = &Store{Folder: home, guard: c.Guard, logger: c.Logger}
	c.Covered = new(atomic.Uint64)
	if o.Ephemeral {
		s.snapshots = snapshots.NewMemory(c.Covered)
		s.Stores, err = logs.OpenMemory(c)
		return s, err
	}
	inLogs, inSnapshots, err := verify(home)
	if err != nil {
		return s, err
	}
	home.Reserve().Refill()
	if inLogs, err = changeJournal(o, home, c, inLogs); err != nil {
		return s, err
	}
	c.Journal = home.Journal()
	if s.Stores, err = logs.Open(c, inLogs); err != nil {
		return s, err
	}
	s.bolt = append(s.bolt, s.Stores)
	snapshotStore, err := snapshots.Open(snapshots.Config{Folder: c.Folder, Guard: c.Guard, Witness: home.Witness(), Logger: c.Logger, Newest: c.Covered}, inSnapshots)
	if err != nil {
		return s, err
	}
	s.snapshots, s.bolt = snapshotStore, append(s.bolt, snapshotStore)
	if err := snapshotStore.Tidy(inSnapshots); err != nil {
		return s, err
	}
	if inSnapshots.Newest() == 0 {
		err = s.Stores.UndoBootstrap()
	}
	return s, err
}

// changeJournal makes or removes the journal, as Options.Journal says. To remove it, it first copies its entries into
// the log. A crash leaves at most a journal that the record does not mention, which the next call replaces or removes.
// If the disk has no room, the folder stays as it is.
func changeJournal(o Options, home *folder.Folder, c logs.Config, found logs.Contents) (logs.Contents, error) {
	switch {
	case o.Journal && home.Journal():
		return found, nil
	case o.Journal:
		return addJournal(o, home, c, found)
	case !home.Journal():
		return found, logs.RemoveJournal(c.Folder)
	}
	c.Journal = true
	s, err := logs.Open(c, found)
	if err != nil {
		return found, err
	}
	err = errors.Join(s.Drain(), s.Close())
	if err == nil {
		err = home.SetJournal(false)
	}
	switch {
	case errors.Is(err, damage.ErrFull):
		c.Logger.Warn("no room for what the journal holds: it stays for now", "error", err)
	case err != nil:
		return found, err
	default:
		err = logs.RemoveJournal(c.Folder)
	}
	if err != nil && !errors.Is(err, damage.ErrFull) {
		return found, err
	}
	return logs.Read(c.Folder, home.Journal())
}

// addJournal puts a journal before the log, unless free space would then be low.
func addJournal(o Options, home *folder.Folder, c logs.Config, found logs.Contents) (logs.Contents, error) {
	without := func(reason any) (logs.Contents, error) {
		c.Logger.Warn("no room for a journal: appends go without one", "reason", reason)
		return found, logs.RemoveJournal(c.Folder)
	}
	if err := logs.RemoveJournal(c.Folder); err != nil { // left by an earlier attempt; its room counts as free
		return found, err
	}
	if enough, err := home.RoomFor(uint64(logs.JournalSize(o.JournalHalf))); err != nil {
		return found, err
	} else if !enough {
		return without("the disk would be low on space")
	}
	journaled, err := logs.CreateJournal(c.Folder, o.JournalHalf, found)
	if err == nil {
		err = damage.AsFull(logs.JournalFile, home.SetJournal(true))
	}
	if errors.Is(err, damage.ErrFull) {
		return without(err)
	}
	return journaled, err
}

// verify reads all files of the folder before bbolt opens them. It uses the bounds of the witness to check that the
// files together have all that this node has stored. Entries that a readable snapshot covers may be missing, since Raft
// doesn't need them. It fails with a damage.Error, or with the reason why a file can't be read.
func verify(home *folder.Folder) (logs.Contents, snapshots.Contents, error) {
	log, err := logs.Read(home.Path(), home.Journal())
	if err != nil {
		return log, snapshots.Contents{}, err
	}
	contents, err := snapshots.Read(home.Path())
	if err != nil {
		return log, contents, err
	}
	return log, contents, judge(home.Path(), home.Witness().Known(), log, contents)
}

// judge returns an error if log and snapshots lack content that the node has stored. Each of them alone is sound.
func judge(path string, seen folder.Bounds, log logs.Contents, inSnapshots snapshots.Contents) (err error) {
	damaged := func(file string, index uint64, cause error, detail string, arguments ...any) error {
		return &damage.Error{Folder: path, File: file, Index: index, Detail: fmt.Sprintf(detail, arguments...), Err: cause}
	}
	newest, bad := inSnapshots.Newest(), inSnapshots.NewestBad()
	switch {
	case log.Generation() < seen.Stable:
		err = damaged(logs.FileName, 0, nil, "the term and vote stored last are missing")
	case log.Last < seen.Entry:
		err = damaged(log.NewestFile(), seen.Entry, nil, "the log was stored up to here, and ends at %d", log.Last)
	case max(newest, bad.Index) < seen.Snapshot:
		err = damaged(snapshots.FileName, seen.Snapshot, nil, "the snapshot is missing")
	case bad.Err != nil && bad.Index > newest && (log.Last < bad.Index || log.From > newest+1):
		err = damaged(snapshots.FileName, bad.Index, bad.Err, "snapshot %s can't be read, and the log doesn't make up for it", bad.ID)
	case log.Last > newest && log.From > newest+1:
		err = damaged(logs.FileName, newest+1, nil, "the entries from here to %d are missing", log.From-1)
	}
	return err
}

// Snapshots returns the store of snapshots, which keeps the newest two. A snapshot is listed, and durable, when its
// sink's Close returns nil.
func (s *Store) Snapshots() raft.SnapshotStore { return s.snapshots }

// DropSnapshot removes the newest snapshot, durably. The caller makes sure that the log and the earlier snapshots are
// complete without it, and that Raft does not run.
func (s *Store) DropSnapshot(id string) error {
	return s.snapshots.(interface{ Drop(id string) error }).Drop(id)
}

// SetClusterID records the cluster to which the node belongs: see folder.Folder. While the store is empty, the id may
// change.
func (s *Store) SetClusterID(id string) error { return s.Folder.SetClusterID(id, s.Empty()) }

// Empty reports whether the store never held a log entry, a term or a snapshot. It returns false if the Store is
// damaged or closed.
func (s *Store) Empty() bool {
	some, err := raft.HasExistingState(s.Logs(), s.Stable(), s.Snapshots())
	return err == nil && !some
}

// Damage returns the damage.Error that was found first since Open, or nil. After damage, all calls fail with this
// error.
func (s *Store) Damage() error { return s.guard.Found() }

// Close drains the journal, closes the files and releases the lock on the folder. It waits for pending calls, so a
// hanging disk blocks it. Further calls return nil at once.
func (s *Store) Close() error {
	drained := s.Stores.Drain() // after an error the entries stay in the journal
	if drained != nil && !errors.Is(drained, damage.ErrDamaged) && !errors.Is(drained, damage.ErrClosed) {
		s.logger.Warn("entries stay in the journal", "error", drained)
	}
	first, err := s.guard.Close(func() (err error) {
		for _, file := range s.bolt {
			err = errors.Join(err, file.Close())
		}
		return err
	})
	if !first {
		return nil
	}
	return errors.Join(err, s.Folder.Close())
}
