package throttle

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
	for name, id := range map[string]string{
		"negative": "-1", "plus": "++1", "fraction": "1.0", "underscore": "1_0", "space": "%201", "2^64": "18446744073709551616", "letters": "abc", "hex": "0x1", "exponent": "1e3",
		"Arabic digits": "%D9%A7", "NUL": "%00", "invalid UTF-8": "%FF", "10,000 digits": strings.Repeat("9", 10_000), "dots": "..", "encoded dots": "%2e%2e",
	} {
		add(400, "peer: "+name, "DELETE /peers/"+id, "")
		add(400, "holder: "+name, "PUT /peers/"+id+"/A", "1")
	}
	for name, segment := range map[string]string{
		"NUL": "%00", "line feed": "a%0Ab", "invalid UTF-8": "%FF", "cut UTF-8": "%C3", "overlong slash": "%C0%AF", "513 bytes": strings.Repeat("a", 513), "unknown": "none", "decomposed": "e%CC%81",
		"encoded twice": "%2541", "other case": "a", "space behind": "A%20", "__proto__": "__proto__", "C1 control": "%C2%85",
	} {
		add(400, "name: "+name, "PUT /peers/1/"+segment, "1")
		add(400, "name to release: "+name, "DELETE /peers/1/"+segment, "")
		add(400, "name in a query: "+name, "GET /remainder?semaphore="+segment, "")
	}
	for name, body := range map[string]string{
		"nothing": "", "cut": "{", "comma": `{,}`, "no value": `{"expires_in":`, "trailing comma": `{"expires_in":"1h",}`, "trailing bytes": `{"expires_in":"1h"}x`, "two documents": `{"expires_in":"1h"}{}`,
		"single quotes": `{'expires_in':'1h'}`, "comment": `{/**/}`, "byte order mark": "\xef\xbb\xbf{}", "invalid UTF-8": "{\"\xff\":1}", "lone surrogate": `{"expires_in":"\ud800"}`, "bad escape": `{"\q":1}`,
		"raw line feed": "{\"a\nb\":1}", "form": "expires_in=1h", "XML": "<a/>", "deep lists": strings.Repeat("[", 1100), "deep objects": strings.Repeat(`{"a":`, 800), "NaN": "NaN", "NUL behind": "{}\x00",
	} {
		add(400, "body: "+name, "PUT /peers/1", body)
	}
	for name, body := range map[string]string{
		"list": `["1h"]`, "text": `"1h"`, "no member": `{}`, "number": `{"expires_in":5}`, "null": `{"expires_in":null}`, "other case": `{"Expires_in":"1h"}`, "twice": `{"expires_in":"1h","expires_in":"1h"}`,
		"bananas": `{"expires_in":"5 bananas"}`, "negative": `{"expires_in":"-5m"}`, "overflow": `{"expires_in":"99999999999999999999999h"}`, "500 units": `{"expires_in":"` + strings.Repeat("1x", 500) + `"}`,
	} {
		add(422, "shape: "+name, "PUT /peers/1", body)
		add(422, "shape of a new peer: "+name, "POST /new_peer", body)
	}
	for name, body := range map[string]string{
		"-0": "-0", "1.5": "1.5", "1.0": "1.0", "1e0": "1e0", "1e999": "1e999", "2^63": "9223372036854775808", "-2^63-1": "-9223372036854775809", "text": `"1"`, "null": "null", "list": "[1]", "object": `{"count":1}`, "true": "true",
	} {
		add(422, "count: "+name, "PUT /peers/1/A", body)
		add(422, "count to restore: "+name, "POST /restore", `{"expires_in":"1h","peer_id":9,"acquired":{"A":`+body+`}}`)
	}
	for name, query := range map[string]string{
		"bare number": "block_for=5", "empty": "block_for=", "no value": "block_for", "twice": "block_for=1s&block_for=1s", "negative": "block_for=-1s", "letters": "expires_in=abc", "controls": "expires_in=%22%0A%01",
		"overflow": "expires_in=99999999999999999999999h", "10,000 letters": "block_for=" + strings.Repeat("a", 10_000), "invalid UTF-8": "block_for=%FF",
	} {
		add(400, "query: "+name, "PUT /peers/1/A?"+query, "1")
	}
	add(400, "count of 0", "PUT /peers/1/A", "0")
	add(409, "count beyond the permits", "PUT /peers/1/A", "9223372036854775807")
	add(400, "peer 0", "POST /restore", `{"expires_in":"1h","peer_id":0,"acquired":{}}`)
	add(413, "10,000 lists", "POST /new_peer", strings.Repeat("[", 10_000))
	add(413, "100 KB", "POST /new_peer", `{"expires_in":"1h","x":"`+strings.Repeat("a", 100<<10)+`"}`)
	add(415, "no type", "POST /new_peer", `{"expires_in":"1h"}`, "Content-Type: ")
	add(415, "type of a form", "POST /new_peer", `{"expires_in":"1h"}`, "Content-Type: application/x-www-form-urlencoded")
	add(400, "gzip", "POST /new_peer", "\x1f\x8b", "Content-Encoding: gzip")
	add(403, "foreign origin", "POST /new_peer", `{"expires_in":"1h"}`, "Origin: http://evil.example")
	add(403, "null origin", "DELETE /peers/1", "", "Origin: null", "X-Forwarded-Host: null")
	add(404, "a path behind", "DELETE /peers/1/A/B", "")
	add(405, "no peer at all", "DELETE /peers/", "", "X-HTTP-Method-Override: GET")
	return all
}

// TestHostileInput: what is refused on the paths of this dialect.
func TestHostileInput(t *testing.T) {
	list := hostile.Begin(t, "throttle")
	s, node := onThrottle(t)
	s.Semaphore("A", "5", "0")
	s.Semaphore("B", "5", "0")
	s.Peer("1", "1h")
	before := node.State(t)
	for _, c := range hostileInputs() {
		list.Case(c.name, func(t *testing.T) {
			got := s.Ask(c.line, c.body, append([]string{"Content-Type: application/json"}, c.headers...)...)
			if got.Status != c.status || len(got.Body) > 25_000 || strings.Contains(got.Body, "goroutine") || strings.Contains(got.Body, ".go") {
				t.Errorf("%.300s, want %d", got, c.status)
			}
			if after := node.State(t); after != before {
				t.Errorf("the state changed:\n%s\n%s", before, after)
				before = after
			}
		})
	}
}
