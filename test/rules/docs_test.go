package rules

import (
	"fmt"
	"go/ast"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

var (
	codeSpan   = regexp.MustCompile("`([^`\n]+)`")
	fileName   = regexp.MustCompile(`^[\w.-]+\.(go|md|sh|yml|yaml)$`)
	filePath   = regexp.MustCompile(`^[\w.-]+(/[\w.*-]+)+$`)
	holder     = regexp.MustCompile(`NAME|\bN\b`) // op_NAME.go stands for any name
	goFunction = regexp.MustCompile(`\b(Test|Benchmark|Fuzz|Example)[A-Z]\w{2,}`)
	makeTarget = regexp.MustCompile(`^make ([a-z-]+)`)
	selection  = regexp.MustCompile(`^go test \./(\S+) .*-(run|bench) ([A-Z]\w+)`)
)

// docsNameWhatExists looks for the files, tests and targets of make that pages name
// in code spans. Paths count from the root; NAME in one stands for any name.
func docsNameWhatExists(p tree) (broken []string) {
	functions, selected := map[string]bool{}, map[string]bool{}
	for _, s := range p.sources {
		for _, declared := range s.file.Decls {
			if function, ok := declared.(*ast.FuncDecl); ok && s.test {
				functions[function.Name.Name] = true
				for _, kind := range []string{"Test", "Benchmark"} {
					selected[s.dir+" "+strings.TrimPrefix(function.Name.Name, kind)] = true
				}
			}
		}
	}
	makefile, _ := fs.ReadFile(p.files, "Makefile")
	for _, d := range p.pages {
		missing := func(kind, name string) {
			broken = append(broken, fmt.Sprintf("%s names %s, which is no %s", d.path, name, kind))
		}
		for _, span := range codeSpan.FindAllStringSubmatch(d.text, -1) {
			for word := range strings.FieldsSeq(span[1]) {
				if word = strings.Trim(strings.TrimPrefix(word, "./"), "/"); !p.hasFile(word) {
					missing("file", word)
				}
			}
			for _, name := range goFunction.FindAllString(span[1], -1) {
				if !functions[name] && !strings.Contains(span[1], name+"…") {
					missing("test", name)
				}
			}
			if m := selection.FindStringSubmatch(span[1]); m != nil && !selected[m[1]+" "+strings.TrimPrefix(m[3], "Test")] {
				missing("test or benchmark of "+m[1], m[3])
			}
			if m := makeTarget.FindStringSubmatch(span[1]); m != nil && !strings.Contains("\n"+string(makefile), "\n"+m[1]+":") {
				missing("target of make", m[1])
			}
		}
	}
	return broken
}

// hasFile reports whether a word is the name or path of a file or folder of ours, or
// doesn't look like one: a path begins with a folder of the root.
func (p tree) hasFile(word string) bool {
	if fileName.MatchString(word) {
		if _, err := fs.Stat(p.files, word); err == nil {
			return true
		}
		return slices.ContainsFunc(p.sources, func(s source) bool { return path.Base(s.path) == word }) ||
			slices.ContainsFunc(p.pages, func(d page) bool { return path.Base(d.path) == word })
	}
	top, _, _ := strings.Cut(word, "/")
	if info, err := fs.Stat(p.files, top); !filePath.MatchString(word) || err != nil || !info.IsDir() {
		return true
	}
	names, err := fs.Glob(p.files, holder.ReplaceAllString(word, "*"))
	return err == nil && len(names) > 0
}
