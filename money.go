package turnpike

import (
	"fmt"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/money"
	"github.com/turnpike-gateway/turnpike/tool"
)

// Money is an amount of US dollars: see [tool.Money].
type Money = tool.Money

// USD panics if the text is not an amount; see [ParseUSD]. It returns the amount of a decimal number of US dollars, such
// as "0.50".
func USD(text string) Money { return tool.USD(text) }

// ParseUSD returns the amount of a decimal number of US dollars that is not negative, with at most nine decimals.
func ParseUSD(text string) (Money, error) { return tool.ParseUSD(text) }

// Limits bound one run. Each trips by itself, and the run ends with a [*LimitError]. The zero value is
// useful.
type Limits struct {
	// Rounds is how many times the model is called, retries not counted; 0 = 10, at most 1,000. The
	// tool calls of the last round are executed.
	Rounds int

	Calls        int // executed tool calls of the run; 0 = 128, at most 10,000
	CallsPerTurn int // executed tool calls of one turn of the model; 0 = 32, at most 1,000

	// OutputPerTurn is how many tokens the model may write in one call, with its reasoning; 0 = the provider's default. It is
	// sent to the provider, and ends no run by itself: an answer that it cuts has [ReasonLength], and of a turn that it cuts the
	// complete tool calls are executed. Under Tokens or USD, at most this much is estimated for the output of a call.
	OutputPerTurn int64

	// Tokens is the sum of the input and output tokens of all model calls; 0 = no limit. Before a
	// call its input is estimated, by three bytes per token, where the provider has not counted it
	// yet, such as that of new tool results. What a provider does not count is estimated.
	Tokens int64

	// USD is what the model calls, and the tools with a price, may cost together; the zero value = no limit, USD("0") allows no
	// call. A model without a price is then refused before any call: see [Agent].Rates. An answer of which the provider counts
	// no tokens costs the estimated maximum of its call.
	USD Money

	// Time is how long the run may take, without the time that it waits for approvals; 0 = as long
	// as its context.
	Time time.Duration
}

// noLimit is longer than any run takes.
const noLimit = 10 * 365 * 24 * time.Hour

const maxRounds = 1000

// check returns which limit is not possible.
func (l Limits) check() error {
	for _, n := range []struct {
		name    string
		is, max int64
	}{
		{"Rounds", int64(l.Rounds), maxRounds}, {"Calls", int64(l.Calls), 10_000}, {"CallsPerTurn", int64(l.CallsPerTurn), 1000},
		{"OutputPerTurn", l.OutputPerTurn, 1 << 30},
		{"Tokens", l.Tokens, 1 << 40}, {"Time", int64(l.Time), int64(noLimit)},
	} {
		if n.is < 0 || n.is > n.max {
			return invalid("Limits.%s is %d; use 0 to %d", n.name, n.is, n.max)
		}
	}
	if l.Time > 0 && l.Time < time.Millisecond {
		return invalid("Limits.Time is %v; use at least 1 ms", l.Time)
	}
	return nil
}

// within returns the tighter of each limit.
func (l Limits) within(o Limits) Limits {
	l.Rounds = int(tighter(int64(l.Rounds), int64(o.Rounds), budget.DefaultRounds))
	l.Calls = int(tighter(int64(l.Calls), int64(o.Calls), budget.DefaultCalls))
	l.CallsPerTurn = int(tighter(int64(l.CallsPerTurn), int64(o.CallsPerTurn), budget.DefaultCallsPerTurn))
	l.OutputPerTurn = tighter(l.OutputPerTurn, o.OutputPerTurn, 0)
	l.Tokens = tighter(l.Tokens, o.Tokens, 0)
	l.Time = time.Duration(tighter(int64(l.Time), int64(o.Time), 0))
	if l.USD.IsZero() || !o.USD.IsZero() && o.USD.Nano() < l.USD.Nano() {
		l.USD = o.USD
	}
	return l
}

// tighter returns the lower of two limits. standard is what 0 stands for; 0 = no limit.
func tighter(a, b, standard int64) int64 {
	if a == 0 {
		a = standard
	}
	if b == 0 || a != 0 && a < b {
		return a
	}
	return b
}

// sealed returns the limits as a run has them.
func (l Limits) sealed() budget.Limits {
	out := budget.Limits{Rounds: l.Rounds, Calls: l.Calls, CallsPerTurn: l.CallsPerTurn, Tokens: l.Tokens, ActiveMS: l.Time.Milliseconds()}
	if l.Time == 0 {
		out.ActiveMS = noLimit.Milliseconds()
	}
	if !l.USD.IsZero() {
		out.NanoUSD = new(l.USD.Nano())
	}
	return out.Clamp(maxRounds)
}

// Rate is what a model costs, in US dollars per million tokens.
type Rate struct {
	Input  Money
	Output Money // with reasoning

	CachedInput Money // of input that the provider has read from its cache; no amount = as Input
	CacheWrite  Money // of input that it has written to its cache; no amount = as Input

	// PerSecond is the price of a second of a call, for models that are billed by time.
	PerSecond Money
}

// price returns the rate as a run has it.
func (r Rate) price() (money.Price, error) {
	var p money.Price
	for _, one := range []struct {
		name string
		of   Money
		into *money.Rate
	}{{"Input", r.Input, &p.Input}, {"Output", r.Output, &p.Output}, {"CachedInput", r.CachedInput, &p.CachedInput}, {"CacheWrite", r.CacheWrite, &p.CacheWrite}} {
		rate, err := money.ParseRate(money.Nano(one.of.Nano()).String())
		if err != nil {
			return p, fmt.Errorf("%s: %w", one.name, err)
		}
		*one.into = rate
	}
	if r.CachedInput.IsZero() {
		p.CachedInput = p.Input
	}
	if r.CacheWrite.IsZero() {
		p.CacheWrite = p.Input
	}
	p.CacheWrite1h = p.CacheWrite
	p.GPUSecond = money.Nano(r.PerSecond.Nano())
	p.From = "2000-01-01" // since ever
	return p, nil
}
