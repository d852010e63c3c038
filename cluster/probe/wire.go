package probe

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/signalbox/signalbox/cluster/election"
)

// A message on a probe stream is a length (4 bytes, big-endian) and that many bytes of JSON. JSON lets nodes of
// different releases talk: a reader ignores unknown members, and missing members are zero. Messages are few, so its
// cost does not matter.
const (
	// maxBytes bounds a message, since a node reads the whole message before it checks it, also from strangers.
	maxBytes = 64 << 10
	// MaxHashes bounds the state hashes of one Answer.
	MaxHashes = 16
	// folderBytes is the length of a folder's id.
	folderBytes = 16
)

// ErrMalformed refuses a message that no node would send.
var ErrMalformed = errors.New("malformed message on a probe stream")

// Kind is the kind of a request. Names are never reused.
type Kind string

// The kinds of requests. Every node replies to Ask, and every voter to Elect. Nodes send Rejoin, Add, Remove, Transfer
// and Raise to the leader. The leader sends Removed.
const (
	Ask      Kind = "ask"      // what is your state?
	Rejoin   Kind = "rejoin"   // my folder is empty: make me a non-voter
	Add      Kind = "add"      // add a member
	Remove   Kind = "remove"   // remove a member
	Transfer Kind = "transfer" // transfer leadership
	Removed  Kind = "removed"  // you were removed
	Raise    Kind = "raise"    // raise the feature level
	Elect    Kind = "elect"    // do you agree that I campaign?
)

// State tells how much a node's folder holds.
type State string

// The states of a node.
const (
	// Empty: the folder is empty, and the node takes no part in Raft.
	Empty State = "empty"
	// Formed: the log holds only the first configuration, since no leader has sent an entry yet.
	Formed State = "formed"
	// Live: the folder holds more. After a restart the state is Live even before the machine has applied an entry.
	Live State = "live"
)

// Request is a request from one node to another. ID and Address name the member to which the request applies.
type Request struct {
	Kind    Kind   `json:"kind"`
	From    string `json:"from"` // the asking node's id
	ID      string `json:"id,omitempty"`
	Address string `json:"address,omitempty"`
	Level   uint32 `json:"level,omitempty"` // of Raise: the level; of Rejoin: the highest level that the node knows
	// State is the asking node's latest state hash. The reply has the other node's hash at the same index.
	State *StateHash `json:"state,omitempty"`
	// Elect is the question of a candidate.
	Elect *election.Question `json:"elect,omitempty"`
}

// Reply holds an Answer to Ask, an error, or the result of another request.
type Reply struct {
	Answer *Answer `json:"answer,omitempty"`
	Term   uint64  `json:"term,omitempty"` // after Rejoin: the leader's term, in which the node must not vote
	// Cluster is the id of the cluster to which Rejoin has admitted the node.
	Cluster string `json:"cluster,omitempty"`
	Code    string `json:"code,omitempty"`  // code of the error: see codes
	Error   string `json:"error,omitempty"` // the text that belongs to Code
	// Elect is the reply to a candidate's question.
	Elect *election.Reply `json:"elect,omitempty"`
}

// Answer is a node's description of itself.
type Answer struct {
	Node          string `json:"node"`
	Incarnation   uint64 `json:"incarnation"` // random at each start
	Peers         string `json:"peers"`       // the configured list as text; equal lists have equal texts
	State         State  `json:"state"`
	Leader        string `json:"leader,omitempty"` // as far as the node knows
	LeaderAddress string `json:"leader_address,omitempty"`
	Term          uint64 `json:"term"`
	Knows         uint32 `json:"knows"` // the highest feature level that its program knows
	Commit        uint64 `json:"commit"`
	Applied       uint64 `json:"applied"` // the last index that the node's machine has applied
	// Configuration is the index of the latest committed configuration that the node knows. Member reports whether this
	// configuration contains the asking node.
	Configuration uint64      `json:"configuration"`
	Member        bool        `json:"member"`
	Draining      bool        `json:"draining,omitempty"`
	StorageLow    bool        `json:"storage_low,omitempty"`
	StorageSpent  bool        `json:"storage_spent,omitempty"`
	Hashes        []StateHash `json:"hashes,omitempty"`
	// Common is the node's state hash at the index of Request.State, if it still has that hash.
	Common *StateHash `json:"common,omitempty"`

	Cluster  string `json:"cluster,omitempty"`  // the cluster's id, once it is known
	Folder   string `json:"folder"`             // the id of the data folder in hexadecimal
	Forms    string `json:"forms,omitempty"`    // the id of the cluster that this empty node proposes to form
	Restored bool   `json:"restored,omitempty"` // the folder was restored from a backup or a copy
}

// StateHash is the hash of a machine's state after the entry at an index.
type StateHash struct {
	Index uint64
	Hash  [16]byte
}

// MarshalText returns INDEX:HEX.
func (h StateHash) MarshalText() ([]byte, error) {
	return fmt.Appendf(nil, "%d:%x", h.Index, h.Hash), nil
}

// UnmarshalText parses the text that MarshalText returns.
func (h *StateHash) UnmarshalText(text []byte) error {
	var digits string
	if n, err := fmt.Sscanf(string(text), "%d:%s", &h.Index, &digits); n != 2 || err != nil {
		return ErrMalformed
	}
	sum, err := hex.DecodeString(digits)
	if err != nil || len(sum) != len(h.Hash) {
		return ErrMalformed
	}
	copy(h.Hash[:], sum)
	return nil
}

// write writes one message.
func write(w io.Writer, message any) error {
	body, err := json.Marshal(message)
	if err != nil {
		return err
	}
	if len(body) > maxBytes {
		return fmt.Errorf("a message of %d bytes: %w", len(body), ErrMalformed)
	}
	_, err = w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...))
	return err
}

// read reads one Request or Reply, and no byte after it. It fails with io.EOF at the end of the stream.
func read(r io.Reader, message interface{ check() error }) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	length := binary.BigEndian.Uint32(head[:])
	if length > maxBytes {
		return fmt.Errorf("a message of %d bytes: %w", length, ErrMalformed)
	}
	body := make([]byte, length)
	if _, err := io.ReadFull(r, body); err != nil {
		return fmt.Errorf("a message that ends early: %w", err)
	}
	if err := json.Unmarshal(body, message); err != nil {
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return message.check()
}

// check returns an error for a request that no node would send.
func (q *Request) check() error {
	if q.Kind == "" || q.From == "" {
		return fmt.Errorf("a request without kind or sender: %w", ErrMalformed)
	}
	return nil
}

// check returns an error for a reply that no node would send.
func (p *Reply) check() error {
	switch {
	case p.Answer == nil:
		return nil
	case p.Answer.Node == "":
		return fmt.Errorf("a reply without a name: %w", ErrMalformed)
	case p.Answer.State != Empty && p.Answer.State != Formed && p.Answer.State != Live:
		return fmt.Errorf("a state of %q: %w", p.Answer.State, ErrMalformed)
	case p.Answer.Folder != "" && !isFolder(p.Answer.Folder):
		return fmt.Errorf("a folder of %q: %w", p.Answer.Folder, ErrMalformed)
	case len(p.Answer.Hashes) > MaxHashes:
		return fmt.Errorf("%d state hashes: %w", len(p.Answer.Hashes), ErrMalformed)
	}
	return nil
}

func isFolder(text string) bool {
	id, err := hex.DecodeString(text)
	return err == nil && len(id) == folderBytes
}
