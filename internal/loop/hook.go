package loop

import (
	"fmt"
	"slices"

	"github.com/turnpike-gateway/turnpike/tool"
)

// HookPoint is where in a run a hook runs.
type HookPoint string

// The points.
const (
	OnRunStart   HookPoint = "run_start"     // before the first model call
	PreToolUse   HookPoint = "pre_tool_use"  // before a call is prepared: it decides how
	OnDelegation HookPoint = "delegation"    // as PreToolUse, for a call that starts another agent
	PostToolUse  HookPoint = "post_tool_use" // after the tool has answered and before the result is recorded
	PreResponse  HookPoint = "pre_response"  // after the model's answer and before the end
)

// HookVerdict is what a hook decided.
type HookVerdict string

// The verdicts.
const (
	HookAllow  HookVerdict = "allow"
	HookDeny   HookVerdict = "deny"   // OnRunStart: the run ends; PreToolUse, OnDelegation: the call is not executed; PreResponse: the answer is replaced
	HookModify HookVerdict = "modify" // HookRan.PatchRef replaces the arguments, the result or the answer
	HookAsk    HookVerdict = "ask"    // the call needs an approval
)

// allowHook allows a hook at its point, once, with a verdict that its point knows.
func allowHook(s *State, b HookRan) error {
	ran, due := hooksAt(s, b.Point, b.Key)
	switch {
	case s.Ended != "" || s.relays():
		return fmt.Errorf("the run ends, or is a relay: no hook is due")
	case !due:
		return fmt.Errorf("hook %q is not due at the point %q of call %q", b.Hook, b.Point, b.Key)
	case b.Hook == "":
		return fmt.Errorf("it names no hook")
	case slices.ContainsFunc(ran, func(r HookRan) bool { return r.Point == b.Point && r.Hook == b.Hook }):
		return fmt.Errorf("hook %q has run at this point", b.Hook)
	case !b.Verdict.knownAt(b.Point):
		return fmt.Errorf("the point %q has no verdict %q", b.Point, b.Verdict)
	case (b.PatchRef != "") != (b.Verdict == HookModify):
		return fmt.Errorf("the verdict is %q, and the patch is %q", b.Verdict, b.PatchRef)
	}
	return nil
}

// knownAt reports whether a hook may decide this at the point.
func (v HookVerdict) knownAt(p HookPoint) bool {
	switch v {
	case HookAllow:
		return true
	case HookDeny:
		return p != PostToolUse
	case HookModify:
		return p == PreToolUse || p == PostToolUse || p == PreResponse
	case HookAsk:
		return p == PreToolUse || p == OnDelegation
	}
	return false
}

// hooksAt returns the hooks that have run for the run, or for the present preparation or
// attempt of the call, and whether further ones may run at the point.
func hooksAt(s *State, p HookPoint, key CallKey) (ran []HookRan, due bool) {
	c, found := s.Call(key)
	if found {
		ran = c.Hooks[c.hooksBefore:]
	} else {
		ran = s.Hooks[s.hooksBefore:]
	}
	switch p {
	case OnRunStart:
		return ran, key == "" && s.Turn == nil && s.Attempt.Number == 0
	case PreToolUse, OnDelegation:
		return ran, found && !c.Done && (c.Prepared == nil || c.mayBePreparedAgain())
	case PostToolUse:
		return ran, found && !c.Done && c.Attempt > 0
	case PreResponse:
		return ran, key == "" && s.answered() && !s.Attempt.Open && s.Attempt.Failed == nil
	}
	return nil, false
}

// allowPreparedByHooks refuses a preparation that executes a call which a hook has denied, or
// that does not ask for the approval which a hook wants.
func allowPreparedByHooks(s *State, b CallPrepared) error {
	c, _ := s.Call(b.Key)
	for _, h := range c.Hooks[c.hooksBefore:] {
		switch {
		case b.Owner == tool.Client || b.Verdict == Answer: // nothing is executed
		case h.Verdict == HookDeny:
			return fmt.Errorf("hook %q has denied call %s", h.Hook, b.Key)
		case h.Verdict == HookAsk && b.Verdict != Ask:
			return fmt.Errorf("hook %q asks for an approval of call %s", h.Hook, b.Key)
		}
	}
	return nil
}
