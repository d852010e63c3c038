package logs

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/store/damage"
	"github.com/signalbox/signalbox/store/journal"
	"github.com/signalbox/signalbox/test/storetest"
)

// powerCases is how many lives of a node TestPowerLoss ends by a loss of power.
// SIGNALBOX_STORE_POWER_CASES overrides it, and SIGNALBOX_STORE_POWER_SEED the seed.
const powerCases = 600

// errPower is the error of all that a disk without power is asked for.
var errPower = errors.New("the power is off")

// power fails at a random write to any of the disks that share it.
type power struct {
	r    *rand.Rand
	left int // writes until then
	off  bool
	full int // one of so many writes finds no room, 0 for none; all the same it may be done
}

// noRoom decides whether a write fails for want of room.
func (p *power) noRoom() bool { return p.full > 0 && !p.off && p.r.IntN(p.full) == 0 }

// fails counts a write; at the last one, and after it, it is true.
func (p *power) fails() (now, later bool) {
	if p.off {
		return false, true
	}
	p.left--
	p.off = p.left <= 0
	return p.off, false
}

// write makes a change that takes place as a whole or not at all.
func (p *power) write(change func() error) error {
	if p.noRoom() {
		if p.r.IntN(2) == 0 {
			_ = change() // never fails
		}
		return storetest.Full
	}
	now, later := p.fails()
	if later || now && p.r.IntN(2) == 0 {
		return errPower
	}
	if err := change(); err != nil || !now {
		return err
	}
	return errPower
}

// sectorFile is a journal's file of which a write in progress may leave any of its sectors.
type sectorFile struct {
	*power
	content []byte
}

func (f *sectorFile) ReadAt(into []byte, at int64) (int, error) {
	return copy(into, f.content[at:]), nil
}

func (f *sectorFile) Close() error { return nil }

func (f *sectorFile) WriteAt(from []byte, at int64) (int, error) {
	const sector = 512
	full := f.noRoom()
	whole := full && f.r.IntN(2) == 0
	now, later := full, false
	if !full {
		now, later = f.fails()
	}
	for begin := at; begin < at+int64(len(from)) && !later; {
		end := min((begin/sector+1)*sector, at+int64(len(from)))
		if !now || whole || f.r.IntN(2) == 0 {
			copy(f.content[begin:end], from[begin-at:end-at])
		}
		begin = end
	}
	switch {
	case full:
		return 0, storetest.Full
	case now || later:
		return 0, errPower
	}
	return len(from), nil
}

// atomicBolt stands for bbolt: each transaction takes place or does not.
type atomicBolt struct {
	*power
	*memoryLog
	stable []byte
}

func (b *atomicBolt) StoreLogs(logs []*raft.Log) error {
	return b.write(func() error { return b.memoryLog.StoreLogs(logs) })
}

func (b *atomicBolt) DeleteRange(first, last uint64) error {
	return b.write(func() error { return b.memoryLog.DeleteRange(first, last) })
}

func (b *atomicBolt) Set(_, value []byte) error {
	return b.write(func() error { b.stable = slices.Clone(value); return nil })
}

// lazyWitness is a witness whose rises reach the disk at any time, or never.
type lazyWitness struct {
	*power
	entry    uint64
	possible []uint64 // on the disk may be any of them
}

func (w *lazyWitness) RaiseStable(uint64) {}

func (w *lazyWitness) RaiseEntry(index uint64) {
	if index > w.entry && !w.off {
		w.entry, w.possible = index, append(w.possible, index)
	}
}

func (w *lazyWitness) LowerEntry(index uint64) error {
	if index >= w.entry {
		return nil
	}
	w.possible = append(w.possible, index)
	if w.noRoom() {
		return damage.AsFull("witness", storetest.Full)
	}
	if now, later := w.fails(); now || later {
		return errPower
	}
	w.entry, w.possible = index, []uint64{index}
	return nil
}

// machine is a node's disks, and the log that it must have.
type machine struct {
	r       *rand.Rand
	file    *sectorFile
	bolt    *atomicBolt
	witness *lazyWitness
	log     *journaledLog

	want map[uint64]*raft.Log // acknowledged
	next map[uint64]*raft.Log // if the change that is under way takes place; nil for a drain
	// possible are the logs of the changes that were refused after the last one that was
	// acknowledged. A loss of power may bring one of them.
	possible []map[uint64]*raft.Log
	term     uint64
}

func newMachine(t *testing.T, r *rand.Rand) *machine {
	folder := storetest.Folder(t)
	storetest.Must(t, journal.Create(folder, 8<<10, 0))
	content, err := os.ReadFile(filepath.Join(folder, journal.FileName))
	storetest.Must(t, err)
	p := &power{r: r}
	return &machine{
		r: r, file: &sectorFile{p, content}, witness: &lazyWitness{power: p, possible: []uint64{0}}, want: map[uint64]*raft.Log{},
		bolt: &atomicBolt{power: p, memoryLog: &memoryLog{}, stable: stableRecord{generation: 1}.encode()},
	}
}

