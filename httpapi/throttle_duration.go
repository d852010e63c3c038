package httpapi

import (
	"math"
	"math/bits"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/signalbox/signalbox/fsm"
)

// spanUnit is a unit of the dialect's durations. base is how many smallest steps
// it has: nanoseconds up to minutes, seconds from hours on. A fraction must come
// out whole in them.
type spanUnit struct {
	base    uint64
	seconds bool // base counts seconds
	whole   bool // takes no fraction at all
}

// spanUnits are the units by their spellings; case counts.
var spanUnits = func() map[string]spanUnit {
	units := map[string]spanUnit{}
	for spellings, unit := range map[string]spanUnit{
		"ns nsec nanos":             {base: 1, whole: true},
		"us usec µs":                {base: 1e3},
		"ms msec millis":            {base: 1e6},
		"s sec secs second seconds": {base: 1e9},
		"m min mins minute minutes": {base: 60e9},
		"h hr hrs hour hours":       {base: 3600, seconds: true},
		"d day days":                {base: 86_400, seconds: true},
		"w wk wks week weeks":       {base: 7 * 86_400, seconds: true},
		"M month months":            {base: 2_630_016, seconds: true},  // 30.44 days
		"y yr yrs year years":       {base: 31_557_600, seconds: true}, // 365.25 days
	} {
		for _, spelling := range strings.Fields(spellings) {
			units[spelling] = unit
		}
	}
	return units
}()

// span is a duration that is being summed up.
type span struct{ seconds, nanos uint64 } // nanos < 1e9

// parseSpan reads a duration of the dialect ("1h 30m", "1.5h", "0") into
// milliseconds, rounded up, so that nothing ends earlier than asked for, and cut
// off at 100 years. It is humantime's grammar: numbers with units, summed; blanks
// count nowhere but inside a unit, which they end.
func parseSpan(text string) (ms int64, ok bool) {
	if text == "0" {
		return 0, true // the only number without a unit
	}
	var sum span
	rest := skipBlanks(text)
	if rest == "" {
		return 0, false
	}
	for rest != "" {
		if rest, ok = sum.addPart(rest); !ok {
			return 0, false
		}
		rest = skipBlanks(rest)
	}
	return sum.milliseconds(), true
}

// addPart takes one number with its unit from the beginning of text.
func (s *span) addPart(text string) (rest string, ok bool) {
	whole, _, rest, ok := digits(text)
	if !ok {
		return "", false
	}
	var numerator, denominator uint64
	after, dotted := strings.CutPrefix(rest, ".")
	if dotted {
		if numerator, denominator, rest, ok = digits(after); !ok {
			return "", false
		}
	}
	end := strings.IndexFunc(rest, func(r rune) bool { return !isUnitLetter(r) })
	if end < 0 {
		end = len(rest)
	}
	unit, known := spanUnits[rest[:end]]
	if !known || !s.addWhole(unit, whole) {
		return "", false
	}
	if dotted && !s.addFraction(unit, numerator, denominator) {
		return "", false
	}
	return rest[end:], true
}

// digits takes a number with blanks anywhere in and behind it, but not before its
// first digit unless it is a fraction's; power is ten to the count of its digits.
// ok is false without a digit, and beyond 64 bits.
func digits(text string) (n, power uint64, rest string, ok bool) {
	power = 1
	for text != "" {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case r >= '0' && r <= '9':
			high, low := bits.Mul64(n, 10)
			sum, carry := bits.Add64(low, uint64(r-'0'), 0)
			if high != 0 || carry != 0 {
				return 0, 0, "", false
			}
			// A whole number needs no power, a fraction's beyond 64 bits is no
			// number of nanoseconds anyhow: 0 marks it.
			high, power = bits.Mul64(power, 10)
			if high != 0 {
				power = 0
			}
			n, ok = sum, true
		case !unicode.IsSpace(r):
			return n, power, text, ok
		}
		text = text[size:]
	}
	return n, power, "", ok
}

func isUnitLetter(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == 'µ'
}

func skipBlanks(text string) string { return strings.TrimLeftFunc(text, unicode.IsSpace) }

// addWhole adds n units, unless that leaves 64 bits.
func (s *span) addWhole(unit spanUnit, n uint64) bool {
	if unit.base == 60e9 { // whole minutes are counted in seconds
		unit = spanUnit{base: 60, seconds: true}
	} else if unit.base == 1e9 {
		unit = spanUnit{base: 1, seconds: true}
	}
	high, steps := bits.Mul64(n, unit.base)
	return high == 0 && s.add(unit.seconds, steps)
}

// addFraction adds numerator/denominator of a unit, if that is a whole number of
// its smallest steps.
func (s *span) addFraction(unit spanUnit, numerator, denominator uint64) bool {
	high, steps := bits.Mul64(numerator, unit.base)
	if unit.whole || high != 0 || denominator == 0 || steps%denominator != 0 {
		return false
	}
	return s.add(unit.seconds, steps/denominator)
}

func (s *span) add(seconds bool, steps uint64) bool {
	more := steps
	if !seconds {
		nanos, carry := bits.Add64(s.nanos, steps, 0)
		if carry != 0 {
			return false
		}
		more, s.nanos = nanos/1e9, nanos%1e9
	}
	var carry uint64
	s.seconds, carry = bits.Add64(s.seconds, more, 0)
	return carry == 0
}

func (s *span) milliseconds() int64 {
	if s.seconds > math.MaxInt64/1000-1 {
		return fsm.MaxTTLMS
	}
	ms := int64(s.seconds)*1000 + int64((s.nanos+999_999)/1_000_000)
	return min(ms, fsm.MaxTTLMS)
}
