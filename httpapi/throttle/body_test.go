package throttle

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/strictjson"
)

// The status differs for a body that is no JSON and for JSON of another shape.
func TestThrottleBodyFaults(t *testing.T) {
	s, _ := onThrottle(t)
	s.Semaphore("A", "5", "0")
	s.Peer("1", "1h")
	for line, bodies := range map[string]map[int][]string{
		"PUT /peers/1/A": {
			400: {"-", "-x", "01", "1.", "1.x", "1e", "1e+x", "1 2", "1\n\n}", "x", "\xef\xbb\xbf1", "nul", "nulx", `"a`, "\"a\nb\"", `"\x"`, `"\u12zz"`,
				`"\udc00"`, `"\ud800x"`, `"\ud800\u0041"`, "\"\xff\"", `"\`, " \n "},
			422: {"false", "-0", "1.5", "1.0", "1e0", "1e999", "null", "[1]", `{"count":1}`, `"1"`, `"a\"\\\n\u0001é"`, "9223372036854775808",
				"-9223372036854775809", "18446744073709551616"},
		},
		"PUT /peers/1": {
			400: {"{", "{,}", `{"a"`, `{"a";1}`, `{"a":`, `{"a":1`, `{"a":1 "b"`, `{"a":1,`, `{"a":1,}`, `{"a":1,2}`, `{"a":[1,]}`, `{"a":{"b":1]}`, `{"a":"\q"}`,
				`{"a":-`, `{"a":01}`, `{"expires_in":"1h"}x`, `{"expires_in":"1h","a":[1,2}`},
			422: {"[]", `"x"`, "{}", `["1h"]`, `{"expires_in":5}`, `{"expires_in":null}`, `{"Expires_in":"1h"}`, `{"expires_in":"1h","expires_in":"1h"}`,
				`{"expires_in":"5 bananas"}`},
			200: {`{"expires_in":"1h","a":1e999}`, `{"expires_in":"1h","a":1,"a":2}`, ` {"a":` + strings.Repeat("[", 900) + strings.Repeat("]", 900) + `,"expires_in" : "1h"} `},
		},
		"POST /restore": {
			400: {`{"acquired":{"A"}}`, `{"acquired":{5:1}}`, `{"acquired":{"A":1;}}`, `{"acquired":{"A":1},"acquired"}`},
			422: {`{"expires_in":"1h","peer_id":7,"acquired":5}`, `{"expires_in":"1h","peer_id":7,"acquired":{"A":null}}`, `{"expires_in":"1h","peer_id":7}`,
				`{"expires_in":"1h","peer_id":-0,"acquired":{}}`, `{"expires_in":"1h","peer_id":"7","acquired":{}}`, `{"expires_in":"1h","peer_id":7,"acquired":{},"acquired":{}}`},
			200: {`{"acquired":{},"expires_in":"1h","peer_id":18446744073709551615}`},
		},
	} {
		for status, all := range bodies {
			for _, body := range all {
				got := s.Ask(line, body, "Content-Type: application/json")
				begins := map[int]string{400: "Failed to parse the request body as JSON: ", 422: "Failed to deserialize the JSON body into the target type: "}[status]
				if got.Status != status || !strings.HasPrefix(got.Body, begins) {
					t.Errorf("%s %.60q: %s, want %d", line, body, got, status)
				}
			}
		}
	}
}

func TestThrottleBodyValues(t *testing.T) {
	for text, want := range map[string]int64{"1": 1, "-5": -5, "9223372036854775807": math.MaxInt64, "-9223372036854775808": math.MinInt64, "0": 0} {
		if got, err := readInteger(strictjson.Value(text)); err != nil || got != want {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
	got, err := readCounts(strictjson.Value(`{"b":1,"a":2,"b":3,"\u00e9\n\ud83d\ude00":4}`))
	want := []fsm.Want{{Semaphore: "b", Count: 3}, {Semaphore: "a", Count: 2}, {Semaphore: "é\n😀", Count: 4}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
}

// FuzzThrottleJSON: if a body is accepted, encoding/json reads the same counts from it.
func FuzzThrottleJSON(f *testing.F) {
	for _, text := range []string{`{"A":1,"B":-2,"A":3}`, `{}`, `{"a":"\ud800"}`, `{"a":1e999}`, `{`, `[]`, `{"A":1.0}`, `{"\u00e9":9223372036854775807}`, `{"a":-0}`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		fault := strictjson.Check([]byte(text), bodyRules)
		if fault == nil && !json.Valid([]byte(text)) {
			t.Fatalf("%q is no JSON, and taken", text)
		}
		if fault != nil {
			return
		}
		wants, err := readCounts(strictjson.Document([]byte(text)))
		if err != nil {
			return
		}
		var counts map[string]int64
		if err := json.NewDecoder(bytes.NewReader([]byte(text))).Decode(&counts); err != nil || len(counts) != len(wants) {
			t.Fatalf("%q: %v, want %v (%v)", text, wants, counts, err)
		}
		for _, w := range wants {
			if counts[w.Semaphore] != w.Count {
				t.Fatalf("%q: %v, want %v", text, wants, counts)
			}
		}
	})
}
