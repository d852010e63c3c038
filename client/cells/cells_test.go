package cells

import (
	"strings"
	"testing"
)

func newMap(t *testing.T) *Map {
	t.Helper()
	m, err := New([]Cell{
		{Number: 7, Prefixes: []string{"eu/", "tenant/a/"}, Nodes: []string{"n7"}},
		{Number: 1, Prefixes: []string{""}, Nodes: []string{"n1"}},
		{Number: 62, Prefixes: []string{"tenant/", "eu/paris/x"}, Nodes: []string{"n62"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestLongestPrefixDecides: each name has one cell, whatever the order in the list.
func TestLongestPrefixDecides(t *testing.T) {
	m := newMap(t)
	for name, want := range map[string]int{
		"": 1, "db": 1, "eu": 1, "EU/db": 1, "eu/": 7, "eu/paris/": 7, "eu/paris/x": 62, "eu/paris/xy": 62,
		"tenant/": 62, "tenant/a": 62, "tenant/a/": 7, "tenant/b/": 62,
	} {
		if got := m.OfName(name).Number; got != want {
			t.Errorf("%q is of cell %d, want %d", name, got, want)
		}
	}
}

// TestNamesBelow: a beginning belongs to one cell only if no longer prefix belongs to another cell.
func TestNamesBelow(t *testing.T) {
	m := newMap(t)
	for beginning, want := range map[string]int{"": 0, "d": 1, "e": 0, "eu/": 0, "eu/b": 7, "eu/paris/x": 62, "tenant/": 0, "tenant/a/": 7, "tenant/b": 62} {
		c, other := m.OfNamesBelow(beginning)
		if got := c; (got == nil) != (want == 0) || got != nil && got.Number != want {
			t.Errorf("names below %q are of cell %v, want %d", beginning, got, want)
		}
		if c == nil && (!strings.HasPrefix(other, beginning) || m.OfName(other) == m.OfName(beginning)) {
			t.Errorf("names below %q: %q is no prefix of another cell", beginning, other)
		}
	}
}

// TestIDsTellTheirCell: the number of the cell is the top 6 of the 53 bits of an id. Other ids belong to no cell.
func TestIDsTellTheirCell(t *testing.T) {
	m := newMap(t)
	for id, want := range map[uint64]int{1: 0, IDsPerCell - 1: 0, IDsPerCell: 1, 2*IDsPerCell - 1: 1, 2 * IDsPerCell: 0, 7*IDsPerCell + 5: 7, 63*IDsPerCell - 1: 62, 63 * IDsPerCell: 0, 1<<53 + 7*IDsPerCell: 0, 1<<63 | 5: 0} {
		if got := m.OfSession(id); (got == nil) != (want == 0) || got != nil && got.Number != want {
			t.Errorf("session %d is of cell %v, want %d", id, got, want)
		}
	}
	alone, err := New([]Cell{{Number: 3, Prefixes: []string{""}, Nodes: []string{"n"}}})
	if err != nil || alone.OfSession(1<<63) == nil {
		t.Errorf("the only cell does not have every session: %v", err)
	}
}

// TestListsAreRefused: in each of these lists a name or an id would belong to no cell, or to two cells.
func TestListsAreRefused(t *testing.T) {
	all, nodes := []string{""}, []string{"n"}
	for want, list := range map[string][]Cell{
		"there is no cell":                            nil,
		"number 0":                                    {{Number: 0, Prefixes: all, Nodes: nodes}},
		"number 63":                                   {{Number: 63, Prefixes: all, Nodes: nodes}},
		"two cells have the number 4":                 {{4, all, nodes}, {4, []string{"a"}, nodes}},
		"cell 4 has no prefix":                        {{4, nil, nodes}, {5, all, nodes}},
		"cell 5 lacks the addresses":                  {{4, []string{"a"}, nodes}, {5, all, nil}},
		"cell 6 lacks the addresses":                  {{6, all, []string{"n", ""}}},
		`no cell has the prefix ""`:                   {{4, []string{"a"}, nodes}},
		`"a" is there twice: in cell 4 and in cell 5`: {{5, []string{"a", ""}, nodes}, {4, []string{"a"}, nodes}},
		`"a" is there twice: in cell 4 and in cell 4`: {{4, []string{"a", "", "a"}, nodes}},
	} {
		if _, err := New(list); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", list, err, want)
		}
	}
}
