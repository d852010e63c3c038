package store

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/store/folder"
	"github.com/signalbox/signalbox/test/recorder"
	"github.com/signalbox/signalbox/test/storetest"
)

// promise is all that a store has acknowledged. It is never changed.
type promise struct {
	log       map[uint64]*raft.Log
	stable    map[string]string
	snapshots []taken // the newest first
	cluster   string
	restored  uint64
	id        folder.ID // zero until a start of the node has returned
	term      uint64    // of the next entries
}

// taken is a snapshot.
type taken struct {
	index, term uint64
	size        int
}

func (s taken) content() []byte { return storetest.Bytes(s.index, s.size) }

func (p promise) clone() promise {
	p.log, p.stable, p.snapshots = maps.Clone(p.log), maps.Clone(p.stable), slices.Clone(p.snapshots)
	return p
}

// ends returns the first and the last index of the log, 0 if it is empty.
func (p promise) ends() (first, last uint64) {
	for index := range p.log {
		if first == 0 || index < first {
			first = index
		}
		last = max(last, index)
	}
	return first, last
}

// String describes the promise for messages.
func (p promise) String() string {
	first, last := p.ends()
	return fmt.Sprintf("log %d to %d, stable %q, snapshots %v, cluster %q, restored %d", first, last, p.stable, p.snapshots, p.cluster, p.restored)
}

// covered is the index of the newest snapshot.
func (p promise) covered() uint64 {
	if len(p.snapshots) == 0 {
		return 0
	}
	return p.snapshots[0].index
}

// difference returns what a store has instead of the promised.
func (p promise) difference(s *Store) error {
	if s.ClusterID() != p.cluster || s.RestoredTerm() != p.restored || p.id != (folder.ID{}) && s.FolderID() != p.id {
		return fmt.Errorf("cluster %q, restored %d, folder %v instead of %q, %d, %v", s.ClusterID(), s.RestoredTerm(), s.FolderID(), p.cluster, p.restored, p.id)
	}
	for _, key := range []string{"CurrentTerm", "LastVoteTerm", "LastVoteCand"} {
		got, err := s.Stable().Get([]byte(key))
		if string(got) != p.stable[key] || err != nil && err.Error() != "not found" {
			return fmt.Errorf("stable value %s is %q instead of %q, error %v", key, got, p.stable[key], err)
		}
	}
	return errors.Join(p.otherLog(s.Logs()), p.otherSnapshots(s.Snapshots()))
}

func (p promise) otherLog(log raft.LogStore) error {
	first, last := p.ends()
	gotFirst, err := log.FirstIndex()
	gotLast, lastErr := log.LastIndex()
	if err := errors.Join(err, lastErr); err != nil || gotFirst != first || gotLast != last {
		return fmt.Errorf("the log has %d to %d instead of %d to %d, error %w", gotFirst, gotLast, first, last, err)
	}
	for index := first; index <= last && last > 0; index++ {
		var got raft.Log
		want := p.log[index]
		err := log.GetLog(index, &got)
		switch {
		case want == nil && errors.Is(err, raft.ErrLogNotFound):
		case want == nil || err != nil:
			return fmt.Errorf("entry %d: error %w, wanted %t", index, err, want != nil)
		case got.Term != want.Term || !bytes.Equal(got.Data, want.Data):
			return fmt.Errorf("entry %d has term %d instead of %d", index, got.Term, want.Term)
		}
	}
	return nil
}

func (p promise) otherSnapshots(snapshots raft.SnapshotStore) error {
	metas, err := snapshots.List()
	if err != nil || len(metas) != len(p.snapshots) {
		return fmt.Errorf("there are %d snapshots instead of %d, error %w", len(metas), len(p.snapshots), err)
	}
	for i, want := range p.snapshots {
		_, reader, err := snapshots.Open(metas[i].ID)
		if err != nil {
			return err
		}
		content, err := io.ReadAll(reader)
		if err = errors.Join(err, reader.Close()); err != nil || metas[i].Index != want.index || metas[i].Term != want.term || !bytes.Equal(content, want.content()) {
			return fmt.Errorf("snapshot %s has %d bytes instead of %d of index %d, error %w", metas[i].ID, len(content), want.size, want.index, err)
		}
	}
	return nil
}

// moment says what may be promised when the power fails before so many events.
type moment struct {
	end      int
	possible []promise
}

// powerNode is a node whose power fails again and again.
type powerNode struct {
	t       *testing.T
	r       *rand.Rand
	base    string
	folders int
	disk    recorder.Image
	before  []promise // one of them is on the disk

	record  *recorder.Record // of this life
	path    string
	store   *Store
	now     promise
	history []moment
	last    []promise    // at its end
	killed  int          // programs
	also    func() error // checks an opened folder further; may be nil
}

