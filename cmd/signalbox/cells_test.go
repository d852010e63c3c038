package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestVerbsGoToTheirCell: with --cells a verb goes to the cell of its name or its session; a verb about a whole cluster
// names the cell.
func TestVerbsGoToTheirCell(t *testing.T) {
	file, text := filepath.Join(t.TempDir(), "cells.toml"), ""
	var addresses []string
	for i, prefix := range []string{"", "eu/"} {
		port := freePorts(t, 0, 10)
		address := fmt.Sprintf("127.0.0.1:%d", port)
		node := startInProcess(t.Context(), t, "serve", "--ephemeral", "--cell", fmt.Sprint(i+1), "--node-id", "n1", "--http", address, "--peer", fmt.Sprintf("127.0.0.1:%d", port+10))
		node.awaitLog(t, "serving")
		addresses = append(addresses, "http://"+address)
		text += fmt.Sprintf("[[cell]]\nnumber = %d\nprefix = [%q]\nnodes = [%q]\n", i+1, prefix, "http://"+address)
	}
	must(t, os.WriteFile(file, []byte(text), 0o600))
	verb := func(line string, variables ...string) outcome {
		t.Helper()
		return command(t, strings.Fields(line), variables...)
	}
	in := func(cell int, line string) outcome {
		t.Helper()
		return verb(line + " --addr " + addresses[cell-1])
	}
	works := func(o outcome, words ...string) string {
		t.Helper()
		if o.status != 0 {
			t.Fatalf("status %d: %s", o.status, o.stderr)
		}
		for _, word := range words {
			if !strings.Contains(o.stdout, word) {
				t.Errorf("%q lacks %q", o.stdout, word)
			}
		}
		return strings.TrimSpace(o.stdout)
	}
	cells := " --cells " + file
	works(verb("create db --permits 1" + cells))
	works(verb("create eu/a --permits 2 --cells " + file))
	works(in(1, "ls -o name"), "db\n")
	if got := works(in(2, "ls -o name")); got != "eu/a" {
		t.Errorf("cell 2 has %q", got)
	}
	works(verb("show eu/a", "SIGNALBOX_CELLS", file, "SIGNALBOX_ADDR", "http://127.0.0.1:1"), "2 permits")
	session := works(verb("acquire eu/a --ttl 1h -o name" + cells))
	works(verb("renew " + session + cells))
	works(verb("why " + session + cells))
	works(verb("end " + session + " --yes" + cells))
	works(in(2, "show eu/a"), "0 held")
	works(verb("run eu/a" + cells + " -- true"))
	works(verb("ls eu/ -o name"+cells), "eu/a")
	works(verb("ls -o name --cell 1"+cells), "db")
	works(verb("status --cell 2"+cells), addresses[1])
	works(verb("show eu/a --addr "+addresses[1], "SIGNALBOX_CELLS", "/missing"), "2 permits") // --addr wins over the variable

	swapped := filepath.Join(t.TempDir(), "swapped.toml")
	must(t, os.WriteFile(swapped, []byte(strings.NewReplacer("number = 1", "number = 2", "number = 2", "number = 1").Replace(text)), 0o600))
	if o := verb("show eu/a --cells " + swapped); o.status != 5 || !strings.Contains(o.stderr, "This node is of cell 2") {
		t.Errorf("a node of another cell: status %d, %s", o.status, o.stderr)
	}
	if got := works(verb("ls -o name" + cells)); got != "db\neu/a" {
		t.Errorf("all cells have %q", got)
	}
	verb("item ls"+cells).refused(t, `as "eu/"`, "--cell N")
	verb("status"+cells).refused(t, "--cell N")
	verb("status --cell 3"+cells).refused(t, "has no cell 3: it has 1, 2\n")
	verb("status --cell 1").refused(t, "--cells")
	verb("show db --addr "+addresses[0]+cells).refused(t, "without --addr")
	verb("renew 5"+cells).refused(t, "tells no cell")
	verb("renew x"+cells).refused(t, "no id of a session")
	verb("show db --cells /missing").refused(t, "/missing")
}
