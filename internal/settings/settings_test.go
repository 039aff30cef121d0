package settings_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/policy"
	"github.com/turnpike-gateway/turnpike/internal/settings"
	"github.com/turnpike-gateway/turnpike/model"
)

// Each row changes one thing about a run whose org, surface and request leave all open.
func TestWhoDecidesASetting(t *testing.T) {
	texts := []model.DeltaKind{model.TextDelta}
	hosted := []loop.HostedTool{{Type: "web_search", Server: "s", Tool: "find"}}
	own := settings.Defaults{Rounds: 7, Calls: 8, OnLimit: budget.Answer, Parallelism: loop.Safe, DoomLoop: policy.Fail, ResultMaxBytes: 9000, EndCut: true}
	agents := settings.Defaults{OnLimit: budget.Answer, KeepBack: 15, ResultMaxChars: 50_000}
	for name, tt := range map[string]struct {
		cap      int // 0 = not set
		org      org.Runtime
		defaults settings.Defaults
		asked    settings.Request
		want     func(*loop.Policy)
	}{
		"nobody says anything": {want: func(*loop.Policy) {}},
		"the surface": {defaults: own, want: func(p *loop.Policy) {
			p.Limits.Rounds, p.Limits.Calls, p.Limits.OnLimit = 7, 8, budget.Answer
			p.Parallelism, p.Guard.Mode, p.ResultMaxBytes, p.EndCut = loop.Safe, policy.Fail, 9000, true
		}},
		"a surface that keeps back for an answer": {defaults: agents, want: func(p *loop.Policy) { // B20 C12
			p.Limits.OnLimit, p.Limits.KeepBack, p.ResultMaxChars = budget.Answer, 15, 50_000
		}},
		"an org that limits results by their bytes": {defaults: agents, org: org.Runtime{ToolResultMaxBytes: new(2048)}, want: func(p *loop.Policy) {
			p.Limits.OnLimit, p.Limits.KeepBack, p.ResultMaxBytes = budget.Answer, 15, 2048
		}},
		"the org, before the surface": { // B01
			defaults: own, org: org.Runtime{
				MaxRounds: new(3), MaxCalls: new(4), MaxRunTokens: new(5), Deadline: time.Second, OnLimit: budget.Stop, Concurrency: 2,
				ToolParallelism: "serial", DoomLoop: "off", DoomThreshold: 6, DoomFailures: 7, ToolResultMaxBytes: new(2048), ToolArgValidation: "lenient",
				ToolErrorMode: "abort", CatalogTTL: time.Minute, ToolCacheTTL: time.Hour, DroppedParams: "refuse",
			},
			want: func(p *loop.Policy) {
				p.Limits = budget.Limits{Rounds: 3, Calls: 4, Tokens: 5, ActiveMS: 1000, OnLimit: budget.Stop, CallsPerTurn: budget.DefaultCallsPerTurn}
				p.Slots, p.Parallelism, p.ResultMaxBytes = 2, loop.Serial, 2048      // C02
				p.Guard.Mode, p.Guard.Threshold, p.Guard.Failures = policy.Off, 6, 7 // B13
				p.Validation, p.AbortOnTool, p.RefuseDropped = loop.Lenient, true, true
				p.EndCut = true
				p.CatalogTTLNS, p.CacheTTLNS = int64(time.Minute), int64(time.Hour) // D02
			},
		},
		"the words for the defaults": {
			org: org.Runtime{
				ToolParallelism: "auto", ToolArgValidation: "strict", ToolErrorMode: "recover", DroppedParams: "name", Durable: "auto", StreamMode: org.Live,
			},
			defaults: settings.Defaults{Parallelism: loop.First}, want: func(p *loop.Policy) { p.Parallelism = loop.First },
		},
		"the operator, before the org":     {cap: 2, org: org.Runtime{MaxRounds: new(9)}, want: func(p *loop.Policy) { p.Limits.Rounds = 2 }}, // B02
		"an operator who sets no cap":      {org: org.Runtime{MaxRounds: new(200)}, want: func(p *loop.Policy) { p.Limits.Rounds = 50 }},      // B02
		"an operator who allows more":      {cap: 256, org: org.Runtime{MaxRounds: new(200)}, want: func(p *loop.Policy) { p.Limits.Rounds = 200 }},
		"the operator, before the surface": {cap: 2, defaults: settings.Defaults{Rounds: 9}, want: func(p *loop.Policy) { p.Limits.Rounds = 2 }},
		"stored limits that no setting can have": {
			org: org.Runtime{MaxRounds: new(-1), MaxCalls: new(99_999), ToolResultMaxBytes: new(0), MaxRunTokens: new(-5)}, defaults: own,
			want: func(p *loop.Policy) {
				p.Limits.Rounds, p.Limits.Calls, p.Limits.OnLimit = 7, 10_000, budget.Answer
				p.Parallelism, p.Guard.Mode, p.ResultMaxBytes, p.EndCut = loop.Safe, policy.Fail, 9000, true
			},
		},
		"a request with a key":        {asked: settings.Request{Keyed: true}, want: func(p *loop.Policy) { p.Grade = loop.Durable }}, // P01
		"an org with durable: always": {org: org.Runtime{Durable: "always"}, want: func(p *loop.Policy) { p.Grade = loop.Durable }},  // P01
		"a request without tools":     {asked: settings.Request{NoTools: true}, want: func(p *loop.Policy) { p.NoTools = true }},     // C25
		"a request with a limit":      {asked: settings.Request{MaxTokens: 70}, want: func(p *loop.Policy) { p.MaxTokens = 70 }},
		"a request with fewer calls":  {asked: settings.Request{Calls: 3}, defaults: settings.Defaults{Calls: 10}, want: func(p *loop.Policy) { p.Limits.Calls = 3 }},   // B08
		"a request with more calls":   {asked: settings.Request{Calls: 30}, defaults: settings.Defaults{Calls: 10}, want: func(p *loop.Policy) { p.Limits.Calls = 10 }}, // B08
		"limits of single tools, of the org and of the request": { // P38
			asked: settings.Request{
				Servers: []settings.Server{{Name: "s", MaxUses: map[string]int{"b": 2, "a": 1}}, {Name: "t"}},
				Hosted:  []loop.HostedTool{{Type: "web_search", Server: "s", Tool: "a", MaxUses: 5}},
			},
			want: func(p *loop.Policy) {
				p.MaxUses = []loop.ToolUses{{Server: "s", Tool: "a", Most: 1}, {Server: "s", Tool: "b", Most: 2}, {Server: "s", Tool: "a", Most: 5}}
				p.Hosted = []loop.HostedTool{{Type: "web_search", Server: "s", Tool: "a", MaxUses: 5}}
			},
		},
		"a request with hosted tools": {asked: settings.Request{Hosted: hosted}, want: func(p *loop.Policy) { p.Hosted = hosted }},
		"a stream":                    {asked: settings.Request{Live: texts}, want: func(p *loop.Policy) { p.Live = texts }},
		"a stream of the last round": {asked: settings.Request{Live: texts}, org: org.Runtime{StreamMode: org.FinalOnly}, // G01
			want: func(p *loop.Policy) { p.StreamMode = "final_only" }},
		"a stream where there is none": {asked: settings.Request{Live: texts}, org: org.Runtime{StreamMode: org.Disabled}, // G02
			want: func(p *loop.Policy) { p.StreamMode = "disabled" }},
		"a relay": {
			asked: settings.Request{Relay: true, Keyed: true, MaxTokens: 70, Live: texts, Hosted: hosted}, defaults: own,
			org: org.Runtime{MaxRounds: new(3), Durable: "always", Concurrency: 2, StreamMode: org.Disabled, DroppedParams: "refuse", ToolErrorMode: "abort"},
			want: func(p *loop.Policy) {
				*p = loop.Policy{Grade: loop.Relay, MaxTokens: 70, StreamMode: "live", Live: texts, RefuseDropped: true, ItemEnds: true}.WithDefaults()
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			want := loop.Policy{
				Grade: loop.Light, Limits: budget.Limits{}.Clamp(budget.MaxRounds), StreamMode: "live", Validation: loop.Strict, ItemEnds: true,
				ToolWaitMS: org.DefaultApprovalTimeout.Milliseconds(),
			}.WithDefaults()
			tt.want(&want)
			got := settings.Resolve(settings.Operator{MaxRoundsCap: tt.cap}, tt.org, tt.defaults, tt.asked)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			if _, err := loop.Decode(loop.Version, loop.KindAccepted, encode(t, got)); err != nil {
				t.Error(err)
			}
		})
	}
}

