package loop

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path"
	"slices"

	"github.com/turnpike-gateway/turnpike/internal/policy"
	"github.com/turnpike-gateway/turnpike/tool"
)

// HookPoint is where in a run a hook runs.
type HookPoint string

// The points.
const (
	OnRunStart   HookPoint = "run_start"     // before the first model call
	PreToolUse   HookPoint = "pre_tool_use"  // before a call that the gateway is to execute is prepared: it decides how
	OnDelegation HookPoint = "delegation"    // as PreToolUse, for a call that starts another agent
	PostToolUse  HookPoint = "post_tool_use" // after the tool has answered and before the result is recorded
	PreResponse  HookPoint = "pre_response"  // after the model's answer and before the end

	// OnRunComplete is after a run that is complete. No hook runs there in the run: see HooksAfter.
	OnRunComplete HookPoint = "run_complete"
)

// Event returns the name of the point in settings, requests to hooks, and events.
func (p HookPoint) Event() string {
	switch p {
	case OnRunStart:
		return "OnRunStart"
	case PreToolUse:
		return "PreToolUse"
	case PostToolUse:
		return "PostToolUse"
	case OnDelegation:
		return "OnDelegation"
	case PreResponse:
		return "PreResponse"
	case OnRunComplete:
		return "OnRunComplete"
	}
	return string(p)
}

// HookVerdict is what a hook decided.
type HookVerdict string

// The verdicts.
const (
	HookAllow  HookVerdict = "allow"
	HookDeny   HookVerdict = "deny"   // OnRunStart: the run ends; PreToolUse, OnDelegation: the call is not executed; PreResponse: HookRan.PatchRef says instead that it was blocked
	HookModify HookVerdict = "modify" // HookRan.PatchRef replaces the arguments, the result or the answer
	HookAsk    HookVerdict = "ask"    // the call needs an approval
)

// Hook is a hook of a run, as it is when the run begins.
type Hook struct {
	ID       string    `json:"id"`
	Point    HookPoint `json:"point"`
	Type     HookType  `json:"type"`
	Position int       `json:"position,omitempty"` // as its settings have it; Policy.Hooks is ordered already
	Agent    bool      `json:"agent,omitempty"`    // it belongs to the agent whose session the run is a turn of, and not to the org
	Matcher  string    `json:"matcher,omitempty"`  // at the points of calls: the name of a tool as the model sees it or as its server calls it, or a glob; "" = all tools
	Also     []string  `json:"also,omitempty"`     // further names of tools that it selects
	Offered  bool      `json:"offered,omitempty"`  // Matcher selects only by the name that the model sees, and not by the server's own

	Rules []HookRule `json:"rules,omitempty"` // of HookRules: the first whose condition holds denies

	// DenyOnError is what happens if the hook fails. At the points where nothing can be denied, the
	// result is withheld. Otherwise a hook that fails allows.
	DenyOnError bool `json:"deny_on_error,omitempty"`

	Message string `json:"message,omitempty"` // of HookApproval: for the person
	WaitMS  int64  `json:"wait_ms,omitempty"` // of a hook that asks for approval: how long the call waits, in milliseconds; 0 = without limit
}

// HookType is how a hook decides.
type HookType string

// The types.
const (
	HookRules    HookType = "rule"     // by conditions of package policy
	HookHTTP     HookType = "http"     // by the answer of a URL
	HookApproval HookType = "approval" // it asks a person
	HookFunction HookType = "function" // by a function of the program that embeds the loop
)

// HookRule denies if its condition holds, or if it cannot be evaluated: see [policy.ParseRule].
type HookRule struct {
	Condition string `json:"condition"`
	Message   string `json:"message,omitempty"` // for the model or the caller; "" = one that names the condition
}

// mayAsk reports whether a call may have to wait for approval because of the hook.
func (h Hook) mayAsk() bool {
	return (h.Point == PreToolUse || h.Point == OnDelegation) && (h.Type == HookApproval || h.Type == HookFunction)
}

// Selects reports whether the hook runs for calls of the tool. own is the server's own name of it; "" = name.
func (h Hook) Selects(name, own string) bool {
	if h.Matcher == "" {
		return true
	}
	ok, err := path.Match(h.Matcher, name)
	if !ok && own != "" && !h.Offered {
		ok, _ = path.Match(h.Matcher, own)
	}
	return ok || slices.Contains(h.Also, name) || err != nil // a malformed pattern selects everything
}

