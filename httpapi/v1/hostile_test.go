package v1_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/signalbox/signalbox/test/apitest"
	testinputs "github.com/signalbox/signalbox/test/hostile"
)

// hostile is one named input that must be refused without any change.
type hostile struct {
	name    string
	line    string
	body    string
	headers []string
	status  int
	code    string
	field   string // "" not checked
}

func bad(name, line, body, field string, headers ...string) hostile {
	return hostile{name, line, body, headers, 400, "invalid-request", field}
}

func hostileInputs() (all []hostile) {
	all = append(all, hostileNames()...)
	all = append(all, hostileNumbers()...)
	all = append(all, hostileBodies()...)
	all = append(all, hostileHeaders()...)
	all = append(all, hostileQueries()...)
	all = append(all, hostileBatches()...)
	all = append(all, hostileSettings()...)
	return append(all, hostileRoutes()...)
}

// hostileRoutes returns requests with paths that no route has, methods that a route does not take, and names that are
// spelled like others.
func hostileRoutes() (all []hostile) {
	for _, line := range []string{
		"GET /v1", "GET /v1/", "GET /v2/semaphores", "GET /v1/semaphores/", "GET /v1/semaphores/db/", "DELETE /v1/semaphores/db/",
		"DELETE /v1/semaphores/value/x", "PUT /v1/semaphores/value/x", "GET /v1/semaphores/db/nothing", "GET /v1/sessions/7/leases/a/b",
		"DELETE /v1/sessions/7/leases/a/b", "DELETE /v1/sessions/7/", "DELETE /v1/semaphores/db/holders/7/8", "GET //v1/semaphores", "GET /v1//semaphores/db",
		"DELETE /v1/./semaphores/db", "DELETE /v1/x/../semaphores/db", "OPTIONS /v1/semaphores/a/b/c/d", "GET /metrics/", "POST /v1/batch/",
		"GET /V1/semaphores", "GET /v1/Semaphores", "DELETE /v1/semaphores/db;x=1/y", "GET /v1/semaphores%2Fdb", "GET /problems/../v1/semaphores",
	} {
		all = append(all, hostile{"route: " + line, line, "", nil, 404, "unknown-route", ""})
	}
	for _, line := range []string{
		"PATCH /v1/sessions/7", "POST /v1/semaphores/db", "GET /v1/semaphores/db/up", "HEAD /v1/semaphores/db/up", "HEAD /v1/batch", "DELETE /v1/semaphores",
		"GET /v1/batch", "POST /livez", "TRACE /v1/sessions/7", "BREW /v1/semaphores/db/leases", "get /v1/semaphores", "PROPFIND /v1/semaphores/db",
	} {
		all = append(all, hostile{"method: " + line, line, "", nil, 405, "method-not-allowed", ""})
	}
	for name, line := range map[string]string{
		"dots": "GET /v1/semaphores/%2e%2e", "one dot": "GET /v1/semaphores/%2e", "encoded twice": "GET /v1/semaphores/d%2562", "slash encoded twice": "GET /v1/semaphores/value%252Fx",
		"decomposed": "GET /v1/semaphores/e%CC%81", "full width": "GET /v1/semaphores/%EF%BD%84%EF%BD%82", "other case": "GET /v1/semaphores/DB", "space behind": "GET /v1/semaphores/db%20",
		"plus": "GET /v1/semaphores/d+b", "zero width": "GET /v1/semaphores/d%E2%80%8Bb", "right to left": "GET /v1/semaphores/%E2%80%AEdb", "__proto__": "GET /v1/semaphores/__proto__",
		"byte order mark": "GET /v1/semaphores/%EF%BB%BFdb", "512 bytes": "GET /v1/semaphores/" + strings.Repeat("a", 512), "SQL": "GET /v1/semaphores/%27%20OR%201%3D1", "script": "GET /v1/semaphores/%3Cscript%3E",
	} {
		all = append(all, hostile{"no such name: " + name, line, "", nil, 404, "unknown-semaphore", ""})
	}
	for name, c := range map[string][]string{
		"name of %64b": {"GET /v1/semaphores/%64b"}, "slash in a name": {"GET /v1/semaphores/value%2Fx"}, "small hex digits": {"GET /v1/semaphores/%c3%a9"}, "HEAD": {"HEAD /v1/semaphores/db"},
		"100 addresses in X-Forwarded-For": {"GET /v1/semaphores/db", "X-Forwarded-For: " + strings.Repeat("127.0.0.1, ", 100)}, "X-Real-IP": {"GET /v1/semaphores/db", "X-Real-IP: ::1"},
		"X-Original-URL": {"GET /v1/semaphores/db", "X-Original-URL: /v1/batch", "X-Rewrite-URL: /v1/batch"}, "Accept of nothing": {"GET /v1/semaphores/db", "Accept: " + strings.Repeat("a/b;q=0,", 1000)},
		"ranges": {"GET /v1/semaphores/db", "Range: bytes=" + strings.Repeat("0-,", 1000)}, "Expect": {"GET /v1/semaphores/db", "Expect: 200-maybe"}, "upgrade": {"GET /v1/semaphores/db", "Connection: Upgrade", "Upgrade: websocket"},
		"traceparent of garbage": {"GET /v1/semaphores/db", "traceparent: " + strings.Repeat("z", 5000)}, "a request id of controls": {"GET /v1/semaphores/db", "X-Request-Id: a\tb\x7f" + strings.Repeat("x", 5000)},
	} {
		all = append(all, hostile{"harmless: " + name, c[0], "", c[1:], 200, "", ""})
	}
	return all
}

