package cluster

import (
	"bytes"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/signalbox/signalbox/fsm"
)

// lockedBuffer is a log's output that a test may read meanwhile.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(line)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// TestOrdinaryFaultsAreNoErrors: a member that is gone, a leader that is replaced
// and comes back: Raft warns of it and goes on.
func TestOrdinaryFaultsAreNoErrors(t *testing.T) {
	var log lockedBuffer
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		gone := c.follower()
		c.kill(gone)
		time.Sleep(5 * time.Second) // virtual: heartbeats fail
		c.revive(gone)
		c.do(c.leader(), fsm.CreateSemaphore{Name: "a", Permits: 1}, fsm.OK)
		for range 3 {
			old := c.leader()
			c.net.Isolate(old.id)
			c.do(c.leader(old), fsm.Up{Name: "a", Count: 1}, fsm.OK)
			c.net.Rejoin(old.id)
			time.Sleep(5 * time.Second) // virtual: it finds out
			c.must(c.leader().TransferLeadership(t.Context(), ""))
		}
		text := log.String()
		for line := range strings.Lines(text) {
			if strings.Contains(line, "[ERROR]") && strings.Contains(line, "raft:") {
				t.Errorf("an error: %s", line)
			}
		}
		if !strings.Contains(text, "[WARN]  raft: failed to heartbeat to") {
			t.Errorf("nothing was warned of: %s", text)
		}
	}, func(config *Config) { config.Logger = hclog.New(&hclog.LoggerOptions{Output: &log, Level: hclog.Warn}) })
}
