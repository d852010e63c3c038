package store

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/store/damage"
	"github.com/signalbox/signalbox/store/folder"
	"github.com/signalbox/signalbox/store/logs"
	"github.com/signalbox/signalbox/store/snapshots"
)

// View is a data folder that is read while no node has it open. All its files were checked, and damaged parts are left
// out. One goroutine may use it at a time.
type View struct {
	Facts     folder.Facts
	Log       logs.Contents
	Snapshots []*raft.SnapshotMeta // the readable snapshots, newest first
	// Damage lists all damage, in the order of the files. With damage, a node would start on the folder only if the log
	// replaces the damaged snapshot.
	Damage []error

	held io.Closer
}

// Look opens a data folder for reading. No node can open the folder until Close. Without alone, Look writes no file,
// and other calls of Look may share the folder. Replace needs alone. Look takes as long as reading the files. See
// folder.Look for the errors.
func Look(path string, alone bool) (*View, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, file := range files {
		names = append(names, file.Name)
	}
	facts, lock, err := folder.Look(path, names, alone)
	if err != nil {
		return nil, err
	}
	v := &View{Facts: facts, Damage: facts.Damage, held: lock}
	if len(facts.Damage) > 0 {
		v.read()
		return v, nil
	}
	if contents, sound := v.read(); sound {
		if err := judge(path, facts.Bounds, v.Log, contents); err != nil {
			v.Damage = append(v.Damage, err)
		}
	}
	return v, nil
}

// read checks log and snapshots. sound is false if the log, or the structure of the snapshots' file, is damaged.
func (v *View) read() (contents snapshots.Contents, sound bool) {
	sound = true
	damaged := func(err error) error {
		v.Damage, sound = append(v.Damage, err), false
		return nil
	}
	var err error
	if v.Log, err = logs.Scan(v.Facts.Path, v.Facts.Journal, func(*raft.Log) error { return nil }, damaged); err != nil {
		_ = damaged(err)
	}
	if contents, err = snapshots.Read(v.Facts.Path); err != nil {
		_ = damaged(err)
	}
	v.Snapshots = contents.List()
	for _, bad := range contents.Bad() {
		v.Damage = append(v.Damage, fmt.Errorf("snapshot %s can't be read: %w", bad.ID, bad.Err))
	}
	return contents, sound
}

// Close releases the lock on the folder.
func (v *View) Close() error { return v.held.Close() }

// Snapshot returns a reader of one of Snapshots. One goroutine may use it, and must close it.
func (v *View) Snapshot(id string) io.ReadCloser {
	reader, writer := io.Pipe()
	go func() { _ = writer.CloseWithError(snapshots.Copy(v.Facts.Path, id, writer)) }()
	return reader
}

// errGap ends the reading of a log at the first missing or damaged entry.
var errGap = errors.New("the log has a gap")

// Entries calls each with the entries after an index, up to the first missing or damaged entry. each must not keep an
// entry. An error of each ends the reading and is returned.
func (v *View) Entries(after uint64, each func(*raft.Log) error) error {
	next := after + 1
	var failed error
	_, err := logs.Scan(v.Facts.Path, v.Facts.Journal, func(entry *raft.Log) error {
		switch {
		case entry.Index < next:
			return nil
		case entry.Index > next:
			return errGap
		}
		next++
		failed = each(entry)
		return failed
	}, func(error) error { return nil }) // Damage already lists it; here it only leaves a gap
	if failed != nil || len(v.Damage) == 0 {
		return err
	}
	return nil
}

// Replacement is the new content of a folder: one snapshot of another cluster.
type Replacement struct {
	ClusterID   string
	Index, Term uint64 // of the snapshot; the node continues in a later term
	State       raft.FSMSnapshot
	// Configuration returns the snapshot's configuration, given the id of the new folder.
	Configuration func(folder.ID) raft.Configuration
}

// Replace makes new content for a folder that was opened with alone, and puts it in place in one step: after a crash
// the old content or the new content is in force. It is durable on return. It keeps the old content as a data folder at
// the path former. After that, only Close of the view may be called.
func (v *View) Replace(r Replacement) (former string, err error) {
	path, err := folder.BeginReplacement(v.Facts.Path)
	if err != nil {
		return "", err
	}
	if err := v.make(path, r); err != nil {
		return "", fmt.Errorf("make the new content of %s: %w", v.Facts.Path, err)
	}
	return folder.Replace(v.Facts.Path)
}

// make makes a data folder with the new content at path.
func (v *View) make(path string, r Replacement) (err error) {
	s, err := Open(Options{Folder: path, NodeID: v.Facts.NodeID, ClusterID: r.ClusterID, Journal: v.Facts.Journal, MinFree: 1})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if v.Facts.Journal && !s.Journal() { // the old journal would stay beside new content without a journal
		return &damage.FullError{File: logs.JournalFile, Err: errors.New("the new content needs a journal, as the one before has")}
	}
	sink, err := s.Snapshots().Create(1, r.Index, r.Term, r.Configuration(s.FolderID()), r.Index, nil)
	if err != nil {
		return err
	}
	if err := r.State.Persist(sink); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	return s.Stable().SetUint64([]byte("CurrentTerm"), r.Term)
}