// hostileNames returns requests with invalid names, each in a path and, if JSON can express it, in bodies.
func hostileNames() (all []hostile) {
	for name, segment := range map[string]string{
		"NUL": "%00", "line feed": "a%0Ab", "carriage return": "a%0D", "tab": "%09", "DEL": "a%7F", "C1 control": "%C2%85",
		"invalid UTF-8": "%FF", "cut UTF-8": "%C3", "overlong slash": "%C0%AF", "surrogate": "%ED%A0%80", "beyond Unicode": "%F4%90%80%80",
		"513 bytes": strings.Repeat("a", 513), "513 bytes of two-byte letters": strings.Repeat("%C3%A9", 256) + "a", "empty": "",
	} {
		all = append(all,
			bad("name in PUT lease: "+name, "PUT /v1/sessions/7/leases/x%2F"+segment+strings.Repeat("%00", b2i(segment == "")), "", "name"),
			bad("name on a wait list: "+name, "PUT /v1/sessions/7/waitlist/x%2F"+segment+strings.Repeat("%00", b2i(segment == "")), "", "name"),
			bad("name in up: "+name, "POST /v1/semaphores/"+segment+"/up", "", "name"))
		if segment != "" {
			all = append(all, bad("name in PUT: "+name, "PUT /v1/semaphores/"+segment, `{"permits":1}`, "name"))
		}
	}
	for name, text := range map[string]string{
		"empty": `""`, "NUL": `"\u0000"`, "line feed": `"\n"`, "513 bytes": `"` + strings.Repeat("a", 513) + `"`, "number": `7`, "null": `null`,
		"object": `{}`, "list": `["a"]`, "true": `true`, "C1 control": `"\u0085"`,
	} {
		all = append(all, bad("name in JSON: "+name, "POST /v1/semaphores", `{"name":`+text+`,"permits":1}`, "name"),
			bad("name in a list: "+name, "POST /v1/sessions/7/acquire", `{"mode":"all","semaphores":[{"name":`+text+`}]}`, "name"))
	}
	for name, id := range map[string]string{
		"zero": "0", "negative": "-1", "plus": "+7", "leading zero": "07", "2^64": "18446744073709551616", "letters": "abc", "hex": "0x7",
		"fraction": "7.0", "exponent": "1e3", "space": "%207", "Arabic digits": "%D9%A7", "very long": strings.Repeat("9", 300), "underscore": "1_0",
	} {
		all = append(all, bad("session in path: "+name, "PUT /v1/sessions/"+id, "", "session"),
			bad("wait list in path: "+name, "POST /v1/sessions/"+id+"/waitlist/wait", "", "session"),
			bad("holder in path: "+name, "DELETE /v1/semaphores/db/holders/"+id, "", "session"))
	}
	return all
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func hostileNumbers() (all []hostile) {
	for name, n := range map[string]string{
		"-1": "-1", "1.5": "1.5", "1.0": "1.0", "1e3": "1e3", "1E0": "1E0", "2^63": "9223372036854775808", "-2^63-1": "-9223372036854775809",
		"1e400": "1e400", "text": `"1"`, "null": "null", "true": "true", "list": "[1]", "object": "{}", "300 digits": strings.Repeat("9", 300),
	} {
		all = append(all, bad("permits "+name, "PUT /v1/semaphores/new", `{"permits":`+n+`}`, "permits"),
			bad("value "+name, "PUT /v1/semaphores/db/value", `{"value":`+n+`}`, "value"),
			bad("count "+name, "POST /v1/semaphores/db/up", `{"count":`+n+`}`, "count"))
		if name != "null" && name != "-1" {
			all = append(all, bad("level "+name, "PUT /v1/semaphores/db", `{"level":`+n+`}`, "level"))
		}
		if name != "null" && name != "object" {
			all = append(all, bad("metadata "+name, "PUT /v1/semaphores/db", `{"metadata":`+n+`}`, "metadata"))
		}
	}
	all = append(all, bad("count 0", "POST /v1/semaphores/db/up", `{"count":0}`, "count"),
		bad("count 0 of a lease", "POST /v1/semaphores/db/leases", `{"count":0}`, "count"),
		bad("level 2^31", "PUT /v1/semaphores/db", `{"level":2147483648}`, "level"),
		hostile{"up beyond 2^63", "POST /v1/semaphores/db/up", `{"count":9223372036854775807}`, nil, 409, "overflow", ""})
	for name, d := range map[string]string{
		"-1": "-1", "1.5": "1.5", "-1s": `"-1s"`, "+1s": `"+1s"`, "no unit": `"30"`, "bare 00": `"00"`, "empty": `""`, "unit alone": `"s"`, "spaces": `" 1s"`,
		"weeks": `"1w"`, "100 years and 1 ms": "3153600000001", "876001h": `"876001h"`, "overflow": `"99999999999999999h"`, "NaN": `"NaNs"`,
		"Inf": `"Infs"`, "null": "null", "object": "{}", "exponent": `"1e3s"`, "long": `"` + strings.Repeat("1s", 100) + `"`,
	} {
		all = append(all, bad("ttl "+name, "POST /v1/sessions", `{"ttl":`+d+`}`, "ttl"), bad("wait "+name, "POST /v1/semaphores/db/down", `{"wait":`+d+`}`, "wait"))
	}
	return append(all, bad("wait beyond ten minutes", "POST /v1/semaphores/db/down", `{"wait":600001}`, "wait"))
}

func hostileBodies() (all []hostile) {
	for name, body := range map[string]string{
		"trailing bytes": `{"permits":1}x`, "two documents": `{"permits":1}{"permits":2}`, "list": `[{"permits":1}]`, "null": `null`, "text": `"x"`, "number": `1`,
		"true": `true`, "cut": `{"permits":1`, "cut in a name": `{"per`, "trailing comma": `{"permits":1,}`, "leading comma": `{,"permits":1}`,
		"comment": `{"permits":1/*x*/}`, "single quotes": `{'permits':1}`, "no quotes": `{permits:1}`, "no colon": `{"permits" 1}`, "NaN": `{"permits":NaN}`,
		"Infinity": `{"permits":Infinity}`, "hex": `{"permits":0x1}`, "leading zero": `{"permits":01}`, "plus": `{"permits":+1}`, "point first": `{"permits":.5}`,
		"bare point": `{"permits":1.}`, "minus alone": `{"permits":-}`, "BOM": "\xef\xbb\xbf{\"permits\":1}", "UTF-16": "{\x00}\x00", "NUL after": "{\"permits\":1}\x00",
		"form": `permits=1`, "XML": `<permits>1</permits>`, "invalid UTF-8": "{\"\xff\":1}", "raw line feed": "{\"a\nb\":1}", "bad escape": `{"\x":1}`,
		"bad hex": `{"\u00g0":1}`, "lone surrogate": `{"permits":1,"metadata":{"a":"\ud800"}}`, "reversed surrogates": `{"permits":1,"metadata":{"a":"\udc00\ud800"}}`,
		"deep lists": strings.Repeat("[", 10000), "deep objects": strings.Repeat(`{"a":`, 10000), "deep and closed": `{"a":` + strings.Repeat("[", 20) + strings.Repeat("]", 20) + `}`,
		"truth in capitals": `{"permits":TRUE}`, "words run together": `{"permits":nullnull}`,
	} {
		all = append(all, bad("body: "+name, "PUT /v1/semaphores/new", body, ""))
	}
	for name, c := range map[string][2]string{
		"duplicate": {`{"permits":1,"permits":1}`, "permits"}, "duplicate by escape": {`{"permits":1,"\u0070ermits":2}`, "permits"},
		"duplicate below": {`{"permits":1,"metadata":{"a":"b","a":"c"}}`, "a"}, "unknown member": {`{"permits":1,"extra":1}`, "extra"},
		"other case": {`{"Permits":1}`, "Permits"}, "of another route": {`{"permits":1,"ttl":1}`, "ttl"}, "path in the body": {`{"permits":1,"name":"other"}`, "name"},
		"query in the body": {`{"permits":1,"epoch":1}`, "epoch"}, "key in the body": {`{"permits":1,"key":"0123456789abcdef"}`, "key"}, "prototype": {`{"__proto__":{"permits":1}}`, "__proto__"},
		"empty member": {`{"":1}`, ""}, "permits null": {`{"permits":null}`, "permits"}, "metadata of numbers": {`{"permits":1,"metadata":{"a":1}}`, "metadata"},
		"metadata of nulls": {`{"permits":1,"metadata":{"a":null}}`, "metadata"}, "nested metadata": {`{"permits":1,"metadata":{"a":{"b":"c"}}}`, "metadata"},
		"17 pairs": {`{"permits":1,"metadata":{` + pairs(17) + `}}`, "metadata"}, "metadata of 1,025 bytes": {`{"permits":1,"metadata":{"a":"` + strings.Repeat("x", 1024) + `"}}`, "metadata"},
		"5,000 members": {`{` + pairs(5000) + `}`, ""}, "5,000 members and a duplicate": {`{` + pairs(5000) + `,"k1":"v"}`, "k1"},
	} {
		all = append(all, bad("body: "+name, "PUT /v1/semaphores/new", c[0], c[1]))
	}
	for name, c := range map[string][2]string{
		"empty list": {`[]`, "semaphores"}, "65 members": {"[" + strings.Repeat(`{"name":"db"},`, 64) + `{"name":"x"}]`, "semaphores"}, "twice": {`[{"name":"a"},{"name":"a"}]`, "semaphores"},
		"no name": {`[{"count":1}]`, "semaphores"}, "no object": {`["db"]`, "semaphores"}, "object": {`{"db":1}`, "semaphores"}, "unknown member": {`[{"name":"db","ttl":1}]`, "ttl"},
		"count as text": {`[{"name":"db","count":"1"}]`, "count"},
	} {
		all = append(all, bad("list: "+name, "POST /v1/sessions/7/acquire", `{"mode":"all","semaphores":`+c[0]+`}`, c[1]))
	}
	return append(all,
		bad("mode", "POST /v1/sessions/7/acquire", `{"mode":"some","semaphores":[{"name":"db"}]}`, "mode"),
		bad("no mode", "POST /v1/sessions/7/acquire", `{"semaphores":[{"name":"db"}]}`, "mode"),
		bad("on_end", "POST /v1/sessions", `{"ttl":1,"on_end":"explode"}`, "on_end"),
		bad("a count for a delivery", "POST /v1/sessions/7/waitlist/wait", `{"count":1}`, "count"),
		bad("a wait for a wait list's entry", "PUT /v1/sessions/7/waitlist/db", `{"wait":1}`, "wait"),
		bad("partial as text", "POST /v1/semaphores/db/down", `{"partial":"true"}`, "partial"),
		bad("partial as number", "POST /v1/semaphores/db/down", `{"partial":1}`, "partial"),
		bad("a body for DELETE", "DELETE /v1/semaphores/db", `{"epoch":99}`, "epoch"),
		hostile{"64 KiB and one byte", "PUT /v1/semaphores/new", `{"permits":1}` + strings.Repeat(" ", 64<<10-12), nil, 413, "too-large", ""})
}

func pairs(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"k%d":"v"`, i)
	}
	return b.String()[1:]
}

func hostileHeaders() (all []hostile) {
	for name, key := range map[string]string{
		"empty": "", "15 characters": strings.Repeat("k", 15), "129 characters": strings.Repeat("k", 129), "space inside": "0123456789 abcdef", "tab inside": "0123456789\tabcdef",
		"not ASCII": "0123456789abcdefé", "control": "0123456789abcdef\x7f", "absurd": strings.Repeat("k", 8000),
	} {
		all = append(all, bad("key: "+name, "POST /v1/semaphores/db/up", "", "Idempotency-Key", "Idempotency-Key: "+key))
	}
	for name, encoding := range map[string]string{"gzip": "gzip", "deflate": "deflate", "br": "br", "two": "gzip, gzip", "unknown": "x"} {
		all = append(all, hostile{"encoding: " + name, "POST /v1/semaphores/db/up", "\x1f\x8b", []string{"Content-Encoding: " + encoding}, 415, "unsupported-encoding", ""})
	}
	const key = "Idempotency-Key: 0123456789abcdef"
	return append(all,
		bad("key twice", "POST /v1/semaphores/db/up", "", "Idempotency-Key", key, key),
		bad("If-None-Match with a tag", "PUT /v1/semaphores/new", `{"permits":1}`, "If-None-Match", `If-None-Match: "5"`),
		bad("If-None-Match twice", "PUT /v1/semaphores/new", `{"permits":1}`, "If-None-Match", "If-None-Match: *", "If-None-Match: *"),
		bad("If-None-Match where it has no meaning", "DELETE /v1/semaphores/db", "", "If-None-Match", "If-None-Match: *"),
		bad("If-Match", "DELETE /v1/semaphores/db", "", "If-Match", "If-Match: "+strings.Repeat(`"x",`, 1000)),
		bad("key for a member", "PUT /v1/cluster/members/n4", `{"peer":"n4:1"}`, "Idempotency-Key", key),
		bad("key for a member's end", "DELETE /v1/cluster/members/n2", "", "Idempotency-Key", key),
		bad("key for a leader", "POST /v1/cluster/leader", "", "Idempotency-Key", key),
		bad("If-Match of a member", "DELETE /v1/cluster/members/n2", "", "If-Match", `If-Match: "1"`),
		bad("If-Match of a read", "GET /v1/semaphores/db", "", "If-Match", `If-Match: "1"`),
		bad("If-None-Match of a read", "GET /v1/semaphores/db", "", "If-None-Match", `If-None-Match: "1"`),
		bad("If-None-Match of a list", "GET /v1/sessions", "", "If-None-Match", "If-None-Match: *"),
		bad("If-Match of a lease's read", "GET /v1/sessions/7/leases/db", "", "If-Match", "If-Match: *"),
		bad("If-None-Match of events", "GET /v1/events", "", "If-None-Match", "If-None-Match: *"),
		bad("If-Match of a batch", "POST /v1/batch", `{"operations":[]}`, "If-Match", "If-Match: *"),
		hostile{"foreign origin", "DELETE /v1/semaphores/db", "", []string{"Origin: http://evil.example"}, 403, "forbidden", ""},
		hostile{"null origin", "POST /v1/semaphores/db/up", "", []string{"Origin: null"}, 403, "forbidden", ""},
		hostile{"forwarded origin", "POST /v1/semaphores/db/up", "", []string{"Origin: http://evil.example", "X-Forwarded-Host: evil.example"}, 403, "forbidden", ""},
		hostile{"method override", "POST /v1/semaphores/db", "", []string{"X-HTTP-Method-Override: DELETE"}, 405, "method-not-allowed", ""},
	)
}

func hostileQueries() (all []hostile) {
	for _, q := range []string{"epoch=0", "epoch=-1", "epoch=01", "epoch=1.5", "epoch=", "epoch", "epoch=9223372036854775808", "epoch=1&epoch=1", "epoch=x", "epoch=%zz", "epcoh=1", "Epoch=1", "reason=x", "wait=1s", "a;b"} {
		all = append(all, bad("DELETE ?"+q, "DELETE /v1/semaphores/db?"+q, "", ""))
	}
	all = append(all, bad("list with a long cursor", "GET /v1/semaphores?cursor="+strings.Repeat("A", 3000), "", "cursor"),
		bad("list with a long prefix", "GET /v1/semaphores?prefix="+strings.Repeat("a", 513), "", "prefix"))
	for _, q := range []string{"limit=0", "limit=1001", "limit=-1", "limit=x", "cursor=", "cursor=!", "cursor=bg", "cursor=bgA", "cursor=c2Fi", "cursor=b%0Ds20", "prefix=%00", "prefix=%ff",
		"consistency=strong", "consistency=", "min_index=x", "min_index=-1", "offset=1", "limit=1&limit=1"} {
		all = append(all, bad("list ?"+q, "GET /v1/semaphores?"+q, "", ""))
	}
	for _, q := range []string{"holders=1001", "holders=-1", "waiters=1e1", "index=-1", "index=18446744073709551616", "index=1&wait=x", "index=1&wait=601s", "wait=1s", "index=1&wait=-1"} {
		all = append(all, bad("GET ?"+q, "GET /v1/semaphores/db?"+q, "", ""))
	}
	for _, q := range []string{"", "cluster=", "cluster=" + strings.Repeat("0", 34), "cluster=" + strings.Repeat("A", 32), "cluster=" + strings.Repeat("0", 32) + "&from=0g"} {
		all = append(all, bad("restore ?"+q, "PUT /v1/snapshot?"+q, "", ""))
	}
	return append(all,
		bad("try=1", "PUT /v1/sessions/7/leases/db?try=1", "", "try"),
		bad("try without a value", "PUT /v1/sessions/7/leases/db?try", "", "try"),
		bad("wait twice", "POST /v1/semaphores/db/down?wait=1s&wait=1s", "", "wait"),
		bad("wait in both", "POST /v1/semaphores/db/down?wait=1s", `{"wait":0}`, "wait"),
		bad("a long reason", "POST /v1/sessions/7/revoke", `{"reason":"`+strings.Repeat("a", 1025)+`"}`, "reason"),
		bad("a reason with a line feed", "POST /v1/sessions/7/revoke", `{"reason":"a\nb"}`, "reason"),
		hostile{"another epoch", "DELETE /v1/semaphores/db?epoch=9223372036854775807", "", nil, 412, "precondition-failed", ""})
}

// hostileSettings returns requests with invalid settings, groups and head starts. pool has groups, db has no groups.
func hostileSettings() (all []hostile) {
	for name, c := range map[string][2]string{
		"groups of another kind": {`{"groups":"all"}`, "groups"}, "groups as a number": {`{"groups":1}`, "groups"}, "groups in capitals": {`{"groups":"REQUEST"}`, "groups"}, "empty groups": {`{"groups":""}`, "groups"},
		"per_group 0": {`{"groups":"request","per_group":0}`, "per_group"}, "per_group -1": {`{"groups":"request","per_group":-1}`, "per_group"}, "per_group 2^63": {`{"groups":"request","per_group":9223372036854775808}`, "per_group"},
		"per_group without groups": {`{"per_group":1}`, "per_group"}, "permits null without groups": {`{"permits":null,"per_group":1}`, "per_group"}, "permits null alone": {`{"permits":null}`, "permits"},
		"permits null without per_group": {`{"permits":null,"groups":"request"}`, "permits"}, "a pause without permits": {`{"permits":null,"groups":"owner","per_group":1,"paused":"x"}`, "paused"},
		"an empty pause": {`{"paused":""}`, "paused"}, "a pause as truth": {`{"paused":true}`, "paused"}, "a pause of 1,025 bytes": {`{"paused":"` + strings.Repeat("a", 1025) + `"}`, "paused"}, "a pause with a line feed": {`{"paused":"a\nb"}`, "paused"},
		"max_waiting 0": {`{"max_waiting":0}`, "max_waiting"}, "max_waiting 100,001": {`{"max_waiting":100001}`, "max_waiting"}, "max_waiting as text": {`{"max_waiting":"1"}`, "max_waiting"},
		"when_full alone": {`{"when_full":"drop-oldest"}`, "when_full"}, "when_full of another kind": {`{"max_waiting":1,"when_full":"drop-newest"}`, "when_full"},
		"head_start of 24h and 1 ms": {`{"head_start":86400001}`, "head_start"}, "head_start negative": {`{"head_start":-1}`, "head_start"}, "head_start as truth": {`{"head_start":true}`, "head_start"}, "limit of a semaphore": {`{"limit":1}`, "limit"},
		"group of a semaphore": {`{"group":"acme"}`, "group"},
		"window of 99 ms":      {`{"window":99}`, "window"}, "window of 0": {`{"window":0}`, "window"}, "window of 32 days": {`{"window":"768h"}`, "window"}, "window as truth": {`{"window":true}`, "window"},
		"window with cooldown": {`{"window":"1m","cooldown":"1s"}`, "window"}, "window with slots": {`{"window":"1m","slots":true}`, "window"}, "window with max_hold": {`{"window":"1m","max_hold":"1s"}`, "window"},
		"window with on_lost": {`{"window":"1m","on_lost":"quarantine"}`, "window"}, "cooldown of 24h and 1 ms": {`{"cooldown":86400001}`, "cooldown"}, "cooldown negative": {`{"cooldown":-1}`, "cooldown"},
		"on_lost of another kind": {`{"on_lost":"keep"}`, "on_lost"}, "on_lost of 0": {`{"on_lost":0}`, "on_lost"}, "on_lost negative": {`{"on_lost":"-1s"}`, "on_lost"}, "on_lost as truth": {`{"on_lost":true}`, "on_lost"},
		"max_hold of 999 ms": {`{"max_hold":999}`, "max_hold"}, "max_hold beyond 100 years": {`{"max_hold":3153600000001}`, "max_hold"}, "slots as a number": {`{"slots":1}`, "slots"}, "slots without permits": {`{"permits":null,"groups":"owner","per_group":1,"slots":true}`, "slots"},
	} {
		all = append(all, bad("settings: "+name, "PUT /v1/semaphores/db", c[0], c[1]))
	}
	for name, text := range map[string]string{"129 bytes": `"` + strings.Repeat("a", 129) + `"`, "NUL": `"\u0000"`, "line feed": `"\n"`, "number": "7", "null": "null", "list": `["a"]`} {
		all = append(all, bad("group: "+name, "POST /v1/semaphores/pool/leases", `{"group":`+text+`}`, "group"),
			bad("group in a list: "+name, "POST /v1/sessions/7/acquire", `{"mode":"all","semaphores":[{"name":"pool","group":`+text+`}]}`, "group"))
	}
	for name, segment := range map[string]string{"one dash and a letter": "-a", "NUL": "%00", "invalid UTF-8": "%FF", "129 bytes": strings.Repeat("a", 129)} {
		all = append(all, bad("group in a path: "+name, "PUT /v1/semaphores/pool/groups/"+segment, `{"limit":1}`, "group"),
			bad("read of a group: "+name, "GET /v1/semaphores/pool/groups/"+segment, "", "group"))
	}
	for name, limit := range map[string]string{"-1": "-1", "text": `"1"`, "1.5": "1.5", "2^63": "9223372036854775808", "true": "true"} {
		all = append(all, bad("limit "+name, "PUT /v1/semaphores/pool/groups/acme", `{"limit":`+limit+`}`, "limit"))
	}
	for _, line := range []string{"GET /v1/semaphores/pool/groups?cursor=Zw", "GET /v1/semaphores/pool/groups?cursor=bgA", "GET /v1/semaphores/pool/groups?waiting=1", "GET /v1/semaphores/pool/groups?limit=0",
		"GET /v1/semaphores/pool/waiters?cursor=dwAAAAAAAAAB", "GET /v1/semaphores/pool/holders?group=%00", "GET /v1/events?group=%00", "GET /v1/events?group=a&group=b"} {
		all = append(all, bad(line, line, "", ""))
	}
	return append(all,
		bad("a token of 0", "DELETE /v1/semaphores/db/lost/0", "", "token"), bad("a token of 2^63", "DELETE /v1/semaphores/db/lost/9223372036854775808", "", "token"), bad("a token as text", "DELETE /v1/semaphores/db/lost/x", "", "token"),
		bad("a cursor of another list", "GET /v1/semaphores/db/lost?cursor=Zw", "", ""),
		bad("slots of an acquire", "POST /v1/sessions/7/acquire", `{"mode":"all","semaphores":[{"name":"db","slots":[1]}]}`, "slots"), bad("slots beyond a range", "POST /v1/sessions/9/restore", `{"ttl":"1m","leases":[{"name":"db","slots":[1048576]}]}`, "slots"),
		bad("slots as texts", "POST /v1/sessions/9/restore", `{"ttl":"1m","leases":[{"name":"db","slots":["1"]}]}`, "slots"),
		hostile{"nothing is lost", "DELETE /v1/semaphores/db/lost/7", "", nil, 404, "not-lost", ""},
		bad("no limit", "PUT /v1/semaphores/pool/groups/acme", "", "limit"),
		bad("limit of a group of a plain semaphore", "PUT /v1/semaphores/db/groups/acme", `{"limit":1}`, "group"),
		bad("group of a plain semaphore", "POST /v1/semaphores/db/leases", `{"group":"acme"}`, "group"),
		bad("group in both", "POST /v1/semaphores/pool/down?group=acme", `{"group":"acme"}`, "group"),
		bad("group twice", "POST /v1/semaphores/pool/down?group=a&group=b", "", "group"),
		bad("head_start null", "POST /v1/semaphores/db/leases", `{"head_start":null}`, "head_start"),
		bad("head_start beyond 100 years", "POST /v1/semaphores/db/leases", `{"head_start":3153600000001}`, "head_start"),
		bad("a group of a list twice", "POST /v1/sessions/7/acquire", `{"mode":"all","semaphores":[{"name":"pool","group":"a"},{"name":"pool","group":"a"}]}`, "semaphores"),
		hostile{"no such group", "GET /v1/semaphores/pool/groups/acme", "", nil, 404, "unknown-group", ""},
		hostile{"no such group of a plain semaphore", "GET /v1/semaphores/db/groups/-", "", nil, 404, "unknown-group", ""})
}

func hostileBatches() []hostile {
	return []hostile{
		bad("batch of a list", "POST /v1/batch", `[]`, ""), bad("batch of null", "POST /v1/batch", `{"operations":null}`, "operations"),
		bad("batch of 1,001", "POST /v1/batch", `{"operations":[`+strings.Repeat(`{},`, 1000)+`{}]}`, "operations"),
		bad("batch with a duplicate deep inside", "POST /v1/batch", `{"operations":[{"op":"up","semaphore":"db"},{"op":"up","op":"delete","semaphore":"db"}]}`, "op"),
		bad("batch with a query", "POST /v1/batch?wait=1s", `{"operations":[]}`, "wait"),
		bad("peer", "PUT /v1/cluster/members/n4", `{"peer":"http://169.254.169.254/"}`, "peer"),
		bad("member id", "PUT /v1/cluster/members/..%2F..", `{"peer":"n4:1"}`, "id"),
		{"1 MiB of batch and one byte", "POST /v1/batch", `{"operations":[` + strings.Repeat(" ", 1<<20) + `]}`, nil, 413, "too-large", ""},
	}
}

// TestHostileInput sends each input through the real router. No input changes the state.
func TestHostileInput(t *testing.T) {
	list := testinputs.Begin(t, "api")
	a := apitest.New(t)
	a.Must(201, "PUT /v1/semaphores/db", `{"permits":3,"metadata":{"a":"b"}}`)
	a.Must(201, "PUT /v1/semaphores/value%2Fx", `{"permits":1}`)
	a.Must(201, "PUT /v1/semaphores/pool", `{"permits":1,"groups":"request"}`)
	a.Must(201, "PUT /v1/semaphores/%C3%A9", `{"permits":1}`)
	a.Must(201, "POST /v1/semaphores/db/leases", "")
	before := a.Node.State(t)
	for _, c := range hostileInputs() {
		list.Case(c.name, func(t *testing.T) {
			got := (&apitest.API{T: t, Node: a.Node, Handler: a.Handler}).Send(c.request())
			if c.code == "" {
				got.Is(c.status)
			} else {
				got.RefusedWith(c.status, c.code)
			}
			if c.field != "" && got.Member("field") != c.field {
				t.Errorf("field %q, want %q: %s", got.Member("field"), c.field, got.Text)
			}
			for _, inside := range []string{"fsm.", "httpapi", "json:", "strconv", "goroutine", ".go"} {
				if strings.Contains(got.Text, inside) {
					t.Errorf("the inside leaks: %s", got.Text)
				}
			}
			if len(got.Text) > 1500 {
				t.Errorf("a reply of %d bytes", len(got.Text))
			}
			if after := a.Node.State(t); after != before {
				t.Errorf("the state changed:\n%s\n%s", before, after)
				before = after // report only the changes of later requests
			}
		})
	}
}

func (c hostile) request() *http.Request {
	method, target, _ := strings.Cut(c.line, " ")
	target, rawQuery, _ := strings.Cut(target, "?")
	r := httptest.NewRequest(method, target, strings.NewReader(c.body))
	r.URL.RawQuery = rawQuery
	for _, h := range c.headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header[http.CanonicalHeaderKey(name)] = append(r.Header[http.CanonicalHeaderKey(name)], value)
	}
	return r
}
