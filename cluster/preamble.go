package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/store"
)

// Every stream of the peer port begins with a preamble: the dialling node sends a
// hello, the accepting node replies with its own, and only then the stream's own
// messages begin. A hello is
//
//	"SBXP" | lowest version (1 byte) | highest version (1 byte) | length (2 bytes) | body
//
// with numbers in big-endian order. The versions are those that the sender
// understands; a reply names the one that is used, or the sender's whole range
// when it shares none with the other node. The body of version 1 is
//
//	kind (1) | refusal (1) | standing (1) | cluster (16) | folder (16) |
//	incarnation (8) | node | target | address | detail
//
// where each text has a length of one byte before it. A reader ignores what
// follows: a later release may append to the body without a new version. The head
// stays as it is in every version, and so does the first byte, which is neither
// 0x16 (a TLS handshake) nor a kind of stream of a release without preamble.
const (
	preambleMagic   = "SBXP"
	preambleVersion = 1 // the only one so far
	preambleHead    = 8
	// maxHelloBytes bounds a body: it is read whole before it is looked at, and
	// strangers may send one.
	maxHelloBytes = 2048
)

var errPreamble = errors.New("not a preamble of a peer")

// standing is what a node knows of its cluster.
type standing byte

const (
	// standingEmpty is that of a node that belongs to no cluster: its folder is empty.
	standingEmpty standing = 1
	// standingOld is that of a node which has taken part in a cluster, in a release
	// before clusters had ids, and has not come to the entry yet that gives it one.
	standingOld standing = 2
	// standingBound is that of a node which knows its cluster's id.
	standingBound standing = 3
)

// refusal is why a stream is not taken. A number is never reused; 0 is none.
type refusal byte

const (
	refusedVersion     refusal = 1 // no common version of the preamble
	refusedCluster     refusal = 2 // the other node is of another cluster
	refusedUnbound     refusal = 3 // the other node does not know its cluster's id, and must
	refusedNode        refusal = 4 // another node than the one that was called
	refusedFolder      refusal = 5 // another folder was admitted under that node id
	refusedIncarnation refusal = 6 // another process with that node id is alive
	refusedKind        refusal = 7 // streams of that kind are not taken (yet)
	refusedMalformed   refusal = 8 // no preamble; counted, never sent
)

// refusalNames label the metric. A name stays as it is.
var refusalNames = map[refusal]string{
	refusedVersion: "version", refusedCluster: "cluster", refusedUnbound: "unbound", refusedNode: "node",
	refusedFolder: "folder", refusedIncarnation: "incarnation", refusedKind: "kind", refusedMalformed: "malformed",
}

// String returns the metric's label.
func (r refusal) String() string {
	if name, known := refusalNames[r]; known {
		return name
	}
	return "other" // of a later release
}

// hello is what one side of a stream says of itself and of the stream.
type hello struct {
	lowest, highest byte // versions of the preamble that the sender understands
	kind            StreamKind
	refusal         refusal // of a reply: why the stream ends here
	standing        standing
	cluster         fsm.ClusterID // zero unless the standing is bound
	folder          store.FolderID
	incarnation     uint64
	node            string // the sender's id
	target          string // the id of the node that the sender means to call; "" if it doesn't know
	address         string // as the sender advertises it
	detail          string // of a refusal: a sentence
}

// sameProcess reports whether two hellos come from one process.
func (h *hello) sameProcess(other *hello) bool {
	return h.node == other.node && h.folder == other.folder && h.incarnation == other.incarnation
}

// who describes the sender in a sentence.
func (h *hello) who(from string) string {
	cluster := "no cluster"
	switch h.standing {
	case standingBound:
		cluster = "cluster " + h.cluster.String()
	case standingOld:
		cluster = "a cluster without an id"
	}
	return fmt.Sprintf("node %q of %s with folder %v at %s (from %s)", h.node, cluster, h.folder, h.address, from)
}

