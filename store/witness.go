package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"sync"
)

// bounds says what is stored at least. Everything in it is a lower bound: more
// may be there, never less.
type bounds struct {
	entry    uint64 // the last log entry has this index or a higher one; 0: there may be none
	snapshot uint64 // the newest snapshot has this index or a higher one; 0: there may be none
	stable   uint64 // the stable record has this generation or a higher one
}

// witness keeps bounds in a file of their own. Checksums tell that what is read
// was written once; only this tells that nothing is missing: a page of Bolt that
// lost its last elements, or a root that points to an older state, is
// well-formed, and a node that trusted it would deny an entry it acknowledged,
// or vote twice.
//
// A rise is written after what it speaks of is stored, and not synced: after a
// power cut the file may hold less than it could, never more than is stored. A
// fall (a cut-off log tail) is synced before anything is removed. So it costs
// one small write to the page cache for each append, and never gives a false
// alarm.
//
// Two slots, each within one sector, are written in turn, so that a torn write
// leaves the other. Safe for concurrent use.
type witness struct {
	mu       sync.Mutex
	file     *os.File
	now      bounds
	sequence uint64 // of the last slot written; its parity names the slot
}

const (
	witnessMagic  = 0x53425731 // "SBW1"
	witnessSlot   = 4096       // bytes between the two slots
	witnessLength = 40         // bytes of a slot that are used
)

// createWitness makes the file for a new folder.
func createWitness(o Options) error {
	content := make([]byte, 2*witnessSlot)
	copy(content, encodeWitness(bounds{stable: 1}, 0))
	copy(content[witnessSlot:], encodeWitness(bounds{stable: 1}, 1))
	return writeSynced(filepath.Join(o.Folder, witnessFile), content)
}

// openWitness opens the file. When neither slot can be read the error is a
// DamagedError.
func openWitness(folder string) (*witness, error) {
	file, err := os.OpenFile(filepath.Join(folder, witnessFile), os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("data folder %s can't be read: %w", folder, err)
	}
	w := &witness{file: file}
	found := false
	for slot := range int64(2) {
		content := make([]byte, witnessLength)
		if _, err := file.ReadAt(content, slot*witnessSlot); err != nil {
			continue
		}
		held, sequence, ok := decodeWitness(content)
		if ok && int64(sequence%2) == slot && (!found || sequence > w.sequence) {
			w.now, w.sequence, found = held, sequence, true
		}
	}
	if !found {
		damage := &DamagedError{Folder: folder, File: witnessFile, Detail: "neither of its two slots can be read"}
		return nil, errors.Join(damage, file.Close())
	}
	return w, nil
}

func encodeWitness(b bounds, sequence uint64) []byte {
	content := binary.BigEndian.AppendUint32(make([]byte, 0, witnessLength), witnessMagic)
	for _, number := range []uint64{sequence, b.entry, b.snapshot, b.stable} {
		content = binary.BigEndian.AppendUint64(content, number)
	}
	return binary.BigEndian.AppendUint32(content, crc32.Checksum(content, castagnoli))
}

// decodeWitness reads a slot; ok is false for anything that encodeWitness didn't
// write.
func decodeWitness(content []byte) (b bounds, sequence uint64, ok bool) {
	if len(content) != witnessLength || binary.BigEndian.Uint32(content) != witnessMagic ||
		binary.BigEndian.Uint32(content[36:]) != crc32.Checksum(content[:36], castagnoli) {
		return bounds{}, 0, false
	}
	number := func(i int) uint64 { return binary.BigEndian.Uint64(content[4+8*i:]) }
	return bounds{entry: number(1), snapshot: number(2), stable: number(3)}, number(0), true
}

// known returns the bounds as they are now.
func (w *witness) known() bounds {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

// raise lifts each bound that is below the given one. Call it after what it
// speaks of is stored. It is not durable on return.
func (w *witness) raise(to bounds) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	next := bounds{entry: max(w.now.entry, to.entry), snapshot: max(w.now.snapshot, to.snapshot), stable: max(w.now.stable, to.stable)}
	if next == w.now {
		return nil
	}
	return w.write(next)
}

// lowerEntry makes the bound of the log at most index, durably. Call it before
// entries above that are removed.
func (w *witness) lowerEntry(index uint64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.now.entry <= index {
		return nil
	}
	next := w.now
	next.entry = index
	return errors.Join(w.write(next), w.file.Sync())
}

// lowerSnapshot makes the bound of the snapshots at most index, durably. Call it
// before a newer snapshot is removed.
func (w *witness) lowerSnapshot(index uint64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.now.snapshot <= index {
		return nil
	}
	next := w.now
	next.snapshot = index
	return errors.Join(w.write(next), w.file.Sync())
}

// write stores the bounds in the older slot.
func (w *witness) write(next bounds) error {
	sequence := w.sequence + 1
	if _, err := w.file.WriteAt(encodeWitness(next, sequence), int64(sequence%2)*witnessSlot); err != nil {
		return fmt.Errorf("witness: %w", err)
	}
	w.now, w.sequence = next, sequence
	return nil
}

// close syncs and closes the file.
func (w *witness) close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return errors.Join(w.file.Sync(), w.file.Close())
}
