package v1

import (
	"os"
	"strings"
	"testing"

	"github.com/signalbox/signalbox/test/openapitest"
)

// released is what clients rely on since release 0.2.0. A later release may add lines, but must not remove any.
const released = "testdata/surface-0.2.0.golden"

// TestAPIIsStable: a client of the released API still works, see docs/stability.md.
func TestAPIIsStable(t *testing.T) {
	description, err := os.ReadFile("openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	now, err := openapitest.Surface(description)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(released, []byte(strings.Join(now, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(released)
	if err != nil {
		t.Fatal(err)
	}
	for _, difference := range openapitest.Breaks(strings.Split(strings.TrimSpace(string(text)), "\n"), now) {
		t.Errorf("clients of release 0.2.0 break: %s", difference)
	}
}
