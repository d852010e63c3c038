package exchange

import (
	"strings"
	"testing"
	"time"

	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/fsm"
)

// The cluster's node implements Node.
var _ Node = (*cluster.Node)(nil)

// FuzzDuration: an accepted duration is within its limit and never shorter than
// the text says.
func FuzzDuration(f *testing.F) {
	for _, text := range []string{"30s", "1m30s", "250ms", "1ns", "0", "0s", "-1s", "876000h", "876001h", "1.5h", "", "9999999999h", "1µs"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		ms, ok := ParseDuration(text, fsm.MaxTTLMS)
		if !ok {
			return
		}
		d, err := time.ParseDuration(text)
		if err != nil || ms < 0 || ms > fsm.MaxTTLMS || strings.HasPrefix(text, "-") {
			t.Fatalf("%q gives %d ms (%v)", text, ms, err)
		}
		if got := time.Duration(ms) * time.Millisecond; got < d || got-d >= time.Millisecond {
			t.Fatalf("%q gives %v", text, got)
		}
	})
}
