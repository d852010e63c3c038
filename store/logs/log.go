package logs

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/store/damage"
)

// checkedLog is the log as Raft sees it: it puts a checksum on each entry that it stores,
// and checks each one that it returns.
//
// It lies outside the log cache, not beneath it: a cached entry is checked too
// (its bytes are shared with whoever stored it, and memory rots as well), and an
// entry from the cache has its checksum when it goes to the followers.
//
// The cache turns errors of StoreLogs into text. So the log beneath it remembers
// its last one, and this returns that, typed.
type checkedLog struct {
	top   raft.LogStore // the cache over below, or below itself
	below *watchedLog
	guard *damage.Guard
	// covered is Config.Covered. Raft stores entries beyond its newest snapshot only, but
	// for one case: a node has the snapshot of a restore that never came into force, its log
	// ends before it, and the next leader goes on there. Raft would store and acknowledge
	// such entries, and never apply them.
	covered *atomic.Uint64
	// headless reports whether that is so; without it any newest snapshot counts as such.
	headless atomic.Pointer[func() bool]

	storing sync.Mutex // held during StoreLogs, so that below's last error is this call's
}

var _ raft.LogStore = (*checkedLog)(nil)

// newLog puts the layers over a log, from the disk outwards: injected faults, the watch
// over writes, the cache, the checksums. A cache of no entries is left out.
func newLog(c Config, bottom raft.LogStore, file string, cached int) (*checkedLog, error) {
	if c.Wrap != nil {
		bottom = c.Wrap(bottom)
	}
	watched := &watchedLog{LogStore: bottom, file: file, begun: map[int]time.Time{}}
	log := &checkedLog{top: watched, below: watched, guard: c.Guard, covered: cmp.Or(c.Covered, new(atomic.Uint64))}
	if cached > 0 {
		cache, err := raft.NewLogCache(cached, watched)
		if err != nil {
			return nil, err
		}
		log.top = cache
	}
	return log, nil
}

func (c *checkedLog) FirstIndex() (uint64, error) { return c.top.FirstIndex() }

func (c *checkedLog) LastIndex() (uint64, error) { return c.top.LastIndex() }

func (c *checkedLog) GetLog(index uint64, log *raft.Log) error {
	// Before the cache is asked: a damaged node must not go on replicating.
	if err := c.guard.Refusal(); err != nil {
		return err
	}
	if err := c.top.GetLog(index, log); err != nil {
		return err
	}
	err := checkRead(index, log)
	if err == nil {
		return nil
	}
	*log = raft.Log{} // never wrong bytes, not even beside an error
	file := c.below.file
	var again raft.Log
	if c.below.GetLog(index, &again) == nil && checkRead(index, &again) == nil {
		file = "the log cache in memory" // the file is right
	}
	return c.guard.Damaged(file, index, err.Error(), nil)
}

// checkRead makes sure that an entry is the one asked for, unchanged.
func checkRead(index uint64, log *raft.Log) error {
	if log.Index != index {
		return fmt.Errorf("the entry there says that it has index %d", log.Index)
	}
	return checkEntry(log)
}

func (c *checkedLog) StoreLog(log *raft.Log) error { return c.StoreLogs([]*raft.Log{log}) }

func (c *checkedLog) StoreLogs(logs []*raft.Log) error {
	own, err := c.admit(logs)
	if err != nil {
		return err
	}
	c.storing.Lock()
	defer c.storing.Unlock()
	if err := c.top.StoreLogs(own); err != nil {
		return c.below.storeError(err)
	}
	return nil
}

// Seal returns entries as StoreLogs of Logs would store them, each with its checksum, or the
// error with which it would refuse them. It does not look at the disk. What it returns may
// be stored later: the same entries come out.
func (s *Stores) Seal(entries []*raft.Log) ([]*raft.Log, error) { return s.log.admit(entries) }

// Full reports whether an error of Logs means that there is no room on the disk.
func (s *Stores) Full(err error) bool { return damage.IsFull(err) }

// admit returns entries as they are stored, or the error with which they are refused.
func (c *checkedLog) admit(logs []*raft.Log) ([]*raft.Log, error) {
	if err := c.guard.Refusal(); err != nil {
		return nil, err
	}
	if newest := c.covered.Load(); len(logs) > 0 && logs[0].Index <= newest && c.refuses() {
		return nil, fmt.Errorf("%w: entry %d, where the snapshot has index %d; that is of a restore which the other members don't have, "+
			"so stop this node, empty its data folder and start it: it gets the state from them", ErrCovered, logs[0].Index, newest)
	}
	return sealed(logs)
}

// refuses reports whether entries that the newest snapshot covers are refused.
func (c *checkedLog) refuses() bool {
	headless := c.headless.Load()
	return headless == nil || (*headless)()
}

// RefuseCovered lets Logs take entries that the newest snapshot covers while headless returns
// false: that state is in force, so the entries are those that led to it. A leader sends them if
// the first entry after a snapshot could not be stored. headless must not block.
func (s *Stores) RefuseCovered(headless func() bool) { s.log.headless.Store(&headless) }

func (c *checkedLog) DeleteRange(first, last uint64) error { return c.top.DeleteRange(first, last) }

// StuckFor returns how long the oldest write to the log that is under way has taken so
// far; 0 when there is none. It never waits.
func (s *Stores) StuckFor() time.Duration {
	w := s.log.below
	w.mu.Lock()
	defer w.mu.Unlock()
	var longest time.Duration
	for _, at := range w.begun {
		longest = max(longest, time.Since(at))
	}
	return longest
}