var operator settings.Operator

// A setting of an org that no policy has would be accepted and then ignored.
func TestEverySettingOfAnOrgReachesItsRuns(t *testing.T) {
	gated := []settings.Server{{Name: "s", Approval: policy.Approval{Rest: true}}}
	asked := settings.Request{Live: []model.DeltaKind{model.TextDelta}, Servers: gated, MaxCost: 7}
	defaults := settings.Defaults{WaitFor: true, Parallelism: loop.Parallel, DoomLoop: policy.Nudge}
	words := map[string]string{
		"StreamMode": "final_only", "ToolParallelism": "serial", "ToolArgValidation": "none", "ToolErrorMode": "abort", "OnLimit": "answer",
		"DoomLoop": "fail", "DroppedParams": "refuse", "Durable": "always", "UnpricedTools": org.RefuseTools,
		"Context": org.ContextAuto, "AgentPermission": "ask", "CompactionModel": "m",
	}
	base := settings.Resolve(operator, org.Runtime{}, defaults, asked)
	for i, kind := 0, reflect.TypeFor[org.Runtime](); i < kind.NumField(); i++ {
		name := kind.Field(i).Name
		switch name {
		case "Approvers": // when somebody decides: see journal.Approval.MayDecide
			continue
		case "Rate": // of requests, before there is a run: see internal/httpd
			continue
		case "Extensions": // of answers, not of runs
			continue
		case "CompactionModel", "CompactionExclude": // only with Context: see TestTheContextPolicyOfARun
			continue
		case "MaxQueued": // whether a run is queued: see settings.MaxQueued
			continue
		case "Web", "Databases", "BuiltinTools": // of tools: see internal/webtool, internal/sqltool and internal/app
			continue
		case "EnableSearch", "EnableCode", "MaxToolRounds", "ToolNames": // only of requests that they engage: see TestTheSwitchesOfARun
			continue
		case "Buckets": // of tools and of the API of files: see internal/storagetool
			continue
		case "SessionTTL": // how long sessions are kept: see SessionTTL
			continue
		case "Agents": // defaults of agents, which are in the snapshot of each: see internal/agent
			continue
		case "ModelLists": // which models a request may name: see internal/surface
			continue
		}
		var rt org.Runtime
		switch field := reflect.ValueOf(&rt).Elem().Field(i); field.Kind() {
		case reflect.Pointer:
			field.Set(reflect.ValueOf(new(5)))
		case reflect.String:
			field.SetString(words[name])
		case reflect.Slice: // Budgets, Hooks
			if name == "Hooks" {
				field.Set(reflect.ValueOf([]org.Hook{{ID: "h", Event: "PreToolUse", Type: "http"}}))
				break
			}
			field.Set(reflect.ValueOf([]org.Budget{{Scope: "org", Period: "day", Tokens: 5}}))
		default:
			field.SetInt(6) // MaxRunCost below the limit of the request
			if field.Type() == reflect.TypeFor[time.Duration]() {
				field.SetInt(int64(5 * time.Millisecond))
			}
		}
		if cmp.Equal(base, settings.Resolve(operator, rt, defaults, asked)) {
			t.Errorf("%s of an org changes nothing about its runs", name)
		}
	}
}

