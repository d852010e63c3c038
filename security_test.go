package signalbox_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestClaimsHaveTests: each claim of SECURITY.md names a test. That the tests of all pages
// exist is a rule of the architecture.
func TestClaimsHaveTests(t *testing.T) {
	text, err := os.ReadFile("SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	_, claims, _ := strings.Cut(string(text), "\n## Claims\n")
	claims, _, _ = strings.Cut(claims, "\n## ")
	checked := 0
	for _, row := range regexp.MustCompile(`(?m)^\| (.+) \| (.*) \|$`).FindAllStringSubmatch(claims, -1) {
		if row[1] == "claim" || row[1] == "---" {
			continue
		}
		checked++
		if !regexp.MustCompile("^(`(Test|Fuzz)[A-Za-z0-9]+`(, |$))+$").MatchString(row[2]) {
			t.Errorf("the tests of this claim are %q: %s", row[2], row[1])
		}
	}
	if checked < 20 {
		t.Errorf("only %d claims were found", checked)
	}
}
