//go:build processes && linux

package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestServeHasItsTimerSlack: each node's process has executed itself a second time, see package tune.
func TestServeHasItsTimerSlack(t *testing.T) {
	t.Parallel()
	c := startProcesses(t, testProgram)
	for _, node := range c.running {
		environment, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", node.command.Process.Pid))
		must(t, err)
		if !strings.Contains(string(environment), "\x00SIGNALBOX_KEEP_TIMER_SLACK=1\x00") {
			t.Errorf("%q", environment)
		}
	}
}
