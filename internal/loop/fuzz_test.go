package loop

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/policy"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

// dice draws from the fuzzer's bytes, then from zeros.
type dice []byte

func (d *dice) roll(sides int) int {
	if len(*d) == 0 {
		return 0
	}
	v := int((*d)[0]) % sides
	*d = (*d)[1:]
	return v
}

func pick[T any](d *dice, from ...T) T { return from[d.roll(len(from))] }

// anyFact returns an arbitrary fact, which may not be allowed.
func (d *dice) anyFact() Body {
	key := Key(d.roll(3), d.roll(4))
	switch d.roll(24) {
	case 0:
		return Accepted{Policy: Policy{Grade: pick(d, "", Relay, Light, Durable), Context: d.context(), NoTools: d.roll(8) == 1, AbortOnTool: d.roll(4) == 1, Parallelism: pick(d, Parallel, Safe, Serial, First), Limits: budget.Limits{Rounds: d.roll(4), Calls: d.roll(6), CallsPerTurn: 1 + d.roll(4), ActiveMS: int64(d.roll(3)) * 1000, Tokens: int64(d.roll(60)), OnLimit: pick(d, "", budget.Answer, budget.Pause)}, Guard: policy.Guard{Mode: pick(d, policy.Nudge, policy.Fail, policy.Off), Threshold: d.roll(4)}, Hooks: d.someHooks()},
			Targets: make([]Target, d.roll(3)), Raw: d.roll(8) == 1,
		}
	case 1:
		return Catalogued{Servers: []Server{{Required: d.roll(4) == 1, Error: pick(d, "", "down")}}}
	case 2:
		return Blocked{Reason: "loopback"}
	case 3:
		return InputAdded{ItemsRef: "i", By: pick(d, ByClient, ByHook, ByOther), Bytes: int64(d.roll(9))}
	case 4:
		return TurnStarted{Round: d.roll(4), Attempt: d.roll(5), Target: d.roll(2), Purpose: pick(d, PurposeTurn, PurposeRaw)}
	case 5:
		return TurnFailed{Attempt: d.roll(5), Class: pick(d, model.Transient, model.Target, model.Invalid, model.TooLong, model.Filtered, model.Gone), Forwarded: d.roll(3) == 1, RetryAt: int64(d.roll(9)) * 1000, Status: pick(d, 0, 200, 500)}
	case 6:
		return d.turn(d.roll(4), pick(d, PurposeTurn, PurposeRaw))
	case 7:
		return d.prepared(key)
	case 8:
		return CallStarted{Key: key, Attempt: d.roll(3)}
	case 9:
		return CallDone{Key: key, Attempt: d.roll(3), Outcome: pick(d, OK, Error, Unknown, Cached, Denied, SkippedLimit, NotRun), ResultRef: "r"}
	case 10:
		return CallWaiting{Key: key, WaitID: string(key), On: pick(d, OnApproval, OnApproval, OnChild), ArgsDigest: pick(d, "", "d"), Revision: d.roll(2)}
	case 11:
		return CallResolved{WaitID: string(key), Approved: d.roll(2) == 1}
	case 12:
		return CancelRequested{Cause: pick(d, event.Cancelled, event.CallerGone)}
	case 13:
		return Expired{WaitID: pick(d, "", "w", string(key)), Cut: d.roll(4) == 1}
	case 14:
		return Parked{ActiveMS: int64(d.roll(9)) * 100}
	case 15:
		return Resumed{}
	case 16:
		return Reserved{Round: d.roll(4), Attempt: d.roll(5), Amount: budget.Amount{Tokens: int64(d.roll(60))}}
	case 21:
		return Routed{Round: d.roll(3), Attempt: d.roll(3), Order: []int{d.roll(3), d.roll(3)}[:d.roll(3)]}
	case 17:
		return ReserveRefused{Round: d.roll(4), Attempt: d.roll(5), Reason: event.Tokens}
	case 18:
		return d.hook(pick(d, "", key))
	case 19:
		return Compacted{Until: d.roll(9) - 1, Refs: pick(d, nil, []string{"sum"}), After: int64(d.roll(9)) - 1, Failed: d.roll(4) == 1, Usage: model.Usage{Output: int64(d.roll(9))}}
	case 20:
		return LimitsRaised{Raise: d.raise(), WaitID: pick(d, "", "w"), Rebudget: d.roll(4) == 1}
	case 22:
		return Paused{WaitID: pick(d, "w", string(key)), Reason: pick(d, event.MaxRounds, event.Deadline), Refused: pick(d, "", "", "full"), ActiveMS: int64(d.roll(9)) * 100}
	}
	return Finished{Reason: pick(d, event.Complete, event.Lost, event.MaxRounds)}
}

