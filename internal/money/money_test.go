package money

import (
	"errors"
	"math"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/decimal"
)

func TestUSDIsWrittenAndReadExactly(t *testing.T) {
	for text, want := range map[string]Nano{
		"0": 0, "1": USD, "0.00125": 1_250_000, "0.000000001": 1, "-0.5": -USD / 2,
		"20.50": 20*USD + USD/2, "007": 7 * USD, "0.1000000000000": USD / 10,
		"9223372036.854775807": MaxNano, "-9223372036.854775808": math.MinInt64,
	} {
		if got, err := ParseUSD(text); err != nil || got != want {
			t.Errorf("ParseUSD(%q) = %d, %v, want %d", text, got, err, want)
		}
	}
	for n, want := range map[Nano]string{
		0: "0", 1: "0.000000001", USD: "1", -1: "-0.000000001", 1_250_000: "0.00125", 10 * USD: "10",
		MaxNano: "9223372036.854775807", math.MinInt64: "-9223372036.854775808",
	} {
		if got := n.String(); got != want {
			t.Errorf("Nano(%d).String() = %q, want %q", int64(n), got, want)
		}
	}
}

func TestWhatIsNoAmountIsAnError(t *testing.T) {
	for text, want := range map[string]error{
		"": decimal.ErrNumber, "-": decimal.ErrNumber, ".5": decimal.ErrNumber, "1.": decimal.ErrNumber, "+1": decimal.ErrNumber, "1e3": decimal.ErrNumber, "1,5": decimal.ErrNumber,
		"1\t": decimal.ErrNumber, "--1": decimal.ErrNumber, "1.2.3": decimal.ErrNumber, "$1": decimal.ErrNumber, "NaN": decimal.ErrNumber, "٣": decimal.ErrNumber,
		"0.0000000001": decimal.ErrDecimals, "9223372036.854775808": decimal.ErrRange, "-9223372036.854775809": decimal.ErrRange, "99999999999999999999": decimal.ErrRange,
	} {
		if got, err := ParseUSD(text); !errors.Is(err, want) || got != 0 {
			t.Errorf("ParseUSD(%q) = %d, %v, want the error %v", text, got, err, want)
		}
	}
}

func TestSumsThatAreOutOfRangeBecomeTheNearestAmount(t *testing.T) {
	const lowest Nano = math.MinInt64
	for _, c := range []struct{ got, want Nano }{
		{Nano(1).Add(2), 3}, {Nano(1).Sub(2), -1}, {MaxNano.Add(1), MaxNano}, {MaxNano.Add(MaxNano), MaxNano}, {MaxNano.Add(-1), MaxNano - 1},
		{lowest.Add(-1), lowest}, {lowest.Add(lowest), lowest}, {lowest.Add(MaxNano), -1}, {lowest.Sub(1), lowest}, {lowest.Sub(-1), lowest + 1},
		{MaxNano.Sub(-1), MaxNano}, {MaxNano.Sub(lowest), MaxNano}, {Nano(0).Sub(lowest), MaxNano}, {Nano(-1).Sub(lowest), MaxNano}, {lowest.Sub(lowest), 0},
	} {
		if c.got != c.want {
			t.Errorf("got %s, want %s", c.got, c.want)
		}
	}
}

func TestDates(t *testing.T) {
	for _, day := range []string{"2026-03-01", "2024-02-29", "2000-02-29", "0001-01-01", "9999-12-31", "2026-04-30"} {
		if got, err := ParseDate(day); err != nil || got != Date(day) {
			t.Errorf("ParseDate(%q) = %q, %v", day, got, err)
		}
	}
	for _, day := range []string{
		"", "2026", "2026-3-1", "2026-02-29", "1900-02-29", "2026-13-01", "2026-00-01", "2026-01-00", "2026-04-31",
		"2026-01-32", "0000-01-01", "2026/01/01", "2026-01-01T00:00:00Z", "20a6-01-01",
	} {
		if got, err := ParseDate(day); err == nil {
			t.Errorf("ParseDate(%q) = %q, want an error", day, got)
		}
	}
	if Date("").Compare("2026-01-01") >= 0 || Date("2026-01-02").Compare("2026-01-01") <= 0 ||
		Date("2026-01-01").Compare("2026-01-01") != 0 {
		t.Error("dates are not in order")
	}
}

func FuzzParseUSD(f *testing.F) {
	for _, seed := range []string{"0", "1.25", "-0.000000001", "9223372036.854775807", "1e9", "0.10"} {
		f.Add(seed, int64(len(seed)))
	}
	f.Add("", int64(math.MinInt64))
	f.Fuzz(func(t *testing.T, text string, n int64) {
		if back, err := ParseUSD(Nano(n).String()); err != nil || back != Nano(n) {
			t.Errorf("%d is written %s and read as %d, %v", n, Nano(n), back, err)
		}
		parsed, err := ParseUSD(text)
		if err != nil {
			return
		}
		if again, err := ParseUSD(parsed.String()); err != nil || again != parsed {
			t.Errorf("%q is read as %s, which is read as %s, %v", text, parsed, again, err)
		}
	})
}
