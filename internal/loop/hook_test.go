package loop

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/model"
)

func hook(p HookPoint, v HookVerdict, key CallKey) HookRan {
	b := HookRan{Point: p, Hook: "h", Key: key, Verdict: v}
	if v == HookModify {
		b.PatchRef = "patch"
	}
	return b
}

// hooked gives a run hooks: each is called h, with the number of its place if there are several.
func hooked(facts []Body, hooks ...Hook) []Body {
	out := slices.Clone(facts)
	a := out[0].(Accepted)
	for i, h := range hooks {
		if h.ID == "" {
			h.ID = "h"
		}
		if i > 0 {
			h.ID += strconv.Itoa(i)
		}
		a.Hooks = append(a.Hooks, h)
	}
	out[0] = a
	return out
}

func at1(p HookPoint) Hook { return Hook{Point: p, Type: HookHTTP} }

// Each hook runs at its point, and only what may block or modify there does. // H14 H15
func TestHooksRunAtTheirPoint(t *testing.T) {
	start := []Body{accepted()}
	called, running := oneTurn("a"), with(oneTurn("a"), prepared("0.0"), started("0.0"))
	said := with(begin(), asked(0, 1), turn(0, model.StopEnd))
	patched := hook(PreResponse, HookDeny, "")
	patched.PatchRef = "p"
	for name, tt := range map[string]struct {
		facts []Body
		next  HookRan
		want  bool
	}{
		"at the start":                         {start, hook(OnRunStart, HookAllow, ""), true},
		"a denial at the start":                {start, hook(OnRunStart, HookDeny, ""), true},
		"a change at the start":                {start, hook(OnRunStart, HookModify, ""), false},
		"twice at the start":                   {with(start, hook(OnRunStart, HookAllow, "")), hook(OnRunStart, HookAllow, ""), false},
		"before a tool":                        {called, hook(PreToolUse, HookAllow, "0.0"), true},
		"a denial before a tool":               {called, hook(PreToolUse, HookDeny, "0.0"), true},
		"a change before a tool":               {called, hook(PreToolUse, HookModify, "0.0"), true},
		"an approval before a tool":            {called, hook(PreToolUse, HookAsk, "0.0"), true},
		"before a tool of no turn":             {called, hook(PreToolUse, HookAllow, "1.0"), false},
		"before a tool, of no call":            {called, hook(PreToolUse, HookAllow, ""), false},
		"before a tool that is prepared":       {with(called, hook(PreToolUse, HookAllow, "0.0"), prepared("0.0")), hook(PreToolUse, HookAllow, "0.0"), false},
		"before a tool that is prepared again": {with(called, hook(PreToolUse, HookAllow, "0.0"), prepared("0.0", gated)), hook(PreToolUse, HookAllow, "0.0"), false},
		"a delegation":                         {called, hook(OnDelegation, HookDeny, "0.0"), true},
		"after a tool":                         {running, hook(PostToolUse, HookModify, "0.0"), true},
		"a denial after a tool":                {running, hook(PostToolUse, HookDeny, "0.0"), false},
		"after a tool that has not started":    {called, hook(PostToolUse, HookAllow, "0.0"), false},
		"after a tool that is done":            {with(running, hook(PostToolUse, HookAllow, "0.0"), done("0.0")), hook(PostToolUse, HookAllow, "0.0"), false},
		"before the response":                  {said, patched, true},
		"a denial that replaces no response":   {said, hook(PreResponse, HookDeny, ""), false},
		"a change before the response":         {said, hook(PreResponse, HookModify, ""), true},
		"an approval of the response":          {said, hook(PreResponse, HookAsk, ""), false},
		"before a response that is not there":  {called, hook(PreResponse, HookAllow, ""), false},
		"after the end has come":               {with(start, CancelRequested{Cause: event.Cancelled}), hook(OnRunStart, HookAllow, ""), false},
		"after a tool, after the end has come": {with(running, CancelRequested{Cause: event.Cancelled}), hook(PostToolUse, HookAllow, "0.0"), true},
		"in a relay":                           {[]Body{accepted(translated)}, hook(OnRunStart, HookAllow, ""), false},
		"one that the run does not have":       {start, HookRan{Point: OnRunStart, Hook: "x", Verdict: HookAllow}, false},
		"an unknown point":                     {start, hook("soon", HookAllow, ""), false},
		"an unknown verdict":                   {start, hook(OnRunStart, "perhaps", ""), false},
		"a change without a patch":             {called, HookRan{Point: PreToolUse, Hook: "h", Key: "0.0", Verdict: HookModify}, false},
		"a patch without a change":             {called, HookRan{Point: PreToolUse, Hook: "h", Key: "0.0", Verdict: HookAllow, PatchRef: "p"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := play(t, hooked(tt.facts, at1(tt.next.Point))...)
			if err := Allowed(s, Fact{Seq: s.Seq + 1, Body: tt.next}); (err == nil) != tt.want {
				t.Errorf("allowed: %v", err)
			}
		})
	}
}