func (d *dice) context() ContextPolicy {
	return ContextPolicy{Mode: pick(d, ContextOff, ContextPrune, ContextAuto), Threshold: int64(d.roll(4)) * 10}
}

func (d *dice) turn(round int, purpose Purpose) Turn {
	b := Turn{Round: round, Purpose: purpose, ItemsRef: "t", Stop: pick(d, model.StopEnd, model.StopCalls, model.StopLength, model.StopFilter, model.StopUnknown), Usage: model.Usage{Output: int64(d.roll(30))}}
	for range d.roll(5) {
		b.Calls = append(b.Calls, TurnCall{Name: pick(d, "a", "b"), Complete: d.roll(4) != 1})
	}
	return b
}

func (d *dice) hook(key CallKey) HookRan {
	b := HookRan{
		Point: pick(d, OnRunStart, PreToolUse, OnDelegation, PostToolUse, PreResponse), Hook: pick(d, "h", "i"), Key: key,
		Verdict: pick(d, HookAllow, HookDeny, HookModify, HookAsk),
	}
	if b.Verdict == HookModify {
		b.PatchRef = "p"
	}
	return b
}

func (d *dice) raise() budget.Raise {
	return budget.Raise{Rounds: d.roll(3), Calls: d.roll(3), Tokens: int64(d.roll(3)) * 100, ActiveMS: int64(d.roll(3)) - 1}
}

func (d *dice) prepared(key CallKey) CallPrepared {
	return CallPrepared{
		Key: key, Owner: pick(d, tool.Gateway, tool.Client, tool.Unknown), Class: pick(d, tool.Once, tool.Read, tool.Keyed),
		Verdict: pick(d, Run, Ask, Answer), ArgsDigest: pick(d, "x", "y"),
	}
}

// FuzzArbitraryFacts applies arbitrary facts, allowed or not. Decide must always
// return an action.
func FuzzArbitraryFacts(f *testing.F) {
	f.Add([]byte{0, 1, 0, 0, 0, 3, 3, 2, 1, 4, 1, 0, 0, 4, 0, 1, 0, 0, 6, 0, 0, 1, 2})
	f.Fuzz(func(t *testing.T, data []byte) {
		d := dice(data)
		var s State
		for seq := int64(1); len(d) > 0 && seq < 200; seq++ {
			fact := Fact{Seq: seq, Epoch: 1, At: seq * 100, Body: d.anyFact()}
			_ = Allowed(s, fact)
			s = Apply(s, fact)
			if Decide(s) == nil {
				t.Fatalf("no action in %+v", s)
			}
			checkTranscript(t, &s)
		}
	})
}

// checkTranscript checks that the model sees rows of the latest compaction and then everything
// after it, and that what the caller does not see stays whole.
func checkTranscript(t *testing.T, s *State) {
	t.Helper()
	replaced, instead, own, input := 0, 0, 0, 0
	for i, seg := range s.Transcript {
		switch seg.Kind {
		case Replacement:
			if seg.Until <= replaced || seg.Until > i || len(seg.Refs) == 0 {
				t.Fatalf("segment %d replaces %d by %d rows, after %d were replaced", i, seg.Until, len(seg.Refs), replaced)
			}
			replaced, instead = seg.Until, len(seg.Refs)
		case Own, Added:
			// nobody is shown an answer before its hooks have decided on it
			if undecided := s.undecidedAnswer(); undecided == "" || seg.Ref != undecided {
				own++
			}
		case Input:
			input++
		default:
			t.Fatalf("segment %d is of kind %q", i, seg.Kind)
		}
	}
	after := 0
	for _, seg := range s.Transcript[replaced:] {
		if seg.Kind != Replacement {
			after++
		}
	}
	if got := len(s.Seen()); got != instead+after {
		t.Fatalf("the model sees %d rows, want %d and %d: %+v", got, instead, after, s.Transcript)
	}
	if got := len(s.HiddenRefs()); got != own {
		t.Fatalf("%d rows are hidden, want %d", got, own)
	}
}