// dataFolder is the data folder in the record's folder: the program makes the one above it as well.
var dataFolder = filepath.Join("var", "data")

// options are for the next start: a folder may be opened with and without a journal.
func (n *powerNode) options() Options {
	o := options(filepath.Join(n.path, dataFolder))
	o.Journal = journaled == (n.r.IntN(8) > 0)
	o.JournalHalf = int64(4+4*n.r.IntN(5)) << 10
	return o
}

// open starts a program. What it finds was promised, and is so from now on.
func (n *powerNode) open(possible []promise) error { return n.start(n.options(), possible) }

func (n *powerNode) start(o Options, possible []promise) error {
	s, err := Open(o)
	if err != nil {
		return err
	}
	n.store = s
	n.note("started, the log is %v", possible)
	if s.Journal() != o.Journal {
		return fmt.Errorf("the journal is %t", s.Journal())
	}
	var all error
	for _, p := range possible {
		err := p.difference(s)
		if err == nil {
			p.id = s.FolderID()
			n.now = p
			return nil
		}
		all = errors.Join(all, err)
	}
	return all
}

// live starts a program, and others when it is killed, and changes the folder for a while.
// The record has all of it.
func (n *powerNode) live() error {
	n.folders++
	n.path, n.history = filepath.Join(n.base, strconv.Itoa(n.folders)), nil
	var err error
	if n.record, err = recorder.Start(n.path, n.disk); err != nil {
		return err
	}
	defer n.record.Stop()
	n.killSometimes()
	n.last = n.before
	for range 5 + n.r.IntN(30) {
		possible := n.last
		if n.store == nil {
			err = n.open(possible)
		} else {
			n.now, possible, err = n.change()
		}
		if err != nil && n.record.Killed() {
			n.killed++
			n.crash()
			n.killSometimes()
			n.last = possible // the next program finds any of them
			continue
		}
		if err != nil {
			return err
		}
		_ = n.take(possible, nil)
	}
	return nil
}

// note adds to what is printed of a failure.
func (n *powerNode) note(format string, arguments ...any) {
	if n.record != nil {
		n.record.Note(fmt.Sprintf(format, arguments...))
	}
}

// killSometimes lets half of the programs die at some event.
func (n *powerNode) killSometimes() {
	n.record.KillAt(n.r.IntN(2) * (n.record.Len() + 1 + n.r.IntN(60)))
}

// crash closes the files of a program that is gone.
func (n *powerNode) crash() {
	if n.store != nil {
		_, _ = n.store.guard.Close(func() (err error) {
			for _, file := range n.store.bolt {
				err = errors.Join(err, file.Close())
			}
			return err
		})
		_ = n.store.Folder.Close()
	}
	n.store = nil
	n.record.KillAt(0)
}

// change makes one change as Raft and the node do, and returns what is promised after it, and
// what may be promised as long as it is under way.
func (n *powerNode) change() (now promise, possible []promise, err error) {
	r, s, next := n.r, n.store, n.now.clone()
	first, last := next.ends()
	var do func() error
	switch kind := r.IntN(40); {
	case kind < 3:
		do = s.Drain
	case kind < 6 && last > max(next.covered(), first): // a tail that another leader replaces
		do = n.cut(&next, max(next.covered()+1, first)+r.Uint64N(last-max(next.covered(), first)), last)
		next.term++
	case kind < 9 && first > 0 && first < next.covered(): // what a snapshot covers
		do = n.cut(&next, first, first+r.Uint64N(min(last, next.covered())-first+1))
	case kind < 14 && last > next.covered():
		do = n.snapshot(&next, next.covered()+1+r.Uint64N(last-next.covered()))
	case kind == 14: // from a leader, ahead of the log
		do = n.snapshot(&next, max(last, next.covered())+1+r.Uint64N(20))
	case kind == 15 && first > 0 && last < next.covered(): // then the log before it goes
		do = n.cut(&next, first, last)
	case kind < 20:
		do = n.vote(&next)
	case kind == 20:
		next.restored = r.Uint64N(3)
		do = func() error { return s.SetRestoredTerm(next.restored) }
	case kind == 21:
		next.cluster = "c1"
		do = func() error { return s.SetClusterID("c1") }
	case kind == 22:
		do = func() error { s.Reserve().Release(); return nil }
	case kind == 23:
		do = func() error { _, err := s.Space(); return err }
	case kind == 24:
		do = func() error { err := s.Close(); n.store = nil; return errors.Join(err, n.open([]promise{n.now})) }
	default:
		do = n.append(&next, max(last, next.covered())+1)
	}
	return n.make(next, do)
}

// make makes a change after which next is promised.
func (n *powerNode) make(next promise, do func() error) (now promise, possible []promise, err error) {
	possible = []promise{n.now, next}
	n.note("change %v", next)
	if err = do(); err != nil {
		return n.now, possible, err
	}
	return next, possible, nil
}

