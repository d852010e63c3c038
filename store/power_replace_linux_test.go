package store

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/store/folder"
	"github.com/signalbox/signalbox/test/recorder"
	"github.com/signalbox/signalbox/test/storetest"
)

// replacing is a node whose folder gets another content after a fixed life.
type replacing struct {
	*powerNode
	old  promise
	life recorder.Image // with the old content
	kept string         // where the old content is then, from the folder of the record
}

// newReplacing makes the old content.
func newReplacing(t *testing.T) *replacing {
	n := &replacing{powerNode: &powerNode{t: t, base: storetest.Folder(t)}}
	n.begin(0)
	for _, step := range fixedLife() {
		storetest.Must(t, step(n.powerNode))
	}
	err := n.store.Close()
	n.store = nil
	n.record.Stop()
	n.end()
	storetest.Must(t, err)
	n.old, n.life = n.now, n.record.Crash(n.record.Len(), nil)
	return n
}

// replace gives the folder another content; the program is killed after so many events.
func (n *replacing) replace(kill int) (err error) {
	n.begin(kill)
	n.record.Stop()
	if n.record, err = recorder.Start(n.path, n.life); err != nil {
		return err
	}
	n.record.KillAt(kill)
	n.now, n.last = n.old, []promise{n.old}
	renewed := promise{log: map[uint64]*raft.Log{}, stable: map[string]string{"CurrentTerm": "\x00\x00\x00\x00\x00\x00\x00\x09"},
		snapshots: []taken{{100, 9, 700}}, cluster: "c2", term: 10}
	err = n.makeNew(renewed)
	if err == nil {
		n.now = renewed
	}
	return n.take([]promise{n.old, renewed}, err)
}

// makeNew makes the new content and puts it in place, as View.Replace does.
func (n *replacing) makeNew(renewed promise) error {
	v, err := Look(filepath.Join(n.path, dataFolder), true)
	if err != nil {
		return err
	}
	defer func() { _ = v.Close() }() // of a killed program it complains
	path, err := folder.BeginReplacement(v.Facts.Path)
	if err != nil {
		return err
	}
	o := options(path)
	o.ClusterID, o.JournalHalf = renewed.cluster, 8<<10
	s, err := Open(o)
	if err != nil {
		return err
	}
	made := renewed.snapshots[0]
	sink, err := s.Snapshots().Create(1, made.index, made.term, storetest.Configuration(), 1, nil)
	if err == nil {
		_, err = sink.Write(made.content())
		err = errors.Join(err, sink.Close(), s.Stable().SetUint64([]byte("CurrentTerm"), made.term))
	}
	if err = errors.Join(err, s.Close()); err != nil {
		return err
	}
	if err := nameOnly(filepath.Join(path, lateFile)); err != nil {
		return err
	}
	kept, err := folder.Replace(v.Facts.Path)
	n.kept, _ = filepath.Rel(n.path, kept)
	return err
}

// lateFile is a file of the new content whose name is not synced when the content is complete. The replacement does
// that for all names.
const lateFile = "late"

// nameOnly makes a file and syncs it, and not its name.
func nameOnly(path string) error {
	file, err := recorder.OpenFile(path, recorder.O_RDWR|recorder.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(file.Sync(), file.Close())
}

// hasLate fails if the new content lacks lateFile.
func (n *replacing) hasLate() error {
	if n.now.cluster != "c2" {
		return nil
	}
	_, err := recorder.Stat(filepath.Join(n.path, dataFolder, lateFile))
	return err
}

// loseInReplacement lets the power fail at each event of a replacement, and after programs that
// were killed in it: the old content is in force, or the new one. The old one is kept.
func loseInReplacement(t *testing.T) {
	n := newReplacing(t)
	n.also = n.hasLate
	storetest.Must(t, n.replace(0))
	n.checkEachEvent()
	if err := n.checkKept(n.record.Crash(n.record.Len(), nil)); err != nil {
		t.Fatalf("journal %t: the old content: %v\n%s", journaled, err, n.record.Last(n.record.Len(), 120))
	}
	kept := n.kept
	for kill, killed := 1, true; killed; kill++ {
		err := n.replace(kill)
		if killed = n.record.Killed(); killed {
			n.crash()
			err = fixedLife()[4](n.powerNode) // a start
		}
		n.record.Stop()
		n.end()
		left := n.record.Crash(n.record.Len(), nil)
		if err == nil {
			err = n.check(left, n.last)
		}
		if n.kept = kept; err == nil && n.now.cluster == "c2" {
			err = n.checkKept(left)
		}
		if err != nil {
			t.Fatalf("journal %t, killed at event %d: %v\n%s", journaled, kill, err, n.record.Last(n.record.Len(), 120))
		}
	}
}

// checkKept opens the old content as a loss of power has left it.
func (n *replacing) checkKept(left recorder.Image) error {
	n.folders++
	n.path = filepath.Join(n.base, "kept")
	defer n.end()
	if err := left.Write(n.path); err != nil {
		return err
	}
	o := options(filepath.Join(n.path, n.kept))
	s, err := Open(o)
	if err != nil {
		return err
	}
	n.store = s
	return n.old.difference(s)
}