// FuzzPlay is a driver with arbitrary models and tools. Other writers append facts at
// any time. Every fact that the driver appends must be allowed and safe, no call may
// run that must not, and the run must end.
func FuzzPlay(f *testing.F) {
	f.Add([]byte{3, 1, 0, 0, 2, 5, 2, 3, 0, 0, 10, 0, 1, 1, 1, 2, 2, 0, 1})
	f.Add([]byte{1, 1, 1, 0, 2, 9, 1, 1, 1, 5, 4, 3, 2, 1, 0, 9, 8, 7, 6, 5, 4, 3, 2, 1, 1, 1, 1, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		w := world{t: t, dice: dice(data)}
		w.append(w.accept())
		for steps := 0; ; steps++ {
			if steps > 3000 {
				t.Fatalf("the run does not end: %#v", Decide(w.state))
			}
			w.injectFact()
			if a, ok := Decide(w.state).(Finish); ok {
				w.append(Finished{Reason: a.Reason})
				if diff := cmp.Diff(a, Decide(w.state)); diff != "" {
					t.Fatalf("the end has another cause when it is read back:\n%s", diff)
				}
				return
			}
			w.perform(Decide(w.state))
		}
	})
}

type world struct {
	t *testing.T
	dice
	state    State
	seq      int64
	injected int
	paused   int
	runs     map[CallKey]int
}

func (w *world) accept() Accepted {
	grade := pick(&w.dice, Durable, Light, Relay)
	return Accepted{Policy: Policy{Grade: grade, Context: w.context(), NoTools: w.roll(9) == 1, AbortOnTool: w.roll(4) == 1, Parallelism: pick(&w.dice, Parallel, Safe, Serial, First), Limits: budget.Limits{Rounds: 1 + w.roll(5), Calls: 1 + w.roll(8), CallsPerTurn: 1 + w.roll(4), ActiveMS: 60_000, Tokens: int64(w.roll(3)) * 9_000, OnLimit: pick(&w.dice, "", budget.Answer, budget.Pause)}, Guard: policy.Guard{Mode: pick(&w.dice, policy.Nudge, policy.Fail, policy.Off)}, Hooks: w.someHooks()}, Targets: make([]Target, 1+w.roll(2)), Raw: w.roll(9) == 1 && grade == Relay}
}

// runHook lets a hook decide, unless one before it has denied.
func (w *world) runHook(h Hook, key CallKey) {
	if len(w.state.HooksDue(h.Point, key)) == 0 {
		return
	}
	b := HookRan{Point: h.Point, Hook: h.ID, Key: key, Verdict: pick(&w.dice, HookAllow, HookDeny, HookModify, HookAsk)}
	if !b.Verdict.KnownAt(h.Point) {
		b.Verdict = HookAllow
	}
	if b.Verdict == HookModify || b.Verdict == HookDeny && h.Point == PreResponse {
		b.PatchRef = "p"
	}
	w.append(b)
}

// someHooks returns up to three hooks.
func (d *dice) someHooks() (out []Hook) {
	for i := range d.roll(4) {
		out = append(out, Hook{
			ID: string(rune('h' + i)), Point: pick(d, OnRunStart, PreToolUse, PostToolUse, PreResponse), Type: pick(d, HookHTTP, HookApproval), Matcher: pick(d, "", "a"),
		})
	}
	return out
}

func (w *world) append(b Body) {
	w.t.Helper()
	w.seq++
	fact := Fact{Seq: w.seq, Epoch: 1, At: w.seq * 10, Version: Version, Body: b}
	if err := Allowed(w.state, fact); err != nil {
		w.t.Fatalf("%v\nstate %+v", err, w.state)
	}
	if err := CheckSafety(w.state, fact); err != nil {
		w.t.Fatalf("allowed but not safe: %v\nstate %+v", err, w.state)
	}
	w.state = Apply(w.state, fact)
	checkTranscript(w.t, &w.state)
}