// The policy is stored whole: what is read from the journal is what was resolved.
func TestAPolicyIsStoredWhole(t *testing.T) {
	sealed := loop.Policy{Limits: budget.Limits{NanoUSD: new(int64(1))}, Live: []model.DeltaKind{model.CallDelta}, Budgets: []budget.Shared{{Scope: "s"}}}
	fill(reflect.ValueOf(&sealed).Elem())
	body, err := loop.Decode(loop.Version, loop.KindAccepted, encode(t, sealed))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sealed, body.(loop.Accepted).Policy); diff != "" {
		t.Error(diff)
	}
}

// fill sets every field of v, a struct, that is a number, a word or a flag.
func fill(v reflect.Value) {
	for i := range v.NumField() {
		switch f := v.Field(i); f.Kind() {
		case reflect.Struct:
			fill(f)
		case reflect.String:
			f.SetString("x")
		case reflect.Bool:
			f.SetBool(true)
		case reflect.Int, reflect.Int64:
			f.SetInt(int64(i) + 1)
		}
	}
}

func encode(t *testing.T, p loop.Policy) []byte {
	t.Helper()
	data, err := loop.Encode(loop.Accepted{Policy: p})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// What a request does not want to be stored waits at most a day: its texts are stored meanwhile. // G17
func TestARunThatIsToBeForgottenWaitsForADay(t *testing.T) {
	always := policy.Approval{Rest: true}
	for name, c := range map[string]struct {
		asked   settings.Request
		d       settings.Defaults
		timeout time.Duration
		want    time.Duration
	}{
		"as the server says":         {want: org.DefaultApprovalTimeout},
		"forgotten":                  {asked: settings.Request{NoStore: true}, want: 24 * time.Hour},
		"forgotten, with a key":      {asked: settings.Request{NoStore: true, Keyed: true}, want: 24 * time.Hour},
		"a server that waits less":   {asked: settings.Request{NoStore: true}, timeout: time.Minute, want: time.Minute},
		"held open":                  {asked: settings.Request{NoStore: true}, d: settings.Defaults{WaitFor: true}, want: org.DefaultApprovalHold},
		"held open and not asked so": {d: settings.Defaults{WaitFor: true}, want: org.DefaultApprovalHold},
	} {
		c.asked.Servers = []settings.Server{{Name: "s", Approval: always, ApprovalTimeout: c.timeout}}
		p := settings.Resolve(settings.Operator{}, org.Runtime{}, c.d, c.asked)
		if got := time.Duration(p.Approvals[0].WaitMS) * time.Millisecond; got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		if got := time.Duration(p.ToolWaitMS) * time.Millisecond; c.timeout == 0 && got != c.want {
			t.Errorf("%s: a tool that asks itself waits %v, want %v", name, got, c.want)
		}
	}
}

// The budgets of a run are those of its org, of its key and of its end user, in this order. Of two
// budgets for the same calls both limits hold. // P03 P57
func TestTheBudgetsOfARun(t *testing.T) {
	rt := org.Runtime{MaxRunCost: 70, Budgets: []org.Budget{
		{Scope: "end_user", Period: "day", NanoUSD: 9}, {Scope: "key", Period: "day", Tokens: 8, NanoUSD: 5}, {Scope: "org", Period: "month", NanoUSD: 7},
	}}
	asked := settings.Request{Key: "k", EndUser: "a/b c", KeyAccess: org.Access{Budgets: []org.Budget{{Period: "day", NanoUSD: 6, Tokens: 3}, {Period: "total", Tokens: 2}}}, MaxCost: 90}
	for _, relay := range []bool{false, true} {
		asked.Relay = relay
		got := settings.Resolve(operator, rt, settings.Defaults{}, asked)
		want := []budget.Shared{
			{Scope: "org", Period: budget.Month, Limit: budget.Amount{NanoUSD: 7}},
			{Scope: "key/k", Period: budget.Day, Limit: budget.Amount{Tokens: 3, NanoUSD: 5}},
			{Scope: "key/k", Period: budget.Total, Limit: budget.Amount{Tokens: 2}},
			{Scope: "end_user/a%2Fb c", Period: budget.Day, Limit: budget.Amount{NanoUSD: 9}},
		}
		if diff := cmp.Diff(want, got.Budgets); diff != "" {
			t.Error(diff)
		}
		if got.Limits.NanoUSD == nil || *got.Limits.NanoUSD != 70 {
			t.Errorf("the limit of the run: %v", got.Limits.NanoUSD)
		}
	}
	asked.MaxCost, asked.EndUser = 60, ""
	if got := settings.Resolve(operator, rt, settings.Defaults{}, asked); len(got.Budgets) != 3 || *got.Limits.NanoUSD != 60 {
		t.Errorf("%+v", got)
	}
}

// The policy for long prompts: a request decides before its key, and the key before the org. A relay has none.
func TestTheContextPolicyOfARun(t *testing.T) {
	op := settings.Operator{Compaction: settings.Compaction{Model: "cheap", ExcludeTools: []string{"a"}}}
	auto, prune := loop.ContextPolicy{Mode: loop.ContextAuto, SummaryModel: "cheap", ExcludeTools: []string{"a"}}, loop.ContextPolicy{Mode: loop.ContextPrune, ExcludeTools: []string{"a"}}
	own := auto
	own.SummaryModel, own.ExcludeTools, own.Threshold = "own", []string{"a", "b"}, 2000
	for name, tt := range map[string]struct {
		org   org.Runtime
		asked settings.Request
		want  loop.ContextPolicy
	}{
		"nobody says anything":           {},
		"the org":                        {org: org.Runtime{Context: "auto"}, want: auto},
		"a key before its org":           {org: org.Runtime{Context: "auto"}, asked: settings.Request{KeyContext: "prune"}, want: prune},
		"a key switches off":             {org: org.Runtime{Context: "auto"}, asked: settings.Request{KeyContext: "off"}},
		"a request before its key":       {org: org.Runtime{Context: "prune"}, asked: settings.Request{KeyContext: "off", Context: "auto"}, want: auto},
		"a request switches off":         {org: org.Runtime{Context: "auto"}, asked: settings.Request{KeyContext: "auto", Context: "off", CompactAt: 2000}},
		"the org's own summaries":        {org: org.Runtime{Context: "auto", CompactionModel: "own", CompactionExclude: []string{"b"}}, asked: settings.Request{CompactAt: 2000}, want: own},
		"a relay":                        {org: org.Runtime{Context: "auto"}, asked: settings.Request{Relay: true, Context: "auto"}},
		"a setting that is stored wrong": {org: org.Runtime{Context: "on"}},
	} {
		if diff := cmp.Diff(tt.want, settings.Resolve(op, tt.org, settings.Defaults{}, tt.asked).Context); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	if len(op.Compaction.ExcludeTools) != 1 {
		t.Error("the operator's list has changed")
	}
}

// Of the rounds of an agent and of its org the lower number holds, and prompts of agents are made shorter unless the org
// says otherwise.
func TestTheSettingsOfAnOrgHoldForItsAgents(t *testing.T) {
	for _, c := range []struct {
		org            org.Runtime
		rounds, repeat int
		context        loop.ContextMode
	}{
		{org.Runtime{}, 25, 3, loop.ContextAuto},
		{org.Runtime{MaxRounds: new(3), DoomThreshold: 5, Context: org.ContextOff}, 3, 5, ""},
		{org.Runtime{MaxRounds: new(40), Context: org.ContextPrune}, 25, 3, loop.ContextPrune},
	} {
		p := settings.Resolve(operator, settings.OfAgent(c.org, settings.Agent{Rounds: 25}), settings.Defaults{}, settings.Request{})
		if p.Limits.Rounds != c.rounds || p.Guard.Threshold != c.repeat || p.Context.Mode != c.context {
			t.Errorf("%+v: %d rounds, %d repeats, context %q", c.org, p.Limits.Rounds, p.Guard.Threshold, p.Context.Mode)
		}
	}
}
