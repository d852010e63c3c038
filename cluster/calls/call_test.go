package calls

import (
	"testing"
)

// TestCellsDrawTheirOwnIDs: the top 6 of 53 bits of a drawn id are the cell.
func TestCellsDrawTheirOwnIDs(t *testing.T) {
	seen := map[uint64]bool{}
	for _, cell := range []int{1, 5, MaxCell} {
		e := New(Config{Cell: cell})
		for range 1000 {
			id := e.DrawSession()
			if id>>47 != uint64(cell) || seen[id] {
				t.Fatalf("cell %d drew %d", cell, id)
			}
			seen[id] = true
		}
	}
}
