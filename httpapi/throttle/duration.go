package throttle

import (
	"math"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/signalbox/signalbox/fsm"
)

// spanUnit is a unit of the dialect's durations. base is its length in steps: a step is a nanosecond for units up to
// minutes, and a second from hours on. A fraction of a unit must be a whole number of steps.
type spanUnit struct {
	base    uint64
	seconds bool // base counts seconds
	whole   bool // takes no fraction
}

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

// span is the sum of the parts of a duration.
type span struct{ seconds, nanos uint64 } // nanos < 1e9

// parseSpan converts a duration ("1h 30m", "1.5h", "0") into milliseconds. It rounds up, so that no lease ends too
// early, and cuts off at 100 years. The grammar is humantime's: numbers with units, which are added. Blanks are skipped,
// but a blank after a letter ends the unit.
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

// addPart adds the number with its unit at the beginning of text, and returns the rest.
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

// digits reads a decimal number and skips all blanks before, between and after its digits. Callers that allow no leading
// blank check that first. power is 10^(number of digits), or 0 above 64 bits. ok is false without a digit, and for a
// number above 64 bits.
func digits(text string) (n, power uint64, rest string, ok bool) {
	power = 1
	for text != "" {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case r >= '0' && r <= '9':
			digit := uint64(r - '0')
			if n > (math.MaxUint64-digit)/10 {
				return 0, 0, "", false
			}
			n, ok = 10*n+digit, true
			if power > math.MaxUint64/10 {
				power = 0 // a fraction so fine is no number of nanoseconds
			}
			power *= 10
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

// addWhole adds n units, unless the sum exceeds 64 bits.
func (s *span) addWhole(unit spanUnit, n uint64) bool {
	if !unit.seconds && unit.base >= 1e9 { // whole seconds and minutes count seconds
		unit = spanUnit{base: unit.base / 1e9, seconds: true}
	}
	return n <= math.MaxUint64/unit.base && s.add(unit.seconds, n*unit.base)
}

// addFraction adds numerator/denominator of a unit, if that is a whole number of steps.
func (s *span) addFraction(unit spanUnit, numerator, denominator uint64) bool {
	if unit.whole || denominator == 0 || numerator > math.MaxUint64/unit.base || numerator*unit.base%denominator != 0 {
		return false
	}
	return s.add(unit.seconds, numerator*unit.base/denominator)
}

func (s *span) add(seconds bool, steps uint64) bool {
	if !seconds {
		if steps > math.MaxUint64-s.nanos {
			return false
		}
		steps, s.nanos = (s.nanos+steps)/1e9, (s.nanos+steps)%1e9
	}
	if steps > math.MaxUint64-s.seconds {
		return false
	}
	s.seconds += steps
	return true
}

func (s *span) milliseconds() int64 {
	if s.seconds > uint64(fsm.MaxTTLMS/1000) {
		return fsm.MaxTTLMS
	}
	ms := int64(s.seconds)*1000 + int64((s.nanos+999_999)/1_000_000)
	return min(ms, fsm.MaxTTLMS)
}
