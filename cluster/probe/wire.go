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

// A message on a probe stream is a length (4 bytes, big-endian) and that many bytes of JSON. Messages are few, so the
// cost of JSON does not matter, and nodes of different releases can talk: a reader ignores unknown members, and missing
// members are zero.
const (
	// maxBytes bounds a message: a node reads it whole before it checks it, and strangers may send one.
	maxBytes = 64 << 10
	// MaxHashes bounds the state hashes of one Answer.
	MaxHashes = 16
	// folderBytes is the length of a folder's id.
	folderBytes = 16
)

// ErrMalformed refuses a message that no node would send.
var ErrMalformed = errors.New("malformed message on a probe stream")

// Kind is the kind of a request. A name is never reused.
type Kind string

// The kinds of requests. Every node replies to Ask at any time, and a voter to Elect. Nodes send Rejoin, Add, Remove,
// Transfer and Raise to the leader. The leader sends Removed.
const (
	Ask      Kind = "ask"      // how are you?
	Rejoin   Kind = "rejoin"   // my folder is empty: make me a non-voter
	Add      Kind = "add"      // add a member
	Remove   Kind = "remove"   // remove a member
	Transfer Kind = "transfer" // hand leadership over
	Removed  Kind = "removed"  // you were removed
	Raise    Kind = "raise"    // raise the feature level
	Elect    Kind = "elect"    // do you agree that I campaign?
)

// State is how far a node has come on its way into a cluster.
type State string

// The states of a node.
const (
	// Empty is a node whose folder is empty: it takes no part in Raft.
	Empty State = "empty"
	// Formed is a node whose log holds only the first configuration: no leader has sent it an entry yet.
	Formed State = "formed"
	// Live is any other node. A restarted node is live even before it has applied an entry, because of its log.
	Live State = "live"
)

// Request is a request from one node to another. ID and Address are of the member that the request concerns.
type Request struct {
	Kind    Kind   `json:"kind"`
	From    string `json:"from"` // the asking node's id
	ID      string `json:"id,omitempty"`
	Address string `json:"address,omitempty"`
	Level   uint32 `json:"level,omitempty"` // in a raise: the level; in a rejoin: the highest level that the node knows
	// State is the asking node's latest state hash. The reply has the other node's hash at the same index.
	State *StateHash `json:"state,omitempty"`
	// Elect is the question of a candidate.
	Elect *election.Question `json:"elect,omitempty"`
}

// Reply is the reply to a request: an Answer, an error, or neither if the request was carried out.
type Reply struct {
	Answer *Answer `json:"answer,omitempty"`
	Term   uint64  `json:"term,omitempty"` // of a rejoin: the node must not vote in this term any more
	// Cluster is the id of the cluster that a rejoin has admitted the node to.
	Cluster string `json:"cluster,omitempty"`
	Code    string `json:"code,omitempty"`  // of the error: see codes
	Error   string `json:"error,omitempty"` // the text of the error
	// Elect is the reply to a candidate's question.
	Elect *election.Reply `json:"elect,omitempty"`
}

// Answer is a node's description of itself.
type Answer struct {
	Node          string `json:"node"`
	Incarnation   uint64 `json:"incarnation"` // differs after each start
	Peers         string `json:"peers"`       // the configured list; equal lists give equal texts
	State         State  `json:"state"`
	Leader        string `json:"leader,omitempty"` // as far as the node knows
	LeaderAddress string `json:"leader_address,omitempty"`
	Term          uint64 `json:"term"`
	Knows         uint32 `json:"knows"` // the highest feature level that its program knows
	Commit        uint64 `json:"commit"`
	Applied       uint64 `json:"applied"` // the last index that the node's machine has applied
	// Configuration is the index of the last committed configuration that the node knows, and Member reports whether
	// the asking node is in it.
	Configuration uint64      `json:"configuration"`
	Member        bool        `json:"member"`
	Draining      bool        `json:"draining,omitempty"`
	StorageLow    bool        `json:"storage_low,omitempty"`
	StorageSpent  bool        `json:"storage_spent,omitempty"`
	Hashes        []StateHash `json:"hashes,omitempty"`
	// Common is the node's state hash at the index of the asking node's hash, if it is still known.
	Common *StateHash `json:"common,omitempty"`

	Cluster  string `json:"cluster,omitempty"`  // the cluster's id, once it is known
	Folder   string `json:"folder"`             // the id of the data folder, in hexadecimal digits
	Forms    string `json:"forms,omitempty"`    // the id of the cluster that an empty node is about to form
	Restored bool   `json:"restored,omitempty"` // the folder was put back
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

// read reads one message into a Request or Reply, and no byte after it. It fails with io.EOF at the end of the stream.
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
