package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
)

// selector is the variable of the environment that names the fault in force, 0 for none.
const selector = "MUTANT"

// change is a faulty version of a file.
type change struct {
	number  int // of the fault, from 1
	content string
}

// clone is a function with a fault, beside the one without it.
type clone struct {
	number      int
	first, last int // lines of the combined file
}

// combine returns a file that has all changes of it, each in force when the environment
// selects its number: one build serves for many faults. Each function that a fault changes
// stands there once more, with the fault and under another name, and the function without
// the fault calls it. The clones are returned by line. Changes that can't be combined, since
// they are not inside functions, are left over.
func combine(file, content string, changes []change) (combined string, clones []clone, left []change, err error) {
	original, err := functionsOf(file, content)
	if err != nil {
		return "", nil, nil, err
	}
	calls, text := map[string]string{}, ""
	type faultyText struct {
		number int
		text   string
	}
	var added []faultyText
	for _, c := range changes {
		faulty, err := functionsOf(file, c.content)
		if err != nil || faulty.frame != original.frame {
			left = append(left, c)
			continue
		}
		names := faulty.changed(original)
		if slices.ContainsFunc(names, func(name string) bool { return original.byName[name].call == "" }) {
			left = append(left, c)
			continue
		}
		for _, name := range names {
			f := faulty.byName[name]
			suffix := fmt.Sprintf("_fault%d", c.number)
			calls[name] += fmt.Sprintf(" if faultInForce == \"%d\" { %s };", c.number, strings.ReplaceAll(f.call, "\x00", suffix))
			added = append(added, faultyText{c.number, f.head[:f.nameEnd] + suffix + f.head[f.nameEnd:] + f.body + "\n"})
		}
	}
	at := 0
	for _, name := range original.order {
		body := original.byName[name].bodyStart + 1
		text += content[at:body] + calls[name]
		at = body
	}
	text += content[at:]
	for _, a := range added {
		first := strings.Count(text, "\n") + 1
		text += "\n" + a.text
		clones = append(clones, clone{a.number, first, strings.Count(text, "\n") + 1})
	}
	return text, clones, left, nil
}

// inForce declares, once in each package, which fault is in force.
func inForce(packageName string) string {
	return "package " + packageName + "\n\nimport \"syscall\"\n\nvar faultInForce, _ = syscall.Getenv(\"" + selector + "\")\n"
}

// functions are the functions of a file.
type functions struct {
	byName      map[string]function
	order       []string
	frame       string // the file without the bodies
	packageName string
}

// function is the text of one function, and the call of its clone: a NUL stands for the
// suffix of the clone's name. The call is empty if a clone can't be called.
type function struct {
	head, body string
	nameEnd    int // in head
	bodyStart  int // in the file
	call       string
}

func functionsOf(file, content string) (functions, error) {
	positions := token.NewFileSet()
	parsed, err := parser.ParseFile(positions, file, content, parser.SkipObjectResolution)
	if err != nil {
		return functions{}, err
	}
	offset := func(p token.Pos) int { return positions.Position(p).Offset }
	found := functions{byName: map[string]function{}, packageName: parsed.Name.Name}
	at := 0
	for _, declared := range parsed.Decls {
		d, ok := declared.(*ast.FuncDecl)
		if !ok || d.Body == nil {
			continue
		}
		start, body, end := offset(d.Pos()), offset(d.Body.Pos()), offset(d.Body.End())
		f := function{
			head: content[start:body], body: content[body:end], bodyStart: body,
			nameEnd: offset(d.Name.End()) - start, call: callOf(d),
		}
		name := d.Name.Name
		if d.Recv != nil {
			name = content[offset(d.Recv.Pos()):offset(d.Recv.End())] + name
		}
		if _, twice := found.byName[name]; twice { // init
			f.call = ""
			name = fmt.Sprint(name, len(found.order))
		}
		found.byName[name], found.order = f, append(found.order, name)
		found.frame += content[at:body]
		at = end
	}
	found.frame += content[at:]
	return found, nil
}

// changed returns the functions whose bodies differ.
func (f functions) changed(original functions) (names []string) {
	for _, name := range f.order {
		if f.byName[name].body != original.byName[name].body {
			names = append(names, name)
		}
	}
	return names
}

// callOf returns a statement that calls a clone of the function with its own parameters and
// returns, or nothing if the function has a parameter or receiver without a name.
func callOf(d *ast.FuncDecl) string {
	var arguments []string
	for _, field := range d.Type.Params.List {
		if len(field.Names) == 0 {
			return ""
		}
		for _, name := range field.Names {
			if name.Name == "_" {
				return ""
			}
			argument := name.Name
			if _, variadic := field.Type.(*ast.Ellipsis); variadic {
				argument += "..."
			}
			arguments = append(arguments, argument)
		}
	}
	called := d.Name.Name + "\x00"
	if d.Type.TypeParams != nil {
		var types []string
		for _, field := range d.Type.TypeParams.List {
			for _, name := range field.Names {
				types = append(types, name.Name)
			}
		}
		called += "[" + strings.Join(types, ", ") + "]"
	}
	if d.Recv != nil {
		if len(d.Recv.List[0].Names) == 0 || d.Recv.List[0].Names[0].Name == "_" {
			return ""
		}
		called = d.Recv.List[0].Names[0].Name + "." + called
	}
	called += "(" + strings.Join(arguments, ", ") + ")"
	if d.Type.Results == nil || len(d.Type.Results.List) == 0 {
		return called + "; return"
	}
	return "return " + called
}
