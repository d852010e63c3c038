package consul_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/signalbox/signalbox/test/apitest"
	"github.com/signalbox/signalbox/test/hostile"
)

// input is a request that must be refused or have no effect, and the wanted reply. If want ends in …, it is only the
// beginning of the reply.
type input struct{ line, body, want string }

const (
	notKey = "400 text A key is up to 512 bytes of UTF-8 without control characters."
	decode = "400 text Request decode failed: "
)

// hostileKeys are keys that no item can have, in the path of each method.
func hostileKeys() map[string]input {
	all := map[string]input{}
	for name, key := range map[string]string{
		"NUL": "%00", "a line feed": "a%0Ab", "a carriage return": "a%0D", "a tab": "%09", "DEL": "a%7F", "a C1 control": "%C2%85", "a soft hyphen": "a%C2%ADb",
		"a hard space": "a%C2%A0b", "a line separator": "%E2%80%A8", "a direction mark": "a%E2%80%AE", "a byte order mark": "%EF%BB%BFa", "a private letter": "%EE%80%80",
	} {
		for _, method := range []string{"GET", "PUT", "DELETE"} {
			all[method+" of "+name] = input{method + " /v1/kv/" + key + "?index=x", "", "400 bare"}
		}
	}
	for name, key := range map[string]string{
		"invalid UTF-8": "%FF", "cut UTF-8": "a%C3", "an overlong slash": "%C0%AF", "a surrogate": "%ED%A0%80", "513 bytes": strings.Repeat("a", 513),
		"513 bytes in letters of two": strings.Repeat("%C3%A9", 256) + "a", "12,000 bytes": strings.Repeat("a/", 6000),
	} {
		for _, line := range []string{"GET /v1/kv/%s", "GET /v1/kv/%s?recurse", "GET /v1/kv/%s?keys", "PUT /v1/kv/%s", "PUT /v1/kv/%s?acquire=x", "DELETE /v1/kv/%s", "DELETE /v1/kv/%s?recurse"} {
			all[strings.Replace(line, "%s", name, 1)] = input{fmt.Sprintf(line, key), "", notKey}
		}
	}
	return all
}

// hostileSessions are texts that are no session ids.
func hostileSessions() map[string]input {
	all := map[string]input{}
	for name, id := range map[string]string{
		"a number": "7", "a foreign UUID": "adf4238a-882b-9ddc-4a9d-5b6758e4159e", "zero": "5369676e-616c-626f-0000-000000000000", "a digit too many": "5369676e-616c-626f-0000-0000000000070",
		"a digit too few": "5369676e-616c-626f-0000-00000000007", "no dash": "5369676e-616c-626f-00000000000000007", "a letter": "5369676e-616c-626f-0000-00000000000g",
		"a sign": "5369676e-616c-626f-+000-000000000007", "an underscore": "5369676e-616c-626f-0000-0000000000_7", "braces": "%7B5369676e-616c-626f-0000-000000000007%7D",
		"a quote": "%22", "12,000 letters": strings.Repeat("a", 12_000), "dots": "%2e%2e", "invalid UTF-8": "%FF", "a slash": "a%2Fb", "markup": "%3Cb%3E",
	} {
		all["info of "+name] = input{"GET /v1/session/info/" + id, "", "200 json []"}
		all["destroy of "+name] = input{"PUT /v1/session/destroy/" + id, "", yes}
		all["renew of "+name] = input{"PUT /v1/session/renew/" + id, "", "404 text Session id '…"}
		all["acquire by "+name] = input{"PUT /v1/kv/a?acquire=" + id, "", `500 text raft apply failed: invalid session "…`}
		all["release by "+name] = input{"PUT /v1/kv/a?release=" + id, "", no}
	}
	return all
}

