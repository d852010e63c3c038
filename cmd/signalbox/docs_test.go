package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// pages are the project's pages for readers, by their paths from the root.
func pages(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/adr/*.md", "client/examples/*.md"} {
		found, err := filepath.Glob(filepath.Join("../..", pattern))
		if err != nil || len(found) == 0 {
			t.Fatalf("no pages are %s (%v)", pattern, err)
		}
		for _, path := range found {
			text, err := os.ReadFile(path)
			must(t, err)
			texts[strings.TrimPrefix(filepath.ToSlash(path), "../../")] = string(text)
		}
	}
	return texts
}

// TestKilledRunIsTold: each text about run says which processes go on after a SIGKILL of run. TestRun shows that this is
// true.
func TestKilledRunIsTold(t *testing.T) {
	texts := pages(t)
	texts["run --help"] = command(t, []string{"run", "--help"}).stdout
	for _, name := range []string{"run --help", "docs/cli.md", "docs/migrating.md"} {
		text := strings.Join(strings.Fields(strings.ReplaceAll(texts[name], "`", "")), " ")
		for _, words := range []string{"SIGKILL of run itself", "what the command has started", "token protects"} {
			if !strings.Contains(text, words) {
				t.Errorf("%s doesn't say %q", name, words)
			}
		}
	}
}

// anchors returns the anchors in a page to which a link may lead.
func anchors(text string) map[string]bool {
	places := map[string]bool{}
	odd := regexp.MustCompile(`[^\pL\pN _-]`)
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
		places[strings.ReplaceAll(strings.ToLower(odd.ReplaceAllString(heading[1], "")), " ", "-")] = true
	}
	return places
}

// TestDocsLinks follows every link between the pages. README must link to each page of the root folder and to each
// example, and docs/README to each page below docs.
func TestDocsLinks(t *testing.T) {
	texts := pages(t)
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	links := 0
	for page, text := range texts {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			links++
			path, anchor, _ := strings.Cut(m[1], "#")
			target := page
			if path != "" {
				target = filepath.ToSlash(filepath.Join(filepath.Dir(page), path))
			}
			if _, err := os.Stat(filepath.Join("../..", target)); err != nil {
				t.Errorf("%s links to %s: %v", page, m[1], err)
			}
			if anchor != "" && !anchors(texts[target])[anchor] {
				t.Errorf("%s links to %s, where no heading is called so", page, m[1])
			}
		}
	}
	if links < 20 {
		t.Errorf("only %d links were found", links)
	}
	for page := range texts {
		index := "README.md"
		if strings.HasPrefix(page, "docs/") && page != "docs/README.md" {
			index = "docs/README.md"
		}
		relative, _ := filepath.Rel(filepath.Dir(index), page)
		if page != index && !strings.Contains(texts[index], "]("+relative+")") {
			t.Errorf("%s doesn't link to %s", index, page)
		}
	}
}
