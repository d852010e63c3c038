package rules

import (
	"fmt"
	"go/ast"
	"go/types"
	"slices"
	"strings"
)

// pureFolders are the state machine's folder and the folders of our packages that
// it imports.
var pureFolders = []string{"fsm", "internal/wire"}

// pureImports is all that the state machine's code may import: no package that reads
// a clock, a disk, the network or chance, and no package that starts or joins
// goroutines.
var pureImports = []string{
	"bufio", "bytes", "cmp", "container/heap", "crypto/sha256", "encoding/binary", "encoding/hex", "errors", "fmt", "hash/crc32", "io", "maps", "math", "math/bits",
	"slices", "sort", "strconv", "strings", "unicode", "unicode/utf8",
	"github.com/tidwall/btree", // copy-on-write ordered maps
	module + "/internal/wire",  // as pure itself, see pureFolders
}

// pureVariables are the package variables that the state machine may have. The purity
// rule also checks that they are not assigned after their declaration.
var pureVariables = map[string]string{
	"operations":   "the table of operations",
	"codeNames":    "the names of result codes",
	"ruleNames":    "the names of rules",
	"castagnoli":   "the table of CRC32C",
	"ErrMalformed": "an error's identity",
}

// pureMapRanges are the files of the state machine that may range over a map, since
// its order can't show in their outcome.
var pureMapRanges = map[string]string{
	"fsm/check.go": "looks for broken invariants: which one is found first doesn't matter",
}

// stateMachineIsPure checks what keeps replicas equal. It needs types, not only
// syntax: whether a range is over a map can't be seen from its text.
func stateMachineIsPure(p tree) (broken []string) {
	for _, folder := range pureFolders {
		broken = append(broken, folderIsPure(p, folder)...)
	}
	return broken
}

func folderIsPure(p tree, folder string) (broken []string) {
	for _, s := range p.sources {
		if s.dir == folder && !s.test {
			broken = append(broken, impureDeclarations(p, s)...)
		}
	}
	if len(broken) > 0 { // without its imports a package has no types
		return broken
	}
	packages, err := p.types()
	if err != nil {
		return []string{"types are not known: " + err.Error()}
	}
	types := packages[folder]
	if types == nil {
		return nil
	}
	if types.err != nil {
		return []string{"the types of " + folder + " are not known: " + types.err.Error()}
	}
	for _, s := range types.files {
		broken = append(broken, impureStatements(p, s.file, types.info)...)
	}
	return broken
}

// impureDeclarations looks at imports, package variables and init.
func impureDeclarations(p tree, s source) (broken []string) {
	for spec, imported := range s.imports {
		if !slices.Contains(pureImports, imported) {
			broken = append(broken, fmt.Sprintf("%s: the state machine may not import %s", p.at(spec), imported))
		}
	}
	for name := range s.variables {
		if pureVariables[name.Name] == "" {
			broken = append(broken, fmt.Sprintf("%s: package variable %s", p.at(name), name.Name))
		}
	}
	for _, declared := range s.file.Decls {
		if f, ok := declared.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
			broken = append(broken, p.at(f)+": init")
		}
	}
	return broken
}

// impureStatements looks at what the functions of one file do.
func impureStatements(p tree, file *ast.File, info *types.Info) (broken []string) {
	report := func(node ast.Node, what string) {
		if line := p.at(node) + ": " + what; !slices.Contains(broken, line) {
			broken = append(broken, line)
		}
	}
	for _, declared := range file.Decls {
		within := ""
		if f, ok := declared.(*ast.FuncDecl); ok {
			within = f.Name.Name
		}
		for node := range ast.Preorder(declared) {
			switch n := node.(type) {
			case *ast.GoStmt:
				report(n, "goroutine")
			case *ast.ChanType, *ast.SelectStmt, *ast.SendStmt:
				report(n, "channel")
			case *ast.RangeStmt:
				if what := orderless(info.TypeOf(n.X)); what != "" && pureMapRanges[p.fset.Position(file.Pos()).Filename] == "" {
					report(n, within+" ranges over "+what)
				}
			case *ast.AssignStmt:
				for _, target := range n.Lhs {
					if name := assignedVariable(info, target); name != "" {
						report(n, "package variable "+name+" is assigned")
					}
				}
			case *ast.SelectorExpr:
				if what := inputOrOutput(info, n); what != "" {
					report(n, what)
				}
			}
			if e, ok := node.(ast.Expr); ok && isFloat(info.TypeOf(e)) {
				report(node, "floating point")
			}
		}
	}
	return broken
}

// orderless names a type whose iteration has no order of its own, or whose type
// is unknown; "" for others.
func orderless(t types.Type) string {
	if t == nil {
		return "something unknown"
	}
	switch t.Underlying().(type) {
	case *types.Map:
		return "a map"
	case *types.Chan:
		return "a channel"
	}
	return ""
}

// assignedVariable names the package variable that an assignment writes to, its
// elements included; "" if it writes to something else.
func assignedVariable(info *types.Info, target ast.Expr) string {
	for {
		switch e := target.(type) {
		case *ast.IndexExpr:
			target = e.X
		case *ast.SelectorExpr:
			target = e.X
		case *ast.Ident:
			v, ok := info.Uses[e].(*types.Var)
			if ok && v.Pkg() != nil && v.Parent() == v.Pkg().Scope() {
				return v.Name()
			}
			return ""
		default:
			return ""
		}
	}
}

// inputOrOutput reports functions of fmt that read or print: the package is
// allowed for its errors and strings.
func inputOrOutput(info *types.Info, called *ast.SelectorExpr) string {
	function := info.Uses[called.Sel]
	if function == nil || function.Pkg() == nil || function.Pkg().Path() != "fmt" {
		return ""
	}
	for _, prefix := range []string{"Print", "Fprint", "Scan", "Fscan"} {
		if strings.HasPrefix(function.Name(), prefix) {
			return "input or output with fmt." + function.Name()
		}
	}
	return ""
}

func isFloat(t types.Type) bool {
	if t == nil {
		return false
	}
	basic, ok := t.Underlying().(*types.Basic)
	return ok && basic.Info()&(types.IsFloat|types.IsComplex) != 0
}
