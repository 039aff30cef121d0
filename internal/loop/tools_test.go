package loop

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/model"
)

func TestToolsOfARun(t *testing.T) {
	gateway := func(name string) (string, bool) {
		return "srv", name == "search" || name == "fetch"
	}
	named := func(name string) model.ToolChoice { return model.ToolChoice{Mode: "named", Name: name} }
	required := func(only ...string) model.ToolChoice { return model.ToolChoice{Mode: "required", Only: only} }
	for name, tt := range map[string]struct {
		tools    Tools
		choice   model.ToolChoice
		conflict *Conflict
		missing  string
	}{
		"no tools and no choice":     {},
		"a conflict, first by name":  {tools: Tools{Client: map[string]bool{"search": true, "mine": true, "fetch": true}, Gateway: gateway, Offered: 2}, conflict: &Conflict{"fetch", "srv"}},
		"a tool of the gateway":      {tools: Tools{Gateway: gateway, Offered: 2}, choice: named("search")},
		"a tool of the caller":       {tools: Tools{Client: map[string]bool{"mine": true}, Gateway: gateway}, choice: named("mine")},
		"a tool that does not exist": {tools: Tools{Client: map[string]bool{"mine": true}, Gateway: gateway}, choice: named("ghost"), missing: "ghost"},
		"one of the allowed":         {tools: Tools{Gateway: gateway, Offered: 2}, choice: required("ghost", "fetch")},
		"none of the allowed":        {tools: Tools{Gateway: gateway, Offered: 2}, choice: required("ghost"), missing: "any of the allowed tools"},
		"any, and there are some":    {tools: Tools{Client: map[string]bool{"mine": true}}, choice: required()},
		"any, and there are none":    {choice: required(), missing: "any tool"},
		"auto never misses anything": {choice: model.ToolChoice{Mode: "auto", Only: []string{"ghost"}}},
		"none is always possible":    {choice: model.ToolChoice{Mode: "none"}},
		"allowed, without a gateway": {tools: Tools{Client: map[string]bool{"mine": true}}, choice: required("mine")},
		"any, and the provider has":  {tools: Tools{Hosted: 1}, choice: required()},
		"one that the provider has":  {tools: Tools{Hosted: 1}, choice: model.ToolChoice{Mode: "required", Only: []string{}, OnlyHosted: []json.RawMessage{[]byte(`{}`)}}},
		"known, but none is offered": {tools: Tools{Gateway: gateway}, choice: required(), missing: "any tool"},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.conflict, tt.tools.Conflict()); diff != "" {
				t.Errorf("conflict (-want +got):\n%s", diff)
			}
			if got := tt.tools.Missing(tt.choice); got != tt.missing {
				t.Errorf("missing %q, want %q", got, tt.missing)
			}
		})
	}
}

// At most ten calls of a run to one server are in flight at a time. // D11
func TestWhichWaitingCallsMayStart(t *testing.T) {
	at := func(server string, change ...func(*CallPrepared)) func(*CallPrepared) {
		return func(b *CallPrepared) {
			b.Server = server
			for _, c := range change {
				c(b)
			}
		}
	}
	keys := func(from, to int) []CallKey {
		var out []CallKey
		for i := from; i < to; i++ {
			out = append(out, Key(0, i))
		}
		return out
	}
	// twelve is a turn of twelve calls, prepared.
	twelve := func(of Body, prepare func(i int) func(*CallPrepared)) []Body {
		out := []Body{of, catalogued(), asked(0, 1), turn(0, model.StopCalls, "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l")}
		for i, key := range keys(0, 12) {
			out = append(out, prepared(key, func(b *CallPrepared) { b.ArgsDigest = string(key) }, prepare(i)))
		}
		return out
	}
	one := func(int) func(*CallPrepared) { return at("s") }
	start := func(n int) []Body {
		var out []Body
		for _, key := range keys(0, n) {
			out = append(out, started(key))
		}
		return out
	}
	for name, tt := range map[string]struct {
		facts             []Body
		waiting, inFlight []CallKey
		want              []CallKey
	}{
		"the first ten":                  {twelve(accepted(), one), keys(0, 12), nil, keys(0, 10)},
		"none while ten are in flight":   {with(twelve(accepted(), one), start(10)...), keys(10, 12), keys(0, 10), nil},
		"one for each that has a result": {with(twelve(accepted(), one), append(start(10), done("0.3"))...), keys(10, 12), append(keys(0, 3), keys(4, 10)...), keys(10, 11)},
		"reads count too": {
			with(twelve(accepted(), func(int) func(*CallPrepared) { return at("s", reads) }), append(start(10), done("0.3"))...),
			keys(10, 12), append(keys(0, 3), keys(4, 10)...), keys(10, 11),
		},
		"each server has its own": {
			twelve(accepted(), func(i int) func(*CallPrepared) { return at(string(rune('a' + i/11))) }), keys(0, 12), nil, append(keys(0, 10), "0.11"),
		},
		"the number of the run's own rules": {twelve(accepted(func(b *Accepted) { b.Rules.CallsPerServer = 2 }), one), keys(0, 12), nil, keys(0, 2)},
		"none once the run ends":            {with(twelve(accepted(), one), append(start(10), CancelRequested{By: "p", Cause: event.CallerGone}, done("0.3"))...), keys(10, 12), append(keys(0, 3), keys(4, 10)...), nil},
		"none after a failure that ends it": {with(twelve(accepted(abortOnTool), one), append(start(10), errored("0.3"))...), keys(10, 12), append(keys(0, 3), keys(4, 10)...), nil},
		"serial: one":                       {twelve(accepted(mode(Serial)), one), keys(0, 1), nil, keys(0, 1)},
		"those that are waiting":            {twelve(accepted(), one), keys(4, 6), nil, keys(4, 6)},
	} {
		t.Run(name, func(t *testing.T) {
			s := play(t, tt.facts...)
			got := s.Startable(tt.waiting, tt.inFlight)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			for _, key := range got { // the driver appends them in one batch
				f := Fact{Seq: s.Seq + 1, Epoch: 1, At: s.At, Version: Version, Body: started(key)}
				if err := Allowed(s, f); err != nil {
					t.Fatal(err)
				}
				s = Apply(s, f)
			}
		})
	}
}

// Keys of calls are compared as numbers.
func TestKeysAreInTheOrderOfTheirCalls(t *testing.T) { // C05
	want := []CallKey{"0.2", "0.10", "0.10.1", "0.11", "2.0", "10.0"}
	got := []CallKey{"10.0", "0.11", "0.10.1", "2.0", "0.10", "0.2"}
	slices.SortFunc(got, CompareKeys)
	if !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
}
