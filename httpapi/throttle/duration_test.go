package throttle

import (
	"math/big"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/signalbox/signalbox/fsm"
)

func TestSpans(t *testing.T) {
	const year = 31_557_600_000
	for text, ms := range map[string]int64{
		// What the clients send.
		"300000ms": 300_000, "0ms": 0, "5m": 300_000, "1m 30s": 90_000, "100ms": 100, "0s": 0, "2days": 172_800_000,
		"1month 13h 26m 24s": 2_630_016_000 + 48_384_000, "1year 2months": year + 2*2_630_016_000,
		// Every unit.
		"1000000ns": 1, "1000000nsec": 1, "1000000nanos": 1, "1000us": 1, "1000usec": 1, "1000µs": 1, "7msec": 7, "7millis": 7,
		"1s": 1000, "1sec": 1000, "1secs": 1000, "1second": 1000, "1seconds": 1000, "1m": 60_000, "1min": 60_000, "1mins": 60_000,
		"1minute": 60_000, "1minutes": 60_000, "1h": 3_600_000, "1hr": 3_600_000, "1hrs": 3_600_000, "1hour": 3_600_000, "1hours": 3_600_000,
		"1d": 86_400_000, "1day": 86_400_000, "1w": 604_800_000, "1wk": 604_800_000, "1wks": 604_800_000, "1week": 604_800_000,
		"1weeks": 604_800_000, "1M": 2_630_016_000, "1months": 2_630_016_000, "1y": year, "1yr": year, "1yrs": year, "2years": 2 * year,
		// Blanks, repeats, order.
		"1 0 s": 10_000, "1h 1h": 7_200_000, "  1 h1m ": 3_660_000, "1s1h": 3_601_000, "1\u00a0s\u2003\t1\u0085s": 2000,
		// Fractions.
		"1.5h": 5_400_000, "0.5s": 500, "1 . 5 s": 1500, "0.000s": 0, "1.5 h 1.5m": 5_490_000, "0.5month": 1_315_008_000, "31.000001ms": 32,
		"1.000s": 1000, "0.25d": 21_600_000,
		// Rounded up to milliseconds, at most 100 years.
		"1ns": 1, "1us": 1, "1000001ns": 2, "0.0001s": 1, "999999ns 1ns": 1, "99years": 99 * year, "100y": fsm.MaxTTLMS, "300000000000years": fsm.MaxTTLMS,
		"18446744073709551615s": fsm.MaxTTLMS, "18446744073709551615ns": fsm.MaxTTLMS,
		// The one number without a unit.
		"0": 0,
	} {
		if got, ok := parseSpan(text); !ok || got != ms {
			t.Errorf("%q: %d %v, want %d", text, got, ok, ms)
		}
	}
	for _, text := range []string{
		"", " ", "5", "00", "0 ", " 0", "-5s", "+5s", "10S", "1.s", "1..5s", ".5s", "1.5.5s", "1s,2s", "PT5M", "5 bananas", "s", "1 m s", "m1",
		"1h 5", "1MS", "1Ms", "1nss", "1µ", "1e3s", "0x5s", "1_000s", "1s.", "1s-1s", "∞s", "١s", "1sé",
		"17.5ns", "0.0ns", "0.1month", "3.0001us", "31.0000001ms", "1.0000000002s", "0.00000005d", "0.000000000000000000000000s", "0.99999999999s",
		"18446744073709551616s", "18446744073709551616ns", "18446744073709551615us", "307445734561825861m", "584554049254y",
		"18446744073709551615s 1s", "1ns 18446744073709551615ns", "1.18446744073709551616s",
	} {
		if got, ok := parseSpan(text); ok {
			t.Errorf("%q is taken, as %d", text, got)
		}
	}
}

const (
	blanks  = `[\p{Z}\s\x{0b}\x{85}]*`
	numeral = `([0-9](?:[0-9]|` + `[\p{Z}\s\x{0b}\x{85}]` + `)*)`
)

var (
	spanPart = regexp.MustCompile(blanks + numeral + `(?:\.` + blanks + numeral + `)?([a-zA-Zµ]+)`)
	spanAll  = regexp.MustCompile(`^(?:` + spanPart.String() + `)+` + blanks + `$`)
)

