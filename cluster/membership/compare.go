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

// comparison compares this node's state with those of the others. Safe for concurrent
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
	own := allHashes(c.hashes)
	known := map[string][]probe.StateHash{}
	for id, s := range seen {
		known[id] = s.Answer.Hashes
		if common := s.Answer.Common; common != nil {
			known[id] = append(slices.Clone(known[id]), *common)
			if at := hashAt(c.hashes, common.Index); at != nil && !slices.Contains(own, *at) {
				own = append(own, *at)
			}
		}
	}
	known[c.self] = own
	verdict, text := judgeHashes(c.self, known, len(c.servers()))
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
	own := latestHash(c.hashes)
	if own == nil {
		return errStateUnmatched
	}
	answer, err := c.calls.AskAt(ctx, string(id), string(address), own)
	switch {
	case err != nil:
		return err
	case answer.Common == nil || answer.Common.Index != own.Index:
		return errStateUnmatched
	case *answer.Common != *own:
		text := describeHashes(own.Index, map[string][16]byte{c.self: own.Hash, string(id): answer.Common.Hash})
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
// enough; and where a majority agrees, a minority that differs stops by itself.
func judgeHashes(self string, known map[string][]probe.StateHash, members int) (hashVerdict, string) {
	own := known[self]
	for i := len(own) - 1; i >= 0; i-- {
		at := hashesAt(known, own[i].Index)
		values := map[[16]byte]int{}
		most := 0
		for _, hash := range at {
			values[hash]++
			most = max(most, values[hash])
		}
		switch {
		case len(values) < 2:
			continue
		case most <= members/2:
			return hashesSplit, describeHashes(own[i].Index, at)
		case values[own[i].Hash] < most:
			return hashesOdd, describeHashes(own[i].Index, at)
		}
	}
	return hashesAgree, ""
}

// hashesAt returns the hashes at an index, by node.
func hashesAt(known map[string][]probe.StateHash, index uint64) map[string][16]byte {
	at := map[string][16]byte{}
	for node, hashes := range known {
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