// start opens the log as a node does, and compares it with what it must have.
func (m *machine) start() error {
	p := m.file.power
	p.off, p.left = false, 1+m.r.IntN(40)
	m.witness.entry = m.witness.possible[m.r.IntN(len(m.witness.possible))]
	m.witness.possible = []uint64{m.witness.entry}
	stable, err := decodeStableRecord(m.bolt.stable)
	if err != nil {
		return err
	}
	found := Contents{stable: stable}
	for _, log := range m.bolt.stored {
		found.inBolt, found.spans = found.inBolt.with(log.Index), found.spans.with(log.Index)
	}
	if found.journal, err = journal.Read(m.file, stable.drained()); err != nil {
		return fmt.Errorf("false alarm: %w", err)
	}
	guard := damage.NewGuard("", nil)
	below := &boltLog{bolt: m.bolt, guard: guard, witness: silent{}, logger: hclog.NewNullLogger(), extent: found.inBolt}
	values := &stableValues{bolt: m.bolt, guard: guard, witness: m.witness, reserve: &room{}, logger: hclog.NewNullLogger(), now: stable}
	if m.log, err = newJournaled(Config{Guard: guard, Witness: m.witness, Logger: hclog.NewNullLogger()}, below, m.file, found, values); err != nil {
		if p.off || damage.IsFull(err) { // in the middle of a start
			return m.start()
		}
		return err
	}
	first, last, err := m.ends()
	isThere := slices.IndexFunc(append(m.possible, m.want), func(log map[uint64]*raft.Log) bool { return m.compare(log) == nil })
	if err != nil || isThere < 0 || last < m.witness.entry {
		return errors.Join(err, fmt.Errorf("the log has %d to %d, the witness saw %d: %w; or %w", first, last, m.witness.entry, m.compare(m.want), m.compare(m.next)))
	}
	if isThere < len(m.possible) {
		m.want = m.possible[isThere]
	}
	m.possible = nil
	return nil
}

func (m *machine) ends() (first, last uint64, err error) {
	first, err = m.log.FirstIndex()
	last, lastErr := m.log.LastIndex()
	return first, last, errors.Join(err, lastErr)
}

// compare returns how the log differs.
func (m *machine) compare(want map[uint64]*raft.Log) error {
	first, last, err := m.ends()
	indexes := slices.Sorted(maps.Keys(want))
	switch {
	case err != nil:
		return err
	case len(indexes) == 0 && last == 0:
		return nil
	case len(indexes) == 0 || first != indexes[0] || last != indexes[len(indexes)-1]:
		return fmt.Errorf("it has %d to %d instead of %v", first, last, indexes)
	}
	for index := first; index <= last; index++ {
		var got raft.Log
		err := m.log.GetLog(index, &got)
		switch {
		case want[index] == nil && errors.Is(err, raft.ErrLogNotFound):
		case want[index] == nil || err != nil:
			return fmt.Errorf("entry %d: error %v, wanted %t", index, err, want[index] != nil)
		case got.Term != want[index].Term || string(got.Data) != string(want[index].Data):
			return fmt.Errorf("entry %d has term %d instead of %d", index, got.Term, want[index].Term)
		}
	}
	return nil
}

// change makes one change as Raft does.
func (m *machine) change() error {
	first, last, err := m.ends()
	if err != nil {
		return err
	}
	m.next = maps.Clone(m.want)
	remove := func(first, last uint64) error {
		maps.DeleteFunc(m.next, func(index uint64, _ *raft.Log) bool { return first <= index && index <= last })
		return m.log.DeleteRange(first, last)
	}
	switch kind := m.r.IntN(20); {
	case kind < 3:
		m.next = nil
		return m.log.drain()
	case kind < 5 && last > 0: // a suffix, sometimes all of it
		m.term++
		return remove(first+m.r.Uint64N(last-first+1), last)
	case kind < 7 && last > first:
		return remove(first, first+m.r.Uint64N(last-first))
	case kind == 7: // a snapshot takes over
		last += 1 + m.r.Uint64N(30)
	}
	return m.log.StoreLogs(m.batch(last + 1))
}

// batch makes the next entries; now and then they are more than a half of the journal holds.
func (m *machine) batch(first uint64) (batch []*raft.Log) {
	for i := range 1 + m.r.Uint64N(6) {
		size := m.r.IntN(400)
		if m.r.IntN(100) == 0 {
			size = 9000
		}
		log := &raft.Log{Index: first + i, Term: m.term, Data: storetest.Bytes(m.r.Uint64(), size)}
		batch, m.next[log.Index] = append(batch, log), log
	}
	return batch
}

// TestPowerLoss: whatever write a loss of power interrupts, and whatever sectors of it and
// rises of the witness are on the disk then, the log has all that was acknowledged, in its
// order, perhaps the change under way, and no start takes it for damage. One node lives
// many times: also starts and drains are interrupted. Half of the nodes have a disk that is full
// at times, and then it isn't known what a write has left there: a refused change may be there
// after a loss of power if no other one came after it.
func TestPowerLoss(t *testing.T) {
	number := func(name string, otherwise uint64) uint64 {
		if n, err := strconv.ParseUint(os.Getenv(name), 10, 64); err == nil {
			return n
		}
		return otherwise
	}
	seed, changes, refused := number("SIGNALBOX_STORE_POWER_SEED", 1), 0, 0
	cases := number("SIGNALBOX_STORE_POWER_CASES", powerCases)
	for lives := uint64(0); lives < cases; {
		r := rand.New(rand.NewPCG(seed, lives))
		m := newMachine(t, r)
		if r.IntN(2) == 0 {
			m.file.full = 5 + r.IntN(30)
		}
		for range 30 {
			if err := m.start(); err != nil {
				t.Fatalf("seed %d, life %d: %v", seed, lives, err)
			}
			for ; !m.file.off; changes++ {
				err := m.change()
				if m.next != nil {
					m.possible = append(m.possible, m.next)
				}
				switch {
				case err == nil && m.next == nil:
				case err == nil:
					m.want, m.possible = m.next, nil
				case m.file.off:
				case damage.IsFull(err):
					refused++
					err = m.compare(m.want) // nothing has changed
				}
				if err != nil && !m.file.off {
					t.Fatalf("seed %d, life %d: a change failed: %v", seed, lives, err)
				}
			}
			lives++
		}
	}
	t.Logf("seed %d: %d losses of power, %d changes, %d of them refused", seed, cases, changes, refused)
}
