package rules

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/types"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
)

// checkedPackage is the types of one package of ours, without its tests.
type checkedPackage struct {
	pkg   *types.Package
	info  *types.Info
	files []source
	err   error // what the type checker reported; the rest of info is still good
}

// typeChecker checks the packages of a tree, each once. Its zero value is ready.
type typeChecker struct {
	once    sync.Once
	checked map[string]*checkedPackage // by folder
	err     error
}

// types returns the checked packages by folder. Packages of ours are checked from
// their source, other packages are read from the compiler's export data. The files
// of all platforms are checked together: what is declared twice then, or does not
// exist here, is no error.
func (p tree) types() (map[string]*checkedPackage, error) {
	p.typed.once.Do(func() { p.typed.checked, p.typed.err = p.checkTypes() })
	return p.typed.checked, p.typed.err
}

func (p tree) checkTypes() (map[string]*checkedPackage, error) {
	packages := map[string]*checkedPackage{}
	var foreign []string
	for _, s := range p.sources {
		// A module but the client has dependencies that this module does not know; a file for other systems declares names of Linux's files again.
		if s.test || s.dir != "client" && p.hasFile(s.dir+"/go.mod") || strings.HasSuffix(s.path, "_other.go") {
			continue
		}
		if packages[s.dir] == nil {
			packages[s.dir] = &checkedPackage{}
		}
		packages[s.dir].files = append(packages[s.dir].files, s)
		for _, imported := range s.imports {
			if !strings.HasPrefix(imported, module+"/") && !slices.Contains(foreign, imported) {
				foreign = append(foreign, imported)
			}
		}
	}
	exports, err := exportData(foreign)
	if err != nil {
		return nil, err
	}
	open := func(imported string) (io.ReadCloser, error) { return os.Open(exports[imported]) }
	checking := &ourImporter{tree: p, packages: packages, foreign: importer.ForCompiler(p.fset, "gc", open)}
	for dir := range packages {
		checking.check(dir)
	}
	return packages, nil
}

// exportData returns the file of export data of each package and of its imports.
func exportData(imported []string) (map[string]string, error) {
	exports := map[string]string{}
	if len(imported) == 0 {
		return exports, nil
	}
	arguments := []string{"list", "-e", "-export", "-deps", "-f", "{{if .Export}}{{.ImportPath}} {{.Export}}{{end}}"}
	command := exec.Command("go", append(arguments, imported...)...)
	var failed bytes.Buffer
	command.Stderr = &failed
	listed, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w: %s", err, failed.String())
	}
	for line := range strings.Lines(string(listed)) {
		if name, file, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			exports[name] = file
		}
	}
	return exports, nil
}

// ourImporter imports packages of the tree from their source, all others from
// export data.
type ourImporter struct {
	tree     tree
	packages map[string]*checkedPackage
	foreign  types.Importer
}

func (i *ourImporter) Import(imported string) (*types.Package, error) {
	dir, ours := strings.CutPrefix(imported, module+"/")
	if !ours {
		return i.foreign.Import(imported)
	}
	if i.packages[dir] == nil {
		return nil, errors.New("no package " + dir)
	}
	return i.check(dir), nil
}

func (i *ourImporter) check(dir string) *types.Package {
	checked := i.packages[dir]
	if checked.pkg != nil || checked.info != nil { // checked, or being checked: the compiler reports the circle
		return checked.pkg
	}
	checked.info = &types.Info{
		Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{},
		Defs: map[*ast.Ident]types.Object{}, Selections: map[*ast.SelectorExpr]*types.Selection{},
	}
	var files []*ast.File
	for _, s := range checked.files {
		files = append(files, s.file)
	}
	collect := func(err error) {
		file := i.tree.fset.Position(err.(types.Error).Pos).Filename
		if !(source{path: file}).isPlatform() {
			checked.err = errors.Join(checked.err, err)
		}
	}
	config := types.Config{Importer: i, Error: collect}
	checked.pkg, _ = config.Check(module+"/"+dir, i.tree.fset, files, checked.info) // collect has the error
	return checked.pkg
}
