package loop

import (
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

// H14 H15: each hook runs at its point, and only what may block or modify there does.
func TestHooksRunAtTheirPoint(t *testing.T) {
	start := begin()
	called, running := oneTurn("a"), with(oneTurn("a"), prepared("0.0"), started("0.0"))
	said := with(begin(), asked(0, 1), turn(0, model.StopEnd))
	for name, tt := range map[string]struct {
		facts []Body
		next  HookRan
		want  bool
	}{
		"at the start":                         {start, hook(OnRunStart, HookAllow, ""), true},
		"a denial at the start":                {start, hook(OnRunStart, HookDeny, ""), true},
		"a change at the start":                {start, hook(OnRunStart, HookModify, ""), false},
		"the start during a model call":        {with(start, asked(0, 1)), hook(OnRunStart, HookAllow, ""), false},
		"twice at the start":                   {with(start, hook(OnRunStart, HookAllow, "")), hook(OnRunStart, HookAllow, ""), false},
		"before a tool":                        {called, hook(PreToolUse, HookAllow, "0.0"), true},
		"a denial before a tool":               {called, hook(PreToolUse, HookDeny, "0.0"), true},
		"a change before a tool":               {called, hook(PreToolUse, HookModify, "0.0"), true},
		"an approval before a tool":            {called, hook(PreToolUse, HookAsk, "0.0"), true},
		"before a tool of no turn":             {called, hook(PreToolUse, HookAllow, "1.0"), false},
		"before a tool, of no call":            {called, hook(PreToolUse, HookAllow, ""), false},
		"before a tool that is prepared":       {with(called, prepared("0.0")), hook(PreToolUse, HookAllow, "0.0"), false},
		"before a tool that is prepared again": {with(called, hook(PreToolUse, HookAllow, "0.0"), prepared("0.0", gated)), hook(PreToolUse, HookAllow, "0.0"), true},
		"a delegation":                         {called, hook(OnDelegation, HookDeny, "0.0"), true},
		"after a tool":                         {running, hook(PostToolUse, HookModify, "0.0"), true},
		"a denial after a tool":                {running, hook(PostToolUse, HookDeny, "0.0"), false},
		"after a tool that has not started":    {called, hook(PostToolUse, HookAllow, "0.0"), false},
		"after a tool that is done":            {with(running, done("0.0")), hook(PostToolUse, HookAllow, "0.0"), false},
		"before the response":                  {said, hook(PreResponse, HookDeny, ""), true},
		"a change before the response":         {said, hook(PreResponse, HookModify, ""), true},
		"an approval of the response":          {said, hook(PreResponse, HookAsk, ""), false},
		"before a response that is not there":  {called, hook(PreResponse, HookAllow, ""), false},
		"after the end has come":               {with(start, CancelRequested{Cause: event.Cancelled}), hook(OnRunStart, HookAllow, ""), false},
		"in a relay":                           {[]Body{accepted(translated)}, hook(OnRunStart, HookAllow, ""), false},
		"without a name":                       {start, HookRan{Point: OnRunStart, Verdict: HookAllow}, false},
		"an unknown point":                     {start, hook("soon", HookAllow, ""), false},
		"an unknown verdict":                   {start, hook(OnRunStart, "perhaps", ""), false},
		"a change without a patch":             {called, HookRan{Point: PreToolUse, Hook: "h", Key: "0.0", Verdict: HookModify}, false},
		"a patch without a change":             {called, HookRan{Point: PreToolUse, Hook: "h", Key: "0.0", Verdict: HookAllow, PatchRef: "p"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := play(t, tt.facts...)
			if err := Allowed(s, Fact{Seq: s.Seq + 1, Body: tt.next}); (err == nil) != tt.want {
				t.Errorf("allowed: %v", err)
			}
		})
	}
}

// H15: a hook that denies at the start ends the run.
func TestAHookDeniesTheRun(t *testing.T) {
	s := play(t, with(begin(), hook(OnRunStart, HookDeny, ""))...)
	if diff := cmp.Diff(finish(event.HookDenied), strip(Decide(s))); diff != "" {
		t.Error(diff)
	}
}

// H15: no call is prepared against the verdict of a hook.
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
			s := play(t, with(oneTurn("a"), hook(PreToolUse, tt.verdict, "0.0"))...)
			if err := Allowed(s, Fact{Seq: s.Seq + 1, Body: prepared("0.0", tt.as...)}); (err == nil) != tt.want {
				t.Errorf("allowed: %v", err)
			}
		})
	}
}
