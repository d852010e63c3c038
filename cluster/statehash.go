package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

const (
	// hashEvery is at which multiples of the log's index the state hash is kept.
	hashEvery = 4096
	// hashesKept is how many of them a node keeps and tells, so that nodes which
	// are apart by that much less one can still be compared.
	hashesKept = maxProbeHashes
)

// hashHistory keeps the machine's state hash at the last indexes divisible by
// 4,096. The entry there may be Raft's own, which the machine never sees, so what
// is kept is the hash after the last entry of the machine at or below the index:
// that is the same on all nodes that have applied the same.
//
// note and restored are for the apply goroutine; all is safe for concurrent use.
type hashHistory struct {
	mu    sync.Mutex
	kept  []stateHash // by index, the latest last
	last  stateHash   // after the last entry
	known bool        // last is what preceded the next entry
	// recent has the hash after each of the last entries of the machine, at its index
	// modulo the length: a node that joins compares its own at any of them.
	recent [hashEvery]stateHash
	newest stateHash // the last of them
}

// note tells the hash after an entry of the machine.
func (h *hashHistory) note(index uint64, hash [16]byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if before := (index - 1) / hashEvery * hashEvery; h.known && before > h.last.Index {
		h.keep(stateHash{before, h.last.Hash}) // no entry of the machine was there
	}
	if index%hashEvery == 0 {
		h.keep(stateHash{index, hash})
	}
	h.last, h.known = stateHash{index, hash}, true
	h.newest, h.recent[index%hashEvery] = h.last, h.last
}

// keep appends one and forgets the oldest. The caller holds mu.
func (h *hashHistory) keep(one stateHash) {
	if over := len(h.kept) + 1 - hashesKept; over > 0 {
		h.kept = slices.Delete(h.kept, 0, over)
	}
	h.kept = append(h.kept, one)
}

// restored tells that the machine was replaced by one with that state: what was at the indexes it jumped
// over is not known here. What is kept stays true of the log, but a backup that
// was restored starts another history, so it is dropped.
func (h *hashHistory) restored(now stateHash) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.kept, h.last, h.known = nil, stateHash{}, false
	clear(h.recent[:])
	h.recent[now.Index%hashEvery] = now
	h.newest = now
}

// latest returns the hash after the last entry of the machine; nil before the first.
func (h *hashHistory) latest() *stateHash {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.newest.Index == 0 {
		return nil
	}
	newest := h.newest
	return &newest
}

// at returns the hash after the entry with that index; nil if it is not known here.
func (h *hashHistory) at(index uint64) *stateHash {
	h.mu.Lock()
	defer h.mu.Unlock()
	if found := h.recent[index%hashEvery]; index > 0 && found.Index == index {
		return &found
	}
	return nil
}

// all answers what is kept.
func (h *hashHistory) all() []stateHash {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.kept)
}

// hashVerdict is what comparing the members' state hashes shows.
type hashVerdict int

const (
	hashesAgree hashVerdict = iota
	hashesSplit             // they differ, and none is a majority's
	hashesOdd               // this node's is not the majority's
)

// judgeHashes compares what the members tell at the indexes that this node has
// too, the latest first. members counts all, also those that tell nothing. The
// text names the nodes and their hashes, if they differ.
//
// Nodes that differ never agree again, so the first index where two differ is
// enough; and where a majority agrees, a minority that differs stops by itself.
func judgeHashes(self string, told map[string][]stateHash, members int) (hashVerdict, string) {
	own := told[self]
	for i := len(own) - 1; i >= 0; i-- {
		at := hashesAt(told, own[i].Index)
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

// hashesAt answers who tells what at an index.
func hashesAt(told map[string][]stateHash, index uint64) map[string][16]byte {
	at := map[string][16]byte{}
	for node, hashes := range told {
		for _, h := range hashes {
			if h.Index == index {
				at[node] = h.Hash
			}
		}
	}
	return at
}

// describeHashes names who has which hash.
func describeHashes(index uint64, at map[string][16]byte) string {
	var each []string
	for _, node := range slices.Sorted(maps.Keys(at)) {
		each = append(each, fmt.Sprintf("%s %x", node, at[node]))
	}
	return fmt.Sprintf("state hashes at index %d: %s", index, strings.Join(each, ", "))
}
