package membership

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/cluster/probe"
)

// ErrStateDiffers is why a node stops whose machine came to another state than a
// majority's.
var ErrStateDiffers = errors.New("this node's state differs from that of a majority")

// errStateUnmatched says that the leader has not compared its state with this node's.
var errStateUnmatched = errors.New("the leader has no state hash at this node's index")

// comparison compares this node's state with the states of the other nodes. Safe for concurrent
// use.
type comparison struct {
	base
	halt    *halt
	split   atomic.Pointer[string] // how the states differ without a majority; nil: they don't
	differs atomic.Pointer[string] // how this node's state differs from the leader's; nil: it doesn't
}

// look stops this node if its state is not the majority's, and keeps whether
// the members disagree without a majority.
func (c *comparison) look(seen map[string]probe.Seen) {
	hashes := allHashes(c.hashes)
	byNode := map[string][]probe.StateHash{}
	for id, s := range seen {
		byNode[id] = s.Answer.Hashes
		if common := s.Answer.Common; common != nil {
			byNode[id] = append(slices.Clone(byNode[id]), *common)
			if at := hashAt(c.hashes, common.Index); at != nil && !slices.Contains(hashes, *at) {
				hashes = append(hashes, *at)
			}
		}
	}
	byNode[c.self] = hashes
	verdict, text := judgeHashes(c.self, byNode, len(c.servers()))
	switch verdict {
	case hashesOdd:
		c.host.Fatal(fmt.Errorf("%w: %s; move its data folder away and start it again, and it rejoins from the others", ErrStateDiffers, text))
	case hashesSplit:
		c.halt.note(outcome.ErrSplitState, true)
		if c.split.Swap(&text) == nil {
			c.log.Error("the members' states differ and none is a majority's: no writes are taken", "hashes", text)
		}
	case hashesAgree:
		c.halt.note(outcome.ErrSplitState, false)
		if c.split.Swap(nil) != nil {
			c.log.Info("a majority of the members has the same state again")
		}
	}
}

// matchLeader compares this node's state with the leader's, at the last index that
// this node's machine has come to.
func (c *comparison) matchLeader(ctx context.Context) error {
	address, id := c.raft.LeaderWithID()
	if string(id) == c.self {
		c.differs.Store(nil)
		return nil // a majority has elected it, and compares itself with it
	}
	latest := latestHash(c.hashes)
	if latest == nil {
		return errStateUnmatched
	}
	answer, err := c.calls.AskAt(ctx, string(id), string(address), latest)
	switch {
	case err != nil:
		return err
	case answer.Common == nil || answer.Common.Index != latest.Index:
		return errStateUnmatched
	case *answer.Common != *latest:
		text := describeHashes(latest.Index, map[string][16]byte{c.self: latest.Hash, string(id): answer.Common.Hash})
		if c.differs.Swap(&text) == nil {
			c.log.Error("this node's state differs from the leader's: it stays out of service", "hashes", text)
		}
		return ErrStateDiffers
	}
	c.differs.Store(nil)
	return nil
}

// Hashes has the state hashes of this node, as replica.Hashes does.
type Hashes interface {
	// Latest returns the hash after the last entry, and its index; 0 before the first.
	Latest() (index uint64, hash [16]byte)
	// At returns the hash after the entry with that index, if it is known.
	At(index uint64) (hash [16]byte, known bool)
	// All returns the hashes that are kept for comparison, by index.
	All() iter.Seq2[uint64, [16]byte]
}

// latestHash returns the hash after the last entry; nil before the first.
func latestHash(h Hashes) *probe.StateHash {
	if index, hash := h.Latest(); index != 0 {
		return &probe.StateHash{Index: index, Hash: hash}
	}
	return nil
}

// hashAt returns the hash after the entry with that index; nil if it is not known.
func hashAt(h Hashes, index uint64) *probe.StateHash {
	if hash, known := h.At(index); known {
		return &probe.StateHash{Index: index, Hash: hash}
	}
	return nil
}

// allHashes returns the hashes that are kept, by index.
func allHashes(h Hashes) (all []probe.StateHash) {
	for index, hash := range h.All() {
		all = append(all, probe.StateHash{Index: index, Hash: hash})
	}
	return all
}

// hashVerdict is what comparing the members' state hashes shows.
type hashVerdict int

const (
	hashesAgree hashVerdict = iota
	hashesSplit             // they differ, and not one is a majority's
	hashesOdd               // this node's is not the majority's
)

// judgeHashes compares the members' hashes, by node, at the indexes that this node has
// too, the latest first. members counts all, also those without a hash. The text
// names the nodes and their hashes, if they differ.
//
// Nodes that differ never agree again, so the first index where two differ is
// enough; and where a majority agrees, the nodes of a minority stop.
func judgeHashes(self string, byNode map[string][]probe.StateHash, members int) (hashVerdict, string) {
	ownHashes := byNode[self]
	for i := len(ownHashes) - 1; i >= 0; i-- {
		at := hashesAt(byNode, ownHashes[i].Index)
		values := map[[16]byte]int{}
		largest := 0
		for _, hash := range at {
			values[hash]++
			largest = max(largest, values[hash])
		}
		switch {
		case len(values) < 2:
			continue
		case largest <= members/2:
			return hashesSplit, describeHashes(ownHashes[i].Index, at)
		case values[ownHashes[i].Hash] < largest:
			return hashesOdd, describeHashes(ownHashes[i].Index, at)
		}
	}
	return hashesAgree, ""
}

// hashesAt returns the hashes at an index, by node.
func hashesAt(byNode map[string][]probe.StateHash, index uint64) map[string][16]byte {
	at := map[string][16]byte{}
	for node, hashes := range byNode {
		for _, h := range hashes {
			if h.Index == index {
				at[node] = h.Hash
			}
		}
	}
	return at
}

// describeHashes names the nodes and their hashes.
func describeHashes(index uint64, at map[string][16]byte) string {
	var each []string
	for _, node := range slices.Sorted(maps.Keys(at)) {
		each = append(each, fmt.Sprintf("%s %x", node, at[node]))
	}
	return fmt.Sprintf("state hashes at index %d: %s", index, strings.Join(each, ", "))
}
