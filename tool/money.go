package tool

import (
	"fmt"

	"github.com/turnpike-gateway/turnpike/internal/decimal"
)

// Money is an amount of US dollars, exact to 10⁻⁹ and not negative. The zero value is no amount, which as a limit
// means no limit, and as a price no price. USD("0") is an amount. Its text, also in JSON, is a decimal number such as
// "0.5"; "" = no amount.
type Money struct {
	nano int64
	set  bool
}

// nanoDigits are the digits of an amount after the decimal point.
const nanoDigits = 9

// USD panics if the text is not an amount; see [ParseUSD] for texts that are not constants. It returns the amount of a
// decimal number of US dollars, such as "0.50".
func USD(text string) Money {
	m, err := ParseUSD(text)
	if err != nil {
		panic("USD: " + err.Error())
	}
	return m
}

// ParseUSD returns the amount of a decimal number of US dollars that is not negative, with at most nine decimals.
func ParseUSD(text string) (Money, error) {
	n, err := decimal.Parse(text, nanoDigits)
	switch {
	case err != nil:
		return Money{}, fmt.Errorf("amount %s: %w; use a number of US dollars such as 0.50", decimal.Quote(text), err)
	case n < 0:
		return Money{}, fmt.Errorf("amount %s: negative; use 0 or more", decimal.Quote(text))
	}
	return Money{n, true}, nil
}

// NanoUSD panics if n is negative. It returns the amount of n × 10⁻⁹ US dollars, the reverse of [Money.Nano].
func NanoUSD(n int64) Money {
	if n < 0 {
		panic(fmt.Sprintf("NanoUSD: %d is negative", n))
	}
	return Money{n, true}
}

// IsZero reports whether there is no amount. It is false for USD("0").
func (m Money) IsZero() bool { return !m.set }

// Equal reports whether both are the same amount, or no amount, as == does.
func (m Money) Equal(n Money) bool { return m == n }

// Nano returns the amount in 10⁻⁹ US dollars; 0 without an amount.
func (m Money) Nano() int64 { return m.nano }

// String returns the amount as a decimal number, such as "0.5"; "" if there is none.
func (m Money) String() string {
	if !m.set {
		return ""
	}
	return decimal.Format(m.nano, nanoDigits)
}

// MarshalText implements [encoding.TextMarshaler] with [Money.String].
func (m Money) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler]: it reads what [ParseUSD] reads, and "" as no amount.
func (m *Money) UnmarshalText(text []byte) (err error) {
	*m = Money{}
	if len(text) > 0 {
		*m, err = ParseUSD(string(text))
	}
	return err
}
