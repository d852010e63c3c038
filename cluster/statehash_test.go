package cluster

import (
	"slices"
	"strings"
	"testing"
)

// statehashOf makes recognisable hashes.
func statehashOf(b byte) [16]byte { return [16]byte{b} }

func TestHashHistoryKeepsTheLastEntryAtOrBelow(t *testing.T) {
	for name, c := range map[string]struct {
		noted []uint64 // indexes of the machine's entries; the hash is the position + 1
		want  []stateHash
	}{
		"an entry at the index":      {[]uint64{4095, 4096, 4097}, []stateHash{{4096, statehashOf(2)}}},
		"raft's own at the index":    {[]uint64{4094, 4099}, []stateHash{{4096, statehashOf(1)}}},
		"both":                       {[]uint64{4095, 4097, 8192}, []stateHash{{4096, statehashOf(1)}, {8192, statehashOf(3)}}},
		"next entry is at the next":  {[]uint64{4090, 8192}, []stateHash{{4096, statehashOf(1)}, {8192, statehashOf(2)}}},
		"nothing before":             {[]uint64{5000}, nil},
		"nothing before, at it":      {[]uint64{4096}, []stateHash{{4096, statehashOf(1)}}},
		"the index itself, then far": {[]uint64{4096, 8191}, []stateHash{{4096, statehashOf(1)}}},
	} {
		t.Run(name, func(t *testing.T) {
			var h hashHistory
			for i, index := range c.noted {
				h.note(index, statehashOf(byte(i+1)))
			}
			if got := h.all(); !slices.Equal(got, c.want) {
				t.Errorf("kept %v, want %v", got, c.want)
			}
		})
	}
}

func TestHashHistoryForgets(t *testing.T) {
	var h hashHistory
	for k := range uint64(100) {
		h.note((k+1)*hashEvery, statehashOf(byte(k)))
	}
	kept := h.all()
	if len(kept) != hashesKept || kept[len(kept)-1].Index != 100*hashEvery || kept[0].Index != (100-hashesKept+1)*hashEvery {
		t.Fatalf("kept %v", kept)
	}
	h.restored(stateHash{})
	h.note(101*hashEvery+5, statehashOf(1)) // what was before it, the snapshot hides
	if got := h.all(); len(got) != 0 {
		t.Fatalf("kept %v over a restore", got)
	}
}

func TestJudgeHashes(t *testing.T) {
	at := func(index uint64, b byte) stateHash { return stateHash{index, statehashOf(b)} }
	for name, c := range map[string]struct {
		told    map[string][]stateHash
		members int
		want    hashVerdict
	}{
		"alone":           {map[string][]stateHash{"n1": {at(4096, 1)}}, 1, hashesAgree},
		"nothing yet":     {map[string][]stateHash{"n1": nil, "n2": nil}, 3, hashesAgree},
		"all agree":       {map[string][]stateHash{"n1": {at(4096, 1)}, "n2": {at(4096, 1)}, "n3": {at(4096, 1)}}, 3, hashesAgree},
		"nothing shared":  {map[string][]stateHash{"n1": {at(4096, 1)}, "n2": {at(8192, 2)}}, 2, hashesAgree},
		"odd one":         {map[string][]stateHash{"n1": {at(4096, 9)}, "n2": {at(4096, 1)}, "n3": {at(4096, 1)}}, 3, hashesOdd},
		"majority":        {map[string][]stateHash{"n1": {at(4096, 1)}, "n2": {at(4096, 1)}, "n3": {at(4096, 9)}}, 3, hashesAgree},
		"two of two":      {map[string][]stateHash{"n1": {at(4096, 1)}, "n2": {at(4096, 2)}}, 2, hashesSplit},
		"third is silent": {map[string][]stateHash{"n1": {at(4096, 1)}, "n2": {at(4096, 2)}}, 3, hashesSplit},
		"three ways":      {map[string][]stateHash{"n1": {at(4096, 1)}, "n2": {at(4096, 2)}, "n3": {at(4096, 3)}}, 3, hashesSplit},
		"odd of five":     {map[string][]stateHash{"n1": {at(4096, 9)}, "n2": {at(4096, 1)}, "n3": {at(4096, 1)}, "n4": {at(4096, 1)}}, 5, hashesOdd},
		"two pairs":       {map[string][]stateHash{"n1": {at(4096, 9)}, "n2": {at(4096, 9)}, "n3": {at(4096, 1)}, "n4": {at(4096, 1)}}, 4, hashesSplit},
		"an older index":  {map[string][]stateHash{"n1": {at(4096, 9), at(8192, 8)}, "n2": {at(4096, 1)}, "n3": {at(4096, 1)}}, 3, hashesOdd},
		"older of a laggard": {map[string][]stateHash{"n1": {at(4096, 1), at(8192, 2)}, "n2": {at(4096, 1), at(8192, 2)},
			"n3": {at(4096, 7)}}, 3, hashesAgree},
	} {
		t.Run(name, func(t *testing.T) {
			got, text := judgeHashes("n1", c.told, c.members)
			if got != c.want {
				t.Fatalf("got %v (%s), want %v", got, text, c.want)
			}
			if got == hashesAgree {
				return
			}
			for node, hashes := range c.told {
				if len(hashes) > 0 && !strings.Contains(text, node+" ") {
					t.Errorf("%q does not name %s", text, node)
				}
			}
		})
	}
}