// hostileBodies are bodies of a create.
func hostileBodies() map[string]input {
	all := map[string]input{}
	for body, want := range map[string]string{
		`{`: decode + "unexpected EOF", `{"Name`: decode + "unexpected EOF", `{"Name":"x`: decode + "unexpected EOF", `[]`: decode + "json: cannot unmarshal array into the body",
		`"x"`: decode + "json: cannot unmarshal string into the body", `7`: decode + "json: cannot unmarshal number into the body", `true`: decode + "json: cannot unmarshal bool into the body",
		`}`: decode + "invalid character '}' looking for beginning of value", "\xEF\xBB\xBF{}": decode + "invalid character 'ï' looking for beginning of value",
		`{"Name":7}`: decode + "json: cannot unmarshal number into Name", `{"TTL":15}`: decode + "json: cannot unmarshal number into TTL", `{"TTL":["15s"]}`: decode + "json: cannot unmarshal array into TTL",
		`{"Node":{}}`: decode + "json: cannot unmarshal object into Node", `{"Behavior":false}`: decode + "json: cannot unmarshal bool into Behavior", `{"NodeChecks":"a"}`: decode + "json: cannot unmarshal string into NodeChecks",
		`{"NodeChecks":[1]}`: decode + "json: cannot unmarshal number into NodeChecks", `{"Checks":{}}`: decode + "…", `{"ServiceChecks":["web"]}`: decode + "json: cannot unmarshal string into ServiceChecks",
		`{"LockDelay":"abc"}`: decode + `time: invalid duration "abc"`, `{"LockDelay":""}`: decode + `time: invalid duration ""`, `{"LockDelay":"15"}`: decode + `time: missing unit in duration "15"`,
		`{"LockDelay":"-5s"}`: decode + "json: cannot unmarshal LockDelay, which is below 0", `{"LockDelay":-5}`: decode + "json: cannot unmarshal LockDelay, which is below 0",
		`{"LockDelay":-1e18}`: decode + "json: cannot unmarshal LockDelay, which is below 0",
		`{"LockDelay":1e19}`:  decode + "json: cannot unmarshal number into LockDelay", `{"LockDelay":1e999}`: decode + "json: cannot unmarshal LockDelay, which is text or a number", `{"LockDelay":true}`: decode + "json: cannot unmarshal LockDelay, which is text or a number",
		`{"LockDelay":[]}`: decode + "json: cannot unmarshal LockDelay, which is text or a number", `{"LockDelay":"1e9h"}`: decode + `time: unknown unit "e" in duration "1e9h"`, `{"LockDelay":"9999999999h"}`: decode + `time: invalid duration "9999999999h"`,
		`{"TTL":"10s10"}`: `500 text Session TTL '10s10' invalid: time: missing unit in duration "10s10"`, `{"TTL":" 10s"}`: `500 text Session TTL ' 10s' invalid: time: invalid duration " 10s"`,
		`{"TTL":"-10s"}`: "500 text Invalid Session TTL '-10000000000', must be between [10s=24h0m0s]", `{"TTL":"1ns"}`: "500 text Invalid Session TTL '1', must be between [10s=24h0m0s]",
		`{"TTL":"2562048h"}`: `500 text Session TTL '2562048h' invalid: time: invalid duration "2562048h"`, `{"TTL":"` + strings.Repeat("0", 62) + `15s"}`: "500 text Session TTL of 65 characters: it has up to 64",
		`{"Behavior":"Release"}`: "500 text Invalid Behavior setting 'Release'", `{"Behavior":"\u0000"}`: "500 text Invalid Behavior setting '\x00'",
		`{"Node":""}`: "500 text apply failed: Missing node registration", `{"Node":"N1"}`: "500 text apply failed: Missing node registration", `{"Node":"n1 ttl=9s"}`: "500 text apply failed: Missing node registration",
		`{"ServiceChecks":[{}]}`:    "500 text apply failed: Missing check '' registration",
		strings.Repeat("[", 60_000): decode + "invalid character '[' exceeded max depth", `{"x":` + strings.Repeat(`{"x":`, 12_000): decode + "invalid character '{' exceeded max depth",
		`{"Name":"` + strings.Repeat("x", 64<<10) + `"}`: "413 text A body of this route has up to 65536 bytes.",
	} {
		all[fmt.Sprintf("create %+q", body[:min(len(body), 60)])] = input{"PUT /v1/session/create", body, want}
	}
	return all
}

