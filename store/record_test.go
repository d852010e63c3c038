package store

import (
	"slices"
	"strings"
	"testing"
)

func TestRecordIsTextAndTakesNoOtherBytes(t *testing.T) {
	for _, r := range []record{
		{format: 1, node: "n1"},
		{format: 1, node: "n 1 \"quoted\" ünï", cluster: "c1", complete: true},
	} {
		encoded := r.encode()
		if decoded, err := decodeRecord(encoded); err != nil || decoded != r {
			t.Fatalf("%+v was read as %+v, error %v", r, decoded, err)
		}
		for length := range encoded {
			if _, err := decodeRecord(encoded[:length]); err == nil {
				t.Errorf("%d of %d bytes were taken", length, len(encoded))
			}
		}
		for bit := range 8 * len(encoded) {
			flipped := slices.Clone(encoded)
			flipped[bit/8] ^= 1 << (bit % 8)
			if _, err := decodeRecord(flipped); err == nil {
				t.Errorf("taken with bit %d flipped: %q", bit, flipped)
			}
		}
	}
	want := "signalbox data folder\nformat 1\nnode \"n1\"\ncluster \"\"\nstate complete\ncrc32c "
	if got := string(record{format: 1, node: "n1", complete: true}.encode()); !strings.HasPrefix(got, want) {
		t.Errorf("the format is for ever, and it became %q", got)
	}
}
