package httpapi

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// serdeReader reads a body as throttle's JSON library (serde_json, told of by
// serde_path_to_error) does: in one pass, value by value, so that the first thing
// that is wrong is what it tells, in that library's words and with its positions.
// The strict reader of /v1 would refuse other things, and in another order.
type serdeReader struct {
	data []byte
	at   int
	path []string // the members around what is being read
}

// serdeFault says why a body could not be read.
type serdeFault struct {
	text   string
	syntax bool // no JSON at all, rather than JSON of another shape
}

// fault tells what is wrong at an offset: how many bytes were read up to there.
func (r *serdeReader) fault(offset int, syntax bool, what string) *serdeFault {
	before := r.data[:min(offset, len(r.data))]
	line := 1 + bytes.Count(before, []byte("\n"))
	column := len(before) - (bytes.LastIndexByte(before, '\n') + 1)
	text := fmt.Sprintf("%s at line %d column %d", what, line, column)
	if len(r.path) > 0 {
		text = strings.Join(r.path, ".") + ": " + text
	}
	return &serdeFault{text, syntax}
}

// broken reports a syntax error at what was read last, unexpected one at what
// comes next.
func (r *serdeReader) broken(what string) *serdeFault     { return r.fault(r.at, true, what) }
func (r *serdeReader) unexpected(what string) *serdeFault { return r.fault(r.at+1, true, what) }

// misfit reports a value of the wrong shape, which has been read.
func (r *serdeReader) misfit(what string) *serdeFault { return r.fault(r.at, false, what) }

// inKey tells an error in a member's name, which has none yet.
func (r *serdeReader) inKey(read func() *serdeFault) *serdeFault {
	if len(r.path) == 0 {
		return read()
	}
	r.path = append(r.path, "?")
	defer r.leave()
	return read()
}

func (r *serdeReader) leave() { r.path = r.path[:len(r.path)-1] }

const (
	eofValue  = "EOF while parsing a value"
	eofObject = "EOF while parsing an object"
	eofList   = "EOF while parsing a list"
	eofText   = "EOF while parsing a string"

	expectedValue = "expected value"
	invalidNumber = "invalid number"
)

// peek answers the next byte; ok is false at the end.
func (r *serdeReader) peek() (b byte, ok bool) {
	if r.at >= len(r.data) {
		return 0, false
	}
	return r.data[r.at], true
}

// token is peek behind white space.
func (r *serdeReader) token() (b byte, ok bool) {
	for r.at < len(r.data) && isSpace(r.data[r.at]) {
		r.at++
	}
	return r.peek()
}

func (r *serdeReader) nextIsDigit() bool {
	b, ok := r.peek()
	return ok && b >= '0' && b <= '9'
}

// end reports whatever follows the document.
func (r *serdeReader) end() *serdeFault {
	if _, more := r.token(); more {
		return r.unexpected("trailing characters")
	}
	return nil
}

// word takes the rest of null, true or false.
func (r *serdeReader) word(rest string) *serdeFault {
	for i := range len(rest) {
		b, ok := r.peek()
		if !ok {
			return r.broken(eofValue)
		}
		r.at++
		if b != rest[i] {
			return r.broken("expected ident")
		}
	}
	return nil
}

// otherType says that there is a value of another type than expected; it is read
// up to where that shows.
func (r *serdeReader) otherType(expected string) *serdeFault {
	b, _ := r.peek()
	found := ""
	var f *serdeFault
	switch {
	case b == 'n':
		r.at++
		found, f = "null", r.word("ull")
	case b == 't':
		r.at++
		found, f = "boolean `true`", r.word("rue")
	case b == 'f':
		r.at++
		found, f = "boolean `false`", r.word("alse")
	case b == '-' || b >= '0' && b <= '9':
		var n serdeNumber
		n, f = r.number()
		found = n.String()
	case b == '"':
		r.at++
		var text string
		text, f = r.text()
		found = "string " + rustQuote(text)
	case b == '[':
		found = "sequence"
	case b == '{':
		found = "map"
	default:
		return r.unexpected(expectedValue)
	}
	if f != nil {
		return f
	}
	return r.misfit("invalid type: " + found + ", expected " + expected)
}

// serdeNumber is a number as that library keeps it: an integer of 64 bits if it
// is written as one and fits, else a float.
type serdeNumber struct {
	float    bool
	value    float64
	negative bool
	size     uint64 // without the sign
}