// hostileQueries are parts of a query.
func hostileQueries() map[string]input {
	all := map[string]input{}
	for query, want := range map[string]string{
		"index=-1": "400 text Invalid index", "index=18446744073709551616": "400 text Invalid index", "index=0x1": "400 text Invalid index", "index=+1": "400 text Invalid index", "index=1_000": "400 text Invalid index",
		"wait=5": "400 text Invalid wait time", "wait=1y": "400 text Invalid wait time", "wait=%00": "400 text Invalid wait time", "max_stale=1": `400 text Invalid max_stale value "1"`,
		"stale=false&consistent=false": "400 text Cannot specify ?stale with ?consistent, conflicting semantics.", "dc=DC1": "500 text No path to datacenter", "dc=dc1%00": "500 text No path to datacenter",
		"ns=default": `400 text Invalid query parameter: "ns" - Namespaces are a Consul Enterprise feature`, "partition=default": `400 text Invalid query parameter: "partition" - Partitions are a Consul Enterprise feature`,
		"flags=": `500 text strconv.ParseUint: parsing "": invalid syntax`, "flags=1e3": `500 text strconv.ParseUint: parsing "1e3": invalid syntax`, "flags=-0": `500 text strconv.ParseUint: parsing "-0": invalid syntax`,
		"flags=1;cas=1": "", "flags=%0a": `500 text strconv.ParseUint: parsing "\n": invalid syntax`, "cas=": `500 text strconv.ParseUint: parsing "": invalid syntax`, "cas=%ff": `500 text strconv.ParseUint: parsing "\xff": invalid syntax`,
		"cas=1&cas=0": no, "acquire=&release=": "400 text Conflicting flags: acquire=&release=\n", "cas&acquire": "400 text Conflicting flags: acquire=&cas=\n", "acquire": "500 text raft apply failed: missing session", "release=&flags=x": `500 text strconv.ParseUint: parsing "x": invalid syntax`,
		"cas=1&release=x&token=%3Cb%3E": "400 text Conflicting flags: cas=1&release=x&token=%3Cb%3E\n", "%zz=1&acquire": "500 text raft apply failed: missing session",
	} {
		if want != "" {
			all["PUT ?"+query] = input{"PUT /v1/kv/a?" + query, "", strings.ReplaceAll(want, "\n", `\n`)}
		}
	}
	return all
}

// TestHostileInput: what is refused, or has no effect, on the paths of this dialect.
func TestHostileInput(t *testing.T) {
	list := hostile.Begin(t, "consul")
	s, node := onConsul(t)
	before := node.State(t)
	for _, family := range []map[string]input{hostileKeys(), hostileSessions(), hostileBodies(), hostileQueries()} {
		for name, in := range family {
			list.Case(name, func(t *testing.T) {
				got := s.Ask(in.line, in.body)
				want, begins := strings.CutSuffix(in.want, "…")
				if got.String() != want && (!begins || !strings.HasPrefix(got.String(), want)) {
					t.Errorf("%.200s\ngot  %.300s\nwant %s", in.line, got, in.want)
				}
				if strings.Contains(got.Body, "consul.") || strings.Contains(got.Body, "goroutine") {
					t.Errorf("the inside shows: %s", got)
				}
				if after := node.State(t); after != before {
					t.Errorf("the state changed:\n%s\n%s", before, after)
					before = after
				}
			})
		}
	}
}

