package folder

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"
	"path/filepath"
	"sync"

	"github.com/hashicorp/go-hclog"

	"github.com/signalbox/signalbox/store/damage"
)

// Bounds are lower bounds of the folder's content: there may be more, but never less.
type Bounds struct {
	Entry    uint64 // the last log entry has at least this index; 0: there may be no entry
	Snapshot uint64 // the newest snapshot has at least this index; 0: there may be no snapshot
	Stable   uint64 // the stable record has at least this generation
}

// Witness keeps the bounds in a separate file. Checksums show that bytes were written at some time; only the witness
// shows that later bytes are missing. For example, a page of bbolt that has lost its last elements is well-formed, and
// so is a root that points to an older state. A node that trusted it would deny an entry that it has acknowledged, or
// vote twice.
//
// A bound is raised after the content is stored, without a sync: after a power loss the file may have a lower bound,
// but never a bound above the content. A bound is lowered with a sync, before content is removed, for example when the
// end of the log is cut off. So an append costs one small write to the page cache, and there is never a false alarm.
//
// Two slots, each within one sector, are written in turn, so that a torn write leaves the other slot intact. Safe for
// concurrent use.
type Witness struct {
	mu       sync.Mutex
	file     synced
	now      Bounds
	sequence uint64 // of the last written slot; its lowest bit is the slot
	falling  bool   // a lower bound was written, but its sync has failed

	guard  *damage.Guard
	logger hclog.Logger
}

type synced interface {
	io.WriterAt
	io.Closer
	Sync() error
}

const (
	witnessMagic  = 0x53425731 // "SBW1"
	witnessSlot   = 4096       // distance of the two slots in bytes
	witnessLength = 40         // used bytes of a slot
)

func createWitness(folder string) error {
	content := make([]byte, 2*witnessSlot)
	copy(content, encodeWitness(Bounds{Stable: 1}, 0))
	copy(content[witnessSlot:], encodeWitness(Bounds{Stable: 1}, 1))
	return writeSynced(filepath.Join(folder, witnessFile), content)
}

// openWitness opens the file. It fails with a damage.Error if neither slot can be read. It syncs the file, since a
// process that was killed may have written a lowered bound without a sync.
func openWitness(c Config) (*Witness, error) {
	file, err := os.OpenFile(filepath.Join(c.Path, witnessFile), os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("data folder %s can't be read: %w", c.Path, err)
	}
	w := &Witness{file: file, guard: c.Guard, logger: c.Logger}
	var found bool
	if w.now, w.sequence, found = readWitness(file); !found {
		return nil, errors.Join(damagedWitness(c.Path), file.Close())
	}
	if err := file.Sync(); err != nil {
		return nil, errors.Join(fmt.Errorf("data folder %s can't be synced: %w", c.Path, err), file.Close())
	}
	return w, nil
}

func damagedWitness(folder string) error {
	return &damage.Error{Folder: folder, File: witnessFile, Detail: "neither of its two slots can be read"}
}

// readWitness returns the slot that was written last. found is false if neither slot can be read.
func readWitness(file io.ReaderAt) (now Bounds, last uint64, found bool) {
	for slot := range int64(2) {
		content := make([]byte, witnessLength)
		if _, err := file.ReadAt(content, slot*witnessSlot); err != nil {
			continue
		}
		bounds, sequence, ok := decodeWitness(content)
		if ok && int64(sequence%2) == slot && (!found || sequence > last) {
			now, last, found = bounds, sequence, true
		}
	}
	return now, last, found
}

func encodeWitness(b Bounds, sequence uint64) []byte {
	content := binary.BigEndian.AppendUint32(make([]byte, 0, witnessLength), witnessMagic)
	for _, number := range []uint64{sequence, b.Entry, b.Snapshot, b.Stable} {
		content = binary.BigEndian.AppendUint64(content, number)
	}
	return binary.BigEndian.AppendUint32(content, crc32.Checksum(content, castagnoli))
}

// decodeWitness decodes a slot. ok is false for bytes that encodeWitness has not written.
func decodeWitness(content []byte) (b Bounds, sequence uint64, ok bool) {
	if len(content) != witnessLength || binary.BigEndian.Uint32(content) != witnessMagic ||
		binary.BigEndian.Uint32(content[36:]) != crc32.Checksum(content[:36], castagnoli) {
		return Bounds{}, 0, false
	}
	number := func(i int) uint64 { return binary.BigEndian.Uint64(content[4+8*i:]) }
	return Bounds{Entry: number(1), Snapshot: number(2), Stable: number(3)}, number(0), true
}

// Known returns the present bounds.
func (w *Witness) Known() Bounds {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

// RaiseEntry raises the bound of the log to index. It is called after the entry is stored, and is not durable on
// return. A failure is only logged: the entry is stored, and only a later loss of it would be unnoticed.
func (w *Witness) RaiseEntry(index uint64) { w.raise(Bounds{Entry: index}) }

// RaiseSnapshot raises the bound of the snapshots, as RaiseEntry does for the log.
func (w *Witness) RaiseSnapshot(index uint64) { w.raise(Bounds{Snapshot: index}) }

// RaiseStable raises the bound of the stable values, as RaiseEntry does for the log.
func (w *Witness) RaiseStable(generation uint64) { w.raise(Bounds{Stable: generation}) }

// raise raises each bound that is lower in w than in to.
func (w *Witness) raise(to Bounds) {
	w.mu.Lock()
	defer w.mu.Unlock()
	next := Bounds{Entry: max(w.now.Entry, to.Entry), Snapshot: max(w.now.Snapshot, to.Snapshot), Stable: max(w.now.Stable, to.Stable)}
	if next == w.now {
		return
	}
	if err := w.write(next); err != nil {
		w.logger.Warn("the witness can't be kept up", "entry", next.Entry, "snapshot", next.Snapshot, "stable", next.Stable, "error", err)
	}
}

// LowerEntry lowers the bound of the log to at most index, durably. Call it before entries above index are removed.
func (w *Witness) LowerEntry(index uint64) error {
	return w.lower(Bounds{Entry: index, Snapshot: math.MaxUint64})
}

// LowerSnapshot lowers the bound of the snapshots to at most index, durably. Call it before a newer snapshot is
// removed.
func (w *Witness) LowerSnapshot(index uint64) error {
	return w.lower(Bounds{Entry: math.MaxUint64, Snapshot: index})
}

// lower lowers the bounds of log and snapshots to at most the given bounds, durably.
func (w *Witness) lower(to Bounds) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	next := Bounds{Entry: min(w.now.Entry, to.Entry), Snapshot: min(w.now.Snapshot, to.Snapshot), Stable: w.now.Stable}
	if next == w.now && !w.falling {
		return nil
	}
	err := errors.Join(w.write(next), w.file.Sync())
	w.falling = err != nil
	return w.guard.WriteFailed(witnessFile, err)
}

// write stores the bounds in the slot that was not written last.
func (w *Witness) write(next Bounds) error {
	sequence := w.sequence + 1
	if _, err := w.file.WriteAt(encodeWitness(next, sequence), int64(sequence%2)*witnessSlot); err != nil {
		return fmt.Errorf("witness: %w", err)
	}
	w.now, w.sequence = next, sequence
	return nil
}

func (w *Witness) close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return errors.Join(w.file.Sync(), w.file.Close())
}
