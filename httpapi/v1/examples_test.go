package v1_test

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/signalbox/signalbox/httpapi/internal/apitest"
)

func apiPage(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Every example gets the reply that its comment says, in the order of the page.
func TestDocsExamples(t *testing.T) {
	a := apitest.New(t)
	example := regexp.MustCompile(`(?m)^    (SESSION=\$\()?curl (.+?)\s+# (\d+)$`)
	path := regexp.MustCompile(`["']?localhost:870[123](/[^\s"']*)`)
	flag := func(line, name string) []string {
		var found []string
		for _, m := range regexp.MustCompile(name+` '([^']*)'`).FindAllStringSubmatch(line, -1) {
			found = append(found, m[1])
		}
		return found
	}
	session, examples := "", 0
	for _, m := range example.FindAllStringSubmatch(apiPage(t), -1) {
		examples++
		line := strings.ReplaceAll(m[2], "$SESSION", session)
		method, body := "GET", strings.Join(flag(line, "-d"), "")
		if body != "" {
			method = "POST"
		}
		if given := regexp.MustCompile(`-X ([A-Z]+)`).FindStringSubmatch(line); given != nil {
			method = given[1]
		}
		target := path.FindStringSubmatch(line)
		if target == nil {
			t.Errorf("no address in %s", line)
			continue
		}
		var got apitest.Reply
		select {
		case got = <-a.GoDo(method+" "+target[1], body, append(flag(line, "-H"), "Content-Type: application/x-www-form-urlencoded")...):
		case <-time.After(10 * time.Second):
			t.Fatalf("%s\nwaits", m[0])
		}
		if m[3] != strconv.Itoa(got.Status) {
			t.Errorf("%s\nanswers %d: %s", m[0], got.Status, got.Text)
		}
		if m[1] != "" {
			session = got.Member("session")
		}
	}
	if all := strings.Count(apiPage(t), "curl "); examples < 30 || all < examples {
		t.Errorf("%d examples run, of %d", examples, all)
	}
}
