package cluster

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/signalbox/signalbox/store"
)

// A message on a probe stream is a length of four bytes, big-endian, and as much
// JSON. These messages are few, and JSON lets a newer node say more than an older
// one reads: unknown members are ignored, missing ones are zero.
const (
	// maxProbeBytes bounds a message: it is read whole before it is looked at, and
	// strangers may send one.
	maxProbeBytes = 64 << 10
	// maxProbeHashes bounds the state hashes of one answer.
	maxProbeHashes = 16
)

var errProbeMalformed = errors.New("malformed message on a probe stream")

// probeKind says what a peer asks for. A name is never reused.
type probeKind string

const (
	probeAsk      probeKind = "ask"      // how are you? Answered by every node at any time
	probeRejoin   probeKind = "rejoin"   // my folder is empty: make me a non-voter. To the leader
	probeAdd      probeKind = "add"      // add a member. To the leader
	probeRemove   probeKind = "remove"   // remove a member. To the leader
	probeTransfer probeKind = "transfer" // hand leadership over. To the leader
	probeRemoved  probeKind = "removed"  // you were removed. From the leader
	probeRaise    probeKind = "raise"    // raise the feature level. To the leader
)

// nodeState is how far a node has come, as far as the forming of a cluster is
// concerned.
type nodeState string

const (
	// stateEmpty is a node that has nothing and takes no part in Raft.
	stateEmpty nodeState = "empty"
	// stateFormed is one whose log holds nothing but the first configuration: no
	// leader has written to it.
	stateFormed nodeState = "formed"
	// stateLive is any other. A restarted node is live before it has applied
	// anything, since its log says so.
	stateLive nodeState = "live"
)

// probeRequest is what a peer asks. ID and Address are those of the member that
// the request is about.
type probeRequest struct {
	Kind    probeKind `json:"kind"`
	From    string    `json:"from"` // the asking node's id
	ID      string    `json:"id,omitempty"`
	Address string    `json:"address,omitempty"`
	Level   uint32    `json:"level,omitempty"` // of a raise: the level; of a rejoin: what the node knows
	// State is the asking node's last state hash, for the reply to compare.
	State *stateHash `json:"state,omitempty"`

	by     hello  // the asking node, as the stream's preamble says
	origin string // the stream's remote address
}

// probeReply answers a request: with an answer or with an error.
type probeReply struct {
	Answer *probeAnswer `json:"answer,omitempty"`
	Term   uint64       `json:"term,omitempty"` // of a rejoin: no vote may be cast in it any more
	// Cluster is the id of the cluster that a rejoin leads to.
	Cluster string `json:"cluster,omitempty"`
	Code    string `json:"code,omitempty"`  // of the error, see callErrors
	Error   string `json:"error,omitempty"` // its text
}

// probeAnswer is what a node says of itself.
type probeAnswer struct {
	Node          string    `json:"node"`
	Incarnation   uint64    `json:"incarnation"` // another one after each start
	Peers         string    `json:"peers"`       // its configured list, see peerList
	State         nodeState `json:"state"`
	Leader        string    `json:"leader,omitempty"` // as far as it knows
	LeaderAddress string    `json:"leader_address,omitempty"`
	Term          uint64    `json:"term"`
	Knows         uint32    `json:"knows"` // the highest feature level that its program knows
	Commit        uint64    `json:"commit"`
	Applied       uint64    `json:"applied"` // by its machine
	// Configuration is the index of the last committed configuration that it
	// knows, and Member whether the asking node is in it.
	Configuration uint64      `json:"configuration"`
	Member        bool        `json:"member"`
	Draining      bool        `json:"draining,omitempty"`
	StorageLow    bool        `json:"storage_low,omitempty"`
	StorageSpent  bool        `json:"storage_spent,omitempty"`
	Hashes        []stateHash `json:"hashes,omitempty"`
	// Common is this node's state hash at the index of the asking node's, if it is
	// still known.
	Common *stateHash `json:"common,omitempty"`

	Cluster  string         `json:"cluster,omitempty"`  // its id, once it is known
	Folder   store.FolderID `json:"folder"`             // of the node's data folder
	Forms    string         `json:"forms,omitempty"`    // the id of the cluster that an empty node is about to form
	Restored bool           `json:"restored,omitempty"` // the folder was put back, see Config.Restored
}

// stateHash is the machine's chain of hashes at an index, see hashHistory.
type stateHash struct {
	Index uint64
	Hash  [16]byte
}

// MarshalText writes INDEX:HEX.
func (h stateHash) MarshalText() ([]byte, error) {
	return fmt.Appendf(nil, "%d:%x", h.Index, h.Hash), nil
}

// UnmarshalText reads what MarshalText wrote.
func (h *stateHash) UnmarshalText(text []byte) error {
	var digits string
	if n, err := fmt.Sscanf(string(text), "%d:%s", &h.Index, &digits); n != 2 || err != nil {
		return errProbeMalformed
	}
	sum, err := hex.DecodeString(digits)
	if err != nil || len(sum) != len(h.Hash) {
		return errProbeMalformed
	}
	copy(h.Hash[:], sum)
	return nil
}

// writeProbe writes one message.
func writeProbe(w io.Writer, message any) error {
	body, err := json.Marshal(message)
	if err != nil {
		return err
	}
	if len(body) > maxProbeBytes {
		return fmt.Errorf("a message of %d bytes: %w", len(body), errProbeMalformed)
	}
	_, err = w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...))
	return err
}

// readProbe reads one message into a probeRequest or probeReply. It reads no
// further than its end, and fails with io.EOF at the end of the stream.
func readProbe(r io.Reader, message interface{ check() error }) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	length := binary.BigEndian.Uint32(head[:])
	if length > maxProbeBytes {
		return fmt.Errorf("a message of %d bytes: %w", length, errProbeMalformed)
	}
	body := make([]byte, length)
	if _, err := io.ReadFull(r, body); err != nil {
		return fmt.Errorf("a message that ends early: %w", err)
	}
	if err := json.Unmarshal(body, message); err != nil {
		return fmt.Errorf("%w: %w", errProbeMalformed, err)
	}
	return message.check()
}

// check refuses what no node would send.
func (q *probeRequest) check() error {
	if q.Kind == "" || q.From == "" {
		return fmt.Errorf("a request without kind or sender: %w", errProbeMalformed)
	}
	return nil
}

// check refuses what no node would send.
func (p *probeReply) check() error {
	switch {
	case p.Answer == nil:
		return nil
	case p.Answer.Node == "":
		return fmt.Errorf("an answer without a name: %w", errProbeMalformed)
	case p.Answer.State != stateEmpty && p.Answer.State != stateFormed && p.Answer.State != stateLive:
		return fmt.Errorf("a state of %q: %w", p.Answer.State, errProbeMalformed)
	case len(p.Answer.Hashes) > maxProbeHashes:
		return fmt.Errorf("%d state hashes: %w", len(p.Answer.Hashes), errProbeMalformed)
	}
	return nil
}
