package membership

import (
	"strings"
	"testing"

	"github.com/signalbox/signalbox/cluster/probe"
)

// statehashOf makes recognisable hashes.
func statehashOf(b byte) [16]byte { return [16]byte{b} }

func TestJudgeHashes(t *testing.T) {
	at := func(index uint64, b byte) probe.StateHash { return probe.StateHash{Index: index, Hash: statehashOf(b)} }
	for name, c := range map[string]struct {
		told    map[string][]probe.StateHash
		members int
		want    hashVerdict
	}{
		"alone":           {map[string][]probe.StateHash{"n1": {at(4096, 1)}}, 1, hashesAgree},
		"nothing yet":     {map[string][]probe.StateHash{"n1": nil, "n2": nil}, 3, hashesAgree},
		"all agree":       {map[string][]probe.StateHash{"n1": {at(4096, 1)}, "n2": {at(4096, 1)}, "n3": {at(4096, 1)}}, 3, hashesAgree},
		"nothing shared":  {map[string][]probe.StateHash{"n1": {at(4096, 1)}, "n2": {at(8192, 2)}}, 2, hashesAgree},
		"odd one":         {map[string][]probe.StateHash{"n1": {at(4096, 9)}, "n2": {at(4096, 1)}, "n3": {at(4096, 1)}}, 3, selfDiffers},
		"majority":        {map[string][]probe.StateHash{"n1": {at(4096, 1)}, "n2": {at(4096, 1)}, "n3": {at(4096, 9)}}, 3, hashesAgree},
		"two of two":      {map[string][]probe.StateHash{"n1": {at(4096, 1)}, "n2": {at(4096, 2)}}, 2, hashesSplit},
		"third is silent": {map[string][]probe.StateHash{"n1": {at(4096, 1)}, "n2": {at(4096, 2)}}, 3, hashesSplit},
		"three ways":      {map[string][]probe.StateHash{"n1": {at(4096, 1)}, "n2": {at(4096, 2)}, "n3": {at(4096, 3)}}, 3, hashesSplit},
		"odd of five":     {map[string][]probe.StateHash{"n1": {at(4096, 9)}, "n2": {at(4096, 1)}, "n3": {at(4096, 1)}, "n4": {at(4096, 1)}}, 5, selfDiffers},
		"two pairs":       {map[string][]probe.StateHash{"n1": {at(4096, 9)}, "n2": {at(4096, 9)}, "n3": {at(4096, 1)}, "n4": {at(4096, 1)}}, 4, hashesSplit},
		"in the majority": {map[string][]probe.StateHash{"n1": {at(4096, 1), at(8192, 2)}, "n2": {at(8192, 2)}, "n3": {at(4096, 9), at(8192, 8)}}, 3, hashesAgree},
		"out of order":    {map[string][]probe.StateHash{"n1": {at(8192, 2), at(4096, 1)}, "n2": {at(8192, 2)}, "n3": {at(4096, 9), at(8192, 8)}}, 3, hashesAgree},
		"an older index":  {map[string][]probe.StateHash{"n1": {at(4096, 9), at(8192, 8)}, "n2": {at(4096, 1)}, "n3": {at(4096, 1)}}, 3, selfDiffers},
		"older of a laggard": {map[string][]probe.StateHash{"n1": {at(4096, 1), at(8192, 2)}, "n2": {at(4096, 1), at(8192, 2)},
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
