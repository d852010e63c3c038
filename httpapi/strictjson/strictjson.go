package strictjson

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// Rules bound a document beyond JSON's grammar.
type Rules struct {
	Depth   int  // the most levels of nesting
	Repeats bool // an object may have several members of one name
}

var (
	// Strict is for the native API, whose deepest body has five levels.
	Strict = Rules{Depth: 16}
	// Loose is for clients that were written for another service.
	Loose = Rules{Depth: 16, Repeats: true}
)

// fewMembers is the largest number of names that are compared one by one. The names
// of a larger object go into a map, so that a body full of names takes linear time.
const fewMembers = 16

// Fault is the first place where a document breaks the grammar or the rules.
type Fault struct {
	At     int    // byte offset
	Reason string // completes "the body is not valid JSON: …"
	Field  string // the name of a member given twice; "" for other faults
}

// Error returns the reason and the offset.
func (f *Fault) Error() string { return fmt.Sprintf("%s at byte %d", f.Reason, f.At) }

// checker walks a document once. It finds bad syntax, bad UTF-8, duplicate members
// at any depth, too deep nesting, and bytes after the document.
type checker struct {
	Rules
	data []byte
	at   int
}

// Check returns the first fault of a document, or nil if data is exactly one JSON
// value that keeps the rules. It takes linear time.
func Check(data []byte, r Rules) *Fault { return (&checker{Rules: r, data: data}).document() }

func (c *checker) document() *Fault {
	if !utf8.Valid(c.data) {
		return &Fault{Reason: "text that is not UTF-8"}
	}
	if f := c.value(0); f != nil {
		return f
	}
	c.space()
	if c.at != len(c.data) {
		return c.fault("something after the document")
	}
	return nil
}

func (c *checker) fault(reason string) *Fault { return &Fault{At: c.at, Reason: reason} }

func (c *checker) space() {
	c.at = len(c.data) - len(bytes.TrimLeft(c.data[c.at:], space))
}

// peek returns the next byte after white space, 0 at the end.
func (c *checker) peek() byte {
	c.space()
	if c.at == len(c.data) {
		return 0
	}
	return c.data[c.at]
}

func (c *checker) value(depth int) *Fault {
	if depth > c.Depth {
		return c.fault("too many levels")
	}
	switch b := c.peek(); {
	case b == '{':
		return c.object(depth)
	case b == '[':
		return c.array(depth)
	case b == '"':
		return c.string()
	case b == '-' || b >= '0' && b <= '9':
		return c.number()
	}
	for _, word := range []string{"true", "false", "null"} {
		if bytes.HasPrefix(c.data[c.at:], []byte(word)) {
			c.at += len(word)
			return nil
		}
	}
	if c.at == len(c.data) {
		return c.fault("it ends too early")
	}
	return c.fault("an unexpected character")
}

func (c *checker) array(depth int) *Fault {
	c.at++
	if c.peek() == ']' {
		c.at++
		return nil
	}
	for {
		if f := c.value(depth + 1); f != nil {
			return f
		}
		switch c.peek() {
		case ',':
			c.at++
		case ']':
			c.at++
			return nil
		default:
			return c.fault("a comma or ] is missing")
		}
	}
}

func (c *checker) object(depth int) *Fault {
	c.at++
	if c.peek() == '}' {
		c.at++
		return nil
	}
	var names nameSet
	for {
		if f := c.member(&names, depth); f != nil {
			return f
		}
		switch c.peek() {
		case ',':
			c.at++
		case '}':
			c.at++
			return nil
		default:
			return c.fault("a comma or } is missing")
		}
	}
}

func (c *checker) member(names *nameSet, depth int) *Fault {
	if c.peek() != '"' {
		return c.fault("a member's name is missing")
	}
	start := c.at
	if f := c.string(); f != nil {
		return f
	}
	name := unquote(c.data[start:c.at])
	if !names.add(name) && !c.Repeats {
		return &Fault{At: start, Reason: "a member given twice", Field: string(name)}
	}
	if c.peek() != ':' {
		return c.fault("a colon is missing")
	}
	c.at++
	return c.value(depth + 1)
}

// nameSet is the set of member names of one object.
type nameSet struct {
	few  [][]byte
	many map[string]bool
}

// add adds a name and reports whether it is new.
func (s *nameSet) add(name []byte) bool {
	if s.many != nil {
		known := s.many[string(name)]
		s.many[string(name)] = true
		return !known
	}
	for _, other := range s.few {
		if bytes.Equal(other, name) {
			return false
		}
	}
	if s.few = append(s.few, name); len(s.few) > fewMembers {
		s.many = make(map[string]bool, 4*fewMembers)
		for _, other := range s.few {
			s.many[string(other)] = true
		}
	}
	return true
}

func (c *checker) string() *Fault {
	c.at++
	for c.at < len(c.data) {
		switch b := c.data[c.at]; {
		case b == '"':
			c.at++
			return nil
		case b < ' ':
			return c.fault("a control character in a text")
		case b == '\\':
			if f := c.escape(); f != nil {
				return f
			}
		default:
			c.at++
		}
	}
	return c.fault("it ends inside a text")
}

