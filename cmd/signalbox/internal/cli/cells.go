package cli

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/BurntSushi/toml"
	"github.com/spf13/pflag"

	signalbox "github.com/signalbox/signalbox/client"
	"github.com/signalbox/signalbox/client/cells"
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

// addCells adds the flags of cells. --cell has no variable, because the image of a node may set it for serve.
func (f *ClusterFlags) addCells(flags *pflag.FlagSet) {
	flags.StringVar(&f.cells, "cells", "", "TOML file of the clusters that share the names, in place of --addr and --context; the name or the session says which")
	flags.IntVar(&f.cell, "cell", 0, "the number of the cell to ask, of --cells")
	WithoutVariable(flags, "cell")
	_ = flags.SetAnnotation("addr", InsteadOf, []string{"cells"}) // fails only for an unknown flag
	_ = flags.SetAnnotation("context", InsteadOf, []string{"cells"})
	_ = flags.SetAnnotation("cells", InsteadOf, []string{"addr", "context"})
}

// AboutName chooses the cell of a name. Without --cells it has no effect. Client must be called later.
func (f *ClusterFlags) AboutName(name string) error {
	return f.about(func(m *cells.Map) (*cells.Cell, error) { return m.OfName(name), nil })
}

// AboutNamesBelow chooses the cell that has all names with the prefix. It fails if several cells have such names.
func (f *ClusterFlags) AboutNamesBelow(prefix string) error {
	return f.about(func(m *cells.Map) (*cells.Cell, error) {
		c, other := m.OfNamesBelow(prefix)
		if c == nil {
			return nil, fmt.Errorf("--cells: names that begin with %q are of several cells, as %q: give a longer prefix, or --cell N", prefix, other)
		}
		return c, nil
	})
}

// AboutNames is AboutNamesBelow for a subcommand that can list the names of several cells. If several cells have names
// with the prefix, it chooses all cells of the file, see Several.
func (f *ClusterFlags) AboutNames(prefix string) error {
	return f.about(func(m *cells.Map) (*cells.Cell, error) {
		c, _ := m.OfNamesBelow(prefix)
		return c, nil
	})
}

// Several returns all cells, for signalbox.NewCells, if AboutNames found that several cells have such names; else nil.
func (f *ClusterFlags) Several() []signalbox.Cell { return f.several }

// AboutSession is AboutName for the id of a session.
func (f *ClusterFlags) AboutSession(id string) error {
	return f.about(func(m *cells.Map) (*cells.Cell, error) {
		number, err := strconv.ParseUint(id, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("--cells: %q is no id of a session", id)
		}
		c := m.OfSession(number)
		if c == nil {
			return nil, fmt.Errorf("--cells: the id of session %s tells no cell: give --cell N", id)
		}
		return c, nil
	})
}

// about sets the addresses to the nodes of --cell, or of the cell that choose returns.
func (f *ClusterFlags) about(choose func(m *cells.Map) (*cells.Cell, error)) (err error) {
	if f.cells == "" {
		return nil
	}
	if f.cellMap, err = ReadCells(f.cells); err != nil { // state: the file is read once the arguments are known
		return err
	}
	c := f.cellMap.Numbered(f.cell)
	switch {
	case f.cell == 0:
		if c, err = choose(f.cellMap); err != nil {
			return err
		}
	case c == nil:
		known := ""
		for _, each := range f.cellMap.All() {
			known += ", " + strconv.Itoa(each.Number)
		}
		return fmt.Errorf("--cell: %s has no cell %d: it has%s", f.cells, f.cell, known[1:])
	}
	f.contextRead = true // no context applies to cells
	if c != nil {
		f.Addresses, f.number = c.Nodes, c.Number
		return nil
	}
	f.Addresses = nil
	for _, each := range f.cellMap.All() {
		f.Addresses, f.several = append(f.Addresses, each.Nodes...), append(f.several, signalbox.Cell(each))
	}
	return nil
}

// checkCells refuses flags that name two clusters. It also refuses a verb if neither its argument nor
// --cell tells the cell.
func (f *ClusterFlags) checkCells() error {
	switch {
	case f.cells == "" && f.cell != 0:
		return errors.New("--cell: give --cells too, the file that has the cell")
	case f.cells == "":
		return nil
	case onCommandLine(f.set.Lookup("addr")), onCommandLine(f.set.Lookup("context")):
		return errors.New("--cells: give it without --addr and --context")
	case f.cellMap != nil:
		return nil
	case f.cell != 0:
		return f.about(nil)
	}
	return errors.New("--cells: this is about one cluster: give --cell N")
}
