package httpapi

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// text reads a quoted text behind its first quote.
func (r *serdeReader) text() (string, *serdeFault) {
	var plain []byte
	start := r.at
	for {
		for r.at < len(r.data) && r.data[r.at] != '"' && r.data[r.at] != '\\' && r.data[r.at] >= ' ' {
			r.at++
		}
		if r.at == len(r.data) {
			return "", r.broken(eofText)
		}
		plain = append(plain, r.data[start:r.at]...)
		b := r.data[r.at]
		r.at++
		switch b {
		case '"':
			if !utf8.Valid(plain) {
				return "", r.broken("invalid unicode code point")
			}
			return string(plain), nil
		case '\\':
			c, f := r.escape()
			if f != nil {
				return "", f
			}
			plain = utf8.AppendRune(plain, c)
		default:
			return "", r.broken("control character (\\u0000-\\u001F) found while parsing a string")
		}
		start = r.at
	}
}

// escapes are the characters after a backslash, and what they stand for.
const (
	escapes = `"\/bfnrt`
	escaped = "\"\\/\b\f\n\r\t"
)

// escape reads an escape behind its backslash.
func (r *serdeReader) escape() (rune, *serdeFault) {
	b, ok := r.peek()
	if !ok {
		return 0, r.broken(eofText)
	}
	r.at++
	if i := strings.IndexByte(escapes, b); i >= 0 {
		return rune(escaped[i]), nil
	}
	if b != 'u' {
		return 0, r.broken("invalid escape")
	}
	c, f := r.hex()
	if f != nil || !utf16.IsSurrogate(c) {
		return c, f
	}
	if c >= 0xDC00 {
		return 0, r.broken("lone leading surrogate in hex escape")
	}
	for _, needed := range []byte(`\u`) {
		b, ok := r.peek()
		if !ok {
			return 0, r.broken(eofText)
		}
		r.at++
		if b != needed {
			return 0, r.broken("unexpected end of hex escape")
		}
	}
	low, f := r.hex()
	if f != nil {
		return 0, f
	}
	if low < 0xDC00 || low > 0xDFFF {
		return 0, r.broken("lone leading surrogate in hex escape")
	}
	return utf16.DecodeRune(c, low), nil
}

// hex reads four hexadecimal digits.
func (r *serdeReader) hex() (rune, *serdeFault) {
	if len(r.data)-r.at < 4 {
		r.at = len(r.data)
		return 0, r.broken(eofText)
	}
	c, ok := hexRune(append([]byte(`\u`), r.data[r.at:r.at+4]...))
	r.at += 4
	if !ok {
		return 0, r.broken("invalid escape")
	}
	return c, nil
}

// skipText passes over a text behind its first quote. It may hold anything but
// control characters.
func (r *serdeReader) skipText() *serdeFault {
	for {
		b, ok := r.peek()
		switch {
		case !ok:
			return r.broken(eofText)
		case b == '"':
			r.at++
			return nil
		case b < ' ':
			return r.broken("control character (\\u0000-\\u001F) found while parsing a string")
		}
		r.at++
		if b != '\\' {
			continue
		}
		if b, ok = r.peek(); !ok {
			return r.broken(eofText)
		}
		r.at++
		if b == 'u' {
			if _, f := r.hex(); f != nil {
				return f
			}
		} else if strings.IndexByte(escapes, b) < 0 {
			return r.broken("invalid escape")
		}
	}
}

// rustQuote quotes a text as Rust's Debug does, which is in the errors.
func rustQuote(text string) string {
	var out strings.Builder
	out.WriteByte('"')
	for _, c := range text {
		switch {
		case c == '"' || c == '\\':
			out.WriteByte('\\')
			out.WriteRune(c)
		case c == '\n':
			out.WriteString(`\n`)
		case c == '\r':
			out.WriteString(`\r`)
		case c == '\t':
			out.WriteString(`\t`)
		case c == 0:
			out.WriteString(`\0`)
		case unicode.IsPrint(c):
			out.WriteRune(c)
		default:
			out.WriteString(`\u{` + strconv.FormatInt(int64(c), 16) + "}")
		}
	}
	out.WriteByte('"')
	return out.String()
}

// rustFloat writes the shortest digits that mean a float, the point always
// there: 1.0, 0.001, 1e16, 1.5e-7.
func rustFloat(f float64) string {
	if f == 0 {
		return strconv.FormatFloat(f, 'f', 1, 64)
	}
	shortest := strconv.FormatFloat(f, 'e', -1, 64)
	mantissa, exponentText, _ := strings.Cut(shortest, "e")
	exponent, _ := strconv.Atoi(exponentText) // FormatFloat wrote it
	if exponent < -5 || exponent > 15 {
		return mantissa + "e" + strconv.Itoa(exponent)
	}
	text := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(text, ".") {
		text += ".0"
	}
	return text
}
