package loop

import (
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/policy"
)

// An approval is for the call exactly as it was shown. A call that has changed since is
// asked for again, and its old approval starts nothing. // P02
func TestAnApprovalIsForTheCallAsItWasShown(t *testing.T) {
	asked := with(oneTurn("g"), prepared("0.0", gated), waiting("0.0", "w"), Parked{})
	approved := with(asked, CallResolved{WaitID: "w", Approved: true}, Resumed{})
	if _, ok := Decide(play(t, approved...)).(ExecuteTools); !ok {
		t.Fatal("an approved call is not executed")
	}
	changed := play(t, with(approved, prepared("0.0", gated, preparedAgain))...)
	if a, ok := Decide(changed).(Interrupt); !ok || len(a.Calls) != 1 {
		t.Fatalf("a changed call is not asked for again: %#v", Decide(changed))
	}
	start := Fact{Seq: changed.Seq + 1, Body: started("0.0")}
	if Allowed(changed, start) == nil || CheckSafety(changed, start) == nil {
		t.Error("the old approval starts the changed call")
	}
	if err := Allowed(changed, Fact{Seq: changed.Seq + 1, Body: CallResolved{WaitID: "w", Approved: true}}); err == nil {
		t.Error("the old approval can be decided again")
	}
	if err := Allowed(changed, Fact{Seq: changed.Seq + 1, Body: waiting("0.0", "w2")}); err == nil {
		t.Error("the call is asked for as it was before")
	}
	again := changed.AskFor("0.0", "w2", 0)
	s := play(t, with(approved, prepared("0.0", gated, preparedAgain), again, Parked{}, CallResolved{WaitID: "w2", Approved: true}, Resumed{})...)
	if _, ok := Decide(s).(ExecuteTools); !ok {
		t.Errorf("the call approved again is not executed: %#v", Decide(s))
	}
}

// A call for which its own tool asks waits as long as the policy says, and not for ever. // P02
func TestACallWhoseToolAsksItselfExpires(t *testing.T) {
	s := play(t, with(oneTurn("g"), prepared("0.0", gated))...)
	for wait, want := range map[int64]int64{0: 0, 5_000: 6_000} {
		s.Accepted.ToolWaitMS = wait
		if w := s.AskFor("0.0", "w", 1_000); w.ExpiresAt != want {
			t.Errorf("it expires at %d, want %d", w.ExpiresAt, want)
		}
	}
}

// What one person has decided, another cannot change. // P02
func TestADecisionIsNotMadeTwice(t *testing.T) {
	waits := with(oneTurn("g", "h"), prepared("0.0", gated), prepared("0.1", gated), waiting("0.0", "w"), waiting("0.1", "v"), Parked{})
	for _, first := range []bool{true, false} {
		s := play(t, with(waits, CallResolved{WaitID: "w", Approved: first})...)
		for _, second := range []Body{CallResolved{WaitID: "w", Approved: true}, CallResolved{WaitID: "w"}, Expired{WaitID: "w"}} {
			if Allowed(s, Fact{Seq: s.Seq + 1, Body: second}) == nil {
				t.Errorf("after approved=%t: %#v is allowed", first, second)
			}
		}
		if err := Allowed(s, Fact{Seq: s.Seq + 1, Body: CallResolved{WaitID: "v"}}); err != nil {
			t.Error(err)
		}
	}
}

func TestACallIsNotPreparedAgainAtAnyTime(t *testing.T) {
	waits := with(oneTurn("g"), prepared("0.0", gated), waiting("0.0", "w"), Parked{})
	for name, bodies := range map[string][]Body{
		"while it waits":       waits,
		"after a denial":       with(waits, CallResolved{WaitID: "w"}, Resumed{}),
		"when it has started":  with(waits, CallResolved{WaitID: "w", Approved: true}, Resumed{}, started("0.0")),
		"if it needs no one":   with(oneTurn("g"), prepared("0.0")),
		"before the first one": oneTurn("g"),
	} {
		s := play(t, bodies...)
		if err := Allowed(s, Fact{Seq: s.Seq + 1, Body: prepared("0.0", gated, preparedAgain)}); err == nil {
			t.Errorf("%s: a call is prepared again", name)
		}
	}
}

// H06
func TestAnApprovalThatNobodyDecidesInTimeIsADenial(t *testing.T) {
	waits := with(oneTurn("g"), prepared("0.0", gated), waiting("0.0", "w"), Parked{})
	a, ok := Decide(play(t, with(waits, Expired{WaitID: "w"})...)).(AnswerCalls)
	if !ok || a.Outcome != Denied || !strings.Contains(a.Text, "Approval timed out") {
		t.Errorf("the next action is %#v", a)
	}
	s := play(t, with(waits, CallResolved{WaitID: "w", Approved: true}, Resumed{})...)
	s = Apply(s, Fact{Seq: s.Seq + 1, Body: Expired{WaitID: "w"}}) // not allowed, and ignored
	if _, ok := Decide(s).(ExecuteTools); !ok {
		t.Errorf("an approval that was decided expires: %#v", Decide(s))
	}
}

func TestTheStricterOfServerAndRequestAsks(t *testing.T) {
	yes := true
	p := Policy{Approvals: []ServerApproval{
		{Server: "both", ByServer: policy.Approval{Always: &policy.Tools{Names: []string{"delete"}}}, ByRequest: policy.Approval{Rest: true}},
		{Server: "reads", ByServer: policy.Approval{Never: &policy.Tools{ReadOnly: &yes}, Rest: true}},
		{Server: "trusted", ByServer: policy.Approval{Never: &policy.Tools{ReadOnly: &yes}, Rest: true}, Trust: true},
	}}
	for _, c := range []struct {
		server, tool string
		readOnly     bool
		want         Asker
	}{
		{"both", "delete", false, AskedByServer},
		{"both", "read", true, AskedByRequest},
		{"reads", "read", true, AskedByServer}, // D14: an annotation of a server that is not trusted is not believed
		{"trusted", "read", true, ""},
		{"trusted", "write", false, AskedByServer},
		{"other", "delete", false, ""},
	} {
		if got := p.Asks(c.server, c.tool, c.readOnly, func(string) bool { return true }); got != c.want {
			t.Errorf("server %s, tool %s: %q asks, want %q", c.server, c.tool, got, c.want)
		}
	}
}
