package rules

import (
	"fmt"
	"go/ast"
	"path"
	"slices"
	"strings"
)

const (
	maxPackageLines = 3400 // without tests
	maxPackageFiles = 20
	minFileLines    = 60
	maxSharedPrefix = 3 // files of a package that begin with the same word
	maxMethodFiles  = 6 // files that the methods of one type stand in
)

// bigPackages may have many files, and small ones: why. Of these, only the machine and
// those of longPackages may exceed the lines of a package.
var bigPackages = map[string]string{
	machine:               "all operations share the private records of the machine; one operation is one file is one script",
	"client":              "the one package that users import, one small file a verb; what they need not see is in client/internal",
	"cmd/signalbox/verbs": "one small file a verb of the terminal",
}

// wideTypes may have methods in any number of files: why.
var wideTypes = map[string]string{
	machine + ".Machine": "each operation is a method, in the file of its operation",
}

// platforms are the ends of the names of files that are built for some systems
// alone; such a file is as short as it can be.
var platforms = []string{"linux", "darwin", "windows", "unix", "other"}

// packagesAreSmall counts the lines of each package, without tests.
func packagesAreSmall(p tree) (found []finding) {
	lines := map[string]int{}
	for _, s := range p.sources {
		if !s.test && s.dir != machine {
			lines[s.dir] += s.lines
		}
	}
	for dir, n := range lines {
		if most := maxPackageLines; n > most {
			found = append(found, finding{dir, n, fmt.Sprintf("%s has %d lines, more than %d", dir, n, most)})
		}
	}
	return found
}

// packagesHaveFewFiles counts the files of each package, without tests.
func packagesHaveFewFiles(p tree) (found []finding) {
	files := map[string]int{}
	for _, s := range p.sources {
		if !s.test && bigPackages[s.dir] == "" {
			files[s.dir]++
		}
	}
	for dir, n := range files {
		if n > maxPackageFiles {
			found = append(found, finding{dir, n, fmt.Sprintf("%s has %d files, more than %d", dir, n, maxPackageFiles)})
		}
	}
	return found
}

// filesAreNoSplinters finds files that belong into another one of their package.
func filesAreNoSplinters(p tree) (found []finding) {
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
		found = append(found, finding{s.dir, 1, fmt.Sprintf("%s has %d lines, fewer than %d: join it with the file that it belongs to", s.path, s.lines, minFileLines)})
	}
	return found
}

// isPlatform reports whether a file is built for some systems alone.
func (s source) isPlatform() bool {
	stem := strings.TrimSuffix(path.Base(s.path), ".go")
	return slices.ContainsFunc(platforms, func(system string) bool { return strings.HasSuffix(stem, "_"+system) })
}

// prefixesArePackages finds the first word of a file's name that too many files of
// the package share: they are a package of their own.
func prefixesArePackages(p tree) (found []finding) {
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
			found = append(found, finding{of.dir, 1, fmt.Sprintf("%s: %d files begin with %q, more than %d: make them a package", of.dir, n, of.word, maxSharedPrefix)})
		}
	}
	return found
}

// methodsStandTogether finds types whose methods are scattered over files.
func methodsStandTogether(p tree) (found []finding) {
	type owner struct{ dir, name string }
	files := map[owner][]string{}
	for _, s := range p.sources {
		if s.test {
			continue
		}
		for _, declared := range s.file.Decls {
			function, is := declared.(*ast.FuncDecl)
			if !is || function.Recv == nil {
				continue
			}
			of := owner{s.dir, receiverName(function)}
			if !slices.Contains(files[of], s.path) {
				files[of] = append(files[of], s.path)
			}
		}
	}
	for of, in := range files {
		name := of.dir + "." + of.name
		if len(in) > maxMethodFiles && wideTypes[name] == "" {
			found = append(found, finding{of.dir, 1, fmt.Sprintf("%s has methods in %d files, more than %d", name, len(in), maxMethodFiles)})
		}
	}
	return found
}

// receiverName is the name of the type that a method belongs to.
func receiverName(method *ast.FuncDecl) string {
	receiver := method.Recv.List[0].Type
	for {
		switch of := receiver.(type) {
		case *ast.StarExpr:
			receiver = of.X
		case *ast.IndexExpr:
			receiver = of.X
		case *ast.IndexListExpr:
			receiver = of.X
		case *ast.Ident:
			return of.Name
		default:
			return ""
		}
	}
}
