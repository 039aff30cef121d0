// Package decimal reads and writes decimal numbers as integers, for amounts of money that must be exact.
package decimal

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// The errors of [Parse].
var (
	ErrNumber   = errors.New("not a decimal number such as 1.25")
	ErrDecimals = errors.New("too many decimals")
	ErrRange    = errors.New("out of range")
)

// Parse returns s times 10^digits. Exponents, more decimals than digits, and numbers that are out of range are errors.
func Parse(s string, digits int) (int64, error) {
	unsigned, negative := strings.CutPrefix(s, "-")
	whole, decimals, point := strings.Cut(unsigned, ".")
	if whole == "" || point && decimals == "" || !IsDigits(whole) || !IsDigits(decimals) {
		return 0, ErrNumber
	}
	decimals = strings.TrimRight(decimals, "0")
	if len(decimals) > digits {
		return 0, fmt.Errorf("%w: at most %d", ErrDecimals, digits)
	}
	n := int64(0) // negative, since there is one more negative number
	for _, c := range []byte(whole + decimals + strings.Repeat("0", digits-len(decimals))) {
		digit := int64(c - '0')
		if n < (math.MinInt64+digit)/10 {
			return 0, ErrRange
		}
		n = n*10 - digit
	}
	switch {
	case negative:
		return n, nil
	case n == math.MinInt64:
		return 0, ErrRange
	}
	return -n, nil
}

// IsDigits reports whether all bytes of s are decimal digits.
func IsDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}

// Format returns n divided by 10^digits, exactly and without an exponent.
func Format(n int64, digits int) string {
	sign, abs := "", uint64(n)
	if n < 0 {
		sign, abs = "-", -uint64(n)
	}
	s := fmt.Sprintf("%0*d", digits+1, abs)
	whole, decimals := s[:len(s)-digits], strings.TrimRight(s[len(s)-digits:], "0")
	if decimals != "" {
		decimals = "." + decimals
	}
	return sign + whole + decimals
}

// Quote returns a text in quotes for an error, shortened to 40 bytes.
func Quote(s string) string {
	const most = 40
	if len(s) > most {
		s = s[:most] + "…"
	}
	return strconv.Quote(s)
}
