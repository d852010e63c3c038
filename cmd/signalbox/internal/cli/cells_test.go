package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCellsFile: the example of docs/cells.md is valid. The error of an invalid file names the place.
func TestCellsFile(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/cells.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "```toml\n")
	text, _, _ = strings.Cut(text, "```")
	path := filepath.Join(t.TempDir(), "cells.toml")
	read := func(text string) (numbers []int, err error) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		m, err := ReadCells(path)
		if err != nil {
			return nil, err
		}
		return []int{m.OfName("db").Number, m.OfName("eu/db").Number, m.OfName("tenant/x").Number, len(m.All()[1].Nodes)}, nil
	}
	if got, err := read(text); err != nil || got[0] != 1 || got[1] != 2 || got[2] != 2 || got[3] != 3 {
		t.Errorf("%v: %v", got, err)
	}
	for wrong, want := range map[string]string{
		"": "there is no cell",
		strings.Replace(text, "nodes", "node", 1):            "cell.node",
		strings.Replace(text, "number = 2", "number = 1", 1): "two cells have the number 1",
		strings.Replace(text, `[""]`, `["a"]`, 1):            `no cell has the prefix ""`,
		"[[cell": "line 1",
	} {
		if _, err := read(wrong); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "--cells: "+path) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if _, err := ReadCells(path + "x"); err == nil || !strings.Contains(err.Error(), "--cells: ") {
		t.Errorf("a missing file: %v", err)
	}
}
