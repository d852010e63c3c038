package httpapi

import (
	"bytes"
	"iter"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// value is one JSON value inside a document that checkJSON passed, without
// space around it. Its methods rely on that and check meaning only. It lends
// the document's bytes: what is kept must be copied.
type value []byte

// document answers the value that a checked document consists of.
func document(data []byte) value { return value(bytes.Trim(data, " \t\r\n")) }

func (v value) isObject() bool { return v[0] == '{' }
func (v value) isArray() bool  { return v[0] == '[' }
func (v value) isNull() bool   { return v[0] == 'n' }

// members goes through an object's members in their order. Names are unquoted.
func (v value) members() iter.Seq2[[]byte, value] {
	return func(yield func([]byte, value) bool) {
		for rest := next(v[1:]); rest[0] != '}'; {
			n := extent(rest)
			name := unquote(rest[:n])
			rest = next(rest[n:])
			n = extent(rest)
			if !yield(name, value(rest[:n])) {
				return
			}
			rest = next(rest[n:])
		}
	}
}

// items goes through an array's values in their order.
func (v value) items() iter.Seq[value] {
	return func(yield func(value) bool) {
		for rest := next(v[1:]); rest[0] != ']'; {
			n := extent(rest)
			if !yield(value(rest[:n])) {
				return
			}
			rest = next(rest[n:])
		}
	}
}

// next skips to the next token that is not punctuation between values.
func next(b []byte) []byte {
	for isSpace(b[0]) || b[0] == ',' || b[0] == ':' {
		b = b[1:]
	}
	return b
}

// extent answers how many bytes the value at the beginning of b takes.
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

// textExtent answers the length of the quoted text at the beginning of b.
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

// text answers a string's characters; ok is false when v is no string.
func (v value) text() (text string, ok bool) {
	if v[0] != '"' {
		return "", false
	}
	return string(unquote(v)), true
}

// integer answers a number without fraction and exponent that fits int64.
func (v value) integer() (n int64, ok bool) {
	if v[0] == '"' {
		return 0, false
	}
	n, err := strconv.ParseInt(string(v), 10, 64)
	return n, err == nil
}

// boolean answers true or false.
func (v value) boolean() (b, ok bool) { return v[0] == 't', v[0] == 't' || v[0] == 'f' }

// unquote answers the characters of a quoted text, in place when it has no
// escapes.
func unquote(quoted []byte) []byte {
	body := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(body, '\\') < 0 {
		return body
	}
	plain := make([]byte, 0, len(body))
	for i := 0; i < len(body); i++ {
		if body[i] != '\\' {
			plain = append(plain, body[i])
			continue
		}
		i++
		switch body[i] {
		case 'b':
			plain = append(plain, '\b')
		case 'f':
			plain = append(plain, '\f')
		case 'n':
			plain = append(plain, '\n')
		case 'r':
			plain = append(plain, '\r')
		case 't':
			plain = append(plain, '\t')
		case 'u':
			r, _ := hexRune(body[i-1:])
			i += 4
			if utf16.IsSurrogate(r) {
				low, _ := hexRune(body[i+1:])
				r = utf16.DecodeRune(r, low)
				i += 6
			}
			plain = utf8.AppendRune(plain, r)
		default: // quote, backslash, slash
			plain = append(plain, body[i])
		}
	}
	return plain
}
