package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
)

// If a node may open fewer files than --max-connections needs, it says so at its start, and accepts as many connections
// as fit.
func TestFitConnections(t *testing.T) {
	for _, c := range []struct {
		most        uint64
		nodes, want int
		says        bool
	}{
		{1 << 20, 1, 10_000, false}, {10_240, 1, 10_000, false}, {10_239, 1, 9_999, true}, {1024, 1, 784, true}, {64, 1, 16, true},
		{3 * 10_240, 3, 10_000, false}, {4096, 3, 1125, true},
	} {
		var log bytes.Buffer
		config := defaultConfig()
		config.nodesHere = c.nodes
		config.fitConnections(c.most, hclog.New(&hclog.LoggerOptions{Output: &log}))
		if config.connections != c.want || c.says != strings.Contains(log.String(), "--max-connections") {
			t.Errorf("%d files for %d nodes: %d connections; %s", c.most, c.nodes, config.connections, log.String())
		}
	}
	if limit, known := openFilesLimit(); known && limit == 0 {
		t.Error("no file may be opened")
	}
}