// slowSpan reads the same grammar by regular expressions and big integers. ok is also false if an intermediate result
// exceeds 64 bits.
func slowSpan(text string) (nanos *big.Int, ok bool) {
	if text == "0" {
		return new(big.Int), true
	}
	if !spanAll.MatchString(text) {
		return nil, false
	}
	number := func(digits string) *big.Int {
		n, _ := new(big.Int).SetString(strings.Join(strings.FieldsFunc(digits, unicode.IsSpace), ""), 10)
		return n
	}
	times := func(a *big.Int, b uint64) *big.Int { return new(big.Int).Mul(a, new(big.Int).SetUint64(b)) }
	fits := func(n *big.Int) bool { return n.BitLen() <= 64 }
	nanos = new(big.Int)
	second := big.NewInt(1e9)
	for _, m := range spanPart.FindAllStringSubmatch(text, -1) {
		unit, known := spanUnits[m[3]]
		if !known {
			return nil, false
		}
		perStep, base := uint64(1), unit.base // of whole numbers: minutes and seconds count seconds
		if unit.seconds {
			perStep = 1e9
		} else if base >= 1e9 {
			perStep, base = 1e9, base/1e9
		}
		steps := []struct {
			n   *big.Int
			per uint64
		}{{times(number(m[1]), base), perStep}}
		if !fits(number(m[1])) {
			return nil, false
		}
		if m[2] != "" {
			numerator := number(m[2])
			digits := strings.Join(strings.FieldsFunc(m[2], unicode.IsSpace), "")
			denominator := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(len(digits))), nil)
			whole := times(numerator, unit.base)
			share, rest := new(big.Int).DivMod(whole, denominator, new(big.Int))
			if unit.whole || !fits(numerator) || !fits(denominator) || !fits(whole) || rest.Sign() != 0 {
				return nil, false
			}
			per := uint64(1)
			if unit.seconds {
				per = 1e9
			}
			steps = append(steps, struct {
				n   *big.Int
				per uint64
			}{share, per})
		}
		for _, s := range steps {
			if !fits(s.n) || s.per == 1 && !fits(new(big.Int).Add(s.n, new(big.Int).Mod(nanos, second))) {
				return nil, false
			}
			nanos.Add(nanos, times(s.n, s.per))
			if !fits(new(big.Int).Div(nanos, second)) {
				return nil, false
			}
		}
	}
	return nanos, true
}

// FuzzThrottleDuration compares the parser with a slow and obvious one.
func FuzzThrottleDuration(f *testing.F) {
	for _, text := range []string{
		"", "0", "5m", "1m 30s", "1.5h", "1 0 s", "1month 13h 26m 24s", "18446744073709551615s", "1ns 18446744073709551615ns",
		"0.000000000000000000001y", "1\u2003s", "1µs", "1s,2s", "99999999999999999999999999d", "307445734561825860m 15s 1s", "31.000001ms",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, ok := parseSpan(text)
		nanos, wantOK := slowSpan(text)
		if ok != wantOK {
			t.Fatalf("%q: %v, want %v", text, ok, wantOK)
		}
		if !ok {
			return
		}
		ms, rest := new(big.Int).DivMod(nanos, big.NewInt(1e6), new(big.Int))
		if rest.Sign() > 0 {
			ms.Add(ms, big.NewInt(1))
		}
		want := fsm.MaxTTLMS
		if ms.IsInt64() {
			want = min(ms.Int64(), fsm.MaxTTLMS)
		}
		if got != want {
			t.Fatalf("%q: %d ms, want %d", text, got, want)
		}
	})
}

func TestLinger(t *testing.T) {
	for _, c := range []struct {
		percent   int
		ttl, want int64
	}{
		{10, 0, 0}, {10, 1, 1}, {10, 9, 9}, {10, 10, 11}, {10, 19, 20}, {10, 100, 110}, {10, 300_000, 330_000}, {10, 300_001, 330_001},
		{10, 3_600_000, 3_630_000}, {10, fsm.MaxTTLMS, fsm.MaxTTLMS}, {10, fsm.MaxTTLMS - 1, fsm.MaxTTLMS},
		{0, 300_000, 300_000}, {100, 7, 14}, {100, 40_000, 70_000}, {33, 299, 397},
	} {
		if got := (&Config{LingerPercent: c.percent}).linger(c.ttl); got != c.want {
			t.Errorf("%d %% of %d: %d, want %d", c.percent, c.ttl, got, c.want)
		}
	}
}
