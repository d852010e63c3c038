package cli

import (
	"fmt"

	"github.com/BurntSushi/toml"

	"github.com/signalbox/signalbox/internal/cells"
)

// ReadCells reads the file of --cells:
//
//	[[cell]]
//	number = 1
//	prefix = [""]
//	nodes = ["https://n1.example:8701", "https://n2.example:8701"]
func ReadCells(path string) (*cells.Map, error) {
	var file struct {
		Cells []struct {
			Number   int      `toml:"number"`
			Prefixes []string `toml:"prefix"`
			Nodes    []string `toml:"nodes"`
		} `toml:"cell"`
	}
	read, err := toml.DecodeFile(path, &file)
	if err != nil {
		return nil, fmt.Errorf("--cells: %s: %w", path, err)
	}
	if unknown := read.Undecoded(); len(unknown) > 0 {
		return nil, fmt.Errorf("--cells: %s: %s is no member of the file: a [[cell]] has number, prefix and nodes", path, unknown[0])
	}
	list := make([]cells.Cell, len(file.Cells))
	for i, c := range file.Cells {
		list[i] = cells.Cell(c)
	}
	m, err := cells.New(list)
	if err != nil {
		return nil, fmt.Errorf("--cells: %s: %w", path, err)
	}
	return m, nil
}