func (n *powerNode) cut(next *promise, first, last uint64) func() error {
	maps.DeleteFunc(next.log, func(index uint64, _ *raft.Log) bool { return first <= index && index <= last })
	return func() error { return n.store.Logs().DeleteRange(first, last) }
}

func (n *powerNode) append(next *promise, first uint64) func() error {
	var batch []*raft.Log
	for i := range 1 + n.r.Uint64N(6) {
		size := n.r.IntN(600)
		if n.r.IntN(60) == 0 {
			size = 25_000 // more than a half of the journal holds
		}
		log := &raft.Log{Index: first + i, Term: next.term, Data: storetest.Bytes(n.r.Uint64(), size)}
		batch, next.log[log.Index] = append(batch, log), log
	}
	return func() error { return n.store.Logs().StoreLogs(batch) }
}

func (n *powerNode) snapshot(next *promise, index uint64) func() error {
	made := taken{index, next.term, n.r.IntN(3000)}
	switch n.r.IntN(50) {
	case 0:
		made.size = 5 << 20 // more than one transaction
	case 1, 2, 3:
		made.size = 300 << 10 // more than one chunk
	}
	next.snapshots = append([]taken{made}, next.snapshots[:min(1, len(next.snapshots))]...)
	return func() error {
		sink, err := n.store.Snapshots().Create(1, made.index, made.term, storetest.Configuration(), 1, nil)
		if err != nil {
			return err
		}
		if _, err := sink.Write(made.content()); err != nil {
			return err
		}
		return sink.Close()
	}
}

func (n *powerNode) vote(next *promise) func() error {
	term := 2 + n.r.Uint64N(1000)
	number := string([]byte{0, 0, 0, 0, 0, 0, byte(term >> 8), byte(term)})
	if n.r.IntN(2) == 0 {
		next.stable["CurrentTerm"] = number
		return func() error { return n.store.Stable().SetUint64([]byte("CurrentTerm"), term) }
	}
	next.stable["LastVoteTerm"], next.stable["LastVoteCand"] = number, fmt.Sprint("n", term)
	return func() error {
		return errors.Join(n.store.Stable().SetUint64([]byte("LastVoteTerm"), term), n.store.Stable().Set([]byte("LastVoteCand"), fmt.Append(nil, "n", term)))
	}
}

// possible is what may be promised when the power fails at an event of the life.
func (n *powerNode) possible(at int) []promise {
	for _, m := range n.history {
		if at < m.end {
			return m.possible
		}
	}
	return n.last
}

// check opens what a loss of power has left.
func (n *powerNode) check(left recorder.Image, possible []promise) error {
	n.folders++
	n.path = filepath.Join(n.base, strconv.Itoa(n.folders))
	defer n.end()
	if err := left.Write(n.path); err != nil {
		return err
	}
	if err := n.open(possible); err != nil || n.also == nil {
		return err
	}
	return n.also()
}

// losses is how many ends of each life are looked at.
const losses = 8

// losePower lets the power of nodes fail. Of each life it looks at some ends by opening the folder,
// and the last of them begins the next life.
func losePower(t *testing.T) {
	count := fromEnvironment(t, "SIGNALBOX_STORE_CRASHES", crashes) / 2 // with and without a journal
	seed := fromEnvironment(t, "SIGNALBOX_STORE_CRASH_SEED", 1)
	base := storetest.Folder(t)
	lives, killed := uint64(0), 0
	var n *powerNode
	for done := uint64(0); done < count; lives++ {
		if lives%20 == 0 {
			r := rand.New(rand.NewPCG(seed, lives))
			n = &powerNode{t: t, r: r, base: filepath.Join(base, fmt.Sprint(journaled, lives)), before: []promise{nothing()}}
		}
		fail := func(at int, err error) {
			t.Fatalf("journal %t, seed %d, life %d, event %d: %v\n%s", journaled, seed, lives, at, err, n.record.Last(at, 40))
		}
		if err := n.live(); err != nil {
			fail(n.record.Len(), err)
		}
		n.end()
		for range losses {
			at := n.r.IntN(n.record.Len() + 1)
			n.disk, n.before = n.record.Crash(at, n.r), n.possible(at)
			if err := n.check(n.disk, n.before); err != nil {
				fail(at, err)
			}
			done++
		}
		killed, n.killed = killed+n.killed, 0
	}
	t.Logf("journal %t, seed %d: %d losses of power, %d programs killed before, in %d lives", journaled, seed, count, killed, lives)
}

