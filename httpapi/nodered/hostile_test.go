package nodered

import (
	"strings"
	"testing"

	"github.com/signalbox/signalbox/test/hostile"
)

// hostileInput is a request that must be refused without any change.
type hostileInput struct {
	name, line, body string
	headers          []string
	status           int
}

func hostileInputs() (all []hostileInput) {
	add := func(status int, name, line, body string, headers ...string) {
		all = append(all, hostileInput{name, line, body, headers, status})
	}
	for name, text := range map[string]string{
		"empty": `""`, "NUL": `"\u0000"`, "line feed": `"a\nb"`, "C1 control": `"\u0085"`, "513 bytes": `"` + strings.Repeat("a", 513) + `"`, "number": "7", "null": "null", "list": `["n"]`, "object": `{}`, "true": "true",
	} {
		add(400, "new name: "+name, "POST /semaphore", `{"name":`+text+`,"value":3}`)
		add(400, "name to raise: "+name, "POST /semaphore/up", `{"name":`+text+`}`)
		add(400, "name to take of: "+name, "POST /semaphore/down", `{"name":`+text+`}`)
	}
	for name, segment := range map[string]string{
		"NUL": "%00", "line feed": "a%0Ab", "invalid UTF-8": "%FF", "cut UTF-8": "%C3", "overlong slash": "%C0%AF", "513 bytes": strings.Repeat("a", 513), "C1 control": "%C2%85",
	} {
		add(400, "path: "+name, "GET /semaphore/value/"+segment, "")
		add(400, "path to delete: "+name, "DELETE /semaphore/"+segment, "")
	}
	for name, segment := range map[string]string{
		"unknown": "none", "decomposed": "e%CC%81", "encoded twice": "%256e", "other case": "N", "space behind": "n%20", "__proto__": "__proto__", "dots": "%2e%2e", "slash": "n%2F",
	} {
		add(404, "path: "+name, "GET /semaphore/value/"+segment, "")
		add(404, "path to delete: "+name, "DELETE /semaphore/"+segment, "")
	}
	for name, value := range map[string]string{
		"-1": "-1", "2^63": "9223372036854775808", "1e400": "1e400", "text": `"x"`, "empty": `""`, "null": "null", "list": "[3]", "object": "{}", "true": "true", "negative text": `"-3"`, "300 digits": strings.Repeat("9", 300),
	} {
		if name != "list" { // a list of one number is that number, as in the flow
			add(400, "value: "+name, "POST /semaphore", `{"name":"new","value":`+value+`}`)
		}
		add(400, "amount: "+name, "POST /semaphore/down", `{"name":"n","amount":`+value+`}`)
	}
	for name, wait := range map[string]string{
		"negative": "-1", "fraction": "1.5", "weeks": `"1w"`, "null": "null", "object": "{}", "overflow": `"99999999999999999h"`, "beyond ten minutes": "600001", "exponent": `"1e3s"`,
	} {
		add(400, "wait: "+name, "POST /semaphore/down", `{"name":"n","wait":`+wait+`}`)
	}
	for name, body := range map[string]string{
		"nothing": "", "cut": `{"name":"n"`, "trailing bytes": `{"name":"n"}x`, "two documents": `{"name":"n"}{}`, "list": `[{"name":"n"}]`, "text": `"n"`, "comment": `{"name":"n"/**/}`, "single quotes": `{'name':'n'}`,
		"NaN": `{"name":"n","amount":NaN}`, "invalid UTF-8": "{\"name\":\"\xff\"}", "lone surrogate": `{"name":"\ud800"}`, "raw line feed": "{\"name\":\"a\nb\"}", "deep lists": strings.Repeat("[", 10_000),
		"deep objects": strings.Repeat(`{"a":`, 10_000), "NUL behind": "{\"name\":\"n\"}\x00", "XML": "<name>n</name>",
	} {
		add(400, "body: "+name, "POST /semaphore/up", body)
	}
	add(400, "form not in UTF-8", "POST /semaphore/up", "name=%FF", formType)
	add(400, "name twice in a form", "POST /semaphore/up", "name=n&name=m", formType)
	add(413, "100 KB", "POST /semaphore", `{"name":"new","value":3,"x":"`+strings.Repeat("a", 100<<10)+`"}`)
	add(400, "members of 2 KB", "POST /semaphore", `{"name":"new","value":3,"x":"`+strings.Repeat("a", 2000)+`"}`)
	add(415, "another charset", "POST /semaphore/up", `{"name":"n"}`, "Content-Type: application/json; charset=latin1")
	add(415, "gzip", "POST /semaphore/up", "\x1f\x8b", "Content-Encoding: gzip")
	add(400, "short key", "POST /semaphore/up", `{"name":"n"}`, "Idempotency-Key: short")
	add(400, "key of 10 KB", "POST /semaphore/up", `{"name":"n"}`, "Idempotency-Key: "+strings.Repeat("k", 10<<10))
	add(403, "foreign origin", "POST /semaphore/up", `{"name":"n"}`, "Origin: http://evil.example")
	add(403, "null origin", "DELETE /semaphore/n", "", "Origin: null", "X-Forwarded-Host: null")
	add(404, "name twice", "POST /semaphore/up", `{"name":"n","name":"none"}`) // the last one counts, as in the flow
	add(404, "a path behind", "DELETE /semaphore/value/n", "")
	add(405, "delete of all", "DELETE /semaphore", "")
	for name, url := range map[string]string{"metadata of a cloud": "http://169.254.169.254/latest", "a file": "file:///etc/passwd", "loopback": "http://127.0.0.1:8701/v1/semaphores", "no text": "7", "gopher": "gopher://127.0.0.1/_x"} {
		add(400, "callback: "+name, "POST /semaphore/down", `{"name":"n","callback":"`+url+`"}`)
	}
	return all
}

// TestHostileInput: what is refused on the paths of this dialect.
func TestHostileInput(t *testing.T) {
	list := hostile.Begin(t, "nodered")
	s, node := onNodeRED(t)
	s.Semaphore("n", "0", "")
	before := node.State(t)
	for _, c := range hostileInputs() {
		list.Case(c.name, func(t *testing.T) {
			got := s.Ask(c.line, c.body, c.headers...)
			if got.Status != c.status || len(got.Body) > 1000 || strings.Contains(got.Body, "goroutine") || strings.Contains(got.Body, ".go") {
				t.Errorf("%.300s, want %d", got, c.status)
			}
			if after := node.State(t); after != before {
				t.Errorf("the state changed:\n%s\n%s", before, after)
				before = after
			}
		})
	}
}