// watchedLog times the writes to the log beneath it, so that a leader whose disk
// hangs can be found out (raft#503: the library itself never does: its
// heartbeats go on). It also says which errors mean a full disk.
//
// Faults that tests inject (Config.Wrap) are beneath it, so that it sees a
// write that hangs there, or fails for want of room, like a real one.
type watchedLog struct {
	raft.LogStore
	file string // for messages

	mu     sync.Mutex // never held during a write
	begun  map[int]time.Time
	writes int
	last   error // of the latest StoreLogs
}

// timed runs a write under the watch.
func (w *watchedLog) timed(write func() error) error {
	w.mu.Lock()
	w.writes++
	id := w.writes
	w.begun[id] = time.Now()
	w.mu.Unlock()

	defer func() {
		w.mu.Lock()
		delete(w.begun, id)
		w.mu.Unlock()
	}()
	if err := write(); err != nil {
		return damage.AsFull(w.file, err)
	}
	return nil
}

func (w *watchedLog) StoreLog(log *raft.Log) error { return w.StoreLogs([]*raft.Log{log}) }

func (w *watchedLog) StoreLogs(logs []*raft.Log) error {
	err := w.timed(func() error { return w.LogStore.StoreLogs(logs) })
	w.mu.Lock()
	w.last = err
	w.mu.Unlock()
	return err
}

func (w *watchedLog) DeleteRange(first, last uint64) error {
	return w.timed(func() error { return w.LogStore.DeleteRange(first, last) })
}

// storeError returns the error of the latest StoreLogs, or the given one if that
// had none.
func (w *watchedLog) storeError(otherwise error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last != nil {
		return w.last
	}
	return otherwise
}

// The checksum of an entry travels in raft.Log.Extensions, which the library
// itself never sets nor reads: it stores and replicates them like Data. So an
// entry has its checksum from the moment the leader stores it, and each follower
// checks it before it stores the entry.
//
// Its form: magic, version, CRC32C in network order. The version lets a later
// program cover more (AppendedAt isn't covered: it is for display only).
const (
	checksumMagic   = 0xC5
	checksumVersion = 1
	checksumLength  = 6
)

// entryChecksum is the CRC32C over index, term, type and data.
func entryChecksum(log *raft.Log) uint32 {
	var head [17]byte
	binary.BigEndian.PutUint64(head[:], log.Index)
	binary.BigEndian.PutUint64(head[8:], log.Term)
	head[16] = byte(log.Type)
	return crc32.Update(crc32.Checksum(head[:], castagnoli), castagnoli, log.Data)
}

// encodeChecksum returns the Extensions for an entry.
func encodeChecksum(sum uint32) []byte {
	return binary.BigEndian.AppendUint32([]byte{checksumMagic, checksumVersion}, sum)
}

// decodeChecksum reads Extensions. The error says why they are not of a form
// that this program knows.
func decodeChecksum(extensions []byte) (uint32, error) {
	switch {
	case len(extensions) == 0:
		return 0, fmt.Errorf("it has no checksum")
	case len(extensions) < 2 || extensions[0] != checksumMagic:
		return 0, fmt.Errorf("its extensions are not a checksum")
	case extensions[1] != checksumVersion:
		return 0, fmt.Errorf("its checksum has version %d, and this program knows version %d", extensions[1], checksumVersion)
	case len(extensions) != checksumLength:
		return 0, fmt.Errorf("its checksum has %d bytes instead of %d", len(extensions), checksumLength)
	}
	return binary.BigEndian.Uint32(extensions[2:]), nil
}

// checkEntry makes sure that an entry is what its checksum was made of.
func checkEntry(log *raft.Log) error {
	want, err := decodeChecksum(log.Extensions)
	if err != nil {
		return err
	}
	if got := entryChecksum(log); got != want {
		return fmt.Errorf("its checksum is %08x and should be %08x", got, want)
	}
	return nil
}

// sealed returns the entries with a checksum each. Those that have one are
// checked; the others are copied, since the ones given are shared with Raft's
// own goroutines. The error is an EntryError.
func sealed(logs []*raft.Log) ([]*raft.Log, error) {
	var copies []*raft.Log
	for i, log := range logs {
		if len(log.Extensions) > 0 {
			if err := checkEntry(log); err != nil {
				return nil, &EntryError{Index: log.Index, Detail: err.Error()}
			}
			continue
		}
		if copies == nil {
			copies = append(copies, logs...)
		}
		own := *log
		own.Extensions = encodeChecksum(entryChecksum(log))
		copies[i] = &own
	}
	if copies == nil {
		return logs, nil
	}
	return copies, nil
}

// ErrBadEntry reports that an entry given to be stored doesn't match its checksum.
// No entry of its batch is stored, and the folder is sound.
var ErrBadEntry = errors.New("a log entry does not match its checksum")

// ErrCovered reports entries at or below the index of the newest snapshot, given to be
// stored while that is not in force. None of them is stored, and the folder is sound.
var ErrCovered = errors.New("the newest snapshot is ahead of these log entries")

// EntryError says which entry was refused. It is an ErrBadEntry.
type EntryError struct {
	Index  uint64
	Detail string
}

func (e *EntryError) Error() string {
	return fmt.Sprintf("log entry %d was refused: %s", e.Index, e.Detail)
}

// Unwrap makes it an ErrBadEntry.
func (e *EntryError) Unwrap() error { return ErrBadEntry }
