// Package money computes what model calls cost. It is pure: it reads no clock, no file
// and no network.
//
//	rates.yaml ─► Card ─► Price ─┬─ MaxCost ─► Nano, before a call: its maximum
//	                 sealed in a │
//	                 run's target└─ Cost ────► Nano, after a call: what its usage costs
//
// Amounts are integers of nano-USD, and rates are integers of pico-USD per token, so
// that a price such as 0.0375 USD per million tokens is exact. A cost is rounded up,
// once, at the end.
package money

import (
	"cmp"
	"fmt"
	"math"

	"github.com/turnpike-gateway/turnpike/internal/decimal"
)

// Nano is an amount of money in nano-USD, 10⁻⁹ US dollars.
type Nano int64

// USD is one US dollar. MaxNano is the largest amount, about 9.2 billion US dollars:
// results that would be larger are MaxNano.
const (
	USD     Nano = 1_000_000_000
	MaxNano Nano = math.MaxInt64
	minNano Nano = math.MinInt64
)

// Add returns the sum. A sum that is out of range becomes the nearest amount, so that
// one that is too large exceeds every limit.
func (n Nano) Add(m Nano) Nano {
	switch sum := n + m; {
	case n > 0 && m > 0 && sum < 0:
		return MaxNano
	case n < 0 && m < 0 && sum >= 0:
		return minNano
	default:
		return sum
	}
}

// Sub returns the difference. One that is out of range becomes the nearest amount.
func (n Nano) Sub(m Nano) Nano {
	switch diff := n - m; {
	case n >= 0 && m < 0 && diff < 0:
		return MaxNano
	case n < 0 && m > 0 && diff >= 0:
		return minNano
	default:
		return diff
	}
}

// String returns the amount in US dollars, exactly and without an exponent, such as
// "0.00125".
func (n Nano) String() string { return decimal.Format(int64(n), nanoDigits) }

// ParseUSD returns the amount of a decimal number of US dollars, such as "0.00125".
// More than nine decimals, exponents and amounts that are out of range are errors.
func ParseUSD(s string) (Nano, error) {
	n, err := decimal.Parse(s, nanoDigits)
	if err != nil {
		return 0, fmt.Errorf("amount %s: %w", decimal.Quote(s), err)
	}
	return Nano(n), nil
}

// The digits after the decimal point: of US dollars in nano-USD, and of US dollars per
// million tokens in pico-USD per token.
const (
	nanoDigits = 9
	rateDigits = 6
)

// Date is a day in UTC, written as 2026-03-01. "" = none, which is before every other.
type Date string

// ParseDate returns the date that s is, or an error if there is no such day.
func ParseDate(s string) (Date, error) {
	if !Date(s).valid() {
		return "", fmt.Errorf("date %s: not a day such as 2026-03-01", decimal.Quote(s))
	}
	return Date(s), nil
}

// Compare returns -1, 0 or +1 if d is before, equal to or after other.
func (d Date) Compare(other Date) int { return cmp.Compare(d, other) }

func (d Date) valid() bool {
	if len(d) != len("2026-03-01") || d[4] != '-' || d[7] != '-' {
		return false
	}
	year, month, day := d[:4], d[5:7], d[8:]
	if !decimal.IsDigits(string(year+month+day)) || year == "0000" || month < "01" || month > "12" || day < "01" {
		return false
	}
	last := Date("31")
	switch month {
	case "04", "06", "09", "11":
		last = "30"
	case "02":
		last = "28"
		if leap(year) {
			last = "29"
		}
	}
	return day <= last
}

func leap(year Date) bool {
	n := 0
	for _, c := range []byte(year) {
		n = n*10 + int(c-'0')
	}
	return n%4 == 0 && n%100 != 0 || n%400 == 0
}
