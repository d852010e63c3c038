//go:build processes && linux

package main

import (
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"
)

// testProgram is the test binary itself, which runs as the program on request.
var testProgram = os.Args[0]

// sameState waits until the nodes have applied the same entries. It checks that they then have the same state hash.
func sameState(t *testing.T, c *processes) {
	t.Helper()
	eventually(t, 10*time.Second, func() error {
		var seen [3]reply
		for node := range seen {
			r, err := c.ask(t.Context(), node, http.MethodGet, "/v1/cluster", "")
			if err != nil {
				return err
			}
			seen[node] = r
			if r.Applied != seen[0].Applied {
				return fmt.Errorf("n1 has applied %d entries, n%d %d", seen[0].Applied, node+1, r.Applied)
			}
			if r.StateHash == "" || r.StateHash != seen[0].StateHash {
				t.Errorf("after entry %d n1 has state hash %q, n%d %q", r.Applied, seen[0].StateHash, node+1, r.StateHash)
			}
		}
		return nil
	})
}