// injectFact appends a fact of another writer, at most five times per run.
func (w *world) injectFact() {
	if w.injected > 4 || w.roll(6) != 1 {
		return
	}
	w.injected++
	switch w.roll(5) {
	case 0:
		w.append(CancelRequested{Cause: event.Cancelled})
	case 1:
		w.append(Expired{Cut: w.roll(3) == 1})
	case 2:
		w.append(InputAdded{ItemsRef: "i", By: pick(&w.dice, ByClient, ByOther)})
	case 3:
		w.appendIfAllowed(LimitsRaised{By: "p", Raise: w.raise()})
	case 4:
		var key CallKey
		if len(w.state.Calls) > 0 {
			key = w.state.Calls[w.roll(len(w.state.Calls))].Key
		}
		w.appendIfAllowed(w.hook(pick(&w.dice, "", key)))
	}
}

// appendIfAllowed appends a fact whose writer folds the journal first.
func (w *world) appendIfAllowed(b Body) {
	if Allowed(w.state, Fact{Seq: w.seq + 1, Body: b}) == nil {
		w.append(b)
	}
}

// compact makes the prompt shorter, or fails, or dies over it.
func (w *world) compact(a Compact) {
	b := Compacted{Target: a.Target, Before: a.Tokens}
	if !a.PruneOnly && w.roll(2) == 1 {
		if (a.MaxCost != budget.Amount{}) {
			w.append(Reserved{Compaction: a.Number, Amount: a.MaxCost})
		}
		b.Usage, b.Failed = model.Usage{Output: int64(w.roll(30))}, w.roll(3) == 1
		if w.roll(6) == 1 {
			w.append(Resumed{})
			return
		}
	}
	parts := w.state.SeenParts()
	if !b.Failed && w.roll(3) > 0 && len(parts) > 0 {
		if part := parts[w.roll(len(parts))]; part.Until > 0 {
			b.Until, b.Refs, b.After = part.Until, []string{"sum"}, int64(w.roll(99))
		}
	}
	w.append(b)
}

func (w *world) perform(a Action) {
	switch a := a.(type) {
	case Discover:
		w.append(Catalogued{Servers: []Server{{Required: w.roll(9) == 1, Error: pick(&w.dice, "", "down")}}})
	case Route:
		b := Routed{Round: a.Round, Attempt: a.Attempt, Order: a.Left}
		if a.Attempt > 0 && w.roll(4) == 1 { // all others are open
			b.Order = nil
		}
		w.append(b)
	case CallModel:
		if (a.MaxCost != budget.Amount{}) && a.Round > 0 && w.roll(9) == 1 { // a shared budget has no room
			w.append(ReserveRefused{Round: a.Round, Attempt: a.Attempt, Scope: "org/day", Reason: event.Tokens})
			return
		}
		if (a.MaxCost != budget.Amount{}) {
			w.append(Reserved{Round: a.Round, Attempt: a.Attempt, Amount: a.MaxCost})
		}
		w.append(TurnStarted{Round: a.Round, Attempt: a.Attempt, Target: a.Target, Purpose: a.Purpose})
		switch {
		case w.roll(12) == 1: // the process dies here
			w.append(Resumed{})
		case w.roll(4) == 1:
			w.append(TurnFailed{Attempt: a.Attempt, Class: pick(&w.dice, model.Transient, model.Target, model.Invalid, model.TooLong, model.Filtered), Forwarded: w.roll(3) == 1})
		default:
			w.append(w.turn(a.Round, a.Purpose))
		}
	case Compact:
		w.compact(a)
	case PrepareTools:
		for _, key := range a.Calls {
			for _, h := range w.state.HooksDue(PreToolUse, key) {
				w.runHook(h, key)
			}
			b := w.prepared(key)
			if allowPreparedByHooks(&w.state, b) != nil {
				b.Verdict = Answer
			}
			w.append(b)
		}
	case RunHooks:
		for _, h := range a.Hooks {
			w.runHook(h, "")
		}
	case AnswerCalls:
		for _, key := range a.Calls {
			c, _ := w.state.Call(key)
			w.append(CallDone{Key: key, Attempt: c.Attempt, Outcome: a.Outcome, ResultRef: "r"})
		}
	case ExecuteTools:
		w.execute(a.Calls)
	case Interrupt:
		for _, key := range a.Calls {
			w.append(w.state.AskFor(key, string(key), 0))
		}
		w.append(Parked{})
		for _, key := range a.Calls {
			if w.roll(4) == 1 {
				w.append(Expired{WaitID: string(key)})
				continue
			}
			w.append(CallResolved{WaitID: string(key), Approved: w.roll(2) == 1})
		}
		w.append(Resumed{})
		for _, key := range a.Calls {
			if c, _ := w.state.Call(key); c.approved() && w.roll(4) == 1 { // the tool has changed
				p := *c.Prepared
				p.Revision, p.ToolDigest, p.Verdict = p.Revision+1, "other", pick(&w.dice, Ask, Answer)
				if allowPreparedByHooks(&w.state, p) != nil {
					p.Verdict = Answer
				}
				w.append(p)
			}
		}
	case Pause:
		w.pause(a)
	default:
		w.t.Fatalf("no such action: %#v", a)
	}
}

