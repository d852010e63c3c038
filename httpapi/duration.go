package httpapi

import (
	"strings"
	"time"
)

// durationForm tells what is accepted, in every refusal of a duration.
const durationForm = `a duration such as "30s", "1m30s" or "250ms", or an integer of milliseconds`

// parseDuration reads "1m30s" into milliseconds. What is finer than a
// millisecond is rounded up, so that nothing ends earlier than asked for.
// ok is false for a sign, a missing unit but of 0, or more than limitMS.
func parseDuration(text string, limitMS int64) (ms int64, ok bool) {
	if text == "" || len(text) > 64 || strings.ContainsAny(text, "+-") {
		return 0, false
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, false
	}
	ms = int64(d / time.Millisecond)
	if d%time.Millisecond != 0 {
		ms++
	}
	return ms, ms <= limitMS
}

// duration reads a JSON duration: text with units, or milliseconds.
func (v value) duration(limitMS int64) (ms int64, ok bool) {
	if text, isText := v.text(); isText {
		return parseDuration(text, limitMS)
	}
	ms, ok = v.integer()
	return ms, ok && ms >= 0 && ms <= limitMS
}

// queryDuration reads a duration of the query: as in JSON, without quotes.
func queryDuration(text string, limitMS int64) (ms int64, ok bool) {
	if n, isNumber := parseDigits(text); isNumber {
		return int64(n), n <= uint64(limitMS)
	}
	return parseDuration(text, limitMS)
}
