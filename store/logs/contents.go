package logs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/hashicorp/go-msgpack/v2/codec"
	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/store/boltcheck"
	"github.com/signalbox/signalbox/store/damage"
	"github.com/signalbox/signalbox/store/journal"
)

// Contents is the checked content of the file of log and stable values, and of the journal if there is one.
type Contents struct {
	Extent  // of the whole log
	stable  stableRecord
	inBolt  Extent           // of the log in raft-boltdb, without the journal's changes
	spans   spans            // the entries that are in raft-boltdb
	journal journal.Contents // zero without a journal
}

// Generation returns the number of writes of stable values.
func (c Contents) Generation() uint64 { return c.stable.generation }

// Term returns the last term that Raft has stored.
func (c Contents) Term() uint64 { return c.stable.number(keyCurrentTerm) }

// Vote returns the term of the last vote and the address of its candidate, or 0 and "" before the first vote.
func (c Contents) Vote() (term uint64, candidate string) {
	return c.stable.number(keyVoteTerm), string(c.stable.values[keyVoteCandidate])
}

// NewestFile returns the name of the file with the newest entries.
func (c Contents) NewestFile() string {
	if len(c.journal.Ops) > 0 {
		return journal.FileName
	}
	return FileName
}

type fileReader struct {
	folder    string
	journaled bool
	each      func(*raft.Log) error
	damage    func(error) error
	decoder   *codec.Decoder
	log       Extent
	inBolt    Extent
	spans     spans
	journal   journal.Contents
	overlay   journaledLog // the entries and removals of the journal
	applied   bool         // the journal was read
	merged    int          // number of entries of the overlay that were visited
	stable    *stableRecord
	unstable  bool // the record of the stable values is damaged
	buckets   int  // how many of the buckets "conf" and "logs" were found
}

// Read checks the whole log of a folder before bbolt opens it: the structure of the file, and each entry and value with
// its checksum. journaled: there is a journal.
func Read(folder string, journaled bool) (Contents, error) {
	return Scan(folder, journaled, func(*raft.Log) error { return nil }, func(err error) error { return err })
}

// Scan is Read with callbacks. It calls each with the sound entries in order; each must not keep them. It calls damaged
// for damage to an entry or to the stable values. If each or damaged fails, Scan ends and returns that error and the
// Contents so far. Damaged parts are missing in Contents.
func Scan(folder string, journaled bool, each func(*raft.Log) error, damaged func(error) error) (Contents, error) {
	r := &fileReader{folder: folder, journaled: journaled, each: each, damage: damaged, decoder: codec.NewDecoderBytes(nil, &codec.MsgpackHandle{})}
	err := r.read()
	contents := Contents{Extent: r.log, inBolt: r.inBolt, spans: r.spans, journal: r.journal}
	if r.stable != nil {
		contents.stable = *r.stable
	}
	return contents, err
}

func (r *fileReader) read() error {
	if err := damage.Walk(r.folder, FileName, r.visit); err != nil {
		return err
	}
	if r.buckets != 2 || r.stable == nil && !r.unstable {
		return r.damaged(0, "a part of it is missing")
	}
	if err := r.readJournal(); err != nil {
		return err
	}
	return r.mergeBelow(math.MaxUint64)
}

// readJournal reads the journal once. It needs the stable values, which are before the log in the file.
func (r *fileReader) readJournal() error {
	if !r.journaled || r.applied {
		return nil
	}
	found, err := journal.Contents{}, error(nil)
	if r.stable != nil { // else we don't know which changes are drained
		found, err = readJournal(r.folder, r.stable.drained())
	}
	if errors.Is(err, damage.ErrDamaged) {
		err = r.damage(err)
	}
	r.journal, r.applied = found, true
	r.overlay.apply(found.Ops)
	return err
}

func readJournal(folder string, drained uint64) (journal.Contents, error) {
	file, err := os.Open(filepath.Join(folder, journal.FileName))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return journal.Contents{}, &damage.Error{Folder: folder, File: journal.FileName, Detail: "the file is missing"}
	case err != nil:
		return journal.Contents{}, fmt.Errorf("data folder %s can't be read: %w", folder, err)
	}
	defer func() { _ = file.Close() }()
	found, err := journal.Read(file, drained)
	if broken := (*journal.DamageError)(nil); errors.As(err, &broken) {
		return found, &damage.Error{Folder: folder, File: journal.FileName, Index: broken.After, Detail: broken.Detail}
	}
	return found, err
}

func (r *fileReader) damaged(index uint64, format string, arguments ...any) error {
	return &damage.Error{Folder: r.folder, File: FileName, Index: index, Detail: fmt.Sprintf(format, arguments...)}
}

func (r *fileReader) visit(item boltcheck.Item) error {
	switch {
	case len(item.Bucket) == 0 && item.Value == nil && slices.Contains([]string{"conf", "logs"}, string(item.Key)):
		r.buckets++
		return nil
	case len(item.Bucket) == 1 && item.Bucket[0] == "conf" && string(item.Key) == string(stableKey):
		record, err := decodeStableRecord(item.Value)
		if err != nil {
			r.unstable = true
			return r.damage(r.damaged(0, "%v", err))
		}
		r.stable = &record
		return nil
	case len(item.Bucket) == 1 && item.Bucket[0] == "logs" && len(item.Key) == 8 && item.Value != nil:
		return r.entry(binary.BigEndian.Uint64(item.Key), item.Value)
	default:
		return r.damaged(0, "it holds a key %q that doesn't belong there", item.Key)
	}
}

// entry checks an entry in bbolt in the same way as GetLog.
func (r *fileReader) entry(index uint64, value []byte) error {
	if err := errors.Join(r.readJournal(), r.mergeBelow(index)); err != nil {
		return err
	}
	var log raft.Log
	r.decoder.ResetBytes(value)
	if err := r.decoder.Decode(&log); err != nil {
		return r.damage(r.damaged(index, "the entry can't be decoded: %v", err))
	}
	if err := checkRead(index, &log); err != nil {
		return r.damage(r.damaged(index, "%v", err))
	}
	r.inBolt, r.spans = r.inBolt.with(index), r.spans.with(index)
	if _, newer := r.overlay.place(index); newer || r.overlay.hides(index) {
		return nil
	}
	return r.found(&log)
}

// mergeBelow visits the journal's entries up to index, which is the index of the next entry in bbolt.
func (r *fileReader) mergeBelow(index uint64) error {
	for ; r.merged < len(r.overlay.tail); r.merged++ {
		log := r.overlay.tail[r.merged].log
		if log.Index > index {
			return nil
		}
		err := checkRead(log.Index, log)
		if err != nil {
			err = r.damage(&damage.Error{Folder: r.folder, File: journal.FileName, Index: log.Index, Detail: err.Error()})
		} else {
			err = r.found(log)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// found counts an entry of the log, and calls the visitor with it.
func (r *fileReader) found(log *raft.Log) error {
	r.log = r.log.with(log.Index)
	return r.each(log)
}