// digest identifies the hook, for the approvals that it asks for.
func (h Hook) digest() string {
	text, _ := json.Marshal(h) // strings, numbers and booleans: cannot fail
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// Judge returns the verdict of a hook of type HookRules or HookApproval on the JSON object, and the
// message that belongs to it. failed says that a rule could not be evaluated, which denies.
func (h Hook) Judge(object []byte) (v HookVerdict, message string, failed bool) {
	if h.Type == HookApproval {
		return HookAsk, h.Message, false
	}
	for _, r := range h.Rules {
		rule, err := policy.ParseRule(r.Condition)
		holds := false
		if err == nil {
			holds, err = rule.Holds(object)
		}
		switch {
		case err != nil:
			return HookDeny, cmp.Or(r.Message, "a rule could not be evaluated"), true
		case holds:
			return HookDeny, cmp.Or(r.Message, r.Condition), false
		}
	}
	return HookAllow, "", false
}

// OnError returns what a hook that has failed decides at the point. With HookModify, what the call has
// returned is withheld.
func (h Hook) OnError() HookVerdict {
	switch {
	case !h.DenyOnError:
		return HookAllow
	case h.Point == PostToolUse:
		return HookModify
	}
	return HookDeny
}

// HooksDue returns the hooks that are still to run at the point, in order: none after one that has
// denied. key is the call at the points of calls, and otherwise "".
func (s *State) HooksDue(p HookPoint, key CallKey) (due []Hook) {
	if s.Accepted == nil || len(s.Accepted.Hooks) == 0 || s.relays() || s.Ended != "" && p != PostToolUse {
		return nil
	}
	ran, reached := hooksAt(s, p, key)
	if !reached || slices.ContainsFunc(ran, func(r HookRan) bool { return r.Verdict == HookDeny }) {
		return nil
	}
	c, _ := s.Call(key)
	for _, h := range s.Accepted.Hooks {
		if h.Point == p && h.Selects(c.Name, c.Tool) && !slices.ContainsFunc(ran, func(r HookRan) bool { return r.Hook == h.ID }) {
			due = append(due, h)
		}
	}
	return due
}

// MayChangeResult reports whether a hook runs after the call. Its result is then neither taken from the result
// cache nor kept in it: other callers may have other hooks.
func (s *State) MayChangeResult(c Call) bool {
	return slices.ContainsFunc(s.Accepted.Hooks, func(h Hook) bool { return h.Point == PostToolUse && h.Selects(c.Name, c.Tool) })
}

// HooksTool reports whether a hook runs before or after calls of the tool, which its server calls own.
func (p *Policy) HooksTool(name, own string) bool {
	return slices.ContainsFunc(p.Hooks, func(h Hook) bool { return (h.Point == PreToolUse || h.Point == PostToolUse) && h.Selects(name, own) })
}

// HoldsAnswers reports whether hooks decide on the answer of the run. Nothing that the model says is
// told before they have.
func (p *Policy) HoldsAnswers() bool {
	return p.Grade != Relay && slices.ContainsFunc(p.Hooks, func(h Hook) bool { return h.Point == PreResponse })
}

// HeldAnswer reports whether the latest turn is an answer on which hooks decide, or have decided.
func (s *State) HeldAnswer() bool {
	return s.Accepted != nil && s.Accepted.HoldsAnswers() && s.Turn != nil && len(s.Calls) == 0
}

// JudgedAnswer returns the row of the answer as all of its hooks have left it; "" = they have not all
// decided.
func (s *State) JudgedAnswer() string {
	ran, _ := hooksAt(s, PreResponse, "")
	if !s.HeldAnswer() || !s.AnswerDenied() && len(ran) < len(s.hooksOf(PreResponse)) {
		return ""
	}
	return s.AnswerRef()
}

// undecidedAnswer returns the row of an answer on which not all of its hooks have decided; "" = there is none.
func (s *State) undecidedAnswer() string {
	if !s.HeldAnswer() || s.JudgedAnswer() != "" {
		return ""
	}
	return s.AnswerRef()
}

// AnswerRef returns the row of the latest turn as the hooks so far have left it.
func (s *State) AnswerRef() string {
	ran, _ := hooksAt(s, PreResponse, "")
	return cmp.Or(lastPatch(ran, PreResponse), s.Turn.AnswerRef())
}

// AnswerDenied reports whether a hook has denied the latest answer.
func (s *State) AnswerDenied() bool {
	_, denied := s.AnswerDenial()
	return denied
}

// AnswerDenial returns the message of the hook that has denied the latest answer; false = none has.
func (s *State) AnswerDenial() (message string, denied bool) {
	ran, _ := hooksAt(s, PreResponse, "")
	for _, r := range ran {
		if r.Verdict == HookDeny {
			return r.Message, true
		}
	}
	return "", false
}

// AnswerPatch returns the row for what the next hook puts in place of the latest answer.
func (s *State) AnswerPatch() string {
	ran, _ := hooksAt(s, PreResponse, "")
	return fmt.Sprintf("answer:%d.%d", s.Turn.Round, len(ran))
}

func (s *State) hooksOf(p HookPoint) (out []Hook) {
	for _, h := range s.Accepted.Hooks {
		if h.Point == p {
			out = append(out, h)
		}
	}
	return out
}

// HookOf returns a hook of the run.
func (s *State) HookOf(id string) (Hook, bool) {
	if s.Accepted != nil {
		for _, h := range s.Accepted.Hooks {
			if h.ID == id {
				return h, true
			}
		}
	}
	return Hook{}, false
}

// AskingHook returns the first hook that wants an approval of the call.
func (s *State) AskingHook(c Call) (Hook, HookRan, bool) {
	for _, r := range c.Hooks {
		if h, ok := s.HookOf(r.Hook); ok && r.Verdict == HookAsk {
			return h, r, true
		}
	}
	return Hook{}, HookRan{}, false
}

// PatchOf returns the row that the hooks before the call have put in place of its arguments; "" = none.
func (c Call) PatchOf() string { return lastPatch(c.Hooks, PreToolUse) }

func lastPatch(ran []HookRan, p HookPoint) string {
	for _, r := range slices.Backward(ran) {
		if r.Point == p && r.PatchRef != "" {
			return r.PatchRef
		}
	}
	return ""
}

// blockedByHook reports whether a hook has denied the call.
func (c Call) blockedByHook() bool {
	return slices.ContainsFunc(c.Hooks, func(r HookRan) bool { return r.Verdict == HookDeny })
}

// deniedAtStart returns the hook that has denied the run.
func (s *State) deniedAtStart() HookRan {
	for _, r := range s.Hooks {
		if r.Point == OnRunStart && r.Verdict == HookDeny {
			return r
		}
	}
	return HookRan{}
}

// allowHook allows the next hook of its point, with a verdict that the point knows.
func allowHook(s *State, b HookRan) error {
	due := s.HooksDue(b.Point, b.Key)
	patched := b.Verdict == HookModify || b.Verdict == HookDeny && b.Point == PreResponse
	switch {
	case len(due) == 0 || due[0].ID != b.Hook:
		return fmt.Errorf("hook %q is not due at the point %q of call %q", b.Hook, b.Point, b.Key)
	case !b.Verdict.KnownAt(b.Point):
		return fmt.Errorf("the point %q has no verdict %q", b.Point, b.Verdict)
	case (b.PatchRef != "") != patched:
		return fmt.Errorf("the verdict is %q, and the patch is %q", b.Verdict, b.PatchRef)
	}
	return nil
}

// KnownAt reports whether a hook may decide this at the point.
func (v HookVerdict) KnownAt(p HookPoint) bool {
	switch v {
	case HookAllow:
		return true
	case HookDeny:
		return p != PostToolUse && p != OnRunComplete
	case HookModify:
		return p == PreToolUse || p == PostToolUse || p == PreResponse
	case HookAsk:
		return p == PreToolUse || p == OnDelegation
	}
	return false
}

// hooksAt returns the hooks that have run at the point, after a call those of its present attempt, and
// whether the run is at the point.
func hooksAt(s *State, p HookPoint, key CallKey) (ran []HookRan, reached bool) {
	c, found := s.Call(key)
	switch p {
	case OnRunStart:
		return at(s.Hooks, p), key == "" && s.Catalogued == nil && s.Turn == nil && s.Attempt.Number == 0
	case PreToolUse, OnDelegation:
		return at(c.Hooks, p), found && !c.Done && c.Prepared == nil
	case PostToolUse:
		return at(c.Hooks[min(c.hooksBefore, len(c.Hooks)):], p), found && !c.Done && c.Attempt > 0
	case PreResponse:
		return at(s.Hooks[min(s.hooksBefore, len(s.Hooks)):], p), key == "" && s.answered() && !s.Attempt.Open && s.Attempt.Failed == nil
	case OnRunComplete: // the run has ended there
	}
	return nil, false
}

func at(ran []HookRan, p HookPoint) (out []HookRan) {
	for _, r := range ran {
		if r.Point == p {
			out = append(out, r)
		}
	}
	return out
}

// allowPreparedByHooks refuses a preparation that executes a call before its hooks have run or
// although one has denied it, or that does not ask for the approval which a hook wants.
func allowPreparedByHooks(s *State, b CallPrepared) error {
	c, _ := s.Call(b.Key)
	if b.Owner == tool.Client || b.Verdict == Answer { // the gateway executes nothing
		return nil
	}
	if due := s.HooksDue(PreToolUse, b.Key); len(due) > 0 {
		return fmt.Errorf("hook %q has not run before call %s", due[0].ID, b.Key)
	}
	for _, h := range c.Hooks {
		switch {
		case h.Verdict == HookDeny:
			return fmt.Errorf("hook %q has denied call %s", h.Hook, b.Key)
		case h.Verdict == HookAsk && b.Verdict != Ask:
			return fmt.Errorf("hook %q asks for an approval of call %s", h.Hook, b.Key)
		}
	}
	return nil
}

// allowResultByHooks refuses the result of a call whose hooks have not run. A call whose result is
// lost, or that ended with its run, has none.
func allowResultByHooks(s *State, b CallDone) error {
	if b.Outcome != OK && (b.Outcome != Error || s.Ended != "" || isAnswerOf(s, b)) {
		return nil
	}
	if due := s.HooksDue(PostToolUse, b.Key); len(due) > 0 {
		return fmt.Errorf("hook %q has not run after call %s", due[0].ID, b.Key)
	}
	return nil
}

// isAnswerOf reports whether the rules themselves give the call this result.
func isAnswerOf(s *State, b CallDone) bool {
	a, ok := Decide(*s).(AnswerCalls)
	return ok && a.Outcome == b.Outcome && slices.Contains(a.Calls, b.Key)
}
