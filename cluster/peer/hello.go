package peer

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Every stream of the peer port begins with a preamble: the dialling node sends a hello, the accepting node replies
// with its own hello, and only then the messages of the stream begin. A hello is
//
//	"SBXP" | lowest version (1 byte) | highest version (1 byte) | length (2 bytes) | body
//
// with numbers in big-endian order. The versions are the range that the sender understands. A reply names the version
// that is used, or the sender's whole range if the nodes have no version in common. The body of version 1 is
//
//	kind (1) | refusal (1) | standing (1) | cluster (16) | folder (16) |
//	incarnation (8) | node | target | address | detail
//
// where each text follows its length (1 byte). A reader ignores further bytes, so that a later release may append to
// the body without a new version. The head is the same in every version. Its first byte is neither 0x16 (a TLS
// handshake) nor the first byte of an HTTP request.
const (
	preambleMagic   = "SBXP"
	preambleVersion = 1 // the only version so far
	preambleHead    = 8
	// maxHelloBytes bounds a body, since it is read whole before it is checked, and strangers may send one.
	maxHelloBytes = 2048
)

var errPreamble = errors.New("not a preamble of a peer")

// StreamKind is the purpose of a stream. A number is never reused; unknown numbers are refused.
type StreamKind byte

// The kinds of streams.
const (
	StreamRaft    StreamKind = 1 // Raft's own messages
	StreamForward StreamKind = 2 // commands and reads on their way to the leader
	StreamProbe   StreamKind = 3 // questions, which a node with an empty folder may ask, too
)

// Standing says whether a node belongs to a cluster.
type Standing byte

const (
	// StandingEmpty: the node belongs to no cluster, since its folder is empty.
	StandingEmpty Standing = 1
	// StandingBound: the node belongs to a cluster.
	StandingBound Standing = 2
)

// Refusal is the reason why a node refuses a stream; 0: it accepts the stream. A number is never reused.
type Refusal byte

// The refusals.
const (
	RefusedVersion     Refusal = 1  // the nodes have no version of the preamble in common
	RefusedCluster     Refusal = 2  // the other node is of another cluster
	RefusedNode        Refusal = 3  // the called address belongs to another node
	RefusedFolder      Refusal = 4  // another folder was admitted under that node id
	RefusedIncarnation Refusal = 5  // another process with that node id is alive
	RefusedKind        Refusal = 6  // streams of that kind are not accepted (yet)
	RefusedMalformed   Refusal = 7  // no preamble; counted, never sent
	RefusedTLS         Refusal = 8  // no TLS, or no certificate that is accepted; counted, never sent
	RefusedName        Refusal = 9  // a certificate of another node
	RefusedStranger    Refusal = 10 // a certificate of a node that is neither a member nor listed
	RefusedCrowded     Refusal = 11 // too many connections that have not said who they are; counted, never sent
)

// refusalNames are the labels of the metric. A name never changes.
var refusalNames = map[Refusal]string{
	RefusedVersion: "version", RefusedCluster: "cluster", RefusedNode: "node",
	RefusedFolder: "folder", RefusedIncarnation: "incarnation", RefusedKind: "kind", RefusedMalformed: "malformed",
	RefusedTLS: "tls", RefusedName: "name", RefusedStranger: "stranger", RefusedCrowded: "crowded",
}

// String returns the metric's label.
func (r Refusal) String() string {
	if name, ok := refusalNames[r]; ok {
		return name
	}
	return "other" // a refusal of a later release
}

// ID identifies a cluster or a data folder. The zero value identifies neither.
type ID [16]byte

// String returns the id as 32 hexadecimal digits.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// Hello is what each side of a stream sends first, about itself and about the stream.
type Hello struct {
	Kind        StreamKind
	Refusal     Refusal // of a reply: why the stream ends here
	Standing    Standing
	Cluster     ID // zero unless the standing is bound
	Folder      ID
	Incarnation uint64 // of the sender's process; not 0
	Node        string // the sender's id
	Target      string // the id of the node that the sender means to call; "" if it doesn't know
	Address     string // as the sender advertises it
	Detail      string // explains a refusal in a sentence
}

