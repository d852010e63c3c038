package rules

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

const (
	minFileLines    = 60
	maxSharedPrefix = 3 // files of a package that begin with the same word
)

// bigPackages may have small files, and many with the same first word: why.
var bigPackages = map[string]string{
	machine:               "all operations share the private records of the machine; one operation is one file is one script",
	"client":              "the one package that users import, one small file a verb; what they need not see is in client/internal",
	"cmd/signalbox/verbs": "one small file a verb of the terminal",
}

// platforms are the ends of the names of files that are built for some systems
// alone; such a file is as short as it can be.
var platforms = []string{"linux", "darwin", "windows", "unix", "other"}

// filesAreNoSplinters finds files that belong into another one of their package.
func filesAreNoSplinters(p tree) (broken []string) {
	files := map[string]int{} // of a package, but for tests and doc.go
	for _, s := range p.sources {
		if !s.test && path.Base(s.path) != "doc.go" {
			files[s.dir]++
		}
	}
	for _, s := range p.sources {
		word, _, _ := strings.Cut(path.Base(s.path), "_")
		operation := s.dir == machine && word == "op"
		if s.test || s.lines >= minFileLines || files[s.dir] == 1 || bigPackages[s.dir] != "" && s.dir != machine || operation || s.isPlatform() || path.Base(s.path) == "doc.go" {
			continue
		}
		broken = append(broken, fmt.Sprintf("%s has %d lines, fewer than %d: join it with the file that it belongs to", s.path, s.lines, minFileLines))
	}
	return broken
}

// isPlatform reports whether a file is built for some systems alone.
func (s source) isPlatform() bool {
	stem := strings.TrimSuffix(path.Base(s.path), ".go")
	return slices.ContainsFunc(platforms, func(system string) bool { return strings.HasSuffix(stem, "_"+system) })
}

// prefixesArePackages finds the first word of a file's name that too many files of
// the package share: they are a package of their own.
func prefixesArePackages(p tree) (broken []string) {
	type prefix struct{ dir, word string }
	shared := map[prefix]int{}
	for _, s := range p.sources {
		if s.test || s.isPlatform() || bigPackages[s.dir] != "" {
			continue
		}
		word, _, _ := strings.Cut(strings.TrimSuffix(path.Base(s.path), ".go"), "_")
		shared[prefix{s.dir, word}]++
	}
	for of, n := range shared {
		if n > maxSharedPrefix {
			broken = append(broken, fmt.Sprintf("%s: %d files begin with %q, more than %d: make them a package", of.dir, n, of.word, maxSharedPrefix))
		}
	}
	return broken
}
