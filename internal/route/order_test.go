package route

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/internal/loop"
)

// bench is a Router with a clock and a dice of the test.
type bench struct {
	*Router
	at time.Time
}

// newBench returns a Router with one route, m, over the targets a/x, b/x … with the weights.
func newBench(s Strategy, sticky bool, weights ...int) *bench {
	b := &bench{at: time.Unix(1_000_000, 0)}
	var providers []Provider
	route := Route{Model: "m", Strategy: s, Sticky: sticky}
	for i, w := range weights {
		name := string(rune('a' + i))
		providers = append(providers, Provider{Name: name, Models: []string{"own-" + name}})
		route.Targets = append(route.Targets, WeightedTarget{Provider: name, Model: "x", Weight: w})
	}
	b.Router = New(providers, route)
	b.now = func() time.Time { return b.at }
	b.random = rand.New(rand.NewPCG(1, 2)).Float64
	return b
}

// ask returns the question of a run with all targets of the name.
func (b *bench) ask(name, key string) Ask {
	a := Ask{Model: name, Key: key, Last: -1}
	found := b.Resolve(name)
	if found == nil {
		found, _ = b.ResolveList(Names(name))
	}
	for i, t := range found {
		a.Targets, a.Left = append(a.Targets, t.Target), append(a.Left, i)
	}
	return a
}

// order returns the providers in the order in which they are tried.
func (b *bench) order(a Ask) string {
	var names []string
	for _, i := range b.Order(a).Order {
		names = append(names, a.Targets[i].Provider)
	}
	return strings.Join(names, " ")
}

// fail reports failures of a target.
func (b *bench) fail(a Ask, target, times int) {
	for range times {
		b.Report(a, target, Failed, 0)
	}
}

