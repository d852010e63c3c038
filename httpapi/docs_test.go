package httpapi

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

func readDocs(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Every route has its heading in docs/api.md, and every heading its route.
func TestDocsHaveEveryRoute(t *testing.T) {
	documented := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^### ([A-Z]+ /\S*)$`).FindAllStringSubmatch(readDocs(t), -1) {
		if documented[m[1]] {
			t.Errorf("two headings %s", m[1])
		}
		documented[m[1]] = true
	}
	param := regexp.MustCompile(`:(\w+)`)
	for _, r := range newTestAPI(t).handler.nativeRoutes() {
		heading := r.method + " " + strings.ReplaceAll(param.ReplaceAllString(r.path, "{$1}"), "{member}", "{id}")
		if !documented[heading] {
			t.Errorf("docs/api.md has no heading %s", heading)
		}
		delete(documented, heading)
	}
	for heading := range documented {
		t.Errorf("docs/api.md has %s, which is no route", heading)
	}
}

// The other pages name only routes that there are.
func TestDocsNameRoutes(t *testing.T) {
	param := regexp.MustCompile(`:\w+|\{\w+\}`)
	known := map[string]bool{}
	for _, r := range newTestAPI(t).handler.nativeRoutes() {
		known[r.method+" "+param.ReplaceAllString(r.path, "{}")] = true
	}
	named := 0
	for _, page := range []string{"README.md", "CHANGELOG.md", "docs/operations.md", "docs/migrating.md", "docs/ARCHITECTURE.md"} {
		text, err := os.ReadFile("../" + page)
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
	if named < 20 {
		t.Errorf("only %d routes are named", named)
	}
}

func TestDocsHaveEveryOperation(t *testing.T) {
	docs := readDocs(t)
	row := regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\| ([a-z_?, ]+) \\| [A-Z]+ /")
	rows := map[string]string{}
	for _, m := range row.FindAllStringSubmatch(docs, -1) {
		rows[m[1]] = m[2]
	}
	if len(rows) != len(operations) {
		t.Errorf("%d rows for %d operations", len(rows), len(operations))
	}
	for _, op := range operations {
		var taken, needed fields
		for _, name := range strings.Split(rows[op.name], ", ") {
			m, known := members[strings.TrimSuffix(name, "?")]
			if !known {
				t.Errorf("%s: %q is no member", op.name, name)
			}
			taken |= m.field
			if !strings.HasSuffix(name, "?") {
				needed |= m.field
			}
		}
		if taken|fieldOp|fieldKey != op.batchFields() || needed != op.batchNeeds() {
			t.Errorf("%s: the row says %s", op.name, rows[op.name])
		}
	}
}

// Every example answers what its comment says, in the order of the page.
func TestDocsExamples(t *testing.T) {
	a := newTestAPI(t)
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
	for _, m := range example.FindAllStringSubmatch(readDocs(t), -1) {
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
		var got reply
		select {
		case got = <-a.goDo(method+" "+target[1], body, append(flag(line, "-H"), "Content-Type: application/x-www-form-urlencoded")...):
		case <-time.After(10 * time.Second):
			t.Fatalf("%s\nwaits", m[0])
		}
		if m[3] != strconv.Itoa(got.status) {
			t.Errorf("%s\nanswers %d: %s", m[0], got.status, got.text)
		}
		if m[1] != "" {
			session = got.member("session")
		}
	}
	if all := strings.Count(readDocs(t), "curl "); examples < 30 || all < examples {
		t.Errorf("%d examples run, of %d", examples, all)
	}
}
