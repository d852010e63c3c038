package rules

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"strings"
)

// fieldsAreSetOnce finds wiring that changes after construction. A field is wiring
// if its type is a function, an interface declared outside the standard library, or
// a pointer to a struct of another package outside it: a part that the value works
// with. All other fields are state, and may change. Wiring may be assigned
//
//   - in a function that returns the type of the value: its constructor;
//   - to a copy, or to a value that the same function has made;
//   - on a line whose comment begins with "state" and gives the reason.
//
// The cancel function of a context is state: it belongs to one run.
//
// The rule does not see a pointer to a struct of the same package that is assigned
// late, nor a part that is stored in an atomic.Pointer or a slice or map: whether those
// are wiring or state, a type does not show. In a package with an error of types, fields
// would be missed as well, and so the error is reported.
func fieldsAreSetOnce(p tree) (broken []string) {
	packages, err := p.types()
	if err != nil {
		return []string{"types are not known: " + err.Error()}
	}
	for dir, checked := range packages {
		if checked.err != nil {
			broken = append(broken, fmt.Sprintf("%s: types are not known: %v", dir, checked.err))
		}
		for _, s := range checked.files {
			for _, declared := range s.file.Decls {
				function, ok := declared.(*ast.FuncDecl)
				if !ok || function.Body == nil {
					continue
				}
				for node := range ast.Preorder(function.Body) {
					assigned, ok := node.(*ast.AssignStmt)
					if !ok || assigned.Tok != token.ASSIGN {
						continue
					}
					for _, target := range assigned.Lhs {
						if field := lateField(checked, function, target); field != "" && !p.marked(s, target, "state") {
							broken = append(broken, p.at(target)+": field "+field+" is assigned after construction")
						}
					}
				}
			}
		}
	}
	return broken
}

// lateField names the field of wiring that the function may not assign; "" if the
// target is something else, or may be assigned here.
func lateField(checked *checkedPackage, function *ast.FuncDecl, target ast.Expr) string {
	selector, ok := target.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	selection := checked.info.Selections[selector]
	if selection == nil || selection.Kind() != types.FieldVal || !isWiring(checked.pkg, selection.Obj().Type()) {
		return ""
	}
	if constructs(checked.info, function, selection.Recv()) || isFresh(checked.info, function, selector.X) {
		return ""
	}
	return selector.Sel.Name
}

// isWiring reports whether a field of the type holds a part of the program.
func isWiring(pkg *types.Package, t types.Type) bool {
	switch t.String() {
	case "context.CancelFunc", "context.CancelCauseFunc":
		return false
	}
	switch underlying := t.Underlying().(type) {
	case *types.Signature:
		return true
	case *types.Interface:
		return isForeign(nil, t)
	case *types.Pointer:
		_, ofStruct := underlying.Elem().Underlying().(*types.Struct)
		return ofStruct && isForeign(pkg, underlying.Elem())
	}
	return false
}

// isForeign reports whether a named type comes from another package than the given
// one, and not from the standard library.
func isForeign(pkg *types.Package, t types.Type) bool {
	named, ok := types.Unalias(t).(*types.Named)
	if !ok || named.Obj().Pkg() == nil || named.Obj().Pkg() == pkg {
		return false
	}
	host, _, _ := strings.Cut(named.Obj().Pkg().Path(), "/")
	return strings.Contains(host, ".")
}

// constructs reports whether the function returns values of the type, and is no
// method of it.
func constructs(info *types.Info, function *ast.FuncDecl, made types.Type) bool {
	declared, ok := info.Defs[function.Name].(*types.Func)
	if !ok {
		return false
	}
	signature := declared.Signature()
	if signature.Recv() != nil && sameBase(signature.Recv().Type(), made) {
		return false
	}
	for result := range signature.Results().Variables() {
		if sameBase(result.Type(), made) {
			return true
		}
	}
	return false
}

// sameBase compares types regardless of a pointer.
func sameBase(a, b types.Type) bool { return types.Identical(withoutPointer(a), withoutPointer(b)) }

func withoutPointer(t types.Type) types.Type {
	if pointer, ok := t.Underlying().(*types.Pointer); ok {
		return pointer.Elem()
	}
	return t
}

// isFresh reports whether an expression stands for a copy, or for a value that the
// function has made with a literal or new.
func isFresh(info *types.Info, function *ast.FuncDecl, expression ast.Expr) bool {
	for {
		selector, ok := expression.(*ast.SelectorExpr)
		if !ok {
			break
		}
		if _, pointer := info.TypeOf(selector).Underlying().(*types.Pointer); pointer {
			return false
		}
		expression = selector.X
	}
	name, ok := expression.(*ast.Ident)
	if !ok {
		return false
	}
	variable := info.Uses[name]
	if variable == nil || variable.Parent() == variable.Pkg().Scope() {
		return false
	}
	if _, pointer := variable.Type().Underlying().(*types.Pointer); !pointer {
		return true
	}
	return isMadeIn(info, function, variable)
}

// isMadeIn reports whether the function defines the variable as &T{…} or new(T).
func isMadeIn(info *types.Info, function *ast.FuncDecl, variable types.Object) bool {
	for node := range ast.Preorder(function.Body) {
		defined, ok := node.(*ast.AssignStmt)
		if !ok || defined.Tok != token.DEFINE || len(defined.Lhs) != len(defined.Rhs) {
			continue
		}
		for i, left := range defined.Lhs {
			if name, ok := left.(*ast.Ident); !ok || info.Defs[name] != variable {
				continue
			}
			switch right := defined.Rhs[i].(type) {
			case *ast.UnaryExpr:
				_, literal := right.X.(*ast.CompositeLit)
				return literal
			case *ast.CallExpr:
				return isName(right.Fun, "new")
			}
		}
	}
	return false
}
