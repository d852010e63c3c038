package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// fault is one deliberate mistake in a file, and the tests that should catch it.
type fault struct {
	name     string
	file     string // path from the root, with slashes
	from, to string // whole lines; from is in the file exactly once
	tests    tests
}

// tests selects tests of one package.
type tests struct {
	folder string // path from the root
	run    string // go test -run; empty: all tests
	skip   string // go test -skip
}

// listFolder has the lists of faults.
const listFolder = "test/mutants/testdata"

// readFaults reads the lists in a folder, the files in the order of their names. It returns
// an error for a list that is not of this form, one block for each fault, with comments (#)
// and empty lines between blocks:
//
//	fault: what is wrong then
//	file: fsm/op_up.go
//	test: fsm ^TestScripts$
//	 a line before or between, as it is in the file
//	-a line that goes
//	+a line in its place
//
// The line of tests names a folder and, to save time, a pattern of tests in it.
func readFaults(folder string) (faults []fault, err error) {
	lists, err := filepath.Glob(filepath.Join(folder, "*.faults"))
	if err != nil {
		return nil, err
	}
	slices.Sort(lists)
	named := map[string]bool{}
	for _, list := range lists {
		content, err := os.ReadFile(list)
		if err != nil {
			return nil, err
		}
		read, err := parseFaults(string(content))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Base(list), err)
		}
		for _, f := range read {
			if named[f.name] {
				return nil, fmt.Errorf("%s: two faults have the name %q", filepath.Base(list), f.name)
			}
			named[f.name] = true
		}
		faults = append(faults, read...)
	}
	return faults, nil
}

func parseFaults(content string) (faults []fault, err error) {
	var f *fault
	number := 0
	for line := range strings.Lines(content) {
		number++
		line = strings.TrimSuffix(line, "\n")
		key, value, _ := strings.Cut(line, ": ")
		switch {
		case line == "" || line[0] == '#':
		case key == "fault" && value != "":
			faults = append(faults, fault{name: value})
			f = &faults[len(faults)-1]
		case f == nil:
			return nil, fmt.Errorf("line %d: %q is in no fault", number, line)
		case key == "file":
			f.file = value
		case key == "test":
			f.tests.folder, f.tests.run, _ = strings.Cut(value, " ")
		case line[0] == ' ':
			f.from += line[1:] + "\n"
			f.to += line[1:] + "\n"
		case line[0] == '-':
			f.from += line[1:] + "\n"
		case line[0] == '+':
			f.to += line[1:] + "\n"
		default:
			return nil, fmt.Errorf("line %d: %q has no meaning in a fault", number, line)
		}
	}
	for _, f := range faults {
		if f.file == "" || f.tests.folder == "" || f.from == "" || f.from == f.to {
			return nil, fmt.Errorf("the fault %q lacks its file, its tests or its change", f.name)
		}
	}
	return faults, nil
}

// apply returns the content of the fault's file with the fault in it. It returns an error if
// the text that the fault replaces is not in the file exactly once.
func (f *fault) apply(content string) (string, error) {
	lines := "\n" + content // from begins where a line begins
	found := strings.Count(lines, "\n"+f.from)
	if found != 1 {
		return "", fmt.Errorf("%q: its text is in %s %d times, not once", f.name, f.file, found)
	}
	return strings.Replace(lines, "\n"+f.from, "\n"+f.to, 1)[1:], nil
}

// read returns the content of the fault's file without and with the fault.
func (f *fault) read(root string) (content, faulty string, err error) {
	read, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(f.file)))
	if err != nil {
		return "", "", err
	}
	faulty, err = f.apply(string(read))
	return string(read), faulty, err
}
