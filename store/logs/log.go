package logs

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/store/damage"
)

// newLog puts the layers over a log, from the disk outwards: injected faults, the watch
// over writes, the cache, the checksums. A cache of no entries is left out.
//
// The watch sees a write that hangs or finds no room in an injected fault like one of the disk. The
// checksums are outside of the cache: a cached entry is checked too (the goroutine that stored it shares its
// bytes, and memory may fail as well), and an entry from the cache has its checksum when it goes to the followers.
func newLog(c Config, bottom raft.LogStore, file string, cached int) (*checkedLog, error) {
	if c.Wrap != nil {
		bottom = c.Wrap(bottom)
	}
	watched := &watchedLog{LogStore: bottom, file: file, pending: map[int]time.Time{}}
	log := &checkedLog{LogStore: watched, watched: watched, guard: c.Guard, covered: cmp.Or(c.Covered, new(atomic.Uint64))}
	if cached > 0 {
		cache, err := raft.NewLogCache(cached, watched)
		if err != nil {
			return nil, err
		}
		log.LogStore = cache
	}
	return log, nil
}

// checkedLog is the log as Raft sees it: it puts a checksum on each entry that it stores,
// and checks each entry that it returns.
type checkedLog struct {
	raft.LogStore // the cache over watched, or watched itself
	watched       *watchedLog
	guard         *damage.Guard
	storing       sync.Mutex // held during StoreLogs, so that the last error of watched is the error of this call

	// covered is Config.Covered. Raft stores entries beyond its newest snapshot only, with one exception: a
	// node has the snapshot of a restore that never came into force, its log ends before that snapshot, and the
	// next leader continues there. Raft would store and acknowledge such entries, and never apply them.
	covered *atomic.Uint64
	// headless reports whether the newest snapshot is not in force. Without it no newest snapshot counts as in force.
	headless atomic.Pointer[func() bool]
}

var _ raft.LogStore = (*checkedLog)(nil)

func (c *checkedLog) StoreLog(log *raft.Log) error { return c.StoreLogs([]*raft.Log{log}) }

func (c *checkedLog) StoreLogs(logs []*raft.Log) error {
	logs, err := c.seal(logs)
	if err != nil {
		return err
	}
	c.storing.Lock()
	defer c.storing.Unlock()
	if err := c.LogStore.StoreLogs(logs); err != nil {
		return cmp.Or(c.watched.lastError(), err) // the cache turns errors into text
	}
	return nil
}

// Seal returns entries as StoreLogs of Logs would store them, each with its checksum, or the
// error with which it would refuse them. It does not access the disk. The returned entries may
// be stored later, and do not change then.
func (s *Stores) Seal(entries []*raft.Log) ([]*raft.Log, error) { return s.log.seal(entries) }

func (c *checkedLog) seal(logs []*raft.Log) ([]*raft.Log, error) {
	if err := c.guard.Refusal(); err != nil {
		return nil, err
	}
	if newest := c.covered.Load(); len(logs) > 0 && logs[0].Index <= newest && c.refusesCovered() {
		return nil, fmt.Errorf("%w: entry %d, where the snapshot has index %d; that is of a restore which the other members don't have, "+
			"so stop this node, empty its data folder and start it: it gets the state from them", ErrCovered, logs[0].Index, newest)
	}
	return sealed(logs)
}

func (c *checkedLog) refusesCovered() bool {
	headless := c.headless.Load()
	return headless == nil || (*headless)()
}

// RefuseCovered lets Logs take entries that the newest snapshot covers while headless returns
// false: the snapshot is in force, so these entries led to it. A leader sends them if the first
// entry after a snapshot could not be stored. headless must not block.
func (s *Stores) RefuseCovered(headless func() bool) { s.log.headless.Store(&headless) }

