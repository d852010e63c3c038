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

// A message on a probe stream is a length of four bytes, big-endian, and as much
// JSON. These messages are few, and JSON lets a newer node send more than an older
// one reads: unknown members are ignored, missing ones are zero.
const (
	// maxBytes bounds a message: a node reads it whole before it looks at it, and
	// strangers may send one.
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

// The kinds of requests.
const (
	Ask      Kind = "ask"      // how are you? Every node replies at any time
	Rejoin   Kind = "rejoin"   // my folder is empty: make me a non-voter. To the leader
	Add      Kind = "add"      // add a member. To the leader
	Remove   Kind = "remove"   // remove a member. To the leader
	Transfer Kind = "transfer" // hand leadership over. To the leader
	Removed  Kind = "removed"  // you were removed. From the leader
	Raise    Kind = "raise"    // raise the feature level. To the leader
	Elect    Kind = "elect"    // do you agree that I campaign? To any voter
)

// State is how far a node has come on its way into a cluster.
type State string

// The states of a node.
const (
	// Empty is a node whose folder is empty: it takes no part in Raft.
	Empty State = "empty"
	// Formed is a node whose log holds only the first configuration: no leader has
	// written to it.
	Formed State = "formed"
	// Live is any other node. A restarted node is live before it has applied an entry,
	// since its log says so.
	Live State = "live"
)

// Request is a request of one node to another. ID and Address name the member
// that the request is about.
type Request struct {
	Kind    Kind   `json:"kind"`
	From    string `json:"from"` // the asking node's id
	ID      string `json:"id,omitempty"`
	Address string `json:"address,omitempty"`
	Level   uint32 `json:"level,omitempty"` // of a raise: the level; of a rejoin: the highest that the node knows
	// State is the asking node's last state hash, for the reply to compare.
	State *StateHash `json:"state,omitempty"`
	// Elect is the question of a candidate.
	Elect *election.Question `json:"elect,omitempty"`
}

// Reply is the reply to a request: an Answer, an error, or the mark that it is done.
type Reply struct {
	Answer *Answer `json:"answer,omitempty"`
	Term   uint64  `json:"term,omitempty"` // of a rejoin: no vote may be cast in it any more
	// Cluster is the id of the cluster that a rejoin leads to.
	Cluster string `json:"cluster,omitempty"`
	Code    string `json:"code,omitempty"`  // of the error, see codes
	Error   string `json:"error,omitempty"` // its text
	// Elect is the reply to a candidate.
	Elect *election.Reply `json:"elect,omitempty"`
}

// Answer is a node's description of itself.
type Answer struct {
	Node          string `json:"node"`
	Incarnation   uint64 `json:"incarnation"` // another one after each start
	Peers         string `json:"peers"`       // its configured list, in a form that is the same on all nodes
	State         State  `json:"state"`
	Leader        string `json:"leader,omitempty"` // as far as it knows
	LeaderAddress string `json:"leader_address,omitempty"`
	Term          uint64 `json:"term"`
	Knows         uint32 `json:"knows"` // the highest feature level that its program knows
	Commit        uint64 `json:"commit"`
	Applied       uint64 `json:"applied"` // by its machine
	// Configuration is the index of the last committed configuration that it
	// knows, and Member whether the asking node is in it.
	Configuration uint64      `json:"configuration"`
	Member        bool        `json:"member"`
	Draining      bool        `json:"draining,omitempty"`
	StorageLow    bool        `json:"storage_low,omitempty"`
	StorageSpent  bool        `json:"storage_spent,omitempty"`
	Hashes        []StateHash `json:"hashes,omitempty"`
	// Common is this node's state hash at the index of the asking node's, if it is
	// still known.
	Common *StateHash `json:"common,omitempty"`

	Cluster  string `json:"cluster,omitempty"`  // its id, once it is known
	Folder   string `json:"folder"`             // the id of its data folder, in hexadecimal digits
	Forms    string `json:"forms,omitempty"`    // the id of the cluster that an empty node is about to form
	Restored bool   `json:"restored,omitempty"` // the folder was put back
}

// StateHash is the hash of a machine's state after the entry at an index.
type StateHash struct {
	Index uint64
	Hash  [16]byte
}

// MarshalText writes INDEX:HEX.
func (h StateHash) MarshalText() ([]byte, error) {
	return fmt.Appendf(nil, "%d:%x", h.Index, h.Hash), nil
}

// UnmarshalText reads what MarshalText wrote.
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

// read reads one message into a Request or Reply. It reads no
// further than its end, and fails with io.EOF at the end of the stream.
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

// check refuses a request that no node would send.
func (q *Request) check() error {
	if q.Kind == "" || q.From == "" {
		return fmt.Errorf("a request without kind or sender: %w", ErrMalformed)
	}
	return nil
}

// check refuses a reply that no node would send.
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
