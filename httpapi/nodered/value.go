package nodered

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"unicode"

	"github.com/signalbox/signalbox/httpapi/exchange"
	"github.com/signalbox/signalbox/httpapi/strictjson"
)

// The refusals of a value.
var (
	errNegativeValue = exchange.Sentence(http.StatusBadRequest, "Value needs to be positive")
	errLargeValue    = exchange.Sentence(http.StatusBadRequest, "Value needs to be at most 9223372036854775807")
	errNoValue       = exchange.Sentence(http.StatusBadRequest, "Value needs to be a number")
)

// value reads the value of a create: the integer part of a number, the number that JavaScript's
// parseInt finds at the beginning of a text, or the first member of a list.
func (b object) value() (int64, error) { return readInitial(b.member("value")) }

func readInitial(v strictjson.Value) (int64, error) {
	if v.IsArray() {
		for first := range v.Items() {
			return readInitial(first)
		}
		return 0, errNoValue
	}
	if text, ok := v.Text(); ok {
		return parseInt(text)
	}
	if v[0] == '-' || v[0] >= '0' && v[0] <= '9' {
		return wholePart(string(v))
	}
	return 0, errNoValue
}

// wholePart returns the integer part of a JSON number, exactly.
func wholePart(number string) (int64, error) {
	plain, negative := strings.CutPrefix(number, "-")
	mantissa, exponent := plain, 0
	if e := strings.IndexAny(plain, "eE"); e >= 0 {
		mantissa = plain[:e]
		exponent = saturated(plain[e+1:])
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	// point is how many of the digits are before the decimal point.
	point := len(whole) + exponent - (len(whole) + len(fraction) - len(digits))
	switch {
	case digits == "":
		return 0, nil
	case negative:
		return 0, errNegativeValue
	case point <= 0:
		return 0, nil
	case point > 19:
		return 0, errLargeValue
	}
	return atMost63Bits((digits + strings.Repeat("0", 19))[:point])
}

// saturated reads an exponent, and limits it to ±2^30. No body is that long, so the limit does not change the result,
// and the sum of exponent and length does not overflow.
func saturated(text string) int {
	const largest = 1 << 30
	n, err := strconv.Atoi(text)
	switch {
	case err == nil:
		return max(-largest, min(n, largest))
	case strings.HasPrefix(text, "-"):
		return -largest
	}
	return largest
}

func atMost63Bits(digits string) (int64, error) {
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || n > math.MaxInt64 {
		return 0, errLargeValue
	}
	return int64(n), nil
}

// parseInt reads the digits at the beginning of a text, as JavaScript's parseInt(text, 10) does. It refuses a negative
// result, and a text that is a number below 0, such as "-0.5", which JavaScript would read as 0; both with
// errNegativeValue.
func parseInt(text string) (int64, error) {
	text = strings.TrimFunc(text, isJavaScriptSpace)
	rest, negative := strings.CutPrefix(text, "-")
	if !negative {
		rest = strings.TrimPrefix(rest, "+")
	}
	end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		end = len(rest)
	}
	digits := strings.TrimLeft(rest[:end], "0")
	switch {
	case negative && (digits != "" || belowZero(text)):
		return 0, errNegativeValue
	case end == 0:
		return 0, errNoValue
	case digits == "":
		return 0, nil
	}
	return atMost63Bits(digits)
}

// belowZero reports whether the whole text is a decimal number below 0.
func belowZero(text string) bool {
	if strings.Trim(text, "0123456789.eE+-") != "" {
		return false
	}
	f, _ := strconv.ParseFloat(text, 64) // 0 for other texts; -Inf beyond the range
	return f < 0
}

func isJavaScriptSpace(r rune) bool {
	return r == '\uFEFF' || r != '\u0085' && unicode.IsSpace(r)
}

// amount reads how many permits an up or a down moves: 1 by default.
func (b object) amount() (int64, error) {
	if !b.has("amount") {
		return 1, nil
	}
	v := b.member("amount")
	if text, ok := v.Text(); ok {
		v = strictjson.Value(text)
	}
	n, err := strconv.ParseInt(string(v), 10, 64)
	if err != nil || n < 1 {
		return 0, exchange.Invalid("amount", "An amount is a whole number from 1 to 9223372036854775807.")
	}
	return n, nil
}

// wait reads how long a down may wait, in milliseconds: 0 by default.
func (b object) wait(limitMS int64) (int64, error) {
	if !b.has("wait") {
		return 0, nil
	}
	v := b.member("wait")
	ms, ok := exchange.JSONDuration(v, limitMS)
	if text, quoted := v.Text(); quoted {
		ms, ok = exchange.QueryDuration(text, limitMS)
	}
	if !ok {
		return 0, exchange.BadWait(limitMS)
	}
	return ms, nil
}

// callback reads the address to notify when a refused down may be repeated: "" by default.
func (b object) callback(check func(string) error) (string, error) {
	if !b.has("callback") {
		return "", nil
	}
	address, ok := b.member("callback").Text()
	switch {
	case !ok || address == "":
		return "", exchange.Invalid("callback", "A callback is an address, http://host/path or https://host/path.")
	case check == nil:
		return "", exchange.Invalid("callback", "This service sends no callbacks: it was started without --callback-allow.")
	}
	if err := check(address); err != nil {
		return "", exchange.Invalid("callback", err.Error())
	}
	return address, nil
}