// SameProcess reports whether one process has sent both hellos.
func (h *Hello) SameProcess(other *Hello) bool {
	return h.Node == other.Node && h.Folder == other.Folder && h.Incarnation == other.Incarnation
}

// Describe describes the sender for a sentence. from is the address from which it called, or at which it was called.
func (h *Hello) Describe(from string) string {
	cluster := "no cluster"
	if h.Standing == StandingBound {
		cluster = "cluster " + h.Cluster.String()
	}
	return fmt.Sprintf("node %q of %s with folder %v at %s (from %s)", h.Node, cluster, h.Folder, h.Address, from)
}

// Encode returns the bytes of a hello. Texts are cut to 255 bytes.
func (h *Hello) Encode() []byte {
	body := append([]byte{byte(h.Kind), byte(h.Refusal), byte(h.Standing)}, h.Cluster[:]...)
	body = append(body, h.Folder[:]...)
	body = binary.BigEndian.AppendUint64(body, h.Incarnation)
	for _, text := range []string{h.Node, h.Target, h.Address, h.Detail} {
		text = text[:min(len(text), 255)]
		body = append(append(body, byte(len(text))), text...)
	}
	head := append([]byte(preambleMagic), preambleVersion, preambleVersion)
	head = binary.BigEndian.AppendUint16(head, uint16(len(body)))
	return append(head, body...)
}

// ReadHello reads a hello and no byte after it. If the nodes have no version in common, it sets only the refusal. It
// fails with io.EOF when the stream ends before its first byte, and with another error for bytes that no peer sends.
func ReadHello(r io.Reader) (Hello, error) {
	var head [preambleHead]byte
	if _, err := io.ReadFull(r, head[:1]); err != nil {
		return Hello{}, err
	}
	if head[0] != preambleMagic[0] { // read no further: a stranger may have sent a shorter message, and wait for a reply
		return Hello{}, fmt.Errorf("%w: its first byte is %#x", errPreamble, head[0])
	}
	if _, err := io.ReadFull(r, head[1:]); err != nil {
		return Hello{}, fmt.Errorf("%w: %w", errPreamble, err)
	}
	lowest, highest, length := head[4], head[5], int(binary.BigEndian.Uint16(head[6:]))
	if string(head[:4]) != preambleMagic || length > maxHelloBytes {
		return Hello{}, fmt.Errorf("%w: it begins with %x", errPreamble, head)
	}
	body := make([]byte, length)
	if _, err := io.ReadFull(r, body); err != nil {
		return Hello{}, fmt.Errorf("%w: %w", errPreamble, err)
	}
	if lowest > preambleVersion || highest < preambleVersion {
		return Hello{Refusal: RefusedVersion}, nil
	}
	return decodeHello(body)
}

// decodeHello reads a body of version 1.
func decodeHello(body []byte) (h Hello, err error) {
	const fixed = 3 + 16 + 16 + 8
	if len(body) < fixed {
		return h, fmt.Errorf("%w: a body of %d bytes", errPreamble, len(body))
	}
	h.Kind, h.Refusal, h.Standing = StreamKind(body[0]), Refusal(body[1]), Standing(body[2])
	copy(h.Cluster[:], body[3:])
	copy(h.Folder[:], body[19:])
	h.Incarnation = binary.BigEndian.Uint64(body[35:])
	rest := body[fixed:]
	for _, text := range []*string{&h.Node, &h.Target, &h.Address, &h.Detail} {
		if len(rest) == 0 || len(rest) < 1+int(rest[0]) {
			return h, fmt.Errorf("%w: a text ends early", errPreamble)
		}
		*text, rest = strings.ToValidUTF8(string(rest[1:1+int(rest[0])]), "?"), rest[1+int(rest[0]):]
	}
	bound := h.Standing == StandingBound
	switch {
	case h.Standing < StandingEmpty || h.Standing > StandingBound:
		err = fmt.Errorf("%w: a standing of %d", errPreamble, h.Standing)
	case bound != (h.Cluster != ID{}):
		err = fmt.Errorf("%w: a standing of %d with cluster %v", errPreamble, h.Standing, h.Cluster)
	case h.Node == "" || h.Incarnation == 0:
		err = fmt.Errorf("%w: a sender without id or incarnation", errPreamble)
	}
	return h, err
}
