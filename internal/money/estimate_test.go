package money

import (
	"math/rand/v2"
	"testing"

	"github.com/turnpike-gateway/turnpike/model"
)

func TestMaxCost(t *testing.T) {
	for _, c := range []struct {
		name   string
		price  Price
		prompt Prompt
		output int64
		want   string
	}{
		{"three bytes are a token", sonnet(), Prompt{Bytes: 3_000}, 100, "0.0045"},
		{"the rest is a token", sonnet(), Prompt{Bytes: 3_001}, 100, "0.004503"},
		{"counted tokens and images", sonnet(), Prompt{Counted: 500, Images: 500}, 100, "0.0045"},
		{"writes to the cache are dearer than input", sonnet(), Prompt{Counted: 1000, Writes: true}, 100, "0.0075"},
		{"a service tier", sonnet(), Prompt{Counted: 1000, Tier: model.TierPriority}, 100, "0.009"},
		// Case 7 of the failures of other gateways: a reservation at the rates of short prompts.
		{"a long prompt", sonnet(), Prompt{Counted: 200_001}, 100, "1.202256"},
		{"long prompts that are cheaper: the estimate may be too high",
			Price{From: "2026-01-01", Rates: Rates{Input: 2 * PerMillion}, Above: LongPrompt{100, Rates{Input: PerMillion}}}, Prompt{Counted: 1000}, 0, "0.002"},
		{"time", Price{From: "2026-01-01", GPUSecond: 400_000}, Prompt{GPUMS: 10_000}, 0, "0.004"},
		{"no price", Price{}, Prompt{Bytes: 3_000}, 100, "0"},
	} {
		if got := MaxCost(c.price, c.prompt, c.output).String(); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestLargestOutput(t *testing.T) {
	short := Prompt{Counted: 1000} // 0.003 USD at sonnet's price
	for _, c := range []struct {
		name   string
		price  Price
		left   Nano
		limit  int64
		want   int64
		wantOK bool
	}{
		{"what fits", sonnet(), 4_500_000, 1000, 100, true},
		{"one nano-USD less", sonnet(), 4_499_999, 1000, 99, true},
		{"the caller's limit", sonnet(), USD, 1000, 1000, true},
		{"no output", sonnet(), 3_000_000, 1000, 0, true},
		{"the prompt does not fit", sonnet(), 2_999_999, 1000, 0, false},
		{"nothing is left", sonnet(), 0, 1000, 0, false},
		{"less than nothing is left", sonnet(), -1, 1000, 0, false},
		{"a free model with nothing left", Price{From: "2026-01-01"}, 0, 1000, 1000, true},
		{"output is free", Price{From: "2026-01-01", Rates: Rates{Input: PerMillion}}, 1_000_000, 1000, 1000, true},
		{"the largest amount", sonnet(), MaxNano, 1000, 1000, true},
		{"a tiny rate and the largest amount", Price{From: "2026-01-01", Rates: Rates{Output: 1}}, MaxNano, 1000, 1000, true},
		{"no price", Price{}, USD, 1000, 0, false},
	} {
		if got, ok := LargestOutput(c.price, short, c.left, c.limit); got != c.want || ok != c.wantOK {
			t.Errorf("%s: %d, %t, want %d, %t", c.name, got, ok, c.want, c.wantOK)
		}
	}
}

// What fits, fits, and one token more does not.
func checkLargest(t *testing.T, p Price, prompt Prompt, left Nano, limit int64) {
	t.Helper()
	got, ok := LargestOutput(p, prompt, left, limit)
	switch {
	case !ok && MaxCost(p, prompt, 0) <= left:
		t.Errorf("%s: no output fits, but none costs %s: %+v, %+v", left, MaxCost(p, prompt, 0), p, prompt)
	case ok && MaxCost(p, prompt, got) > left:
		t.Errorf("%s: %d tokens fit, but cost %s: %+v, %+v", left, got, MaxCost(p, prompt, got), p, prompt)
	case ok && got < limit && MaxCost(p, prompt, got+1) <= left:
		t.Errorf("%s: only %d tokens fit, but one more costs %s: %+v, %+v", left, got, MaxCost(p, prompt, got+1), p, prompt)
	}
}

func TestTheLargestOutputIsTheInverseOfTheMaximumCost(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 5_000 {
		p := randomPrice(r)
		prompt := Prompt{Counted: r.Int64N(1_000), Bytes: r.Int64N(5_000), Images: r.Int64N(1_000), Writes: r.IntN(2) == 0, GPUMS: r.Int64N(100)}
		checkLargest(t, p, prompt, Nano(r.Int64N(int64(USD)/2)), 1+r.Int64N(10_000))
	}
}

// A call that stays within the estimate of its prompt, its output limit and its tier costs at most the maximum.
func TestNoCallWithinItsEstimateCostsMoreThanTheMaximum(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 5_000 {
		p, u := randomPrice(r), randomUsage(r)
		for _, rates := range []*Rates{&p.Rates, &p.Above.Rates, &p.Flex} { // cached tokens are never dearer
			rates.CachedInput = min(rates.CachedInput, rates.Input)
		}
		prompt := Prompt{Counted: u.Input + r.Int64N(1_000), Writes: true, Tier: u.ServiceTier, GPUMS: u.GPUMS}
		if most := MaxCost(p, prompt, u.Output+r.Int64N(10)); Cost(p, u) > most {
			t.Fatalf("%+v at %+v costs %s, the maximum was %s", u, p, Cost(p, u), most)
		}
	}
}

func TestImageTokens(t *testing.T) {
	for _, c := range []struct {
		name          string
		width, height int
		least, most   int64
	}{
		{"one pixel", 1, 1, 255, 600},
		{"a tile of gpt-4o", 512, 512, 255, 1_200},
		{"Claude counts width × height ÷ 750", 1092, 1092, 1_590, 5_000},
		{"gpt-4.1-nano counts 2.46 for each patch of 32 pixels", 1024, 1024, 2_519, 4_000},
		{"a long line", 2048, 1, 765, 2_000},
		{"a huge image", 1 << 40, 1 << 40, 5_000, 5_000},
		{"an unknown size", 0, 0, 5_000, 5_000},
		{"a negative size", -1, 100, 5_000, 5_000},
	} {
		if got := ImageTokens(c.width, c.height); got < c.least || got > c.most {
			t.Errorf("%s: %d, want %d to %d", c.name, got, c.least, c.most)
		}
	}
}

func FuzzCost(f *testing.F) {
	f.Add(int64(1000), int64(900), int64(50), int64(10), int64(100), int64(3e6), int64(15e6), int64(200_000), int64(1e9))
	f.Add(int64(1)<<62, int64(1)<<62, int64(-1), int64(1)<<62, int64(1)<<62, int64(MaxRate), int64(MaxRate), int64(1), int64(MaxNano))
	f.Fuzz(func(t *testing.T, input, cached, write, hour, output, in, out, above, left int64) {
		rate := func(n int64) Rate { return min(max(Rate(n), 0), MaxRate) }
		p := Price{
			From: "2026-01-01", Rates: Rates{rate(in), rate(in / 10), rate(in / 2 * 3), rate(in / 3), rate(out)},
			Above: LongPrompt{above, Rates{rate(in / 3), rate(in), rate(out), rate(in), rate(in)}}, GPUSecond: max(Nano(out), 0),
		}
		u := model.Usage{Input: input, CachedInput: cached, CacheWrite: write, CacheWrite1h: hour, Output: output, GPUMS: hour}
		more := u
		more.Output = max(output, output+1)
		if cost := Cost(p, u); cost < 0 || Cost(p, more) < cost {
			t.Errorf("%+v costs %s, with one token more of output %s", u, cost, Cost(p, more))
		}
		prompt := Prompt{Counted: input, Bytes: cached, Images: write, GPUMS: hour}
		if output >= 0 && output < maxCount {
			checkLargest(t, p, prompt, Nano(left), output)
		}
	})
}
