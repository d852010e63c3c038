package httpapi

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
)

// asNodeRED switches the dialect on, without callbacks.
func asNodeRED(cfg *Config) { cfg.NodeRED = &NodeRED{} }

// inEachNodeRED is inEachPlace for the Node-RED dialect.
func inEachNodeRED(t *testing.T, test func(s *throttleSite), change ...func(*Config)) {
	change = append([]func(*Config){asNodeRED}, change...)
	for name, site := range map[string]func(*testing.T, ...func(*Config)) *throttleSite{
		"machine": onMachine, "leader": onLeader, "follower": onFollower,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(site(t, change...)) })
		})
	}
}

// onNodeRED is the dialect over a machine, for what needs no virtual time.
func onNodeRED(t *testing.T, change ...func(*Config)) (*throttleSite, *machineNode) {
	t.Helper()
	return onThrottle(t, append([]func(*Config){asNodeRED}, change...)...)
}

// The scripts of testdata/nodered are the contract's tables, in the form of
// TestThrottleScripts; "utf8json" is application/json; charset=utf-8.
func TestNodeREDScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/nodered/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			inEachNodeRED(t, func(s *throttleSite) { s.run(file, string(text)) })
		})
	}
}
