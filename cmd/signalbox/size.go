package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// size is a flag's value in bytes, written as 65536, 64KiB, 1MiB or 2GiB.
type size int64

var sizeUnits = []struct {
	name  string
	shift int
}{{"GiB", 30}, {"MiB", 20}, {"KiB", 10}, {"B", 0}}

// Set implements pflag.Value.
func (s *size) Set(text string) error {
	digits, shift := strings.TrimSpace(text), 0
	for _, unit := range sizeUnits {
		if rest, ok := strings.CutSuffix(digits, unit.name); ok {
			digits, shift = strings.TrimSpace(rest), unit.shift
			break
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64>>shift {
		return fmt.Errorf("%q is not a size such as 65536, 64KiB or 1GiB", text)
	}
	*s = size(n << shift)
	return nil
}

// String implements pflag.Value: the largest unit that gives a whole number.
func (s *size) String() string {
	for _, unit := range sizeUnits {
		if n := int64(*s) >> unit.shift; n > 0 && n<<unit.shift == int64(*s) {
			return strconv.FormatInt(n, 10) + unit.name
		}
	}
	return strconv.FormatInt(int64(*s), 10) + "B"
}

// Type implements pflag.Value.
func (s *size) Type() string { return "size" }