// Hooks run in the order of the list, those whose matcher is the name of the tool, and none
// after one that has denied. // H07 H22
func TestHooksThatAreDue(t *testing.T) {
	pre := func(matcher string) Hook { return Hook{Point: PreToolUse, Type: HookRules, Matcher: matcher} }
	facts := hooked(oneTurn("pay_now"), pre("pay_*"), pre("other"), pre(""), Hook{Point: PostToolUse, Type: HookHTTP}, pre("pay_now"))
	ids := func(s State) (out []string) {
		for _, h := range s.HooksDue(PreToolUse, "0.0") {
			out = append(out, h.ID)
		}
		return out
	}
	if diff := cmp.Diff([]string{"h", "h2", "h4"}, ids(play(t, facts...))); diff != "" {
		t.Error(diff)
	}
	s := play(t, with(facts, hook(PreToolUse, HookAsk, "0.0"))...)
	if diff := cmp.Diff([]string{"h2", "h4"}, ids(s)); diff != "" {
		t.Error(diff)
	}
	if err := Allowed(s, Fact{Seq: s.Seq + 1, Body: HookRan{Point: PreToolUse, Hook: "h4", Key: "0.0", Verdict: HookAllow}}); err == nil {
		t.Error("a hook runs before its turn")
	}
	if err := Allowed(s, Fact{Seq: s.Seq + 1, Body: prepared("0.0", gated)}); err == nil {
		t.Error("a call is prepared before its hooks have run")
	}
	turn := oneTurn("mcp__s__pay_now")
	for i, f := range turn {
		if b, ok := f.(Turn); ok {
			b.Calls[0].Tool, turn[i] = "pay_now", b
		}
	}
	offered := pre("pay_now")
	offered.Offered = true
	if got := ids(play(t, hooked(turn, pre("pay_*"), pre("mcp__s__*"), pre("other"), offered)...)); !slices.Equal(got, []string{"h", "h1"}) {
		t.Errorf("by the server's own name: %v", got)
	}
	if got := ids(play(t, with(facts, hook(PreToolUse, HookDeny, "0.0"))...)); got != nil {
		t.Errorf("after a denial: %v", got)
	}
}

// The approval that a hook asks for has the text and the time of the hook; with that of a
// server, the shorter time. // H03 H06
func TestAHookAsksForApproval(t *testing.T) {
	h := Hook{Point: PreToolUse, Type: HookApproval, Message: "Pay?", WaitMS: 300_000}
	ran := hook(PreToolUse, HookAsk, "0.0")
	ran.Message = "Pay?"
	byHook := func(b *CallPrepared) { b.Verdict, b.Asker = Ask, AskedByHook }
	s := play(t, with(hooked(oneTurn("a"), h), ran, prepared("0.0", byHook))...)
	w := s.AskFor("0.0", "w", 1000)
	if w.ExpiresAt != 301_000 || w.Message != "Pay?" || w.Hook != "h" || w.Policy == "" || w.Asker != AskedByHook {
		t.Errorf("asks %+v", w)
	}
	if a, ok := Decide(s).(Interrupt); !ok || !slices.Equal(a.Calls, []CallKey{"0.0"}) {
		t.Errorf("next is %#v", Decide(s))
	}
	if !s.Accepted.MayWait() {
		t.Error("the run may not wait")
	}
	facts := hooked(oneTurn("a"), h)
	a := facts[0].(Accepted)
	a.Approvals = []ServerApproval{{Server: "s", WaitMS: 900_000}}
	facts[0] = a
	byServer := func(b *CallPrepared) { b.Verdict, b.Asker, b.Server = Ask, AskedByServer, "s" }
	s = play(t, with(facts, ran, prepared("0.0", byServer))...)
	if w := s.AskFor("0.0", "w", 1000); w.ExpiresAt != 301_000 || w.Message != "Pay?" {
		t.Errorf("with the server's rule it asks %+v", w)
	}
}

// No result is recorded before the hooks after its call have decided. // H15 H21
func TestNoResultBeforeItsHooks(t *testing.T) {
	facts := hooked(with(oneTurn("a"), prepared("0.0"), started("0.0")), at1(PostToolUse))
	s := play(t, facts...)
	for outcome, want := range map[Outcome]bool{OK: false, Error: false, NotRun: true, Unknown: true} {
		err := Allowed(s, Fact{Seq: s.Seq + 1, Body: CallDone{Key: "0.0", Attempt: 1, Outcome: outcome, ResultRef: "r"}})
		if (err == nil) != want {
			t.Errorf("%s: %v", outcome, err)
		}
	}
	play(t, with(facts, hook(PostToolUse, HookModify, "0.0"), done("0.0"))...)
}