func (c *checkedLog) GetLog(index uint64, log *raft.Log) error {
	// Before the cache is read: a damaged node must not continue to replicate.
	if err := c.guard.Refusal(); err != nil {
		return err
	}
	if err := c.LogStore.GetLog(index, log); err != nil {
		return err
	}
	err := checkRead(index, log)
	if err == nil {
		return nil
	}
	*log = raft.Log{} // never wrong bytes, not even with an error
	file := c.watched.file
	var stored raft.Log
	if c.watched.GetLog(index, &stored) == nil && checkRead(index, &stored) == nil {
		file = "the log cache in memory" // the file is right
	}
	return c.guard.Damaged(file, index, err.Error(), nil)
}

// watchedLog times the writes to the log beneath it, so that a leader notices when its disk
// hangs. Raft does not notice, since its heartbeats continue (raft#503). watchedLog also finds
// the errors that mean a full disk.
type watchedLog struct {
	raft.LogStore
	file string // for messages

	mu      sync.Mutex        // never held during a write
	pending map[int]time.Time // when each write under way began, by its number
	writes  int
	last    error // of the latest StoreLogs
}

func (w *watchedLog) StoreLog(log *raft.Log) error { return w.StoreLogs([]*raft.Log{log}) }

func (w *watchedLog) StoreLogs(logs []*raft.Log) error {
	err := w.watch(func() error { return w.LogStore.StoreLogs(logs) })
	w.mu.Lock()
	w.last = err
	w.mu.Unlock()
	return err
}

func (w *watchedLog) DeleteRange(first, last uint64) error {
	return w.watch(func() error { return w.LogStore.DeleteRange(first, last) })
}

func (w *watchedLog) watch(write func() error) error {
	w.mu.Lock()
	w.writes++
	number := w.writes
	w.pending[number] = time.Now()
	w.mu.Unlock()

	defer func() {
		w.mu.Lock()
		delete(w.pending, number)
		w.mu.Unlock()
	}()
	if err := write(); err != nil {
		return damage.AsFull(w.file, err)
	}
	return nil
}

// lastError returns the error of the latest StoreLogs, or nil.
func (w *watchedLog) lastError() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

// StuckFor returns how long the oldest pending write to the log has taken so
// far; 0 when no write is pending. It never waits.
func (s *Stores) StuckFor() time.Duration {
	w := s.log.watched
	w.mu.Lock()
	defer w.mu.Unlock()
	var longest time.Duration
	for _, began := range w.pending {
		longest = max(longest, time.Since(began))
	}
	return longest
}

// Full reports whether an error of Logs means that there is no room on the disk.
func (s *Stores) Full(err error) bool { return damage.IsFull(err) }

// The checksum of an entry travels in raft.Log.Extensions, which the library never sets nor reads, but
// stores and replicates like Data. So an entry has its checksum from the moment the leader stores it, and
// each follower checks it before it stores the entry.
//
// Its form: magic, version, CRC32C in network order. The version lets a later
// program cover more fields (AppendedAt isn't covered: it is for display only).
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

// checkEntry compares an entry with its checksum.
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

// checkRead makes sure that an entry is the entry at index, unchanged.
func checkRead(index uint64, log *raft.Log) error {
	if log.Index != index {
		return fmt.Errorf("the entry there says that it has index %d", log.Index)
	}
	return checkEntry(log)
}

// sealed returns the entries with a checksum each. It checks entries that have a checksum, and copies the
// others, since Raft's goroutines share the entries that it was given. The error is an EntryError.
func sealed(logs []*raft.Log) ([]*raft.Log, error) {
	result := logs
	for i, log := range logs {
		if len(log.Extensions) > 0 {
			if err := checkEntry(log); err != nil {
				return nil, &EntryError{Index: log.Index, Detail: err.Error()}
			}
			continue
		}
		if &result[0] == &logs[0] {
			result = slices.Clone(logs)
		}
		entry := *log
		entry.Extensions = encodeChecksum(entryChecksum(log))
		result[i] = &entry
	}
	return result, nil
}

// ErrBadEntry reports that an entry to be stored doesn't match its checksum.
// No entry of its batch is stored, and the folder is sound.
var ErrBadEntry = errors.New("a log entry does not match its checksum")

// ErrCovered reports entries to be stored at or below the index of the newest snapshot, while that
// snapshot is not in force. No entry of the batch is stored, and the folder is sound.
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
