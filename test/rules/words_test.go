package rules

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

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

// contracts is the first section in the doc of each package that others build on: what
// the package guarantees comes before how it works.
var contracts = map[string]string{
	"client": "What callers can rely on", "client/internal/calls": "What callers can rely on", "cluster": "What callers can rely on",
	"fsm": "Contract", "store": "What it promises",
}

var section = regexp.MustCompile(`(?m)^# (.+)$`)

func docsBeginWithTheContract(p tree) (broken []string) {
	for _, s := range p.sources {
		want := contracts[s.dir]
		if want == "" || path.Base(s.path) != "doc.go" {
			continue
		}
		if first := section.FindStringSubmatch(s.file.Doc.Text()); first == nil || first[1] != want {
			broken = append(broken, fmt.Sprintf("%s: the first section is not %q", s.path, want))
		}
	}
	return broken
}

// innards is the folders whose errors are read by callers that know neither the
// flags nor the routes of the program that they are part of.
var innards = []string{"cluster", "fsm", "internal", "store"}

var flagOrRoute = regexp.MustCompile(`(^|[\s"'(=])--[a-z]|\b(GET|PUT|POST|PATCH|DELETE) /|/v1/|/health`)

// errorsNameNoFlag looks at every string in the code, not at errors alone: a text
// reaches its error by many ways.
func errorsNameNoFlag(p tree) (broken []string) {
	for _, s := range p.sources {
		top, _, _ := strings.Cut(s.dir, "/")
		if s.test || !slices.Contains(innards, top) || isTestOnly(s.dir) {
			continue
		}
		for node := range ast.Preorder(s.file) {
			literal, is := node.(*ast.BasicLit)
			if !is || literal.Kind != token.STRING {
				continue
			}
			if text, err := strconv.Unquote(literal.Value); err == nil && flagOrRoute.MatchString(text) {
				broken = append(broken, fmt.Sprintf("%s: %q names a flag or a route", p.at(literal), text))
			}
		}
	}
	return broken
}