// fixedLife is one life of a node, step by step.
func fixedLife() []func(*powerNode) error {
	start := func(with bool) func(*powerNode) error {
		return func(n *powerNode) error {
			if n.store != nil {
				if err := n.store.Close(); err != nil {
					return err
				}
			}
			o := options(filepath.Join(n.path, dataFolder))
			o.Journal, o.JournalHalf = with, 8<<10
			return n.take(n.last, n.start(o, n.last))
		}
	}
	change := func(f func(n *powerNode, next *promise, last uint64) func() error) func(*powerNode) error {
		return func(n *powerNode) error {
			next := n.now.clone()
			_, last := next.ends()
			now, possible, err := n.make(next, f(n, &next, max(last, next.covered())))
			n.now = now
			return n.take(possible, err)
		}
	}
	store := change(func(n *powerNode, next *promise, last uint64) func() error { return n.append(next, last+1) })
	cut := change(func(n *powerNode, next *promise, last uint64) func() error { return n.cut(next, last, last) })
	return []func(*powerNode) error{
		start(!journaled), store, cut,
		change(func(n *powerNode, next *promise, last uint64) func() error { return n.snapshot(next, last) }),
		start(journaled), store,
		change(func(n *powerNode, next *promise, _ uint64) func() error { return n.vote(next) }),
		start(journaled), // the end of the program before syncs the witness
		cut,
		change(func(n *powerNode, _ *promise, _ uint64) func() error { return n.store.Drain }),
		store,
	}
}

// take ends a step, of which possible is promised as long as it is under way.
func (n *powerNode) take(possible []promise, err error) error {
	if err != nil {
		n.last = possible
		return err
	}
	n.history, n.last = append(n.history, moment{n.record.Len(), possible}), []promise{n.now}
	return nil
}

// begin begins the record of a fixed life, in which the program is killed after so many events.
func (n *powerNode) begin(kill int) {
	n.folders++
	n.r, n.path = rand.New(rand.NewPCG(1, uint64(kill))), filepath.Join(n.base, strconv.Itoa(n.folders))
	n.history, n.last = nil, []promise{nothing()}
	var err error
	if n.record, err = recorder.Start(n.path, recorder.Image{}); err != nil {
		n.t.Fatal(err)
	}
	n.record.KillAt(kill)
}

// loseAtEachEvent lets the power fail at each event of a fixed life.
func loseAtEachEvent(t *testing.T) {
	n := &powerNode{t: t, base: storetest.Folder(t)}
	n.begin(0)
	for _, step := range fixedLife() {
		storetest.Must(t, step(n))
	}
	n.checkEachEvent()
}

// checkEachEvent ends the life, and checks what a loss of power at each of its events leaves.
func (n *powerNode) checkEachEvent() {
	n.record.Stop()
	n.end()
	for at := range n.record.Len() + 1 {
		left := n.record.NameCrashes(at)
		for _, random := range []*rand.Rand{nil, n.r, n.r} {
			left = append(left, n.record.Crash(at, random))
		}
		for _, image := range left {
			if err := n.check(image, n.possible(at)); err != nil {
				n.t.Fatalf("journal %t, event %d: %v\n%s", journaled, at, err, n.record.Last(at, 120))
			}
		}
	}
}

// loseAfterKills kills a program at each event of a fixed life. The next program goes on from what it
// finds, with the step that was interrupted. Then the power fails, and nothing is left that was not
// synced.
func loseAfterKills(t *testing.T) {
	n := &powerNode{t: t, base: storetest.Folder(t)}
	steps := fixedLife()
	for kill, killed := 1, true; killed; kill++ {
		n.begin(kill)
		left := steps
		err := error(nil)
		for len(left) > 0 && err == nil {
			if err = left[0](n); err == nil {
				left = left[1:]
			}
		}
		if killed = n.record.Killed(); killed {
			n.crash()
			again := fixedLife()[4] // a start
			if len(left) == len(steps) {
				again = steps[0] // a journal that comes or goes would sync what the making of the folder has left
			}
			err = again(n)
			if kill%4 > 0 {
				left = left[:min(1, len(left))]
			}
			for len(left) > 0 && err == nil {
				err, left = left[0](n), left[1:]
			}
		}
		n.record.Stop()
		n.end()
		if err == nil {
			err = n.check(n.record.Crash(n.record.Len(), nil), n.last)
		}
		if err != nil {
			t.Fatalf("journal %t, killed at event %d: %v\n%s", journaled, kill, err, n.record.Last(n.record.Len(), 120))
		}
	}
}

// nothing is what a store without a folder has promised.
func nothing() promise {
	return promise{log: map[uint64]*raft.Log{}, stable: map[string]string{}, term: 2}
}

// end closes the program and removes its folder.
func (n *powerNode) end() {
	if n.store != nil {
		_ = n.store.Close() // a killed one complains
	}
	n.store = nil
	if err := os.RemoveAll(n.path); err != nil {
		n.t.Fatal(err)
	}
}
