package httpapi

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/signalbox/signalbox/fsm"
)

// readSerde reads a document as one kind of body, and tells what is wrong with it.
func readSerde(text string, read func(r *serdeReader) *serdeFault) string {
	r := &serdeReader{data: []byte(text)}
	f := read(r)
	if f == nil {
		f = r.end()
	}
	switch {
	case f == nil:
		return ""
	case f.syntax:
		return "400 " + f.text
	}
	return "422 " + f.text
}

func readsCount(r *serdeReader) *serdeFault {
	_, f := r.signed()
	return f
}

func readsAcquired(r *serdeReader) *serdeFault {
	return r.object("struct Restore", []serdeField{{"acquired", func() *serdeFault {
		_, f := r.counts()
		return f
	}}})
}

func readsAnything(r *serdeReader) *serdeFault { return r.object("struct X", nil) }

// The words and positions of serde_json 1 under serde_path_to_error.
func TestSerdeFaults(t *testing.T) {
	for _, c := range []struct {
		text string
		read func(r *serdeReader) *serdeFault
		want string
	}{
		{"", readsCount, "400 EOF while parsing a value at line 1 column 0"},
		{" \n ", readsCount, "400 EOF while parsing a value at line 2 column 1"},
		{"-", readsCount, "400 EOF while parsing a value at line 1 column 1"},
		{"-x", readsCount, "400 invalid number at line 1 column 2"},
		{"01", readsCount, "400 invalid number at line 1 column 2"},
		{"1.", readsCount, "400 EOF while parsing a value at line 1 column 2"},
		{"1.x", readsCount, "400 invalid number at line 1 column 3"},
		{"1e", readsCount, "400 EOF while parsing a value at line 1 column 2"},
		{"1e+x", readsCount, "400 invalid number at line 1 column 4"},
		{"1e999", readsCount, "400 number out of range at line 1 column 5"},
		{"1 2", readsCount, "400 trailing characters at line 1 column 3"},
		{"1\n\n}", readsCount, "400 trailing characters at line 3 column 1"},
		{"x", readsCount, "400 expected value at line 1 column 1"},
		{"\xef\xbb\xbf1", readsCount, "400 expected value at line 1 column 1"},
		{"nul", readsCount, "400 EOF while parsing a value at line 1 column 3"},
		{"nulx", readsCount, "400 expected ident at line 1 column 4"},
		{"tru ", readsCount, "400 expected ident at line 1 column 4"},
		{"false", readsCount, "422 invalid type: boolean `false`, expected i64 at line 1 column 5"},
		{"-0", readsCount, "422 invalid type: floating point `-0.0`, expected i64 at line 1 column 2"},
		{"-9223372036854775809", readsCount, "422 invalid type: floating point `-9.223372036854776e18`, expected i64 at line 1 column 20"},
		{"0.00001", readsCount, "422 invalid type: floating point `0.00001`, expected i64 at line 1 column 7"},
		{"0.000001", readsCount, "422 invalid type: floating point `1e-6`, expected i64 at line 1 column 8"},
		{"1e15", readsCount, "422 invalid type: floating point `1000000000000000.0`, expected i64 at line 1 column 4"},
		{"1e16", readsCount, "422 invalid type: floating point `1e16`, expected i64 at line 1 column 4"},
		{"123.25", readsCount, "422 invalid type: floating point `123.25`, expected i64 at line 1 column 6"},
		{`"a\"\\\n\u0001é\u200b"`, readsCount, `422 invalid type: string "a\"\\\n\u{1}é\u{200b}", expected i64 at line 1 column 23`},
		{`"a`, readsCount, "400 EOF while parsing a string at line 1 column 2"},
		{"\"a\nb\"", readsCount, "400 control character (\\u0000-\\u001F) found while parsing a string at line 2 column 0"},
		{`"\x"`, readsCount, "400 invalid escape at line 1 column 3"},
		{`"\u12"`, readsCount, "400 EOF while parsing a string at line 1 column 6"},
		{`"\u12zz"`, readsCount, "400 invalid escape at line 1 column 7"},
		{`"\udc00"`, readsCount, "400 lone leading surrogate in hex escape at line 1 column 7"},
		{`"\ud800x"`, readsCount, "400 unexpected end of hex escape at line 1 column 8"},
		{`"\ud800\u0041"`, readsCount, "400 lone leading surrogate in hex escape at line 1 column 13"},
		{"\"\xff\"", readsCount, "400 invalid unicode code point at line 1 column 3"},
		{`"\`, readsCount, "400 EOF while parsing a string at line 1 column 2"},

		{"", readsAnything, "400 EOF while parsing a value at line 1 column 0"},
		{"[]", readsAnything, "422 invalid type: sequence, expected struct X at line 1 column 0"},
		{`"x"`, readsAnything, `422 invalid type: string "x", expected struct X at line 1 column 3`},
		{"{", readsAnything, "400 EOF while parsing an object at line 1 column 1"},
		{"{,}", readsAnything, "400 key must be a string at line 1 column 2"},
		{`{"a"`, readsAnything, "400 EOF while parsing an object at line 1 column 4"},
		{`{"a";1}`, readsAnything, "400 expected `:` at line 1 column 5"},
		{`{"a":`, readsAnything, "400 a: EOF while parsing a value at line 1 column 5"},
		{`{"a":1`, readsAnything, "400 EOF while parsing an object at line 1 column 6"},
		{`{"a":1 "b"`, readsAnything, "400 expected `,` or `}` at line 1 column 8"},
		{`{"a":1,`, readsAnything, "400 EOF while parsing a value at line 1 column 7"},
		{`{"a":1,}`, readsAnything, "400 trailing comma at line 1 column 8"},
		{`{"a":1,2}`, readsAnything, "400 key must be a string at line 1 column 8"},
		{`{"a":[1,]}`, readsAnything, "400 a: expected value at line 1 column 9"},
		{`{"a":[1`, readsAnything, "400 a: EOF while parsing a list at line 1 column 7"},
		{`{"a":{"b"`, readsAnything, "400 a: EOF while parsing an object at line 1 column 9"},
		{`{"a":{1:2}}`, readsAnything, "400 a: key must be a string at line 1 column 7"},
		{`{"a":{"b":1]}`, readsAnything, "400 a: expected `,` or `}` at line 1 column 12"},
		{`{"a":"\q"}`, readsAnything, "400 a: invalid escape at line 1 column 8"},
		{`{"a":1.`, readsAnything, "400 a: invalid number at line 1 column 7"},
		{`{"a":-`, readsAnything, "400 a: invalid number at line 1 column 6"},
		{`{"a":1e`, readsAnything, "400 a: invalid number at line 1 column 7"},
		{`{"a":01}`, readsAnything, "400 a: invalid number at line 1 column 7"},
		{`{"a":1e999}`, readsAnything, ""},
		{`{"a":"\ud800"}`, readsAnything, ""},
		{`{"a":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + `}`, readsAnything, ""},

		{`{"acquired":5}`, readsAcquired, "422 acquired: invalid type: integer `5`, expected a map at line 1 column 13"},
		{`{"acquired":{"A":null}}`, readsAcquired, "422 acquired.A: invalid type: null, expected i64 at line 1 column 21"},
		{`{"acquired":{"A"}}`, readsAcquired, "400 acquired: expected `:` at line 1 column 17"},
		{`{"acquired":{"A":1;}}`, readsAcquired, "400 acquired.?: expected `,` or `}` at line 1 column 19"},
		{`{"acquired":{5:1}}`, readsAcquired, "400 acquired.?: key must be a string at line 1 column 14"},
		{`{"acquired":{"A":1}`, readsAcquired, "400 EOF while parsing an object at line 1 column 19"},
		{`{"acquired":{"A":1},"acquired"}`, readsAcquired, "422 duplicate field `acquired` at line 1 column 31"},
		{`{"x":1 } `, readsAcquired, "422 missing field `acquired` at line 1 column 8"},
		{"{\n \"x\":1\n}", readsAcquired, "422 missing field `acquired` at line 3 column 1"},
		{`{"acquired":{}} `, readsAcquired, ""},
	} {
		if got := readSerde(c.text, c.read); got != c.want {
			t.Errorf("%.60q\ngot  %s\nwant %s", c.text, got, c.want)
		}
	}
}

func TestSerdeValues(t *testing.T) {
	for text, want := range map[string]int64{"1": 1, " -5 ": -5, "9223372036854775807": math.MaxInt64, "-9223372036854775808": math.MinInt64, "0": 0} {
		if got, f := (&serdeReader{data: []byte(text)}).signed(); f != nil || got != want {
			t.Errorf("%q: %d, %+v", text, got, f)
		}
	}
	if got, f := (&serdeReader{data: []byte("18446744073709551615")}).unsigned(); f != nil || got != math.MaxUint64 {
		t.Errorf("%d, %+v", got, f)
	}
	wants, f := (&serdeReader{data: []byte(`{"b":1,"a":2,"b":3,"\u00e9\n\ud83d\ude00":4}`)}).counts()
	if f != nil || len(wants) != 3 || wants[0] != (fsm.Want{Semaphore: "b", Count: 3}) || wants[2] != (fsm.Want{Semaphore: "é\n😀", Count: 4}) {
		t.Errorf("%v, %+v", wants, f)
	}
}

// FuzzThrottleJSON: what the reader takes is JSON, and what it understands is what
// encoding/json does; what is no JSON it tells as such.
func FuzzThrottleJSON(f *testing.F) {
	for _, text := range []string{
		`{"acquired":{"A":1,"B":-2,"A":3},"x":[1,{"y":null}]}`, `{"acquired":{}}`, `{"a":"\ud800"}`, `{"a":1e999}`, `{`, `[]`, `{"acquired":{"A":1.0}}`,
		`{"a":[[[{}]]]}`, `{"\u0061cquired":{"\u00e9":9223372036854775807}}`, `{"a":-0.0e-1,"b":true}x`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 4096 {
			return // encoding/json bounds the depth
		}
		valid := json.Valid([]byte(text))
		skipped := readSerde(text, func(r *serdeReader) *serdeFault { return r.skip() })
		if (skipped == "") != valid {
			t.Fatalf("%q: %q, valid: %v", text, skipped, valid)
		}
		var wants []fsm.Want
		fault := readSerde(text, func(r *serdeReader) *serdeFault {
			return r.object("struct X", []serdeField{{"acquired", func() (f *serdeFault) {
				wants, f = r.counts()
				return f
			}}})
		})
		if fault != "" {
			if !strings.HasPrefix(fault, "400 ") && !strings.HasPrefix(fault, "422 ") || !strings.Contains(fault, " at line ") {
				t.Fatalf("%q: %q", text, fault)
			}
			return
		}
		if !valid {
			t.Fatalf("%q is no JSON, and taken", text)
		}
		var raw struct {
			Acquired json.RawMessage `json:"acquired"`
		}
		if err := json.Unmarshal([]byte(text), &raw); err != nil || strings.Contains(strings.ToLower(text), `"acquired`) && strings.Count(strings.ToLower(text), "acquired") > 1 {
			return // encoding/json takes other cases of the name for the same
		}
		var counts map[string]int64
		decoder := json.NewDecoder(bytes.NewReader(raw.Acquired))
		if err := decoder.Decode(&counts); err != nil {
			return
		}
		if len(counts) != len(wants) {
			t.Fatalf("%q: %v, want %v", text, wants, counts)
		}
		for _, w := range wants {
			if counts[w.Semaphore] != w.Count {
				t.Fatalf("%q: %v, want %v", text, wants, counts)
			}
		}
	})
}
