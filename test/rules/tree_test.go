package rules

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// source is one Go file.
type source struct {
	path string // from the root, with slashes
	dir  string
	test bool
	file *ast.File
}

// tree is all Go files and pages of a project.
type tree struct {
	files   fs.FS
	fset    *token.FileSet
	sources []source
	pages   []page
	typed   *typeChecker
}

// page is one file of documentation.
type page struct {
	path string // from the root, with slashes
	text string
}

// readTree parses every Go file outside of testdata and hidden folders, and reads the
// pages.
func readTree(t *testing.T, files fs.FS) tree {
	t.Helper()
	project := tree{files: files, fset: token.NewFileSet(), pages: readPages(t, files), typed: &typeChecker{}}
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := path.Base(name)
		if entry.IsDir() && name != "." && (base == "testdata" || base == "vendor" || base[0] == '.' || base[0] == '_') {
			return fs.SkipDir
		}
		if entry.IsDir() || path.Ext(name) != ".go" {
			return nil
		}
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(project.fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		project.sources = append(project.sources, source{
			path: name, dir: path.Dir(name), test: strings.HasSuffix(name, "_test.go"), file: file,
		})
		return nil
	})
	must(t, err)
	return project
}

// readPages reads the pages of the root, docs, client/examples and .github.
func readPages(t *testing.T, files fs.FS) (pages []page) {
	t.Helper()
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md", "client/examples/*.md", ".github/*.md", ".github/*/*.md"} {
		names, err := fs.Glob(files, pattern)
		must(t, err)
		for _, name := range names {
			text, err := fs.ReadFile(files, name)
			must(t, err)
			pages = append(pages, page{name, string(text)})
		}
	}
	return pages
}

// at names a place as file:line.
func (p tree) at(node ast.Node) string {
	position := p.fset.Position(node.Pos())
	return fmt.Sprintf("%s:%d", position.Filename, position.Line)
}

// marked reports whether a comment on the node's line begins with the mark.
func (p tree) marked(s source, node ast.Node, mark string) bool {
	for _, group := range s.file.Comments {
		for _, comment := range group.List {
			if p.at(comment) == p.at(node) && strings.HasPrefix(comment.Text, "// "+mark) {
				return true
			}
		}
	}
	return false
}

// imports yields each import of a file with its path.
func (s source) imports(yield func(*ast.ImportSpec, string) bool) {
	for _, spec := range s.file.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err == nil && !yield(spec, imported) {
			return
		}
	}
}

// variables yields the package variables that a file declares.
func (s source) variables(yield func(*ast.Ident) bool) {
	for _, declared := range s.file.Decls {
		d, ok := declared.(*ast.GenDecl)
		if !ok || d.Tok != token.VAR {
			continue
		}
		for _, spec := range d.Specs {
			for _, name := range spec.(*ast.ValueSpec).Names {
				if name.Name != "_" && !yield(name) {
					return
				}
			}
		}
	}
}

// isExample reports whether a file is a program for users to read: each is one file.
func (s source) isExample() bool { return strings.HasPrefix(s.dir, "client/examples/") }

// platforms are the ends of the names of files that are built for some systems
// alone; such a file is as short as it can be.
var platforms = []string{"linux", "darwin", "windows", "unix", "other"}

// isPlatform reports whether a file is built for some systems alone.
func (s source) isPlatform() bool {
	stem := strings.TrimSuffix(path.Base(s.path), ".go")
	return slices.ContainsFunc(platforms, func(system string) bool { return strings.HasSuffix(stem, "_"+system) })
}

func isName(expression ast.Expr, name string) bool {
	identifier, ok := expression.(*ast.Ident)
	return ok && identifier.Name == name
}