// encode returns the bytes of a hello. Texts are cut to 255 bytes.
func (h *hello) encode() []byte {
	body := append([]byte{byte(h.kind), byte(h.refusal), byte(h.standing)}, h.cluster[:]...)
	body = append(body, h.folder[:]...)
	body = binary.BigEndian.AppendUint64(body, h.incarnation)
	for _, text := range []string{h.node, h.target, h.address, h.detail} {
		text = text[:min(len(text), 255)]
		body = append(append(body, byte(len(text))), text...)
	}
	head := append([]byte(preambleMagic), h.lowest, h.highest)
	head = binary.BigEndian.AppendUint16(head, uint16(len(body)))
	return append(head, body...)
}

// readHello reads a hello and nothing after it. Of one without a common version
// only the versions are set, and the refusal. It fails with io.EOF when the stream
// ends before its first byte, and with errPreamble for what no peer sends.
func readHello(r io.Reader) (hello, error) {
	var head [preambleHead]byte
	if _, err := io.ReadFull(r, head[:1]); err != nil {
		return hello{}, err
	}
	if head[0] != preambleMagic[0] { // a stranger may wait for a reply to a shorter message
		return hello{}, fmt.Errorf("%w: its first byte is %#x", errPreamble, head[0])
	}
	if _, err := io.ReadFull(r, head[1:]); err != nil {
		return hello{}, fmt.Errorf("%w: %w", errPreamble, err)
	}
	length := int(binary.BigEndian.Uint16(head[6:]))
	if string(head[:4]) != preambleMagic || length > maxHelloBytes {
		return hello{}, fmt.Errorf("%w: it begins with %x", errPreamble, head)
	}
	body := make([]byte, length)
	if _, err := io.ReadFull(r, body); err != nil {
		return hello{}, fmt.Errorf("%w: %w", errPreamble, err)
	}
	h := hello{lowest: head[4], highest: head[5]}
	if h.lowest > preambleVersion || h.highest < preambleVersion {
		h.refusal = refusedVersion
		return h, nil
	}
	return h, h.decode(body)
}

// decode reads a body of version 1.
func (h *hello) decode(body []byte) error {
	const fixed = 3 + 16 + 16 + 8
	if len(body) < fixed {
		return fmt.Errorf("%w: a body of %d bytes", errPreamble, len(body))
	}
	h.kind, h.refusal, h.standing = StreamKind(body[0]), refusal(body[1]), standing(body[2])
	copy(h.cluster[:], body[3:])
	copy(h.folder[:], body[19:])
	h.incarnation = binary.BigEndian.Uint64(body[35:])
	rest := body[fixed:]
	for _, text := range []*string{&h.node, &h.target, &h.address, &h.detail} {
		if len(rest) == 0 || len(rest) < 1+int(rest[0]) {
			return fmt.Errorf("%w: a text ends early", errPreamble)
		}
		*text, rest = strings.ToValidUTF8(string(rest[1:1+int(rest[0])]), "?"), rest[1+int(rest[0]):]
	}
	bound := h.standing == standingBound
	switch {
	case h.standing < standingEmpty || h.standing > standingBound:
		return fmt.Errorf("%w: a standing of %d", errPreamble, h.standing)
	case bound != (h.cluster != fsm.ClusterID{}):
		return fmt.Errorf("%w: a standing of %d with cluster %v", errPreamble, h.standing, h.cluster)
	case h.node == "" || h.incarnation == 0:
		return fmt.Errorf("%w: a sender without id or incarnation", errPreamble)
	}
	return nil
}

// refusedError is why a stream was refused, by this node or by the other.
type refusedError struct {
	reason refusal
	detail string
	remote bool  // the other node refused
	theirs hello // the other node's
}

func (e *refusedError) Error() string {
	if e.remote {
		return "refused by the peer: " + e.detail
	}
	return e.detail
}