// FuzzKey: for any path and query, the reply has one of the dialect's forms, and a key that was written can be read
// under the same path.
func FuzzKey(f *testing.F) {
	for _, path := range []string{"a", "a%2Fb/", "%2e%2e/x", "a//b", "a/../b", "%FF", "%C2%85", "é", "", "a%00", "...", "%25%32%35"} {
		f.Add(path, "flags=7", []byte("value"))
		f.Add(path, "cas=0&pretty", []byte(nil))
		f.Add(path, "recurse&keys&separator=/", []byte("\xff"))
	}
	node := apitest.NewNode()
	h := apitest.NewHandler(f, node, asConsul)
	f.Fuzz(func(t *testing.T, path, query string, body []byte) {
		send := func(method, query string, body string) *httptest.ResponseRecorder {
			r, err := http.NewRequest(method, "http://n1/", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			target := "/v1/kv/" + path
			if query != "" {
				target += "?" + query
			}
			u, err := r.URL.Parse("http://n1" + target)
			if err != nil || strings.ContainsAny(target, " #\x7f") || strings.ContainsFunc(target, func(c rune) bool { return c < ' ' }) {
				t.Skip("net/http refuses such a target")
			}
			if u.Path != "" && u.Query().Get("index") != "" {
				t.Skip("a query with an index may wait for minutes")
			}
			// Set the path as the server reads it: url.Parse would resolve "..".
			if u.Path, u.RawPath, u.RawQuery = "", "", query; setPath(u, "/v1/kv/"+strings.SplitN(path, "?", 2)[0]) != nil || strings.Contains(path, "?") {
				t.Skip("the server would read another path")
			}
			r.URL, r.RequestURI = u, target
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			return w
		}
		node.Clear()
		for _, method := range []string{"GET", "PUT", "DELETE"} {
			w := send(method, query, string(body))
			text := w.Body.String()
			if w.Code == 500 && !strings.HasPrefix(text, "strconv.ParseUint") && !strings.HasPrefix(text, "raft apply failed") && text != "No path to datacenter" ||
				w.Code > 500 || w.Code == 404 && text != "" || !utf8.ValidString(text) && !strings.Contains(query, "raw") && !strings.Contains(query, "%") {
				t.Fatalf("%s %q?%s: %d %q", method, path, query, w.Code, text)
			}
		}
		if w := send("PUT", "", string(body)); w.Code == 200 {
			if got := send("GET", "raw", ""); got.Code != 200 || got.Body.String() != string(body) {
				t.Fatalf("%q: wrote %q, read %d %q", path, body, got.Code, got.Body)
			}
		}
	})
}

// FuzzSessionBody: a body either opens a session, which is then shown in the same form, or is refused and opens no
// session.
func FuzzSessionBody(f *testing.F) {
	for _, body := range []string{`{}`, `null`, ``, `{"Name":"a","TTL":"15s","LockDelay":"1s","Behavior":"delete","NodeChecks":["serfHealth"]}`, `{"LockDelay":1.5,"Checks":null}`,
		`{"name":"\ud800","ttl":"10s"}`, `{"Node":"n2","NodeChecks":null}`, `{"LockDelay":1e300}`, `[`, `{"ServiceChecks":[{"ID":"a"}]}`} {
		f.Add([]byte(body))
	}
	node := apitest.NewNode()
	h := apitest.NewHandler(f, node, asConsul)
	f.Fuzz(func(t *testing.T, body []byte) {
		send := func(line, body string) (int, string) {
			method, target, _ := strings.Cut(line, " ")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(method, target, strings.NewReader(body)))
			return w.Code, w.Body.String()
		}
		node.Clear()
		before := node.State(t)
		status, text := send("PUT /v1/session/create", string(body))
		if status != 200 {
			if status != 400 && status != 413 && (status != 500 || !strings.Contains(text, "Session TTL") && !strings.Contains(text, "Behavior") && !strings.Contains(text, "Missing")) || node.State(t) != before {
				t.Fatalf("%q: %d %s", body, status, text)
			}
			return
		}
		id := strings.TrimSuffix(strings.TrimPrefix(text, `{"ID":"`), `"}`)
		status, shown := send("GET /v1/session/info/"+id, "")
		again := `{"Name":` + member(shown, `"Name":`, `,"Node":`) + `,"Node":` + member(shown, `,"Node":`, `,"LockDelay":`) + `,"TTL":` + member(shown, `,"TTL":`, `,"NodeChecks":`) + `}`
		if status != 200 || !strings.HasPrefix(shown, `[{"ID":"`+id) {
			t.Fatalf("%q: %d %s", body, status, shown)
		}
		if status, text := send("PUT /v1/session/create", again); status != 200 {
			t.Fatalf("%q is shown as %s, and then refused: %d %s", body, shown, status, text)
		}
	})
}

// member returns the text between the last place of one mark and the next of another.
func member(text, after, before string) string {
	_, text, _ = strings.Cut(text, after)
	if at := strings.LastIndex(text, before); at >= 0 {
		return text[:at]
	}
	return text
}