// pause lets somebody raise the limit, or nobody.
func (w *world) pause(a Pause) {
	if !w.state.pauses() {
		w.t.Fatalf("a run that does not pause: %#v", a)
	}
	w.paused++
	b := w.state.PauseFor(a, fmt.Sprint("pause ", w.paused), 0)
	if w.roll(6) == 1 {
		b.Refused = "full"
		w.append(b)
		return
	}
	w.append(b)
	if w.state.ActiveSince != 0 {
		w.t.Fatal("it waits, and its time goes on")
	}
	raise := LimitsRaised{By: "p", WaitID: b.WaitID}
	if a.Scope == "" || w.roll(2) == 1 {
		raise.Raise = budget.Raise{Rounds: w.roll(3), Calls: w.roll(3), Tokens: int64(w.roll(3)) * 20_000, ActiveMS: int64(w.roll(3)) * 60_000}
	}
	if Allowed(w.state, Fact{Seq: w.seq + 1, Body: raise}) == nil {
		w.append(raise)
	} else {
		w.append(Expired{WaitID: b.WaitID})
	}
	w.append(Resumed{HandedOver: true})
	if again, ok := Decide(w.state).(Pause); ok {
		w.t.Fatalf("after %+v the run waits again: %+v", raise, again)
	}
}

func (w *world) execute(keys []CallKey) {
	if w.runs == nil {
		w.runs = map[CallKey]int{}
	}
	for _, key := range keys {
		if w.roll(8) == 1 {
			w.append(CallDone{Key: key, Outcome: Cached, ResultRef: "r"})
		}
	}
	for _, key := range keys {
		c, ok := w.state.Call(key)
		if c.Done {
			continue
		}
		if !ok || c.Prepared == nil || c.Prepared.Owner == tool.Client || c.Prepared.Verdict == Answer || c.Prepared.Verdict == Ask && (!c.Approved || c.Wait == nil || c.Wait.ToolDigest != c.Prepared.ToolDigest) {
			w.t.Fatalf("call %s must not run: %+v", key, c)
		}
		if w.runs[key]++; w.runs[key] > 1 && c.Prepared.Class == tool.Once {
			w.t.Fatalf("once-call %s ran twice", key)
		}
		w.append(CallStarted{Key: key, Attempt: c.Attempt + 1})
	}
	for _, key := range keys {
		if c, _ := w.state.Call(key); c.Done {
			continue
		}
		if w.roll(10) == 1 {
			w.append(Resumed{}) // the process dies here
			return
		}
		c, _ := w.state.Call(key)
		for _, h := range w.state.HooksDue(PostToolUse, key) {
			w.runHook(h, key)
		}
		w.append(CallDone{Key: key, Attempt: c.Attempt, Outcome: pick(&w.dice, OK, Error), ResultRef: "r", ResultDigest: pick(&w.dice, "d", "e")})
	}
}
