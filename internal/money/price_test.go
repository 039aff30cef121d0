package money

import (
	"encoding/json"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/turnpike-gateway/turnpike/model"
)

// sonnet is a price with every kind of rate.
func sonnet() Price {
	return Price{
		From:  "2026-01-01",
		Rates: Rates{Input: 3 * PerMillion, CachedInput: PerMillion * 3 / 10, CacheWrite: PerMillion * 15 / 4, CacheWrite1h: 6 * PerMillion, Output: 15 * PerMillion},
		Above: LongPrompt{200_000, Rates{6 * PerMillion, PerMillion * 6 / 10, PerMillion * 15 / 2, 12 * PerMillion, PerMillion * 45 / 2}},
		Flex:  Rates{Input: PerMillion * 3 / 2, Output: PerMillion * 15 / 2}, Priority: Rates{Input: 7 * PerMillion, Output: 20 * PerMillion},
	}
}

func TestCost(t *testing.T) {
	for _, c := range []struct {
		name  string
		price Price
		usage model.Usage
		want  string
	}{
		{"nothing", sonnet(), model.Usage{}, "0"},
		{"input and output", sonnet(), model.Usage{Input: 1000, Output: 100}, "0.0045"},
		// Case 12 of the failures of other gateways: cached tokens billed at both rates.
		{"cached tokens are billed once", sonnet(), model.Usage{Input: 1000, CachedInput: 900}, "0.00057"},
		// Case 13: cache writes that are dropped, or billed as if they were input.
		{"cache writes have their own price", sonnet(), model.Usage{Input: 1000, CacheWrite: 900}, "0.003675"},
		{"writes for an hour too", sonnet(), model.Usage{Input: 1000, CacheWrite: 900, CacheWrite1h: 400}, "0.004575"},
		{"cached, written and fresh tokens", sonnet(), model.Usage{Input: 1000, CachedInput: 500, CacheWrite: 300}, "0.001875"},
		{"reasoning is output", sonnet(), model.Usage{Output: 100, Reasoning: 90}, "0.0015"},
		{"a prompt at the threshold is short", sonnet(), model.Usage{Input: 200_000, Output: 100}, "0.6015"},
		{"a longer prompt has other rates for all its tokens", sonnet(), model.Usage{Input: 200_001, Output: 100}, "1.202256"},
		{"the whole prompt decides, also if most of it is cached", sonnet(), model.Usage{Input: 200_001, CachedInput: 200_000}, "0.120006"},
		{"a service tier with prices", sonnet(), model.Usage{Input: 1000, Output: 100, ServiceTier: model.TierFlex}, "0.00225"},
		{"a long prompt in a cheaper tier costs the higher rates", sonnet(), model.Usage{Input: 300_000, ServiceTier: model.TierFlex}, "1.8"},
		{"a long prompt in a dearer tier costs the higher rates", sonnet(), model.Usage{Input: 300_000, Output: 100, ServiceTier: model.TierPriority}, "2.10225"},
		{"a service tier without prices", Price{From: "2026-01-01", Rates: Rates{Input: PerMillion}}, model.Usage{Input: 1000, ServiceTier: model.TierPriority}, "0.001"},
		{"no price", Price{}, model.Usage{Input: 1000}, "0"},
		{"rates without a date are no price", Price{Rates: Rates{Input: PerMillion}}, model.Usage{Input: 1000}, "0"},
		{"rounded up, once", Price{From: "2026-01-01", Rates: Rates{Input: 1, Output: 1, CachedInput: 1}}, model.Usage{Input: 2, CachedInput: 1, Output: 1}, "0.000000001"},
		{"nothing to round", Price{From: "2026-01-01", Rates: Rates{Input: 500}}, model.Usage{Input: 4}, "0.000000002"},
		{"time", Price{From: "2026-01-01", GPUSecond: 400_000}, model.Usage{Input: 1000, GPUMS: 2_500}, "0.001"},
		{"more cached and written tokens than input", sonnet(), model.Usage{Input: 10, CachedInput: 100, CacheWrite: 100}, "0.000405"},
		{"more writes for an hour than writes", sonnet(), model.Usage{Input: 100, CacheWrite: 10, CacheWrite1h: 100}, "0.0006"},
		{"negative counts", sonnet(), model.Usage{Input: -1, CachedInput: -1, CacheWrite: -1, CacheWrite1h: -1, Output: -1, GPUMS: -1}, "0"},
		{"the largest cost", Price{From: "2026-01-01", Rates: Rates{Input: MaxRate, Output: MaxRate}}, model.Usage{Input: 1 << 62, Output: 1 << 62}, MaxNano.String()},
	} {
		if got := Cost(c.price, c.usage).String(); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestOnlyAPriceWithADateIsKnown(t *testing.T) {
	free := Price{From: "2026-01-01"}
	if !free.Known() || free.IsZero() {
		t.Error("a model that is free has no price")
	}
	if (Price{}).Known() || !(Price{}).IsZero() {
		t.Error("the zero value is a price")
	}
}

func TestAPriceKeepsItsValueInJSON(t *testing.T) {
	type fact struct {
		Price Price `json:"price,omitzero"`
	}
	for _, c := range []struct {
		price Price
		want  string
	}{
		{Price{}, `{}`},
		{Price{From: "2026-01-01"}, `{"price":{"from":"2026-01-01"}}`},
		{Price{From: "2026-01-01", GPUSecond: 400_000}, `{"price":{"from":"2026-01-01","gpu_second":400000}}`},
		{sonnet(), `{"price":{"from":"2026-01-01","input":3,"cached_input":0.3,"cache_write":3.75,"cache_write_1h":6,"output":15,` +
			`"above":{"tokens":200000,"input":6,"cached_input":0.6,"cache_write":7.5,"cache_write_1h":12,"output":22.5},` +
			`"flex":{"input":1.5,"output":7.5},"priority":{"input":7,"output":20}}}`},
	} {
		got, err := json.Marshal(fact{c.price})
		if err != nil || string(got) != c.want {
			t.Errorf("%s, %v, want %s", got, err, c.want)
		}
		var back fact
		if err := json.Unmarshal(got, &back); err != nil || back.Price != c.price {
			t.Errorf("%s is read as %+v, %v", got, back.Price, err)
		}
	}
	for _, bad := range []string{`{"input":-1}`, `{"input":"1"}`, `{"input":1e3}`, `{"input":0.0000001}`, `{"input":1000001}`} {
		if json.Unmarshal([]byte(bad), &Price{}) == nil {
			t.Errorf("%s is read as a price", bad)
		}
	}
}

// exact computes what Cost must return, in fractions.
func exact(p Price, u model.Usage) *big.Rat {
	r := p.rates(u.ServiceTier, u.Input)
	sum := new(big.Rat)
	add := func(n int64, rate int64) {
		sum.Add(sum, new(big.Rat).Mul(big.NewRat(n, 1), big.NewRat(rate, 1000)))
	}
	add(u.Input-u.CachedInput-u.CacheWrite, int64(r.Input))
	add(u.CachedInput, int64(r.CachedInput))
	add(u.CacheWrite-u.CacheWrite1h, int64(r.CacheWrite))
	add(u.CacheWrite1h, int64(r.CacheWrite1h))
	add(u.Output, int64(r.Output))
	add(u.GPUMS, int64(p.GPUSecond))
	return sum
}

func randomRates(r *rand.Rand) Rates {
	rate := func() Rate { return Rate(r.Int64N(100 * int64(PerMillion))) }
	return Rates{rate(), rate(), rate(), rate(), rate()}
}

func randomPrice(r *rand.Rand) Price {
	p := Price{From: "2026-01-01", Rates: randomRates(r), GPUSecond: Nano(r.Int64N(1_000_000))}
	if r.IntN(2) == 0 {
		p.Above = LongPrompt{r.Int64N(2_000), randomRates(r)}
	}
	if r.IntN(2) == 0 {
		p.Flex = randomRates(r)
	}
	return p
}

func randomUsage(r *rand.Rand) model.Usage {
	u := model.Usage{CachedInput: r.Int64N(1_000), CacheWrite1h: r.Int64N(1_000), Output: r.Int64N(1_000), GPUMS: r.Int64N(1_000)}
	u.CacheWrite = u.CacheWrite1h + r.Int64N(1_000)
	u.Input = u.CachedInput + u.CacheWrite + r.Int64N(1_000)
	u.ServiceTier = []string{"", model.TierFlex, model.TierPriority}[r.IntN(3)]
	return u
}

func TestACostIsExactAndLessThanANanoDollarAboveIt(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 5_000 {
		p, u := randomPrice(r), randomUsage(r)
		got, want := new(big.Rat).SetInt64(int64(Cost(p, u))), exact(p, u)
		if over := new(big.Rat).Sub(got, want); over.Sign() < 0 || over.Cmp(big.NewRat(1, 1)) >= 0 {
			t.Fatalf("%+v at %+v costs %s, exactly %s", u, p, got, want)
		}
	}
}

func TestRates(t *testing.T) {
	for text, want := range map[string]Rate{"0": 0, "1.25": PerMillion * 5 / 4, "0.000001": 1, "1000000": MaxRate} {
		if got, err := ParseRate(text); err != nil || got != want {
			t.Errorf("ParseRate(%q) = %d, %v, want %d", text, got, err, want)
		}
	}
	for _, bad := range []string{"", "-1", "1e-6", "0.0000001", "1000000.1", "x"} {
		if got, err := ParseRate(bad); err == nil {
			t.Errorf("ParseRate(%q) = %s, want an error", bad, got)
		}
	}
}
