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

// newLog adds the layers to a log, from the disk outwards: the layer of Config.Wrap (for tests), the measuring of
// writes, the cache, the checksums. If cached is 0, there is no cache.
//
// The measuring of writes is outside of Config.Wrap, so that it sees an injected fault like a fault of the disk. The
// checksums are outside of the cache, so that cached entries are checked too: the goroutine that stored them shares
// their bytes, and memory may fail. Followers also get entries from the cache with their checksums.
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

// checkedLog is the log that Raft uses. It adds a checksum to each entry that it stores, and checks each entry that it
// returns.
type checkedLog struct {
	raft.LogStore // the cache over watched, or watched itself
	watched       *watchedLog
	guard         *damage.Guard
	storing       sync.Mutex // held during StoreLogs, so that watched's last error is of this call

	// covered is Config.Covered. Raft stores only entries after its newest snapshot, with one exception. For example, a
	// node's newest snapshot at index 90 is a restored state that never came into force, its log ends at 80, and the
	// next leader continues the log at 81. Raft would store and acknowledge entry 81, but never apply it.
	covered *atomic.Uint64
	// restorePending reports whether the newest snapshot is not in force. nil: such a snapshot is assumed not to be in force.
	restorePending atomic.Pointer[func() bool]
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
		return cmp.Or(c.watched.lastError(), err) // the cache turns errors into text, so use the original error
	}
	return nil
}

// Seal returns entries as StoreLogs would store them, each with its checksum. It fails if StoreLogs would refuse them.
// It does not access the disk. The returned entries don't change and may be stored later.
func (s *Stores) Seal(entries []*raft.Log) ([]*raft.Log, error) { return s.log.seal(entries) }

func (c *checkedLog) seal(logs []*raft.Log) ([]*raft.Log, error) {
	if err := c.guard.Refusal(); err != nil {
		return nil, err
	}
	if newest := c.covered.Load(); len(logs) > 0 && logs[0].Index <= newest && c.refusesCovered() {
		return nil, fmt.Errorf("%w: entry %d, where the snapshot has index %d; that is of a restore which the other members don't have, "+
			"so stop this node, empty its data folder and start it: it gets the state from them", ErrCovered, logs[0].Index, newest)
	}
	return withChecksums(logs)
}

func (c *checkedLog) refusesCovered() bool {
	restorePending := c.restorePending.Load()
	return restorePending == nil || (*restorePending)()
}

// RefuseCovered sets how Logs decides about entries that the newest snapshot covers. While restorePending returns false, the
// snapshot is in force and contains these entries, so Logs stores them. A leader sends such entries if the entry after
// a snapshot could not be stored. restorePending must not block.
func (s *Stores) RefuseCovered(restorePending func() bool) {
	s.log.restorePending.Store(&restorePending)
}

func (c *checkedLog) GetLog(index uint64, log *raft.Log) error {
	// Check before the cache is read, since a damaged node must not replicate entries.
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
	*log = raft.Log{} // an error must not leave wrong bytes
	file := c.watched.file
	var stored raft.Log
	if c.watched.GetLog(index, &stored) == nil && checkRead(index, &stored) == nil {
		file = "the log cache in memory" // the file has the right entry
	}
	return c.guard.Damaged(file, index, err.Error(), nil)
}

// watchedLog measures the writes to the log below it, so that a leader notices when its disk hangs. Raft does not
// notice, since its heartbeats continue (raft#503). watchedLog also remembers the last error of StoreLogs.
type watchedLog struct {
	raft.LogStore
	file string // for messages

	mu      sync.Mutex        // not held during a write
	pending map[int]time.Time // when each pending write began, by its number
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

func (w *watchedLog) lastError() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

// StuckFor returns how long the oldest pending write to the log has taken so far, or 0. It never waits.
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

// Full reports whether an error of Logs means that the disk is full.
func (s *Stores) Full(err error) bool { return damage.IsFull(err) }

// The checksum of an entry is in raft.Log.Extensions. The library neither sets nor reads this field, but stores and
// replicates it like Data. So an entry has its checksum from the moment when the leader stores it, and each follower
// checks the checksum before it stores the entry.
//
// The form is: magic, version, CRC32C (big-endian). With another version, a later program may cover more fields.
// AppendedAt is not covered, since it is only displayed.
const (
	checksumMagic   = 0xC5
	checksumVersion = 1
	checksumLength  = 6
)

// entryChecksum returns the CRC32C of index, term, type and data.
func entryChecksum(log *raft.Log) uint32 {
	var head [17]byte
	binary.BigEndian.PutUint64(head[:], log.Index)
	binary.BigEndian.PutUint64(head[8:], log.Term)
	head[16] = byte(log.Type)
	return crc32.Update(crc32.Checksum(head[:], castagnoli), castagnoli, log.Data)
}

// encodeChecksum returns the Extensions of an entry.
func encodeChecksum(sum uint32) []byte {
	return binary.BigEndian.AppendUint32([]byte{checksumMagic, checksumVersion}, sum)
}

// decodeChecksum decodes Extensions. It fails if they have no form that this program knows.
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

// checkEntry returns an error if an entry does not match its checksum.
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

// checkRead returns an error unless the entry has that index and matches its checksum.
func checkRead(index uint64, log *raft.Log) error {
	if log.Index != index {
		return fmt.Errorf("the entry there says that it has index %d", log.Index)
	}
	return checkEntry(log)
}

// withChecksums returns the entries, each with a checksum. It checks entries that have a checksum. It copies the others, since
// Raft's goroutines share them. It fails with an EntryError.
func withChecksums(logs []*raft.Log) ([]*raft.Log, error) {
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

// ErrBadEntry refuses an entry that doesn't match its checksum. No entry of its batch is stored, and the folder is
// sound.
var ErrBadEntry = errors.New("a log entry does not match its checksum")

// ErrCovered refuses entries at or before the newest snapshot's index while the snapshot is not in force. No entry of
// the batch is stored, and the folder is sound.
var ErrCovered = errors.New("the newest snapshot is ahead of these log entries")

// EntryError says which entry was refused. It is an ErrBadEntry.
type EntryError struct {
	Index  uint64
	Detail string
}

func (e *EntryError) Error() string {
	return fmt.Sprintf("log entry %d was refused: %s", e.Index, e.Detail)
}

// Unwrap makes e an ErrBadEntry.
func (e *EntryError) Unwrap() error { return ErrBadEntry }