// String tells it as an error does.
func (n serdeNumber) String() string {
	switch {
	case n.float:
		return "floating point `" + rustFloat(n.value) + "`"
	case n.negative:
		return "integer `-" + strconv.FormatUint(n.size, 10) + "`"
	}
	return "integer `" + strconv.FormatUint(n.size, 10) + "`"
}

// number reads a number, of which the first byte was seen.
func (r *serdeReader) number() (n serdeNumber, f *serdeFault) {
	start := r.at
	if r.data[r.at] == '-' {
		n.negative = true
		r.at++
	}
	integer := r.at
	if f = r.integerPart(); f != nil {
		return n, f
	}
	var err error
	if b, _ := r.peek(); b == '.' || b == 'e' || b == 'E' {
		n.float = true
		if f = r.fractionPart(); f != nil {
			return n, f
		}
	} else if n.size, err = strconv.ParseUint(string(r.data[integer:r.at]), 10, 64); err != nil ||
		n.negative && (n.size == 0 || n.size > 1<<63) {
		n.float = true
	}
	if n.float {
		if n.value, err = strconv.ParseFloat(string(r.data[start:r.at]), 64); err != nil {
			return n, r.broken("number out of range")
		}
	}
	return n, nil
}

func (r *serdeReader) integerPart() *serdeFault {
	b, ok := r.peek()
	if !ok {
		return r.broken(eofValue)
	}
	r.at++
	switch {
	case b == '0':
		if r.nextIsDigit() {
			return r.unexpected(invalidNumber)
		}
	case b >= '1' && b <= '9':
		for r.nextIsDigit() {
			r.at++
		}
	default:
		return r.broken(invalidNumber)
	}
	return nil
}

func (r *serdeReader) fractionPart() *serdeFault {
	if b, _ := r.peek(); b == '.' {
		r.at++
		if _, more := r.peek(); !more {
			return r.unexpected(eofValue)
		}
		if !r.nextIsDigit() {
			return r.unexpected(invalidNumber)
		}
		for r.nextIsDigit() {
			r.at++
		}
	}
	if b, _ := r.peek(); b != 'e' && b != 'E' {
		return nil
	}
	r.at++
	if b, _ := r.peek(); b == '+' || b == '-' {
		r.at++
	}
	b, ok := r.peek()
	if !ok {
		return r.broken(eofValue)
	}
	r.at++
	if b < '0' || b > '9' {
		return r.broken(invalidNumber)
	}
	for r.nextIsDigit() {
		r.at++
	}
	return nil
}

// integer reads a number of which the type is i64 or u64.
func (r *serdeReader) integer(expected string) (n serdeNumber, f *serdeFault) {
	b, ok := r.token()
	if !ok {
		return n, r.unexpected(eofValue)
	}
	if b != '-' && (b < '0' || b > '9') {
		return n, r.otherType(expected)
	}
	if n, f = r.number(); f != nil {
		return n, f
	}
	if n.float {
		return n, r.misfit("invalid type: " + n.String() + ", expected " + expected)
	}
	return n, nil
}

func (r *serdeReader) signed() (int64, *serdeFault) {
	n, f := r.integer("i64")
	if f == nil && !n.negative && n.size > math.MaxInt64 {
		f = r.misfit("invalid value: " + n.String() + ", expected i64")
	}
	if n.negative {
		return -int64(n.size), f // also of 2^63, which is its own complement
	}
	return int64(n.size), f
}

func (r *serdeReader) unsigned() (uint64, *serdeFault) {
	n, f := r.integer("u64")
	if f == nil && n.negative {
		f = r.misfit("invalid value: " + n.String() + ", expected u64")
	}
	return n.size, f
}

// duration reads a text that parseSpan takes.
func (r *serdeReader) duration() (ms int64, f *serdeFault) {
	b, ok := r.token()
	if !ok {
		return 0, r.unexpected(eofValue)
	}
	if b != '"' {
		return 0, r.otherType("a duration")
	}
	r.at++
	text, f := r.text()
	if f != nil {
		return 0, f
	}
	if ms, ok = parseSpan(text); !ok {
		return 0, r.misfit(noDuration(text))
	}
	return ms, nil
}

func noDuration(text string) string {
	return "invalid value: string " + rustQuote(text) + ", expected a duration"
}
