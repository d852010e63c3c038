package rules

import (
	"fmt"
	"go/ast"
	"path"
	"regexp"
	"slices"
)

func packagesAreDocumented(p tree) (broken []string) {
	documented := map[string]bool{}
	var dirs []string
	for _, s := range p.sources {
		if s.test {
			continue
		}
		if !slices.Contains(dirs, s.dir) {
			dirs = append(dirs, s.dir)
		}
		if (path.Base(s.path) == "doc.go" || s.isExample()) && s.file.Doc.Text() != "" {
			documented[s.dir] = true
		}
	}
	for _, dir := range dirs {
		if !documented[dir] {
			broken = append(broken, dir+" has no doc.go with a package comment")
		}
	}
	return broken
}

func exportedNamesAreDocumented(p tree) (broken []string) {
	report := func(name *ast.Ident, docs ...*ast.CommentGroup) {
		if name.IsExported() && !slices.ContainsFunc(docs, func(d *ast.CommentGroup) bool { return d.Text() != "" }) {
			broken = append(broken, fmt.Sprintf("%s: %s has no doc comment", p.at(name), name.Name))
		}
	}
	for _, s := range p.sources {
		if s.test {
			continue
		}
		for _, declared := range s.file.Decls {
			switch d := declared.(type) {
			case *ast.FuncDecl:
				if reachable(d) && d.Name.Name != "Error" { // which says what every error's says
					report(d.Name, d.Doc)
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch node := spec.(type) {
					case *ast.TypeSpec:
						report(node.Name, d.Doc, node.Doc)
					case *ast.ValueSpec:
						for _, name := range node.Names {
							report(name, d.Doc, node.Doc, node.Comment)
						}
					}
				}
			}
		}
	}
	return broken
}

// reachable reports whether a function can be seen from outside: methods of
// unexported types, which only implement an interface, are documented there.
func reachable(function *ast.FuncDecl) bool {
	if function.Recv == nil {
		return true
	}
	receiver := function.Recv.List[0].Type
	for {
		switch node := receiver.(type) {
		case *ast.StarExpr:
			receiver = node.X
		case *ast.IndexExpr:
			receiver = node.X
		case *ast.IndexListExpr:
			receiver = node.X
		case *ast.Ident:
			return node.IsExported()
		default:
			return false
		}
	}
}

var listedFile = regexp.MustCompile(`(?m)^\s*- ([a-z0-9_]+\.go): \S`)

// docsListFiles compares the list of files in each doc.go with the package's files.
// The order is the one to read them in, which no test can judge.
func docsListFiles(p tree) (broken []string) {
	files, listed := map[string][]string{}, map[string][]string{}
	for _, s := range p.sources {
		base := path.Base(s.path)
		if s.test || s.isExample() {
			continue
		}
		if base != "doc.go" {
			files[s.dir] = append(files[s.dir], base)
			continue
		}
		for _, match := range listedFile.FindAllStringSubmatch(s.file.Doc.Text(), -1) {
			listed[s.dir] = append(listed[s.dir], match[1])
		}
	}
	for dir := range files {
		for _, file := range files[dir] {
			if !slices.Contains(listed[dir], file) {
				broken = append(broken, fmt.Sprintf("%s/doc.go has no line for %s: write \"  - %s: what is in it\"", dir, file, file))
			}
		}
		for i, file := range listed[dir] {
			if !slices.Contains(files[dir], file) || slices.Index(listed[dir], file) < i {
				broken = append(broken, fmt.Sprintf("%s/doc.go lists %s, which is listed twice or does not exist", dir, file))
			}
		}
	}
	return broken
}
