package strictjson

import (
	"math"
	"strings"
	"testing"
)

func TestFaults(t *testing.T) {
	deep := strings.Repeat("[", Strict.Depth) + "1" + strings.Repeat("]", Strict.Depth)
	many := strings.Repeat(`"a":1,`, 1)
	for i := range 2 * fewMembers {
		many += `"` + strings.Repeat("b", i+1) + `":1,`
	}
	for _, c := range []struct{ doc, reason string }{
		{`{"a":[1,-0,2e5,"\u00e9\ud83d\ude00",true,false,null,{}]}`, ""},
		{deep, ""},
		{"[" + deep + "]", "too many levels"},
		{`{` + many + `"c":1}`, ""},
		{`{` + many + `"a":1}`, "a member given twice"},
		{`{"a":1,"\u0061":1}`, "a member given twice"},
		{`{"a":{"b":1},"b":1}`, ""},
		{"\"\xff\"", "text that is not UTF-8"},
		{"\"\xc3\"", "text that is not UTF-8"},
		{`"\ud83d"`, "half of a surrogate pair"},
		{`"\ud83dx"`, "half of a surrogate pair"},
		{`"\ude00"`, "half of a surrogate pair"},
		{`"\ude00\ud83d"`, "half of a surrogate pair"},
		{`"\ud83d\u0041"`, "half of a surrogate pair"},
		{`"\u12"`, `a bad \u escape`},
		{`"\q"`, "an unknown escape"},
		{"\"a\nb\"", "a control character in a text"},
		{`"a`, "it ends inside a text"},
		{`"a\`, "it ends inside a text"},
		{`{}{}`, "something after the document"},
		{`01`, "something after the document"},
		{`-`, "a bad number"},
		{`1.`, "a bad number"},
		{`1e`, "a bad number"},
		{``, "it ends too early"},
		{`[1`, "a comma or ] is missing"},
		{`{"a":1 "b":2}`, "a comma or } is missing"},
		{`{"a" 1}`, "a colon is missing"},
		{`{1:2}`, "a member's name is missing"},
		{`[,]`, "an unexpected character"},
		{`nul`, "an unexpected character"},
	} {
		got := ""
		if fault := Check([]byte(c.doc), Strict); fault != nil {
			got = fault.Reason
		}
		if got != c.reason {
			t.Errorf("%.60q: %q, want %q", c.doc, got, c.reason)
		}
	}
}

func TestFaultsSayWhere(t *testing.T) {
	for _, c := range []struct {
		doc string
		at  int
	}{{``, 0}, {`{"a":x}`, 5}, {`{"a":1,"a":2}`, 7}, {`["b","\ud800"]`, 12}, {strings.Repeat("[", 17) + "1", 17}} {
		if fault := Check([]byte(c.doc), Strict); fault == nil || fault.At != c.at {
			t.Errorf("%s: %v, want byte %d", c.doc, fault, c.at)
		}
	}
}

func TestLooseRules(t *testing.T) {
	if fault := Check([]byte(`{"a":1,"b":{"c":1,"c":2},"a":3}`), Loose); fault != nil {
		t.Errorf("repeated members: %v", fault)
	}
	if fault := Check([]byte(`[[[1]]]`), Rules{Depth: 2}); fault == nil || fault.Reason != "too many levels" {
		t.Errorf("three levels: %v", fault)
	}
	if fault := Check([]byte(`{"a":1}x`), Loose); fault == nil {
		t.Error("bytes after the document pass")
	}
}

// TestIntegers: a number is one of int64, written without fraction and exponent. No other is rounded.
func TestIntegers(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "-0": 0, "7": 7, "-12": -12, "9223372036854775807": math.MaxInt64, "-9223372036854775808": math.MinInt64} {
		if got, ok := Value(text).Integer(); !ok || got != want {
			t.Errorf("%s is read as %d, %v", text, got, ok)
		}
	}
	for _, text := range []string{"1.5", "1.0", "-0.5", "1e3", "1E0", "9223372036854775808", "-9223372036854775809", `"1"`, "true", "null", "[1]", "{}"} {
		if got, ok := Value(text).Integer(); ok {
			t.Errorf("%s is read as %d", text, got)
		}
	}
}
