//go:build processes && linux

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// recipeCode has the code of docs/recipes.md, by language and by the number in the heading.
type recipeCode map[string]map[string]string

func readRecipes(t *testing.T) recipeCode {
	t.Helper()
	text, err := os.ReadFile("../../docs/recipes.md")
	must(t, err)
	code := recipeCode{"sh": {}, "go": {}, "python": {}}
	parts := regexp.MustCompile(`(?m)^## (\d+) `).FindAllStringSubmatchIndex(string(text), -1)
	for i, part := range parts {
		end := len(text)
		if i+1 < len(parts) {
			end = parts[i+1][0]
		}
		for _, block := range regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$").FindAllStringSubmatch(string(text[part[0]:end]), -1) {
			code[block[1]][string(text[part[2]:part[3]])] += block[2]
		}
	}
	for language, recipes := range code {
		if len(recipes) != 10 {
			t.Errorf("%d recipes have code in %s", len(recipes), language)
		}
	}
	prose := regexp.MustCompile("(?ms)^```.*?^```$").ReplaceAllString(string(text), "")
	if words := len(strings.Fields(prose)); words > 1100 {
		t.Errorf("docs/recipes.md has %d words beside its code, above 1,100", words)
	}
	return code
}

var recipeLine = regexp.MustCompile(`(?m)^([ \t]*)(?:#|//) recipe (\d+)( first| rest)?\n`)

// program puts the code of the page into a program of testdata/recipes, and returns the path of the result.
func (code recipeCode) program(t *testing.T, language, source, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "recipes", source))
	must(t, err)
	left := code[language]
	whole := recipeLine.ReplaceAllStringFunc(string(text), func(line string) string {
		m := recipeLine.FindStringSubmatch(line)
		block := left[m[2]]
		if block == "" {
			t.Errorf("%s: no code of the page is for %q", source, line)
		}
		if left[m[2]] = ""; m[3] == " first" {
			block, left[m[2]], _ = strings.Cut(block, "\n")
			block += "\n"
		}
		return m[1] + strings.ReplaceAll(strings.TrimSuffix(block, "\n"), "\n", "\n"+m[1]) + "\n"
	})
	for number, rest := range left {
		if rest != "" {
			t.Errorf("%s doesn't use this of recipe %s:\n%s", source, number, rest)
		}
	}
	path := filepath.Join(t.TempDir(), name)
	must(t, os.WriteFile(path, []byte(whole), 0o600))
	return path
}

// TestRecipes runs the code of docs/recipes.md unchanged, the code of each language with a separate node. The programs
// of testdata/recipes have the assertions.
func TestRecipes(t *testing.T) {
	t.Parallel()
	code := readRecipes(t)
	client, err := filepath.Abs("../../client/python")
	must(t, err)
	for language, arguments := range map[string][]string{
		"sh":     {"sh", code.program(t, "sh", "recipes.sh", "recipes.sh")},
		"go":     {"go", "run", code.program(t, "go", "recipes.go.txt", "main.go")},
		"python": {"python3", code.program(t, "python", "recipes.py", "recipes.py")},
	} {
		t.Run(language, func(t *testing.T) {
			for _, name := range []string{arguments[0], map[string]string{"sh": "curl"}[language]} {
				if _, err := exec.LookPath(name); name != "" && err != nil {
					t.Skipf("NOT CHECKED: %v", err)
				}
			}
			_, c, _ := startDev(t.Context(), t, 1)
			folder := t.TempDir()
			must(t, os.Symlink(testProgram, filepath.Join(folder, "signalbox")))
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			command := exec.CommandContext(ctx, arguments[0], arguments[1:]...)
			command.Env = append(os.Environ(), "A="+c.bases[0], "T="+folder, "SIGNALBOX_ADDR="+c.bases[0], asProgram+"=1",
				"PATH="+folder+":"+os.Getenv("PATH"), "PYTHONPATH="+client, "PYTHONDONTWRITEBYTECODE=1")
			command.WaitDelay = time.Second
			output, err := command.CombinedOutput()
			if err != nil || !strings.HasSuffix(string(output), "all recipes are as expected\n") {
				t.Error(fmt.Errorf("%w\n%s", err, output))
			}
		})
	}
}
