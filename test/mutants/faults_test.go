package main

import (
	"path/filepath"
	"testing"
)

// TestFaultsApply holds that no listed fault is stale: the code that it breaks is there, once.
func TestFaultsApply(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	faults, err := readFaults("testdata")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range faults {
		if _, _, err := f.read(root); err != nil {
			t.Error(err)
		}
	}
	t.Log(len(faults), "faults")
}
