package settings_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/policy"
	"github.com/turnpike-gateway/turnpike/internal/settings"
	"github.com/turnpike-gateway/turnpike/model"
)

// Each row changes one thing about a run whose program leaves all open.
func TestTheSettingsOfALibraryRun(t *testing.T) {
	limits := budget.Limits{Rounds: 10, Calls: 128, NanoUSD: new(int64(7))}
	deltas := []model.DeltaKind{model.TextDelta, model.ReasoningDelta, model.RefusalDelta, model.CallDelta}
	compact := loop.ContextPolicy{Mode: loop.ContextPrune, Threshold: 2000}
	hooks := []loop.Hook{{ID: "pre_tool", Point: loop.PreToolUse, Type: loop.HookFunction, DenyOnError: true}}
	for name, c := range map[string]struct {
		says settings.Program
		want func(*loop.Policy)
	}{
		"nothing":  {want: func(*loop.Policy) {}},
		"a store":  {settings.Program{Durable: true}, func(p *loop.Policy) { p.Grade, p.NoStore = loop.Durable, false }},
		"a stream": {settings.Program{Streams: true}, func(p *loop.Policy) { p.Live = deltas }},
		"limits":   {settings.Program{Limits: limits, MaxTokens: 500}, func(p *loop.Policy) { p.Limits, p.MaxTokens = limits, 500 }},
		"how calls are executed": {
			settings.Program{Parallelism: loop.Serial, Validation: loop.Lenient, AbortOnTool: true, ResultMaxBytes: 2048},
			func(p *loop.Policy) {
				p.Parallelism, p.Validation, p.AbortOnTool, p.ResultMaxBytes = loop.Serial, loop.Lenient, true, 2048
			},
		},
		"compaction and hooks": {settings.Program{Context: compact, Hooks: hooks}, func(p *loop.Policy) { p.Context, p.Hooks = compact, hooks }},
		"servers": {settings.Program{Servers: []string{"program", "shop"}}, func(p *loop.Policy) {
			const week = int64(7 * 24 * time.Hour / time.Millisecond)
			p.Approvals = []loop.ServerApproval{{Server: "program", WaitMS: week}, {Server: "shop", WaitMS: week}}
		}},
		"one call": {
			settings.Program{
				OneCall: true, Durable: true, Streams: true, Limits: limits, MaxTokens: 500, Parallelism: loop.Serial, AbortOnTool: true, Hooks: hooks,
				Context: compact, Servers: []string{"program"},
			},
			func(p *loop.Policy) {
				*p = loop.Policy{Grade: loop.Relay, Limits: budget.Limits{NanoUSD: limits.NanoUSD}, MaxTokens: 500, Live: deltas}.WithDefaults()
			},
		},
	} {
		want := loop.Policy{
			Grade: loop.Light, NoStore: true, Parallelism: loop.Parallel, Validation: loop.Strict, ResultMaxBytes: 65_536, HeadOnly: true,
			CatalogTTLNS: int64(10 * time.Minute), Rules: loop.Rules{CallsPerServer: 32}, Guard: policy.Guard{Mode: policy.Nudge},
		}.WithDefaults()
		c.want(&want)
		if diff := cmp.Diff(want, settings.Library(c.says)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
