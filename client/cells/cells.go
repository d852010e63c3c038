package cells

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

const (
	// MaxNumber is the highest number of a cell.
	MaxNumber = 62
	// IDsPerCell is the number of session ids that one cell draws: the top 6 of a drawn id's 53 bits are the cell's number.
	IDsPerCell = 1 << 47
	// Header of a request has the number of the cell that it is for, so that the nodes of another cell refuse it.
	Header = "X-Signalbox-Cell"
)

// Cell is one cluster.
type Cell struct {
	Number   int      // 1 to MaxNumber, as its nodes have it from "serve --cell"
	Prefixes []string // of its names; one cell has ""
	Nodes    []string // base URLs
}

// Map tells which cell has a name or a session.
type Map struct {
	cells    []Cell // by number
	prefixes []prefix
}

// prefix is a prefix and its cell. Longer ones come first.
type prefix struct {
	text string
	cell *Cell
}

// New returns a Map over a copy of the cells. It fails if a number is not from 1 to MaxNumber, if two cells have the
// same number or the same prefix, if a cell has no nodes or no prefixes, and if no cell has the prefix "".
func New(list []Cell) (*Map, error) {
	if len(list) == 0 {
		return nil, errors.New("there is no cell")
	}
	m := &Map{}
	for _, c := range list {
		m.cells = append(m.cells, Cell{c.Number, slices.Clone(c.Prefixes), slices.Clone(c.Nodes)})
	}
	slices.SortStableFunc(m.cells, func(a, b Cell) int { return cmp.Compare(a.Number, b.Number) })
	owner := map[string]int{}
	for i := range m.cells {
		if err := m.add(i, owner); err != nil {
			return nil, err
		}
	}
	if _, ok := owner[""]; !ok {
		return nil, errors.New(`no cell has the prefix "", which stands for all names without another prefix`)
	}
	slices.SortFunc(m.prefixes, func(a, b prefix) int { return cmp.Compare(len(b.text), len(a.text)) })
	return m, nil
}

// add checks the cell at i, and adds its prefixes. owner has the number of the cell of each earlier prefix.
func (m *Map) add(i int, owner map[string]int) error {
	c := &m.cells[i]
	switch {
	case c.Number < 1 || c.Number > MaxNumber:
		return fmt.Errorf("a cell has the number %d: it is 1 to %d", c.Number, MaxNumber)
	case i > 0 && m.cells[i-1].Number == c.Number:
		return fmt.Errorf("two cells have the number %d", c.Number)
	case len(c.Prefixes) == 0:
		return fmt.Errorf("cell %d has no prefix", c.Number)
	case len(c.Nodes) == 0 || slices.Contains(c.Nodes, ""):
		return fmt.Errorf("cell %d lacks the addresses of its nodes", c.Number)
	}
	for _, text := range c.Prefixes {
		if other, taken := owner[text]; taken {
			return fmt.Errorf("the prefix %q is there twice: in cell %d and in cell %d", text, other, c.Number)
		}
		owner[text] = c.Number
		m.prefixes = append(m.prefixes, prefix{text, c})
	}
	return nil
}

// All returns the cells by their numbers. The caller must not change them.
func (m *Map) All() []Cell { return m.cells }

// Numbered returns the cell of a number, nil without one.
func (m *Map) Numbered(number int) *Cell {
	for i := range m.cells {
		if m.cells[i].Number == number {
			return &m.cells[i]
		}
	}
	return nil
}

// OfName returns the cell that has a name.
func (m *Map) OfName(name string) *Cell {
	for _, p := range m.prefixes {
		if strings.HasPrefix(name, p.text) {
			return p.cell
		}
	}
	return nil // impossible: New requires the prefix ""
}

// OfSession returns the cell that has a session. If there is only one cell, it returns this cell, else the cell whose
// number is in the id. It returns nil if no number of a cell is in the id, for example because a client chose the id, or
// a dialect derived it from a name.
func (m *Map) OfSession(id uint64) *Cell {
	switch {
	case len(m.cells) == 1:
		return &m.cells[0]
	case id/IDsPerCell > MaxNumber:
		return nil
	}
	return m.Numbered(int(id / IDsPerCell))
}

// OfNamesBelow returns the cell that has all names with this beginning. If several cells have such names, it returns nil
// and a prefix of a cell other than OfName(beginning).
func (m *Map) OfNamesBelow(beginning string) (c *Cell, other string) {
	c = m.OfName(beginning)
	for _, p := range m.prefixes {
		if strings.HasPrefix(p.text, beginning) && p.cell != c {
			return nil, p.text
		}
	}
	return c, ""
}
