package logs

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/hashicorp/go-msgpack/v2/codec"
	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/store/boltcheck"
	"github.com/signalbox/signalbox/store/damage"
)

// Contents is what the file of log and stable values holds, once it is checked.
type Contents struct {
	Extent // of the log
	stable stableRecord
}

// Generation returns how often stable values have been written.
func (c Contents) Generation() uint64 { return c.stable.generation }

// Term returns the term that Raft has stored last.
func (c Contents) Term() uint64 { return c.stable.number(keyCurrentTerm) }

// Vote returns the term of the last vote and the address of its candidate; 0 and "" if
// there was none.
func (c Contents) Vote() (term uint64, candidate string) {
	return c.stable.number(keyVoteTerm), string(c.stable.values[keyVoteCandidate])
}

// fileReader reads the file of log and stable values.
type fileReader struct {
	folder   string
	each     func(*raft.Log) error
	damage   func(error) error
	decoder  *codec.Decoder
	log      Extent
	stable   *stableRecord
	unstable bool // the record of the stable values is damaged
	buckets  int  // "conf" and "logs", by raft-boltdb
}

// Read checks the whole file of a folder, before bbolt opens it: its structure, and each
// entry and value with its checksum.
func Read(folder string) (Contents, error) {
	return Scan(folder, func(*raft.Log) error { return nil }, func(err error) error { return err })
}

// Scan is Read for a visitor. each gets the sound entries in their order, and must not
// keep them; damaged gets the damage to an entry or to the stable values. An error that either
// returns ends the scan and becomes its own. Contents lack all that is damaged. With an
// error they are what was found before it.
func Scan(folder string, each func(*raft.Log) error, damaged func(error) error) (Contents, error) {
	r := &fileReader{folder: folder, each: each, damage: damaged, decoder: codec.NewDecoderBytes(nil, &codec.MsgpackHandle{})}
	err := r.read()
	contents := Contents{Extent: r.log}
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
	return nil
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

// entry checks a stored entry, as it will be checked when it is read.
func (r *fileReader) entry(index uint64, value []byte) error {
	var log raft.Log
	r.decoder.ResetBytes(value)
	if err := r.decoder.Decode(&log); err != nil {
		return r.damage(r.damaged(index, "the entry can't be decoded: %v", err))
	}
	if err := checkRead(index, &log); err != nil {
		return r.damage(r.damaged(index, "%v", err))
	}
	if r.log.First == 0 {
		r.log.First = index
	}
	if r.log.Last == 0 || index != r.log.Last+1 {
		r.log.From = index
	}
	r.log.Last = index
	return r.each(&log)
}
