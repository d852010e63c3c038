package store

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/hashicorp/go-msgpack/v2/codec"
	"github.com/hashicorp/raft"
)

// folderFacts is what the files of a folder hold, once they are checked.
type folderFacts struct {
	log       logExtent
	stable    stableRecord
	snapshots snapshotFacts
}

// snapshotFacts is what the snapshots' file holds.
type snapshotFacts struct {
	readable []snapshotRecord // the newest first
	damaged  []badSnapshot
}

// badSnapshot is a snapshot whose record or chunks are not what was stored.
type badSnapshot struct {
	id    string
	index uint64 // 0 if it isn't known
	err   error
}

// verifyFolder reads all of the folder's files, before bbolt opens them, and
// judges whether together they are what this node stored, given what the witness
// has seen. The error is a DamagedError, or says what can't be read.
func verifyFolder(folder string, seen bounds) (folderFacts, error) {
	var facts folderFacts
	var err error
	if facts.log, facts.stable, err = readRaftFile(folder); err != nil {
		return facts, err
	}
	if facts.snapshots, err = readSnapshotsFile(folder); err != nil {
		return facts, err
	}
	return facts, facts.judge(folder, seen)
}

// judge tells whether something that was stored is missing. Entries that a
// readable snapshot covers may be: Raft doesn't need them, and takes them for
// cut off.
func (f folderFacts) judge(folder string, seen bounds) error {
	damaged := func(file string, index uint64, cause error, detail string, arguments ...any) error {
		return &DamagedError{Folder: folder, File: file, Index: index, Detail: fmt.Sprintf(detail, arguments...), Err: cause}
	}
	newest, listed := uint64(0), uint64(0)
	for _, record := range f.snapshots.readable {
		newest, listed = max(newest, record.meta.Index), max(listed, record.meta.Index)
	}
	var bad badSnapshot
	for _, b := range f.snapshots.damaged {
		if b.index >= bad.index {
			bad = b
		}
		listed = max(listed, b.index)
	}
	switch {
	case f.stable.generation < seen.stable:
		return damaged(raftFile, 0, nil, "the term and vote stored last are missing")
	case f.log.last < seen.entry:
		return damaged(raftFile, seen.entry, nil, "the log was stored up to here, and ends at %d", f.log.last)
	case listed < seen.snapshot:
		return damaged(snapshotsFile, seen.snapshot, nil, "the snapshot is missing")
	case bad.err != nil && bad.index > newest && (f.log.last < bad.index || f.log.from > newest+1):
		return damaged(snapshotsFile, bad.index, bad.err, "snapshot %s can't be read, and the log doesn't make up for it", bad.id)
	case f.log.last > newest && f.log.from > newest+1:
		return damaged(raftFile, newest+1, nil, "the entries from here to %d are missing", f.log.from-1)
	}
	return nil
}

// walkFile checks a bolt file of the folder and visits its keys.
func walkFile(folder, name string, visit func(boltItem) error) error {
	file, err := os.Open(filepath.Join(folder, name))
	if err != nil {
		return fmt.Errorf("data folder %s can't be read: %w", folder, err)
	}
	defer func() { _ = file.Close() }() // only read
	info, err := file.Stat()
	if err != nil {
		return fmt.Errorf("data folder %s can't be read: %w", folder, err)
	}
	err = walkBolt(file, info.Size(), visit)
	if broken := (*pageError)(nil); errors.As(err, &broken) {
		return &DamagedError{Folder: folder, File: name, Detail: broken.Error()}
	}
	return err
}

// raftReader reads the file of log and stable values.
type raftReader struct {
	folder  string
	decoder *codec.Decoder
	log     logExtent
	stable  *stableRecord
	buckets int // "conf" and "logs", by raft-boltdb
}

// readRaftFile checks the whole file: its structure, and each entry and value
// with its checksum.
func readRaftFile(folder string) (logExtent, stableRecord, error) {
	r := &raftReader{folder: folder, decoder: codec.NewDecoderBytes(nil, &codec.MsgpackHandle{})}
	if err := walkFile(folder, raftFile, r.visit); err != nil {
		return logExtent{}, stableRecord{}, err
	}
	if r.buckets != 2 || r.stable == nil {
		return logExtent{}, stableRecord{}, r.damaged(0, "a part of it is missing")
	}
	return r.log, *r.stable, nil
}

func (r *raftReader) damaged(index uint64, format string, arguments ...any) error {
	return &DamagedError{Folder: r.folder, File: raftFile, Index: index, Detail: fmt.Sprintf(format, arguments...)}
}

