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
			literal, ok := node.(*ast.BasicLit)
			if !ok || literal.Kind != token.STRING {
				continue
			}
			if text, err := strconv.Unquote(literal.Value); err == nil && flagOrRoute.MatchString(text) {
				broken = append(broken, fmt.Sprintf("%s: %q names a flag or a route", p.at(literal), text))
			}
		}
	}
	return broken
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
			called, ok := node.(*ast.SelectorExpr)
			if ok && isName(called.X, clock) && called.Sel.Name == "Sleep" && !(bubbles[s.dir] && p.marked(s, node, "virtual")) {
				broken = append(broken, p.at(node)+": a test waits for a condition, it doesn't sleep")
			}
		}
	}
	return broken
}
