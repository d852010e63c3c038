package strictjson

import (
	"bytes"
	"encoding/json"
	"testing"
	"unicode/utf8"
)

// FuzzCheck compares with encoding/json: it reads a checked document to the same
// values, and it accepts every document that Check passes. Reading never panics.
func FuzzCheck(f *testing.F) {
	for _, body := range []string{`{}`, `{"a":1}`, `{"a":[1,{"b":"\u00e9\ud83d\ude00"}],"c":null}`, `[]`, `"x"`, `-0`, `1e5`, `{"a":1,"a":2}`, `{"a":{"b":{"c":[[]]}}}`, " { \"a\" : [ ] } ", `"\ud800"`, `{"a":"\"}"}`} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		fault := Check(data, Strict)
		if fault != nil {
			return
		}
		if !json.Valid(data) || !utf8.Valid(data) {
			t.Fatalf("passes %q", data)
		}
		decoder := json.NewDecoder(bytes.NewReader(data))
		decoder.UseNumber()
		var want any
		if err := decoder.Decode(&want); err != nil {
			t.Fatal(err)
		}
		sameValue(t, Document(data), want)
	})
}

func sameValue(t *testing.T, v Value, want any) {
	switch w := want.(type) {
	case map[string]any:
		n := 0
		for name, value := range v.Members() {
			n++
			below, ok := w[string(name)]
			if !ok {
				t.Fatalf("a member %q that is not there in %q", name, v)
			}
			sameValue(t, value, below)
		}
		if n != len(w) || !v.IsObject() {
			t.Fatalf("%d members of %d in %q", n, len(w), v)
		}
	case []any:
		i := 0
		for item := range v.Items() {
			sameValue(t, item, w[i])
			i++
		}
		if i != len(w) || !v.IsArray() {
			t.Fatalf("%d items of %d in %q", i, len(w), v)
		}
	case string:
		if text, ok := v.Text(); !ok || text != w {
			t.Fatalf("%q is read as %q, want %q", v, text, w)
		}
	case json.Number:
		if string(v) != w.String() {
			t.Fatalf("%q is read, want %q", v, w)
		}
		n, ok := v.Integer()
		if exact, err := w.Int64(); ok != (err == nil) || ok && n != exact {
			t.Fatalf("%q is read as %d, %v", v, n, ok)
		}
	case bool:
		if b, ok := v.Boolean(); !ok || b != w {
			t.Fatalf("%q is read as %v, %v", v, b, ok)
		}
	case nil:
		if !v.IsNull() {
			t.Fatalf("%q is not read as null", v)
		}
	}
}
