package httpapi

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/signalbox/signalbox/httpapi/exchange"
)

// readDocs returns the text of all pages of the API.
func readDocs(t *testing.T) string {
	t.Helper()
	pages, err := filepath.Glob("../docs/api*.md")
	if err != nil || len(pages) < 2 {
		t.Fatalf("pages of the API: %v, %v", pages, err)
	}
	var all strings.Builder
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}

// allRoutes are the routes of a node without dialects.
func allRoutes(t *testing.T) []exchange.Route {
	t.Helper()
	x, err := exchange.New(exchange.Config{Node: struct{ exchange.Node }{}})
	if err != nil {
		t.Fatal(err)
	}
	h, err := New(Config{Exchange: x})
	if err != nil {
		t.Fatal(err)
	}
	return h.routes()
}

// Every route has its heading in a page of the API (docs/api*.md), and every heading its route.
func TestDocsHaveEveryRoute(t *testing.T) {
	documented := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^### ([A-Z]+ /\S*)$`).FindAllStringSubmatch(readDocs(t), -1) {
		if documented[m[1]] {
			t.Errorf("two headings %s", m[1])
		}
		documented[m[1]] = true
	}
	param := regexp.MustCompile(`:(\w+)`)
	for _, r := range allRoutes(t) {
		heading := r.Method + " " + strings.ReplaceAll(param.ReplaceAllString(r.Path, "{$1}"), "{member}", "{id}")
		if !documented[heading] {
			t.Errorf("docs/api*.md have no heading %s", heading)
		}
		delete(documented, heading)
	}
	for heading := range documented {
		t.Errorf("docs/api*.md have %s, which is no route", heading)
	}
}

// TestDocsNameRoutes: the pages name only routes that the API has. It leaves out pages of dialects,
// which have routes of other systems, and pages of the API, for TestDocsHaveEveryRoute.
func TestDocsNameRoutes(t *testing.T) {
	param := regexp.MustCompile(`:\w+|\{\w+\}`)
	known := map[string]bool{}
	for _, r := range allRoutes(t) {
		known[r.Method+" "+param.ReplaceAllString(r.Path, "{}")] = true
	}
	pages, err := filepath.Glob("../docs/*.md")
	if err != nil || len(pages) < 10 {
		t.Fatalf("pages: %v, %v", pages, err)
	}
	named := 0
	for _, page := range append(pages, "../README.md", "../CHANGELOG.md") {
		if name := filepath.Base(page); strings.HasPrefix(name, "api") || strings.HasPrefix(name, "dialect") {
			continue
		}
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile("`((GET|PUT|POST|PATCH|DELETE) /(v1|readyz|health|livez|metrics)[^ `?]*)").FindAllStringSubmatch(string(text), -1) {
			named++
			// A name in place of the parameter is an example.
			route := regexp.MustCompile(`/(db|NAME|n\d)(/|$)`).ReplaceAllString(param.ReplaceAllString(m[1], "{}"), "/{}$2")
			if !known[route] {
				t.Errorf("%s names %s, which is no route", page, m[1])
			}
		}
	}
	if named < 10 { // they have the form that the expression expects
		t.Errorf("only %d routes are named", named)
	}
}