// escape reads one escape sequence. It refuses half of a surrogate pair: that is not
// a character, and replacing it would give another name than the client sent.
func (c *checker) escape() *Fault {
	rest := c.data[c.at:]
	if len(rest) < 2 {
		return c.fault("it ends inside a text")
	}
	if rest[1] != 'u' {
		if !bytes.ContainsRune([]byte(`"\/bfnrt`), rune(rest[1])) {
			return c.fault("an unknown escape")
		}
		c.at += 2
		return nil
	}
	r, ok := hexRune(rest)
	if !ok {
		return c.fault("a bad \\u escape")
	}
	c.at += 6
	if !utf16.IsSurrogate(r) {
		return nil
	}
	low, ok := hexRune(c.data[c.at:])
	if !ok || utf16.DecodeRune(r, low) == utf8.RuneError {
		return c.fault("half of a surrogate pair")
	}
	c.at += 6
	return nil
}

// hexRune reads the four hexadecimal digits of an escape.
func hexRune(b []byte) (rune, bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	var r rune
	for _, digit := range b[2:6] {
		switch {
		case digit >= '0' && digit <= '9':
			r = r<<4 | rune(digit-'0')
		case digit|0x20 >= 'a' && digit|0x20 <= 'f':
			r = r<<4 | rune(digit|0x20-'a'+10)
		default:
			return 0, false
		}
	}
	return r, true
}

// number reads a number of JSON's grammar. Value.Integer checks its range later.
func (c *checker) number() *Fault {
	if c.data[c.at] == '-' {
		c.at++
	}
	if c.at < len(c.data) && c.data[c.at] == '0' {
		c.at++
	} else if !c.digits() {
		return c.fault("a bad number")
	}
	if c.at < len(c.data) && c.data[c.at] == '.' {
		c.at++
		if !c.digits() {
			return c.fault("a bad number")
		}
	}
	if c.at < len(c.data) && c.data[c.at]|0x20 == 'e' {
		c.at++
		if c.at < len(c.data) && (c.data[c.at] == '+' || c.data[c.at] == '-') {
			c.at++
		}
		if !c.digits() {
			return c.fault("a bad number")
		}
	}
	return nil
}

func (c *checker) digits() bool {
	start := c.at
	for c.at < len(c.data) && c.data[c.at] >= '0' && c.data[c.at] <= '9' {
		c.at++
	}
	return c.at > start
}

// Value is one JSON value of a document that Check passed, without the space around
// it. It shares the document's bytes: a caller that keeps them must copy them.
type Value []byte

// Document returns the value that a checked document consists of.
func Document(data []byte) Value { return Value(bytes.Trim(data, space)) }

// IsObject reports whether v is an object.
func (v Value) IsObject() bool { return v[0] == '{' }

// IsArray reports whether v is an array.
func (v Value) IsArray() bool { return v[0] == '[' }

// IsNull reports whether v is null.
func (v Value) IsNull() bool { return v[0] == 'n' }

// Members iterates over an object's members in their order. Names are unquoted.
func (v Value) Members() iter.Seq2[[]byte, Value] {
	return func(yield func([]byte, Value) bool) {
		for rest := next(v[1:]); rest[0] != '}'; {
			n := extent(rest)
			name := unquote(rest[:n])
			rest = next(rest[n:])
			n = extent(rest)
			if !yield(name, Value(rest[:n])) {
				return
			}
			rest = next(rest[n:])
		}
	}
}

// Items iterates over an array's values in their order.
func (v Value) Items() iter.Seq[Value] {
	return func(yield func(Value) bool) {
		for rest := next(v[1:]); rest[0] != ']'; {
			n := extent(rest)
			if !yield(Value(rest[:n])) {
				return
			}
			rest = next(rest[n:])
		}
	}
}

// space is what JSON allows between its tokens.
const space = " \t\r\n"

// next skips white space and the punctuation between values.
func next(b []byte) []byte { return bytes.TrimLeft(b, space+",:") }

// extent returns the length in bytes of the value at the beginning of b.
func extent(b []byte) int {
	depth := 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			i += textExtent(b[i:]) - 1
			if depth == 0 {
				return i + 1
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth < 0 {
				return i // a number or word that ends its object
			} else if depth == 0 {
				return i + 1
			}
		case ',', ' ', '\t', '\r', '\n':
			if depth == 0 {
				return i
			}
		}
	}
	return len(b)
}

// textExtent returns the length of the quoted text at the beginning of b.
func textExtent(b []byte) int {
	for i := 1; ; i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
}

// Text returns the characters of a string; ok is false if v is not a string.
func (v Value) Text() (text string, ok bool) {
	if v[0] != '"' {
		return "", false
	}
	return string(unquote(v)), true
}

// Integer returns a number; ok is false if v is not a number, has a fraction or an
// exponent, or does not fit int64.
func (v Value) Integer() (n int64, ok bool) {
	if v[0] == '"' {
		return 0, false
	}
	n, err := strconv.ParseInt(string(v), 10, 64)
	return n, err == nil
}

// Boolean returns true or false; ok is false if v is neither.
func (v Value) Boolean() (b, ok bool) { return v[0] == 't', v[0] == 't' || v[0] == 'f' }

// unquote returns the characters of a quoted text. Without escapes they are the
// document's own bytes.
func unquote(quoted []byte) []byte {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return quoted[1 : len(quoted)-1]
	}
	var plain string
	_ = json.Unmarshal(quoted, &plain) // the document was checked
	return []byte(plain)
}