// A rule that holds denies, and so does one that cannot be evaluated. // H17 H19
func TestRulesOfHooks(t *testing.T) {
	h := Hook{Type: HookRules, Rules: []HookRule{{"q CONTAINS DROP", "no"}, {"q MATCHES x", ""}, {"q STARTS_WITH b", ""}}}
	long := `{"q":"` + strings.Repeat("a", 10_001) + `"}`
	for object, want := range map[string]HookRan{
		`{"q":"DROP TABLE"}`: {Verdict: HookDeny, Message: "no"},
		`{"q":"bye"}`:        {Verdict: HookDeny, Message: "q STARTS_WITH b"},
		`{"q":"select"}`:     {Verdict: HookAllow},
		`{}`:                 {Verdict: HookAllow},
		`nothing`:            {Verdict: HookDeny, Message: "no", Failed: true},
		long:                 {Verdict: HookDeny, Message: "a rule could not be evaluated", Failed: true},
	} {
		var got HookRan
		if got.Verdict, got.Message, got.Failed = h.Judge([]byte(object)); got != want {
			t.Errorf("%.40s: %+v", object, got)
		}
	}
	broken := Hook{Type: HookRules, Rules: []HookRule{{Condition: "q LIKE x"}}}
	if v, _, failed := broken.Judge([]byte(`{}`)); v != HookDeny || !failed {
		t.Errorf("a rule of another build: %s", v)
	}
}

// A hook that denies at the start ends the run. // H15
func TestAHookDeniesTheRun(t *testing.T) {
	s := play(t, with(hooked([]Body{accepted()}, at1(OnRunStart)), hook(OnRunStart, HookDeny, ""))...)
	want := Finish{Reason: event.HookDenied}
	want.Cause.Hook = hook(OnRunStart, HookDeny, "")
	if diff := cmp.Diff(Action(want), Decide(s)); diff != "" {
		t.Error(diff)
	}
}

// No call is prepared against the verdict of a hook. // H15
func TestACallIsPreparedAsItsHooksSay(t *testing.T) {
	for name, tt := range map[string]struct {
		verdict HookVerdict
		as      []func(*CallPrepared)
		want    bool
	}{
		"allowed":                  {HookAllow, nil, true},
		"denied, and executed":     {HookDeny, nil, false},
		"denied, and asked for":    {HookDeny, []func(*CallPrepared){gated}, false},
		"denied, and answered":     {HookDeny, []func(*CallPrepared){badArgs}, true},
		"asked for":                {HookAsk, []func(*CallPrepared){gated}, true},
		"to ask for, and executed": {HookAsk, nil, false},
		"modified":                 {HookModify, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := play(t, with(hooked(oneTurn("a"), at1(PreToolUse)), hook(PreToolUse, tt.verdict, "0.0"))...)
			if err := Allowed(s, Fact{Seq: s.Seq + 1, Body: prepared("0.0", tt.as...)}); (err == nil) != tt.want {
				t.Errorf("allowed: %v", err)
			}
		})
	}
}

// An answer is judged when all hooks before it have decided, or one has denied it. What is not judged is
// no part of the conversation. // H15
func TestAnswersAreJudged(t *testing.T) {
	second := func(v HookVerdict, id, patch string) HookRan {
		return HookRan{Point: PreResponse, Hook: id, Verdict: v, PatchRef: patch}
	}
	said := hooked(with(begin(), asked(0, 1), turn(0, model.StopLength)), at1(PreResponse), at1(PreResponse))
	for name, tt := range map[string]struct {
		ran    []Body
		judged string
		next   Action
	}{
		"none has decided":      {nil, "", nil},
		"one of two":            {[]Body{second(HookAllow, "h", "")}, "", nil},
		"both":                  {[]Body{second(HookAllow, "h", ""), second(HookAllow, "h1", "")}, "t0.0", Finish{Reason: event.OutputCut}},
		"the last change holds": {[]Body{second(HookModify, "h", "a"), second(HookModify, "h1", "b")}, "b", Finish{Reason: event.OutputCut}},
		"a denial":              {[]Body{second(HookDeny, "h", "a")}, "a", Finish{Reason: event.Complete}},
	} {
		t.Run(name, func(t *testing.T) {
			s := play(t, with(said, tt.ran...)...)
			if got := s.JudgedAnswer(); got != tt.judged || !s.HeldAnswer() {
				t.Errorf("judged %q, want %q", got, tt.judged)
			}
			for _, refs := range [][]string{s.HiddenRefs(), s.Refs()} {
				if slices.Contains(refs, s.AnswerRef()) != (tt.judged != "") {
					t.Errorf("the conversation has %v", refs)
				}
			}
			if tt.next == nil {
				return
			}
			if diff := cmp.Diff(tt.next, Decide(s)); diff != "" {
				t.Error(diff)
			}
		})
	}
	if s := play(t, with(begin(), asked(0, 1), turn(0, model.StopEnd))...); s.HeldAnswer() {
		t.Error("an answer without hooks is held")
	}
}
