package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// devRecord is the file in which dev notes what a folder was made for: its nodes
// know each other by these ports, so others would find no one.
const devRecord = "signalbox-dev"

// folder makes the folder of the nodes' folders, or checks the one that is there.
func (d *devFlags) folder() (string, error) {
	if d.data == "" {
		return os.MkdirTemp("", "signalbox-dev-")
	}
	if err := os.MkdirAll(d.data, 0o700); err != nil {
		return "", fmt.Errorf("--data: %w", err)
	}
	record := filepath.Join(d.data, devRecord)
	own := fmt.Sprintf("--nodes %d --http-port %d\n", d.nodes, d.port)
	found, err := os.ReadFile(record)
	switch {
	case err == nil && string(found) == own:
		return d.data, nil
	case err == nil:
		return "", fmt.Errorf("--data: %s was made with %s: give the same, or another folder", d.data, found)
	case !errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("--data: %w", err)
	}
	if entries, err := os.ReadDir(d.data); err != nil || len(entries) > 0 {
		return "", fmt.Errorf("--data: %s is not empty, and was not made by signalbox dev", d.data)
	}
	if err := os.WriteFile(record, []byte(own), 0o600); err != nil {
		return "", fmt.Errorf("--data: %w", err)
	}
	return d.data, nil
}