func (r *raftReader) visit(item boltItem) error {
	switch {
	case len(item.bucket) == 0 && item.value == nil && slices.Contains([]string{"conf", "logs"}, string(item.key)):
		r.buckets++
		return nil
	case len(item.bucket) == 1 && item.bucket[0] == "conf" && string(item.key) == string(stableKey):
		record, err := decodeStableRecord(item.value)
		if err != nil {
			return r.damaged(0, "%v", err)
		}
		r.stable = &record
		return nil
	case len(item.bucket) == 1 && item.bucket[0] == "logs" && len(item.key) == 8 && item.value != nil:
		return r.entry(binary.BigEndian.Uint64(item.key), item.value)
	default:
		return r.damaged(0, "it holds a key %q that doesn't belong there", item.key)
	}
}

// entry checks a stored entry, as it will be checked when it is read.
func (r *raftReader) entry(index uint64, value []byte) error {
	var log raft.Log
	r.decoder.ResetBytes(value)
	if err := r.decoder.Decode(&log); err != nil {
		return r.damaged(index, "the entry can't be decoded: %v", err)
	}
	if err := checkRead(index, &log); err != nil {
		return r.damaged(index, "%v", err)
	}
	if r.log.first == 0 {
		r.log.first = index
	}
	if r.log.last == 0 || index != r.log.last+1 {
		r.log.from = index
	}
	r.log.last = index
	return nil
}

// snapshotsReader reads the file of snapshots.
type snapshotsReader struct {
	folder  string
	records map[string]snapshotRecord
	bad     map[string]error
	data    map[string]*chunkCount
	buckets int // metaBucket and dataBucket
}

// chunkCount is what was found of a snapshot's chunks.
type chunkCount struct {
	chunks uint64
	size   int64
	err    error
}

// readSnapshotsFile checks the whole file. Damage to its structure is an error;
// damage inside a snapshot only takes that one out.
func readSnapshotsFile(folder string) (snapshotFacts, error) {
	r := &snapshotsReader{folder: folder, records: map[string]snapshotRecord{}, bad: map[string]error{}, data: map[string]*chunkCount{}}
	if err := walkFile(folder, snapshotsFile, r.visit); err != nil {
		return snapshotFacts{}, err
	}
	if r.buckets != 2 {
		return snapshotFacts{}, &DamagedError{Folder: folder, File: snapshotsFile, Detail: "a part of it is missing"}
	}
	var facts snapshotFacts
	for id, record := range r.records {
		if err := r.data[id].matches(record); err != nil {
			r.bad[id] = err
			continue
		}
		facts.readable = append(facts.readable, record)
	}
	for id, err := range r.bad {
		bad := badSnapshot{id: id, err: err}
		var term, stamp uint64
		if _, err := fmt.Sscanf(id, "%d-%d-%d", &term, &bad.index, &stamp); err != nil {
			return snapshotFacts{}, &DamagedError{Folder: folder, File: snapshotsFile, Detail: fmt.Sprintf("it holds a snapshot of the name %q", id)}
		}
		facts.damaged = append(facts.damaged, bad)
	}
	slices.SortFunc(facts.readable, newerFirst)
	slices.SortFunc(facts.damaged, func(a, b badSnapshot) int { return cmp.Compare(b.index, a.index) })
	return facts, nil
}

func (r *snapshotsReader) visit(item boltItem) error {
	isBucket := item.value == nil
	switch {
	case len(item.bucket) == 0 && isBucket && slices.Contains([]string{string(metaBucket), string(dataBucket)}, string(item.key)):
		r.buckets++
		return nil
	case len(item.bucket) == 1 && item.bucket[0] == string(dataBucket) && isBucket:
		r.data[string(item.key)] = &chunkCount{}
		return nil
	case len(item.bucket) == 1 && item.bucket[0] == string(metaBucket) && !isBucket:
		id := string(item.key)
		record, err := decodeSnapshotRecord(id, item.value)
		if err != nil {
			r.bad[id] = err
			return nil
		}
		r.records[id] = record
		return nil
	case len(item.bucket) == 2 && item.bucket[0] == string(dataBucket) && !isBucket:
		r.data[item.bucket[1]].add(item)
		return nil
	default:
		return &DamagedError{Folder: r.folder, File: snapshotsFile, Detail: fmt.Sprintf("it holds a key %q that doesn't belong there", item.key)}
	}
}

// add counts a chunk, which must be the next one.
func (c *chunkCount) add(item boltItem) {
	content, err := openChunk(item.bucket[1], c.chunks, item.value)
	if string(item.key) != string(chunkKey(c.chunks)) {
		err = errChunk
	}
	if err != nil && c.err == nil {
		c.err = fmt.Errorf("chunk %d: %w", c.chunks, err)
	}
	c.chunks++
	c.size += int64(len(content))
}

// matches makes sure that the chunks are those of the record. There are none, and
// no bucket, for an empty snapshot.
func (c *chunkCount) matches(record snapshotRecord) error {
	if c == nil {
		c = &chunkCount{}
	}
	if c.err != nil {
		return c.err
	}
	if c.chunks != record.chunks || c.size != record.meta.Size {
		return fmt.Errorf("it has %d chunks with %d bytes instead of %d with %d", c.chunks, c.size, record.chunks, record.meta.Size)
	}
	return nil
}
