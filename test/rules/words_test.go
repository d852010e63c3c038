package rules

import (
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// words is expressions that make comments hard to read, and how often each may
// occur in 1,000 lines of comments. Plain prose needs them now and then.
var words = []struct {
	name    string
	pattern *regexp.Regexp
	max     int
}{
	{"answers", regexp.MustCompile(`(?i)\banswer(s|ed|ing)?\b`), 8},                                                                    // returns, reports, replies
	{"tell", regexp.MustCompile(`(?i)\b(tells?|told|telling)\b`), 8},                                                                   // reports, notifies
	{"headless clauses", regexp.MustCompile(`(?i)\b(what|who|whoever) (is|are|was|were|has|have|had|can|may|must|does|waits?)\b`), 10}, // a noun
	{"nobody, nothing, none", regexp.MustCompile(`(?i)\b(nobody|nothing|none)\b`), 20},                                                 // no caller, not …
}

// commentsArePlain counts words over the whole tree, tests included.
func commentsArePlain(p tree) (found []finding) {
	lines, counts := countWords(p.sources)
	for i, w := range words {
		if rate := counts[i] * 1000 / max(lines, 1); rate > w.max {
			found = append(found, finding{w.name, rate, fmt.Sprintf("%q: %d in 1,000 lines of comments, more than %d", w.name, rate, w.max)})
		}
	}
	return found
}

// countWords counts the lines of comments in the files, and each of words in them.
func countWords(sources []source) (lines int, counts []int) {
	counts = make([]int, len(words))
	for _, s := range sources {
		for _, group := range s.file.Comments {
			for _, comment := range group.List {
				if strings.HasPrefix(comment.Text, "//go:") {
					continue
				}
				lines += 1 + strings.Count(comment.Text, "\n")
				for i, w := range words {
					counts[i] += len(w.pattern.FindAllString(comment.Text, -1))
				}
			}
		}
	}
	return lines, counts
}

// clientTexts are the folders whose texts clients compare to the byte.
var clientTexts = []string{"httpapi/consul", "httpapi/throttle", "httpapi/nodered"}

// refusal removes what a refusal says to clients in the same words everywhere.
var refusal = strings.NewReplacer("Nothing was done", "", "Nothing was changed", "")

// textsArePlain holds the texts in product code to the bounds of words: of 1,000 strings
// with a space in them.
func textsArePlain(p tree) (found []finding) {
	texts, counts := 0, make([]int, len(words))
	for _, s := range p.sources {
		if s.test || isTestOnly(s.dir) || slices.Contains(clientTexts, s.dir) {
			continue
		}
		for node := range ast.Preorder(s.file) {
			literal, is := node.(*ast.BasicLit)
			if !is || literal.Kind != token.STRING || !strings.Contains(literal.Value, " ") {
				continue
			}
			texts++
			text := refusal.Replace(literal.Value)
			for i, w := range words {
				counts[i] += len(w.pattern.FindAllString(text, -1))
			}
		}
	}
	for i, w := range words {
		if rate := counts[i] * 1000 / max(texts, 1); rate > w.max {
			found = append(found, finding{w.name, rate, fmt.Sprintf("%q: %d in 1,000 texts, more than %d", w.name, rate, w.max)})
		}
	}
	return found
}

// logWords writes the counts of each package into the test's log, for those who
// reword one: make words
func logWords(t *testing.T, p tree) {
	byDir := map[string][]source{}
	for _, s := range p.sources {
		byDir[s.dir] = append(byDir[s.dir], s)
	}
	for _, dir := range slices.Sorted(maps.Keys(byDir)) {
		lines, counts := countWords(byDir[dir])
		text := fmt.Sprintf("%-28s %5d lines of comments", dir, lines)
		for i, w := range words {
			text += fmt.Sprintf(", %s %d", w.name, counts[i]*1000/max(lines, 1))
		}
		t.Log(text)
	}
}

var listedFile = regexp.MustCompile(`(?m)^\s*- ([a-z0-9_]+\.go): \S`)

// docsListFiles compares the list of files in each doc.go with the package's files.
// The order is the one to read them in, which no test can judge.
func docsListFiles(p tree) (found []finding) {
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
				found = append(found, finding{dir, 1, fmt.Sprintf("%s/doc.go has no line for %s: write \"  - %s: what is in it\"", dir, file, file)})
			}
		}
		for i, file := range listed[dir] {
			if !slices.Contains(files[dir], file) || slices.Index(listed[dir], file) < i {
				found = append(found, finding{dir, 1, fmt.Sprintf("%s/doc.go lists %s, which is listed twice or does not exist", dir, file)})
			}
		}
	}
	return found
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
func errorsNameNoFlag(p tree) (found []finding) {
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
				found = append(found, finding{s.dir, 1, fmt.Sprintf("%s: %q names a flag or a route", p.at(literal), text)})
			}
		}
	}
	return found
}
