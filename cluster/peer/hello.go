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
// The numbers are big-endian. The versions are the range that the sender understands. A reply names only the version to
// use, or the replier's whole range if the nodes have no version in common. The body of version 1 is
//
//	kind (1) | refusal (1) | standing (1) | cluster (16) | folder (16) |
//	incarnation (8) | node | target | address | detail
//
// Each text follows its length (1 byte). A reader ignores further bytes, so that a later release may append to the body
// without a new version. The bytes before the body are the same in every version. The first byte differs from the first
// byte of a TLS handshake (0x16) and of an HTTP request.
const (
	preambleMagic   = "SBXP"
	preambleVersion = 1 // the only version so far
	preambleHead    = 8
	// maxHelloBytes bounds the memory for a body, which is read whole before it is checked, also from strangers.
	maxHelloBytes = 2048
)

var errPreamble = errors.New("not a preamble of a peer")

// StreamKind is the purpose of a stream. Numbers are never reused. A node refuses numbers that it does not know.
type StreamKind byte

// The kinds of streams.
const (
	StreamRaft    StreamKind = 1 // Raft's own messages
	StreamForward StreamKind = 2 // commands and reads on their way to the leader
	StreamProbe   StreamKind = 3 // questions to a node; also open to a node with an empty folder
)

// Standing says whether a node belongs to a cluster.
type Standing byte

const (
	// StandingEmpty: the node belongs to no cluster because its folder is empty.
	StandingEmpty Standing = 1
	// StandingBound: the node belongs to a cluster.
	StandingBound Standing = 2
)

// Refusal is the reason why a node refuses a stream, or 0 if it accepts the stream. Numbers are never reused.
type Refusal byte

// The refusals.
const (
	RefusedVersion     Refusal = 1  // the nodes have no version of the preamble in common
	RefusedCluster     Refusal = 2  // the other node belongs to another cluster
	RefusedNode        Refusal = 3  // the dialler expected another node at this address
	RefusedFolder      Refusal = 4  // the node id was admitted with another folder
	RefusedIncarnation Refusal = 5  // another process with that node id is alive
	RefusedKind        Refusal = 6  // no handler for this kind of stream (yet), or too many streams of this kind
	RefusedMalformed   Refusal = 7  // no valid preamble; counted, never sent
	RefusedTLS         Refusal = 8  // no TLS, or an invalid certificate; counted, never sent
	RefusedName        Refusal = 9  // the certificate is another node's
	RefusedStranger    Refusal = 10 // the certificate's node is neither a member nor listed
	RefusedCrowded     Refusal = 11 // too many connections without a preamble; counted, never sent
)

// refusalNames are the labels of the metric. They never change.
var refusalNames = map[Refusal]string{
	RefusedVersion: "version", RefusedCluster: "cluster", RefusedNode: "node",
	RefusedFolder: "folder", RefusedIncarnation: "incarnation", RefusedKind: "kind", RefusedMalformed: "malformed",
	RefusedTLS: "tls", RefusedName: "name", RefusedStranger: "stranger", RefusedCrowded: "crowded",
}

// String returns the label of the metric.
func (r Refusal) String() string {
	if name, ok := refusalNames[r]; ok {
		return name
	}
	return "other" // a later release knows this refusal
}

// ID identifies a cluster or a data folder. The zero value means that there is no id.
type ID [16]byte

// String returns the id as 32 hexadecimal digits.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// Hello is what each side of a stream sends first: who it is, and what the stream is for.
type Hello struct {
	Kind        StreamKind
	Refusal     Refusal // only in a reply: why the replier ends the stream
	Standing    Standing
	Cluster     ID // zero unless Standing is StandingBound
	Folder      ID
	Incarnation uint64 // random at each start of the sender's process; not 0
	Node        string // the sender's id
	Target      string // the id of the node that the sender expects at the other end; "" if not known
	Address     string // as the sender advertises it
	Detail      string // explains the refusal in a sentence
}

// SameProcess reports whether the same process sent both hellos.
func (h *Hello) SameProcess(other *Hello) bool {
	return h.Node == other.Node && h.Folder == other.Folder && h.Incarnation == other.Incarnation
}

// Describe describes the sender for a sentence. from is the sender's address.
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

// ReadHello reads a hello, and no byte after it. If the nodes have no version in common, only Refusal is set. It fails
// with io.EOF if the stream ends before its first byte, and with another error if the bytes are not a valid hello.
func ReadHello(r io.Reader) (Hello, error) {
	var head [preambleHead]byte
	if _, err := io.ReadFull(r, head[:1]); err != nil {
		return Hello{}, err
	}
	if head[0] != preambleMagic[0] { // don't wait for a whole head: a stranger may have sent a shorter message and wait for a reply
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
