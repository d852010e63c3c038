package logs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"sync"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"

	"github.com/signalbox/signalbox/store/damage"
)

// Raft stores its vote under these keys, but does not export them. If they change, TestVoteIsOneWrite fails, which
// holds a real election.
const (
	keyVoteTerm      = "LastVoteTerm"
	keyVoteCandidate = "LastVoteCand"
	keyCurrentTerm   = "CurrentTerm"
)

// keyDrained is the key of a value that is not Raft's: the sequence of the last change that was copied from the journal
// to raft-boltdb.
const keyDrained = "journal"

// castagnoli is the polynomial of all checksums (CRC32C).
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// stableKey is the key in raft-boltdb of the record with all stable values.
var stableKey = []byte("stable")

// stableValues keeps Raft's term and vote. All values are one record with one checksum and a generation that rises with
// each write. So each write is one transaction, and no value can change, disappear or return to an older state
// unnoticed (the witness knows the generation).
//
// Raft stores a vote in two calls, first the term, then the candidate (raft#661). After a crash in between, the new
// term would be stored with the old candidate, and Raft would vote for that candidate without a check of its log. So
// stableValues keeps the term of a vote in memory until the candidate comes, and writes both in one record. After a
// crash in between, the node has not voted in that term. That is true, since Raft sends the vote only after both calls.
//
// Reads return the values in memory. The file is read and checked at Open.
type stableValues struct {
	bolt    interface{ Set(key, value []byte) error }
	guard   *damage.Guard
	witness Witness
	reserve Reserve
	logger  hclog.Logger

	mu       sync.Mutex
	now      stableRecord
	voteTerm []byte // the term of a vote whose candidate is not stored yet, or nil
}

var _ raft.StableStore = (*stableValues)(nil)

// Get returns a copy of the value. For a missing key it fails with raftboltdb.ErrKeyNotFound, whose text Raft checks.
func (s *stableValues) Get(key []byte) ([]byte, error) {
	if err := s.guard.Refusal(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	value, found := s.now.values[string(key)]
	if !found {
		return nil, raftboltdb.ErrKeyNotFound
	}
	return slices.Clone(value), nil
}

// onlyTerm reports whether Raft has stored exactly this term, and no other value.
func (s *stableValues) onlyTerm(term uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.now.values) == 1+s.now.nonRaft() && bytes.Equal(s.now.values[keyCurrentTerm], binary.BigEndian.AppendUint64(nil, term))
}

// GetUint64 returns the number, or fails with raftboltdb.ErrKeyNotFound.
func (s *stableValues) GetUint64(key []byte) (uint64, error) {
	value, err := s.Get(key)
	if err != nil {
		return 0, err
	}
	if len(value) != 8 {
		return 0, fmt.Errorf("stable value %q is not a number", key)
	}
	return binary.BigEndian.Uint64(value), nil
}

// SetUint64 stores the number durably, except the term of a vote: GetUint64 returns it, and the file has it, only after
// its candidate is set.
func (s *stableValues) SetUint64(key []byte, number uint64) error {
	value := binary.BigEndian.AppendUint64(nil, number)
	if string(key) != keyVoteTerm {
		return s.Set(key, value)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.voteTerm = value
	return s.guard.Refusal()
}

// Set stores the value durably; it stores the candidate of a vote together with the vote's term.
func (s *stableValues) Set(key, value []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	changes := map[string][]byte{string(key): slices.Clone(value)}
	if string(key) == keyVoteCandidate && s.voteTerm != nil {
		changes[keyVoteTerm] = s.voteTerm
		s.voteTerm = nil
	}
	next := s.now.next()
	maps.Copy(next.values, changes)
	return s.write(next, s.reserve.Release)
}

// setDrained stores the sequence of the last change that was copied from the journal to raft-boltdb. It does not use
// the reserve, which is for terms and votes.
func (s *stableValues) setDrained(sequence uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.now.next()
	next.values[keyDrained] = binary.BigEndian.AppendUint64(nil, sequence)
	return s.write(next, func() bool { return false })
}

// write replaces the record. If the disk is full, it calls release to free space, and tries once more. The caller holds
// the lock.
func (s *stableValues) write(next stableRecord, release func() bool) error {
	store := func() error { return s.bolt.Set(stableKey, next.encode()) }
	err := s.guard.Run(FileName, 0, store)
	if damage.IsFull(err) && release() {
		s.logger.Warn("the disk is full: a term or vote was stored in the room reserved for that", "error", err)
		err = s.guard.Run(FileName, 0, store)
	}
	if err != nil {
		return s.guard.WriteFailed(FileName, err)
	}
	s.now = next
	s.witness.RaiseStable(next.generation)
	return nil
}

// stableRecord has all stable values after a write.
type stableRecord struct {
	generation uint64 // number of the write, from 1
	values     map[string][]byte
}

// number returns the value of key as a number, or 0 if there is no such value.
func (r stableRecord) number(key string) uint64 {
	if value := r.values[key]; len(value) == 8 {
		return binary.BigEndian.Uint64(value)
	}
	return 0
}

// next returns a record for the next write, with the same values.
func (r stableRecord) next() stableRecord {
	values := map[string][]byte{}
	maps.Copy(values, r.values)
	return stableRecord{generation: r.generation + 1, values: values}
}

// drained returns the sequence of the last change that was copied from the journal to raft-boltdb.
func (r stableRecord) drained() uint64 { return r.number(keyDrained) }

// nonRaft returns the number of values that are not Raft's.
func (r stableRecord) nonRaft() int {
	if _, found := r.values[keyDrained]; found {
		return 1
	}
	return 0
}

const stableVersion = 1

// errStableRecord means that the bytes are not a record.
var errStableRecord = errors.New("the record of the stable values can't be read")

// encode returns the stored form: version, generation, each key and value with its length, sorted by key, and the
// CRC32C of all this.
func (r stableRecord) encode() []byte {
	encoded := binary.BigEndian.AppendUint64([]byte{stableVersion}, r.generation)
	for _, key := range slices.Sorted(maps.Keys(r.values)) {
		for _, part := range [][]byte{[]byte(key), r.values[key]} {
			encoded = append(binary.BigEndian.AppendUint32(encoded, uint32(len(part))), part...)
		}
	}
	return binary.BigEndian.AppendUint32(encoded, crc32.Checksum(encoded, castagnoli))
}

// decodeStableRecord decodes the stored form. It fails with errStableRecord for bytes that encode has not written.
func decodeStableRecord(encoded []byte) (stableRecord, error) {
	const fixed = 1 + 8 + 4
	if len(encoded) < fixed || encoded[0] != stableVersion {
		return stableRecord{}, errStableRecord
	}
	body := encoded[:len(encoded)-4]
	if binary.BigEndian.Uint32(encoded[len(body):]) != crc32.Checksum(body, castagnoli) {
		return stableRecord{}, errStableRecord
	}
	decoded := stableRecord{generation: binary.BigEndian.Uint64(body[1:]), values: map[string][]byte{}}
	rest := body[9:]
	for len(rest) > 0 {
		var parts [2][]byte
		for i := range parts {
			if len(rest) < 4 {
				return stableRecord{}, errStableRecord
			}
			length := binary.BigEndian.Uint32(rest)
			if uint64(length) > uint64(len(rest)-4) {
				return stableRecord{}, errStableRecord
			}
			parts[i], rest = slices.Clone(rest[4:4+length]), rest[4+length:]
		}
		decoded.values[string(parts[0])] = parts[1]
	}
	if string(decoded.encode()) != string(encoded) {
		return stableRecord{}, errStableRecord
	}
	return decoded, nil
}
