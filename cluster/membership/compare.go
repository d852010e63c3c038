package membership

import (
	"cmp"
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

// ErrStateDiffers stops a node whose state differs from the state of a majority.
var ErrStateDiffers = errors.New("this node's state differs from that of a majority")

// errStateUnmatched means that the leader has no state hash at the index at which it was asked.
var errStateUnmatched = errors.New("the leader has no state hash at this node's index")

// comparison compares this node's state with the states of the other nodes. Safe for concurrent use.
type comparison struct {
	base
	halt    *halt
	split   atomic.Pointer[string] // how the states differ while no state has a majority, else nil
	differs atomic.Pointer[string] // how this node's state differs from the leader's, else nil
}

// compareReplies stops this node if its state differs from the state of a majority. It halts this node while the
// members' states differ and no state has a majority.
func (c *comparison) compareReplies(seen map[string]probe.Seen) {
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
	case selfDiffers:
		c.host.Fatal(fmt.Errorf("%w: %s; move its data folder away and start it again, and it rejoins from the others", ErrStateDiffers, text))
	case hashesSplit:
		c.halt.set(outcome.ErrSplitState, true)
		if c.split.Swap(&text) == nil {
			c.log.Error("the members' states differ and none is a majority's: no writes are taken", "hashes", text)
		}
	case hashesAgree:
		c.halt.set(outcome.ErrSplitState, false)
		if c.split.Swap(nil) != nil {
			c.log.Info("a majority of the members has the same state again")
		}
	}
}

// matchLeader compares this node's state with the leader's at the last index that this node has applied.
func (c *comparison) matchLeader(ctx context.Context) error {
	address, id := c.raft.LeaderWithID()
	if string(id) == c.self {
		c.differs.Store(nil)
		return nil // compareReplies compares the leader with the majority
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

// Hashes provides the state hashes of this node. replica.Hashes implements it.
type Hashes interface {
	// Latest returns the last applied index and the state hash there, or index 0 before the first entry.
	Latest() (index uint64, hash [16]byte)
	// At returns the state hash after the entry at index, if it is still known.
	At(index uint64) (hash [16]byte, known bool)
	// All returns the hashes that are kept for comparison, by index.
	All() iter.Seq2[uint64, [16]byte]
}

func latestHash(h Hashes) *probe.StateHash {
	if index, hash := h.Latest(); index != 0 {
		return &probe.StateHash{Index: index, Hash: hash}
	}
	return nil
}

func hashAt(h Hashes, index uint64) *probe.StateHash {
	if hash, known := h.At(index); known {
		return &probe.StateHash{Index: index, Hash: hash}
	}
	return nil
}

func allHashes(h Hashes) (all []probe.StateHash) {
	for index, hash := range h.All() {
		all = append(all, probe.StateHash{Index: index, Hash: hash})
	}
	return all
}

type hashVerdict int

const (
	hashesAgree hashVerdict = iota
	hashesSplit             // the hashes differ, and no hash has a majority
	selfDiffers             // this node's hash differs from the majority's hash
)

// judgeHashes compares the members' hashes at the latest index at which this node has a hash and two members' hashes
// differ. States that differ never become equal again, so earlier indexes are not compared. byNode has the hashes by
// node id. members counts all members, even members without a hash. If hashes differ, the text names the nodes and
// their hashes.
func judgeHashes(self string, byNode map[string][]probe.StateHash, members int) (hashVerdict, string) {
	ownHashes := slices.SortedFunc(slices.Values(byNode[self]), func(a, b probe.StateHash) int { return cmp.Compare(b.Index, a.Index) })
	for _, hash := range ownHashes { // the latest index first
		at := hashesAt(byNode, hash.Index)
		values := map[[16]byte]int{}
		largest := 0
		for _, each := range at {
			values[each]++
			largest = max(largest, values[each])
		}
		switch {
		case len(values) < 2:
			continue
		case largest <= members/2:
			return hashesSplit, describeHashes(hash.Index, at)
		case values[hash.Hash] < largest:
			return selfDiffers, describeHashes(hash.Index, at)
		}
		return hashesAgree, "" // a majority has this node's hash, and the other nodes stop themselves
	}
	return hashesAgree, ""
}

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

func describeHashes(index uint64, at map[string][16]byte) string {
	var each []string
	for _, node := range slices.Sorted(maps.Keys(at)) {
		each = append(each, fmt.Sprintf("%s %x", node, at[node]))
	}
	return fmt.Sprintf("state hashes at index %d: %s", index, strings.Join(each, ", "))
}
