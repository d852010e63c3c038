package rules

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// repeatLines writes "repeat N: line" out, so that a sample of a long file is short.
func repeatLines(t *testing.T, content string) string {
	t.Helper()
	var out strings.Builder
	for line := range strings.Lines(content) {
		count := 1
		if rest, ok := strings.CutPrefix(line, "repeat "); ok {
			number, repeated, _ := strings.Cut(rest, ": ")
			n, err := strconv.Atoi(number)
			if err != nil {
				t.Fatal(err)
			}
			count, line = n, repeated
		}
		out.WriteString(strings.Repeat(line, count))
	}
	return out.String()
}

// at names a place as file:line.
func (p tree) at(node ast.Node) string {
	position := p.fset.Position(node.Pos())
	return fmt.Sprintf("%s:%d", position.Filename, position.Line)
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

func importsPointDown(p tree) (broken []string) {
	for _, s := range p.sources {
		allowed, known := layers[s.dir]
		if !known {
			broken = append(broken, s.path+": no layer is given for package "+s.dir)
			continue
		}
		if s.test {
			allowed = append(append(below(s.dir), testLayers[s.dir]...), s.dir)
		}
		for spec, imported := range s.imports {
			ours, is := strings.CutPrefix(imported, module+"/")
			switch {
			case !is:
			case !slices.Contains(allowed, ours) && !slices.Contains(allowed, "..."):
				broken = append(broken, fmt.Sprintf("%s: %s may not import %s", p.at(spec), s.dir, ours))
			case !s.test && isTestOnly(ours) && !isTestOnly(s.dir):
				broken = append(broken, fmt.Sprintf("%s: only tests may import %s", p.at(spec), ours))
			}
		}
	}
	return broken
}

// permittedImportsAreUsed finds imports that layers or testLayers permits to a package
// of the tree in vain: a test also may import what its package reaches without testLayers.
func permittedImportsAreUsed(p tree) (broken []string) {
	type edge struct {
		from, to string
		test     bool
	}
	used, dirs := map[edge]bool{}, map[string]bool{}
	for _, s := range p.sources {
		dirs[s.dir] = true
		for _, imported := range s.imports {
			used[edge{s.dir, strings.TrimPrefix(imported, module+"/"), s.test}] = true
		}
	}
	for dir := range dirs {
		for _, to := range layers[dir] {
			if to != "..." && !used[edge{dir, to, false}] {
				broken = append(broken, fmt.Sprintf("layers permits %s to import %s, which no file does", dir, to))
			}
		}
		for _, to := range testLayers[dir] {
			if !used[edge{dir, to, true}] || slices.Contains(below(dir), to) {
				broken = append(broken, fmt.Sprintf("testLayers permits %s to import %s, which no test does, or may do without", dir, to))
			}
		}
	}
	return broken
}

// testMachineryStaysHome finds packages outside of test/ that no file of the program imports.
func testMachineryStaysHome(p tree) (broken []string) {
	used := map[string]bool{}
	for _, s := range p.sources {
		for _, imported := range s.imports {
			used[imported] = used[imported] || !s.test && !isTestOnly(s.dir)
		}
	}
	for _, s := range p.sources {
		if path.Base(s.path) == "doc.go" && !used[module+"/"+s.dir] && !isTestOnly(s.dir) && !slices.Contains(entries, s.dir) {
			broken = append(broken, s.dir+" is imported by tests alone: move it below test/")
		}
	}
	return broken
}

// below is everything that a package may reach through its imports.
func below(dir string) (reached []string) {
	for _, direct := range layers[dir] {
		reached = append(append(reached, direct), below(direct)...)
	}
	return reached
}

func dependenciesStayHome(p tree) (broken []string) {
	for _, s := range p.sources {
		for spec, imported := range s.imports {
			for prefix, home := range homes {
				belongs := imported == prefix || strings.HasPrefix(imported, prefix+"/")
				inside := slices.ContainsFunc(home, func(h string) bool { return s.path == h || strings.HasPrefix(s.path, h+"/") })
				if belongs && !inside {
					broken = append(broken, fmt.Sprintf("%s: only %s may import %s", p.at(spec), strings.Join(home, ", "), imported))
				}
			}
		}
	}
	return broken
}

// raftErrorsStayHome holds that what Raft's errors say of a command is decided in one
// package. Tests may name them, to make a fake Raft fail.
func raftErrorsStayHome(p tree) []string {
	return raftNames(p, func(s source, name string) string {
		if s.dir == "cluster/outcome" || !strings.HasPrefix(name, "Err") || raftErrors[s.dir+" "+name] != "" {
			return ""
		}
		return "only cluster/outcome knows Raft's " + name
	})
}

// raftIsOpenedOnce checks that all packages but the one that opens Raft see it through
// interfaces of their own.
func raftIsOpenedOnce(p tree) []string {
	return raftNames(p, func(s source, name string) string {
		if s.dir == "cluster" || name != "Raft" && name != "NewRaft" {
			return ""
		}
		return "only package cluster has raft." + name + ": others declare the methods that they need"
	})
}

// raftNames returns the places outside of tests where a name of Raft's package breaks a rule.
func raftNames(p tree, judge func(s source, name string) string) (broken []string) {
	for _, s := range p.sources {
		library := ""
		for spec, imported := range s.imports {
			if imported == "github.com/hashicorp/raft" {
				if library = "raft"; spec.Name != nil {
					library = spec.Name.Name
				}
			}
		}
		if s.test || library == "" {
			continue
		}
		for node := range ast.Preorder(s.file) {
			named, is := node.(*ast.SelectorExpr)
			if !is || !isName(named.X, library) {
				continue
			}
			if reason := judge(s, named.Sel.Name); reason != "" {
				broken = append(broken, p.at(node)+": "+reason)
			}
		}
	}
	return broken
}

// isExample reports whether a file is a program for users to read: each is one file.
func (s source) isExample() bool { return strings.HasPrefix(s.dir, "client/examples/") }

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
					switch of := spec.(type) {
					case *ast.TypeSpec:
						report(of.Name, d.Doc, of.Doc)
					case *ast.ValueSpec:
						for _, name := range of.Names {
							report(name, d.Doc, of.Doc, of.Comment)
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
		switch of := receiver.(type) {
		case *ast.StarExpr:
			receiver = of.X
		case *ast.IndexExpr:
			receiver = of.X
		case *ast.IndexListExpr:
			receiver = of.X
		case *ast.Ident:
			return of.IsExported()
		default:
			return false
		}
	}
}

// testsDontSleep lets a test sleep only in the virtual time of testing/synctest,
// where it says how long something lasts; "// virtual" on the line says so.
func testsDontSleep(p tree) (broken []string) {
	bubbles := map[string]bool{} // folders whose tests use virtual time
	for _, s := range p.sources {
		for _, imported := range s.imports {
			bubbles[s.dir] = bubbles[s.dir] || s.test && imported == "testing/synctest"
		}
	}
	for _, s := range p.sources {
		clock := ""
		for spec, imported := range s.imports {
			if imported == "time" && spec.Name != nil {
				clock = spec.Name.Name
			} else if imported == "time" {
				clock = "time"
			}
		}
		if !s.test || clock == "" {
			continue
		}
		for node := range ast.Preorder(s.file) {
			called, is := node.(*ast.SelectorExpr)
			if is && isName(called.X, clock) && called.Sel.Name == "Sleep" && !(bubbles[s.dir] && p.marked(s, node, "virtual")) {
				broken = append(broken, p.at(node)+": a test waits for a condition, it doesn't sleep")
			}
		}
	}
	return broken
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

func isName(expression ast.Expr, name string) bool {
	identifier, is := expression.(*ast.Ident)
	return is && identifier.Name == name
}

func namesSaySomething(p tree) (broken []string) {
	for _, s := range p.sources {
		stem := strings.TrimSuffix(strings.TrimSuffix(path.Base(s.path), ".go"), "_test")
		for _, empty := range []string{"util", "utils", "common", "helper", "helpers", "manager", "misc"} {
			if stem == empty || s.file.Name.Name == empty {
				broken = append(broken, fmt.Sprintf("%s: %q says nothing about what is in it", s.path, empty))
			}
		}
	}
	return broken
}

// variables yields the package variables that a file declares.
func (s source) variables(yield func(*ast.Ident) bool) {
	for _, declared := range s.file.Decls {
		d, is := declared.(*ast.GenDecl)
		if !is || d.Tok != token.VAR {
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