func TestWhichTargetsARouteHas(t *testing.T) { // M09
	r := New([]Provider{{Name: "one", Models: []string{"fast", "one-*"}}, {Name: "two", Models: []string{"two/x"}}},
		Route{Model: "fast", Targets: []WeightedTarget{{Provider: "two", Model: "t"}, {Provider: "one", Model: "o"}}},
		Route{Model: "one/x", Targets: []WeightedTarget{{Provider: "two", Model: "y"}}})
	for name, want := range map[string]string{
		"fast":  "two=t one=o", // a route before an exact name
		"one/x": "two=y",       // and before provider/model
		"two/x": "two=two/x",   // an exact name before provider/model
		"two/y": "two=y",
		"one-a": "one=one-a",
	} {
		var got []string
		for _, target := range r.Resolve(name) {
			got = append(got, target.Provider+"="+target.Model)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if got := New([]Provider{{Name: "any", Models: []string{"*"}}}).Resolve("any/a, b"); got != nil {
		t.Errorf("a list is a model of a provider that serves all: %+v", got)
	}
	targets, unknown := r.ResolveList([]string{"one-a", "fast", "one/o"})
	if unknown != "" || len(targets) != 3 {
		t.Errorf("a list has %+v (%q)", targets, unknown)
	}
	if _, unknown := r.ResolveList([]string{"fast", "none"}); unknown != "none" {
		t.Errorf("%q is unknown", unknown)
	}
}

func TestTheStrategies(t *testing.T) { // M09
	const n = 3000
	count := func(b *bench, key func(int) string) map[string]int {
		first := map[string]int{}
		for i := range n {
			first[strings.Fields(b.order(b.ask("m", key(i))))[0]]++
		}
		return first
	}
	none := func(int) string { return "" }
	each := func(i int) string { return fmt.Sprint("conversation ", i) }
	within := func(name string, got map[string]int, want ...int) {
		t.Helper()
		for i, w := range want {
			provider := string(rune('a' + i))
			if got[provider] < w*9/10 || got[provider] > w*11/10 {
				t.Errorf("%s: %v, want about %v", name, got, want)
				return
			}
		}
	}
	within("fallback", count(newBench(Fallback, true, 1, 1), each), n, 0)
	if got := count(newBench(RoundRobin, false, 1, 1, 1), none); got["a"] != n/3 || got["b"] != n/3 {
		t.Errorf("round robin: %v", got)
	}
	within("sticky round robin", count(newBench(RoundRobin, true, 1, 1, 1), each), n/3, n/3, n/3)
	within("weighted", count(newBench(Weighted, false, 3, 1), none), n*3/4, n/4)
	within("sticky weighted", count(newBench(Weighted, true, 3, 1), each), n*3/4, n/4)

	b := newBench(Latency, false, 1, 1, 1)
	a := b.ask("m", "")
	b.Report(a, 0, Answered, 300*time.Millisecond)
	b.Report(a, 1, Answered, 100*time.Millisecond)
	if got := b.order(a); got != "c b a" {
		t.Errorf("latency: %s, want the unknown one, then the fastest", got)
	}
	b.Report(a, 2, Answered, time.Second)
	if got := b.order(a); got != "b a c" {
		t.Errorf("latency: %s", got)
	}
	if got := b.order(b.ask("own-b, m", "")); got != "b b a c" {
		t.Errorf("a list: %s", got)
	}
}

// A conversation keeps its target; another Router, as after a restart, finds the same one. A
// target that failed is replaced, and the conversation keeps the new one.
func TestAConversationKeepsItsTarget(t *testing.T) { // M09
	for _, s := range []Strategy{Fallback, RoundRobin, Weighted, Latency} {
		b, restarted := newBench(s, true, 1, 2, 1), newBench(s, true, 1, 2, 1)
		moved := 0
		for i := range 50 {
			a := b.ask("m", fmt.Sprint("conversation ", i))
			order := b.Order(a).Order
			b.Report(a, order[0], Answered, time.Duration(i)*time.Millisecond)
			b.Report(b.ask("m", "other"), (order[0]+1)%3, Answered, time.Nanosecond)
			if again := b.Order(a).Order; again[0] != order[0] {
				t.Fatalf("%s: turn 1 went to %d, turn 2 to %d", s, order[0], again[0])
			}
			if again := restarted.Order(a).Order; s != Latency && !slices.Equal(again, order) {
				t.Fatalf("%s: %v, after a restart %v", s, order, again)
			}
			b.Report(a, order[0], Failed, 0)
			b.Report(a, order[1], Answered, 0)
			if again := b.Order(a).Order; again[0] != order[1] {
				t.Fatalf("%s: the conversation moved to %d, then went to %d", s, order[1], again[0])
			}
			a.Last = order[2] // of the stored conversation
			if again := restarted.Order(a).Order; again[0] != order[2] {
				t.Fatalf("%s: the stored conversation went to %d, then to %d", s, order[2], again[0])
			}
			moved++
		}
		if s == Fallback && len(b.pins.of) != moved+1 {
			t.Errorf("%d conversations are remembered, want %d", len(b.pins.of), moved+1)
		}
	}
	b := newBench(RoundRobin, false, 1, 1)
	a := b.ask("m", "k")
	if one, two := b.order(a), b.order(a); one == two {
		t.Error("a route that is not sticky gave one conversation the same target twice")
	}
}

// The target that goes away is not tried again until its breaker is half-open, and a failed
// fallback is taken out as well.
func TestTheBreaker(t *testing.T) { // M09, failure 5
	b := newBench(Fallback, true, 1, 1)
	a := b.ask("m", "")
	state := func(i int) BreakerState { return b.Routes()[0].States[i].Breaker }
	b.fail(a, 0, 4)
	b.Report(a, 0, Answered, 0) // failures count without an answer in between
	b.fail(a, 0, 4)
	b.Report(a, 0, NoVerdict, 0) // the caller has left
	if got := b.order(a); got != "a b" || state(0) != Closed {
		t.Fatalf("after 4 failures: %s, %s", got, state(0))
	}
	b.at = b.at.Add(openWithin + 1)
	b.fail(a, 0, 1)
	if got := b.order(a); got != "a b" {
		t.Fatalf("5 failures in more than %s: %s", openWithin, got)
	}
	b.fail(a, 0, 4)
	c := b.Order(a)
	if diff := cmp.Diff(
		Choice{[]int{1}, []loop.SkippedTarget{{Target: 0, Reason: loop.SkipOpen}}, new(0)},
		c,
	); diff != "" ||
		state(0) != Open {
		t.Fatalf("after 5 failures: %s (-want +got):\n%s", state(0), diff)
	}
	b.fail(a, 1, 5)
	if got := b.order(a); got != "a b" {
		t.Errorf("all are open: %q", got)
	}
	b.Report(a, 1, Answered, 0)
	if got := b.order(a); got != "b" {
		t.Errorf("a target that answers is closed again: %q", got)
	}
	b.at = b.at.Add(openFor)
	if state(0) != HalfOpen {
		t.Errorf("after %s: %s", openFor, state(0))
	}
	if one, two := b.order(a), b.order(a); one != "a b" || two != "b" {
		t.Errorf("half-open: the first request got %q, the second %q; want one probe", one, two)
	}
	b.fail(a, 0, 1)
	if got := b.order(a); got != "b" || state(0) != Open {
		t.Errorf("after the probe failed: %q, %s", got, state(0))
	}
	b.at = b.at.Add(openFor)
	b.Order(a)
	b.Report(a, 0, NoVerdict, 0) // the caller of the probe has left
	if got := b.order(a); got != "a b" {
		t.Errorf("after a probe without a verdict: %q", got)
	}
	b.Report(a, 0, Answered, 0)
	if got := b.order(a); got != "a b" || state(0) != Closed {
		t.Errorf("after the probe was answered: %q, %s", got, state(0))
	}
}

// What callers send does not make the Router's memory grow without bound.
func TestTheMemoryOfARouterIsBounded(t *testing.T) {
	b := newBench(Latency, true, 1, 1)
	for i := range maxPins + 500 {
		b.Report(b.ask("m", fmt.Sprint("conversation ", i)), 1, Answered, time.Millisecond)
	}
	if n := len(b.pins.of); n != maxPins || b.pins.recent.Len() != maxPins {
		t.Errorf("%d conversations are remembered, want %d", n, maxPins)
	}
	for i := range maxBreakers + 500 {
		b.at = b.at.Add(time.Millisecond)
		b.Report(b.ask(fmt.Sprint("a/", i), ""), 0, Failed, 0)
	}
	if n := len(b.breakers.of); n != maxBreakers {
		t.Errorf("%d targets are remembered, want %d", n, maxBreakers)
	}
	b.at = b.at.Add(pinFor + 1)
	if a := b.ask("m", fmt.Sprint("conversation ", maxPins+499)); b.pinned(a) != -1 {
		t.Error("a conversation is remembered for longer than pinFor")
	}
}

// The first target of a fallback list is named if another one is first: its breaker is open, or the conversation stays
// with the other.
func TestTheFirstOfAFallbackListIsNamed(t *testing.T) { // I09
	for _, s := range []Strategy{Fallback, Weighted} {
		b := newBench(s, true, 1, 1)
		a := b.ask("m", "c")
		head := b.Order(a)
		if head.First != nil {
			t.Errorf("%s: %d is the first already", s, *head.First)
		}
		a.Last = 1 - head.Order[0]
		if c := b.Order(a); c.Order[0] != a.Last || (c.First != nil) != (s == Fallback) {
			t.Errorf("%s: the conversation stays: %+v", s, c)
		}
		a.Left = a.Left[1:]
		if c := b.Order(a); c.First != nil {
			t.Errorf("%s: %d has been tried", s, *c.First)
		}
	}
}
