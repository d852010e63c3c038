package httpapi

import (
	"bytes"
	"fmt"
	"unicode/utf16"
	"unicode/utf8"
)

// maxDepth bounds nesting; the deepest body that has a meaning has five levels.
const maxDepth = 16

// fewMembers is up to how many members an object's names are compared one by
// one; beyond, they go into a map, so that a body full of names stays linear.
const fewMembers = 16

// jsonFault says why a body is not one strict JSON document.
type jsonFault struct {
	at     int    // byte offset
	reason string // completes "the body is not valid JSON: …"
	field  string // the member, for a duplicate
}

func (f *jsonFault) Error() string { return fmt.Sprintf("%s at byte %d", f.reason, f.at) }

// checker walks a document once and finds everything that the strict reader
// refuses whatever it means: bad syntax, bad UTF-8, duplicate members at any
// depth, too deep nesting, bytes after the document. Reading values can then
// rely on all that (see value).
type checker struct {
	data    []byte
	at      int
	repeats bool // members may be given twice
}

// checkJSON reports a fault, or nil when data is exactly one JSON value.
func checkJSON(data []byte) *jsonFault { return (&checker{data: data}).document() }

// checkLooseJSON is checkJSON but for members given twice, which it lets pass.
func checkLooseJSON(data []byte) *jsonFault {
	return (&checker{data: data, repeats: true}).document()
}

func (c *checker) document() *jsonFault {
	if !utf8.Valid(c.data) {
		return &jsonFault{reason: "text that is not UTF-8"}
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

func (c *checker) fault(reason string) *jsonFault { return &jsonFault{at: c.at, reason: reason} }

func (c *checker) space() {
	for c.at < len(c.data) && isSpace(c.data[c.at]) {
		c.at++
	}
}

func isSpace(b byte) bool { return b == ' ' || b == '\t' || b == '\n' || b == '\r' }

// peek answers the next byte after white space, 0 at the end.
func (c *checker) peek() byte {
	c.space()
	if c.at == len(c.data) {
		return 0
	}
	return c.data[c.at]
}

func (c *checker) value(depth int) *jsonFault {
	if depth > maxDepth {
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

func (c *checker) array(depth int) *jsonFault {
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

func (c *checker) object(depth int) *jsonFault {
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

func (c *checker) member(names *nameSet, depth int) *jsonFault {
	if c.peek() != '"' {
		return c.fault("a member's name is missing")
	}
	start := c.at
	if f := c.string(); f != nil {
		return f
	}
	name := unquote(c.data[start:c.at])
	if !names.add(name) && !c.repeats {
		return &jsonFault{at: start, reason: "a member given twice", field: string(name)}
	}
	if c.peek() != ':' {
		return c.fault("a colon is missing")
	}
	c.at++
	return c.value(depth + 1)
}

// nameSet holds the names of one object.
type nameSet struct {
	few  [fewMembers][]byte
	n    int
	many map[string]bool
}

// add reports whether a name is new.
func (s *nameSet) add(name []byte) bool {
	if s.many != nil {
		known := s.many[string(name)]
		s.many[string(name)] = true
		return !known
	}
	for _, other := range s.few[:s.n] {
		if bytes.Equal(other, name) {
			return false
		}
	}
	if s.n < fewMembers {
		s.few[s.n] = name
		s.n++
		return true
	}
	s.many = make(map[string]bool, 4*fewMembers)
	for _, other := range s.few {
		s.many[string(other)] = true
	}
	s.many[string(name)] = true
	return true
}

func (c *checker) string() *jsonFault {
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

// escape takes one escape sequence. Half of a surrogate pair is refused: it is
// no character, and would become another name than the one that was sent.
func (c *checker) escape() *jsonFault {
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

// hexRune reads \uXXXX.
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

// number takes a number of JSON's grammar; whether it is an integer in range
// is asked when it is read.
func (c *checker) number() *jsonFault {
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
