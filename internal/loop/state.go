package loop

import (
	"slices"
	"strconv"
	"strings"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/policy"
	"github.com/turnpike-gateway/turnpike/internal/window"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

// State is the state of a run after a number of facts. The zero State is the state
// before the first fact.
//
// A State is a value. Apply returns a new one and never modifies its argument:
// slices are copied before they change, so an older State stays valid. A State is
// not stored; it is always folded from the journal.
type State struct {
	Seq   int64 // of the last fact
	Epoch int64 // the highest of all facts
	At    int64 // the latest of all facts, in Unix milliseconds; never decreases
	Grade Grade // as accepted; Durable once the run has parked

	Accepted   *Accepted
	Limits     budget.Limits   // those of Accepted, and by how much they were raised since
	Budgets    []budget.Shared // those of Accepted, or as the org had them when the run went on after a pause
	Catalogued *Catalogued
	Blocked    *Blocked
	Finished   *Finished

	Ended      event.Reason     // the first cause to end the run (cancelled, deadline, blocked …); "" = none. Nothing new may start once it is set
	Cancelled  *CancelRequested // the fact that has set Ended; nil = it was another
	DeadOwners int              // owners that died since ProgressAt
	NoTools    bool             // the latest turn was made without offered tools
	WarnedAt   int              // the round, from 1, in which the model was told that little of the budget is left; 0 = not yet
	Halted     bool             // the progress guard requires the run to end with NoProgress

	Routed          *Routed // the latest; nil before the first, and for a run with one target
	Attempt         Attempt
	Turn            *Turn   // the latest; nil before the first
	Continued       int     // how often the run has asked for the rest of the answer of the round
	Calls           []*Call // the complete calls of the latest turn, in its order. States share them: none is ever modified
	resultsAppended bool    // the results of Calls are in Transcript

	Counts         Counts
	Uses           []int // calls that count in Accepted.MaxUses, by its index. States share it: it is never modified
	Spent          budget.Spent
	Rounds         []RoundSpent // what each round has spent so far. States share it: it is never modified
	Truncated      bool         // a result was truncated; the model is offered a tool to read the rest
	SkippedByFirst bool         // a turn asked for more calls than Parallelism First executes
	Untrusted      bool         // a result of a tool has the label item.Untrusted
	SideEffects    bool         // a call that may change something has reached its tool, or may have
	Usage          model.Usage
	Charged        Charge            // for all model calls of turns
	ChargedInRound Charge            // for those since the latest turn
	History        []policy.PastCall // tool calls for the progress guard, oldest first; at most Guard.Window and those of one turn

	Compactions Compactions
	Compacted   *Compacted         // the latest that has replaced anything; nil = none
	tokens      window.Calibration // what the provider's counts say about texts of the run

	CountedTokens  int64           // tokens of the transcript that the provider has counted
	UncountedBytes int64           // bytes of the transcript after those tokens
	Reserved       *Reserved       // the reservation of the model call in flight; nil once its cost is known
	Refused        *ReserveRefused // the budget that had no room for a call; nil = none

	Transcript []Segment // all items of the run, in order; see Seen and HiddenRefs
	begun      bool      // the caller's input is in Transcript
	Unanswered bool      // input has come after the latest turn
	late       []Segment // input that follows the turn in progress and its results

	Hooks       []HookRan // those that were not about a call
	hooksBefore int       // how many of Hooks ran before the latest turn

	Parks int // how often the run has waited for approvals

	Remembered []Remembered // tools that need no approval again, those of Accepted and those that a person has approved so

	Early []CallResolved // decisions for calls that are not asked for yet, the first one first; at most MaxEarly

	Paused    *Paused      // the run waits for a raise of its limits; nil = it does not
	PauseOver event.Reason // the limit for which the run may not wait any more: it ends; "" = it may
	TimeUp    bool         // the time limit of a run that pauses is used up: nothing new is started

	ProgressAt int64 // when the run last made progress, in Unix milliseconds: a turn, a failed attempt, a result, a catalogue, or parking

	ActiveSince int64 // start of the current active period, in Unix milliseconds; 0 while queued or parked
	ActiveMS    int64 // active time before ActiveSince, in milliseconds
	OwnerLastAt int64 // At of the last fact of the current owner; on the same clock as ActiveSince
}

// AwaitsInput reports whether the run has not got the input of its caller yet: see [Accepted].Deferred.
func (s *State) AwaitsInput() bool { return s.Accepted.Deferred && !s.begun }

// Added returns how many inputs came after the first model call, or from somebody else than the caller.
func (s *State) Added() int {
	n := len(s.late)
	for _, seg := range s.Transcript {
		if seg.Kind == Added {
			n++
		}
	}
	return n
}

// Attempt is the latest model call of the current round.
type Attempt struct {
	Number           int         // 1 is the first of the round; 0 = none yet
	Target           int         // index into Accepted.Targets
	AttemptsOnTarget int         // consecutive attempts on Target
	NoTools          bool        // the model is offered no tools
	Open             bool        // a TurnStarted without its Turn or TurnFailed
	Tried            []int       // the targets that have failed in the round, in the order in which they did
	First            *TurnFailed // how the last attempt at Tried[0] failed: what the caller is told if all targets fail
	Failed           *TurnFailed // nil unless the attempt failed
	Reacted          bool        // a compaction was tried since it failed
	Compacted        bool        // the transcript was compacted since it failed
	FailedAt         int64       // At of Failed, in Unix milliseconds
}

// Call is one tool call of the latest turn.
type Call struct {
	Key        CallKey
	Index      int
	ProviderID string
	Name       string
	Tool       string // the server's own name of the tool; "" = Name, or the tool is not of a server
	Unknown    int    // length of Name, if there is no tool of it

	Prepared     *CallPrepared
	Guard        policy.Verdict // of the progress guard
	Advice       string         // for the model, where Guard is Advise; what was repeated, where it is Halt
	historyIndex int            // index into State.History

	Hooks       []HookRan // those that were about the call
	hooksBefore int       // how many of Hooks ran before the latest attempt

	Attempt    int // 1 is the first; 0 = not started
	DeadOwners int // owners that died while it was in flight
	Done       bool
	Outcome    Outcome
	ResultRef  string

	resultBytes int64

	Wait     *CallWaiting // what is asked for; nil = nothing, or the call was prepared again since
	Resolved bool         // the approval is decided or has expired
	Approved bool
	Message  string // of the person who decided; for the model
	AskedAt  int64  // when it was asked for, in Unix milliseconds
	Decided  int64  // when it was decided, in Unix milliseconds
	TimedOut bool   // nobody has decided in time, which counts as a denial
}

// WaitID returns the id of the call's approval; "" = it was not asked for.
func (c Call) WaitID() string {
	if c.Wait == nil {
		return ""
	}
	return c.Wait.WaitID
}

// approved reports whether a person has approved the call exactly as it is.
func (c Call) approved() bool {
	if !c.Resolved || !c.Approved || c.Wait == nil || c.Prepared == nil {
		return false
	}
	return c.Wait.Revision == c.Prepared.Revision && c.Wait.ToolDigest == c.Prepared.ToolDigest && c.Wait.ArgsDigest == c.Prepared.ArgsDigest && c.Wait.Place == c.Prepared.Place
}

// mayBePreparedAgain reports whether the call is not started, needs an approval or has a price, and
// has no approval that is still to be decided.
func (c Call) mayBePreparedAgain() bool {
	return c.Prepared != nil && (c.Prepared.Verdict == Ask || c.Prepared.Verdict == Run && c.Prepared.PriceNano > 0) && c.Attempt == 0 && !c.Done && (c.Wait == nil || c.approved())
}

// Key returns the key of a call: its round and its index in Turn.Calls.
func Key(round, index int) CallKey {
	return CallKey(strconv.Itoa(round) + "." + strconv.Itoa(index))
}

// CompareKeys compares keys by the order of their calls: number by number.
func CompareKeys(a, b CallKey) int {
	return slices.Compare(keyNumbers(a), keyNumbers(b))
}

func keyNumbers(key CallKey) (all []int) {
	for number := range strings.SplitSeq(string(key), ".") {
		n, _ := strconv.Atoi(number) // what Key has written
		all = append(all, n)
	}
	return all
}

// DeadlineAt returns when the run's active time is used up, in Unix milliseconds.
// It returns 0 before the run is accepted and while it is parked.
func (s *State) DeadlineAt() int64 {
	if s.Accepted == nil || s.ActiveSince == 0 {
		return 0
	}
	return s.ActiveSince + s.Limits.ActiveMS - s.ActiveMS
}

// HidesItems reports whether the transcript has items that the caller cannot send
// back: earlier rounds, input that it did not send, calls that the gateway executed, or reasoning in a form that
// only the provider's dialect has.
func (s *State) HidesItems() bool {
	switch {
	case s.relays():
		return false
	case s.Spent.Rounds > 1, s.Turn != nil && s.Turn.Unsendable:
		return true
	case slices.ContainsFunc(s.Transcript, func(seg Segment) bool { return seg.Kind == Added }):
		return true
	}
	for _, c := range s.Calls {
		if c.owner() != tool.Client {
			return true
		}
	}
	return false
}

// relays reports whether the run is a relay: one model call whose answer goes to the
// caller, with every tool call in it. A relay that is not Raw is translated: the
// provider speaks another dialect than the caller.
func (s *State) relays() bool { return s.Accepted != nil && s.Accepted.Grade == Relay }

// ClientCalls returns the calls that the caller must execute, in order.
func (s *State) ClientCalls() []Call {
	var out []Call
	for _, c := range s.Calls {
		if (c.owner() == tool.Client || s.relays()) && !c.Done {
			out = append(out, *c)
		}
	}
	return out
}

// LimitReached returns the limit of the run at which end ends it; "" = none. A run whose last round is handed over
// to its caller has reached the limit on rounds. Nothing but Finished may be applied after end is decided.
func (s *State) LimitReached(end event.Reason) event.Reason {
	switch {
	case end == event.ClientCalls && decision{s}.handsOver():
		return event.MaxRounds
	case end == event.MaxRounds, end == event.MaxCalls, end == event.Deadline, end == event.Tokens, end == event.Money:
		return end
	}
	return ""
}

// Repeated returns what the model has repeated, if the progress guard requires the run to end; else "".
func (s *State) Repeated() string {
	for _, c := range s.Calls {
		if c.Guard == policy.Halt {
			return c.Advice
		}
	}
	return ""
}

// FatalCall returns the call during which too many owners died
// (Rules.DeadOwnersPerCall), or false. Such a run ends as lost.
func (s *State) FatalCall() (Call, bool) {
	for _, c := range s.Calls {
		if c.DeadOwners > 0 && c.DeadOwners >= s.Accepted.Rules.DeadOwnersPerCall {
			return *c, true
		}
	}
	return Call{}, false
}

// Suspect reports whether the run may have crashed its last owners. An owner must
// work on at most one suspect at a time, so that a crash is attributed to one run.
func (s *State) Suspect() bool {
	if s.Grade != Durable || s.Ended != "" {
		return false
	}
	for _, c := range s.Calls {
		if !c.Done && c.DeadOwners >= suspectAfterDeaths {
			return true
		}
	}
	return s.DeadOwners >= suspectAfterDeaths
}

// suspectAfterDeaths is the number of dead owners from which a run is a suspect. One dead
// owner is not enough: most crashes have another cause and do not repeat.
const suspectAfterDeaths = 2

// AskFor returns the fact that asks for approval of an undecided call, exactly as
// it is prepared. now is the time of the fact, in Unix milliseconds.
func (s *State) AskFor(key CallKey, waitID string, now int64) CallWaiting {
	c, _ := s.Call(key)
	p := c.Prepared
	a := s.Accepted.approval(p.Server)
	w := CallWaiting{
		Key: key, WaitID: waitID, On: OnApproval, Revision: p.Revision, Name: c.Name, Server: p.Server, Tool: p.Tool, ToolDigest: p.ToolDigest,
		ArgsRef: p.ArgsRef, ArgsDigest: p.ArgsDigest, Place: p.Place, Host: p.Host, Asker: p.Asker, Policy: a.digest(), CallerAt: s.Accepted.CallerAt,
	}
	wait := a.WaitMS
	switch {
	case a.Server != "":
	case s.Accepted.Permission == policy.Ask:
		wait = s.Accepted.PermissionWaitMS
	default: // the tool itself asks, or a hook
		wait = s.Accepted.ToolWaitMS
	}
	if h, ran, asks := s.AskingHook(c); asks {
		w.Hook, w.Message, w.Policy = h.ID, ran.Message, h.digest()
		if wait == 0 || p.Asker == AskedByHook || h.WaitMS > 0 && h.WaitMS < wait {
			wait = h.WaitMS
		}
	}
	if wait > 0 {
		w.ExpiresAt = now + wait
	}
	return w
}

// MaxEarly is how many decisions a run keeps for calls that are not asked for yet.
const MaxEarly = 16

// DecidedEarly returns the decisions that take effect with the facts that ask for calls: each takes the first
// that is kept.
func (s *State) DecidedEarly(asked []CallWaiting) (out []CallResolved) {
	for i, w := range asked[:min(len(asked), len(s.Early))] {
		d := s.Early[i]
		d.WaitID = w.WaitID
		out = append(out, d)
	}
	return out
}

// Awaits reports whether a call of the run was asked for and is not decided.
func (s *State) Awaits() bool {
	return slices.ContainsFunc(s.Calls, func(c *Call) bool { return c.Wait != nil && !c.Resolved && !c.Done })
}

// Call returns the call with the given key, or false.
func (s *State) Call(key CallKey) (Call, bool) {
	for _, c := range s.Calls {
		if c.Key == key {
			return *c, true
		}
	}
	return Call{}, false
}

func (c Call) owner() tool.Owner {
	if c.Prepared == nil {
		return ""
	}
	return c.Prepared.Owner
}

// class returns the class of the call. It is tool.Once for a call that is not
// prepared: such a call must not be repeated.
func (c Call) class() tool.Class {
	if c.Prepared == nil {
		return tool.Once
	}
	return c.Prepared.Class
}

// failed reports whether the call started and then failed, or may have failed.
func (c Call) failed() bool {
	return c.Done && c.Attempt > 0 && (c.Outcome == Error || c.Outcome == Unknown || c.Outcome == NotRun)
}

// toExecute reports whether the gateway is to execute the call, now or after an
// approval.
func (c Call) toExecute() bool {
	if c.Prepared == nil || c.owner() == tool.Client || c.Guard != policy.Allow {
		return false
	}
	return c.Prepared.Verdict == Run || c.Prepared.Verdict == Ask
}

// Runnable reports whether the call is not done and needs no further approval. It
// may still have to wait for other calls; see Parallelism.
func (c Call) Runnable() bool { return !c.Done && c.ready() }

// ready reports whether the gateway is to execute the call and needs no further
// approval for it.
func (c Call) ready() bool {
	return c.toExecute() && (c.Prepared.Verdict == Run || c.approved())
}

// lost reports whether the call started, has no result, and must not be repeated.
// It is in flight, or its outcome is unknown.
func (c Call) lost() bool {
	return c.Attempt > 0 && !c.Done && !c.Prepared.Class.Repeatable()
}

// CallCost returns the cost of the call that ends with the fact: the price of its tool, whatever
// came of it, if it was sent. It must be called with the state before the fact.
func (s *State) CallCost(b CallDone) budget.Amount {
	c, _ := s.Call(b.Key)
	return c.cost(b.Outcome)
}

// cost returns the cost of a call that ends with the outcome.
func (c Call) cost(o Outcome) budget.Amount {
	if c.Done || c.Attempt == 0 || c.Prepared == nil || o == NotRun || o == Cached {
		return budget.Amount{}
	}
	return budget.Amount{NanoUSD: max(0, int64(c.Prepared.PriceNano))}
}

// Paid returns what the run has spent, in nano-USD; nil = neither a target nor a call has a price.
func (s *State) Paid() *int64 {
	paid := s.Spent.NanoUSD
	priced := s.Accepted != nil && slices.ContainsFunc(s.Accepted.Targets, func(t Target) bool { return t.Price.Known() })
	if !priced && paid == 0 {
		return nil
	}
	return &paid
}

// unprepared returns the calls to prepare. Those of a relay are never prepared.
func (s *State) unprepared() []CallKey {
	if s.relays() {
		return nil
	}
	var keys []CallKey
	for _, c := range s.Calls {
		if c.Prepared == nil && !c.Done {
			keys = append(keys, c.Key)
		}
	}
	return keys
}

// runnable returns the calls to execute now, at the same time.
func (s *State) runnable() []CallKey {
	free, reads := make([]CallKey, 0, len(s.Calls)), []CallKey(nil)
	_, run := decision{s}.inOrder()
	for _, c := range run {
		free = append(free, c.Key)
		if s.Accepted.Parallelism == Safe && c.Prepared.Class == tool.Read {
			reads = append(reads, c.Key)
		}
	}
	switch {
	case len(free) == 0 || s.Accepted.Parallelism == Parallel:
		return free
	case s.Accepted.Parallelism == Safe && len(reads) > 0:
		return reads
	}
	return free[:1]
}

// Startable returns which of the waiting calls of an [ExecuteTools] may start now: at most
// Rules.CallsPerServer calls of one server are in flight at a time. The driver asks
// before it starts the first calls and again after each result. inFlight are the calls that
// it has started and that have no result. Startable returns nil if the run ends or has to
// do something else first.
func (s *State) Startable(waiting, inFlight []CallKey) []CallKey {
	a, ok := Decide(withoutInFlight(s, "")).(ExecuteTools)
	if !ok {
		return nil
	}
	perServer := map[string]int{}
	for _, key := range inFlight {
		perServer[s.server(key)]++
	}
	var out []CallKey
	for _, key := range waiting {
		if server := s.server(key); slices.Contains(a.Calls, key) && perServer[server] < s.Accepted.Rules.CallsPerServer {
			perServer[server]++
			out = append(out, key)
		}
	}
	return out
}

// server returns the server of a prepared call.
func (s *State) server(key CallKey) string {
	c, ok := s.Call(key)
	if !ok || c.Prepared == nil {
		return ""
	}
	return c.Prepared.Server
}

func (s *State) undecided() []CallKey {
	var keys []CallKey
	held := decision{s}.held()
	for _, c := range s.Calls {
		if !c.Done && c.toExecute() && c.Prepared.Verdict == Ask && !c.Resolved && held[c.Key] == "" {
			keys = append(keys, c.Key)
		}
	}
	return keys
}

// answered reports whether the latest turn has no complete tool call,
// and no input came that the model has not seen.
func (s *State) answered() bool { return s.Turn != nil && len(s.Calls) == 0 && !s.Unanswered }

// Cause returns what has ended the run; the zero value if it has not finished.
func (s *State) Cause() Cause {
	if s.Finished == nil {
		return Cause{}
	}
	return decision{s}.cause(s.Finished.Reason)
}

// Backoff returns how long to wait before the next attempt at the target if this one fails, in
// milliseconds. askedMS is the wait that the provider asked for; 0 = none. The driver
// adds a random part of at most jitterMS, so that clients do not retry at the same time.
// TurnFailed.RetryAt is the end of the wait.
func (s *State) Backoff(askedMS int64) (waitMS, jitterMS int64) {
	if askedMS > 0 {
		return askedMS, askedMS / 10
	}
	waitMS = firstWaitMS
	for n := 1; n < s.Attempt.AttemptsOnTarget && waitMS < maxWaitMS; n++ {
		waitMS *= 2
	}
	return waitMS, waitMS
}

// Usable reports whether a run can continue with a turn that broke off: the gateway can
// execute one of its calls. A relay executes none, so its caller is told of the error.
func (s *State) Usable(turn *model.Turn) bool {
	return turn != nil && !s.relays() && slices.ContainsFunc(turn.Calls, func(c model.Call) bool { return c.Complete })
}

// SkippedTargets returns the targets of the latest Routed that are not tried, with the
// reasons of the router and of the rules.
func (s *State) SkippedTargets() []SkippedTarget {
	if s.Routed == nil {
		return nil
	}
	d := decision{s}
	out := slices.Clip(s.Routed.Skipped)
	for _, target := range s.Routed.Order {
		if reason := d.unfit(target); reason != "" {
			out = append(out, SkippedTarget{target, reason})
		}
	}
	return out
}

// Fallback returns the target that is tried instead of another one, as indices into Accepted.Targets, if the latest
// fact is a Routed after a failure that leaves a target to try. It does so as well if the Routed begins a round at another
// target than the first one, unless the round before it went to the same target.
func (s *State) Fallback() (from, to int, ok bool) {
	if s.Routed == nil || s.Accepted == nil || s.Routed.Attempt > 0 && s.Attempt.Failed == nil {
		return 0, 0, false
	}
	d := decision{s}
	i := slices.IndexFunc(s.Routed.Order, func(target int) bool { return d.unfit(target) == "" })
	if i < 0 {
		return 0, 0, false
	}
	to = s.Routed.Order[i]
	if s.Routed.Attempt > 0 {
		return s.Attempt.Target, to, true
	}
	if from = s.Routed.Order[0]; s.Routed.First != nil {
		from = *s.Routed.First
	}
	return from, to, from != to && (s.Turn == nil || s.Attempt.Target != to)
}

// Announce returns the servers, and marks those whose tools the run lists for its caller:
// the shown ones, each once in a conversation.
func (s *State) Announce(servers []Server) []Server {
	out := slices.Clone(servers)
	for i := range out {
		out[i].Announced = out[i].Shown && !slices.Contains(s.Accepted.Listed, LabelOf(out[i].Label))
	}
	return out
}

// Listed returns the labels of the servers whose tools the conversation has listed, after
// this run. The next run of the conversation has them in Accepted.Listed.
func (s *State) Listed() []string {
	if s.Accepted == nil {
		return nil
	}
	out := slices.Clip(s.Accepted.Listed)
	if s.Catalogued == nil {
		return out
	}
	for _, server := range s.Catalogued.Servers {
		if server.Announced {
			out = append(out, LabelOf(server.Label))
		}
	}
	return out
}

// FromRequest reports whether the request brought the server of this name.
func (s *State) FromRequest(name string) bool {
	return name != "" && s.Catalogued != nil &&
		slices.ContainsFunc(s.Catalogued.Servers, func(server Server) bool { return server.FromRequest && server.Label == name })
}

// Shown reports whether the caller sees the server of this name.
func (s *State) Shown(name string) bool {
	return name != "" && s.Catalogued != nil &&
		slices.ContainsFunc(s.Catalogued.Servers, func(server Server) bool { return server.Shown && server.Label == name })
}

// ShownAs returns how the caller sees a call: as one of a shown server, or as one of a hosted
// tool. tool is the server's own name of its tool. For a hidden call all values are zero.
func (s *State) ShownAs(c Call) (shown bool, hosted, tool string) {
	if c.Prepared == nil || s.Accepted == nil {
		return false, "", ""
	}
	if s.Shown(c.Prepared.Server) {
		return true, "", c.Prepared.Tool
	}
	for _, h := range s.Accepted.Hosted {
		if h.Server == c.Prepared.Server && h.Tool == c.Prepared.Tool {
			return false, h.Type, h.Tool
		}
	}
	return false, "", ""
}

// MissingServers returns the names of the servers that could not list their tools: those of the org and of the
// agent of the run. For a model that takes no tools it returns also those that could. The caller sees those that the
// request has declared.
func (s *State) MissingServers(toolless bool) (names []string) {
	if s.Catalogued == nil {
		return nil
	}
	for _, server := range s.Catalogued.Servers {
		if (server.Error != "" || toolless && server.Tools > 0) && !server.Shown {
			names = append(names, server.Label)
		}
	}
	return names
}

// NoServers reports whether no server gives the run a tool, or should have done so.
func (s *State) NoServers() bool {
	return s.Catalogued != nil && !slices.ContainsFunc(s.Catalogued.Servers, func(server Server) bool { return server.Tools > 0 || server.Error != "" })
}

// Seen returns the references of the items that the model sees, in order: those of the
// transcript, with the latest replacement in place of what it replaces.
func (s *State) Seen() []string {
	var refs []string
	from := 0
	for _, seg := range slices.Backward(s.Transcript) {
		if seg.Kind == Replacement {
			refs, from = append(refs, seg.Refs...), seg.Until
			break
		}
	}
	for _, seg := range s.Transcript[from:] {
		if seg.Kind != Replacement {
			refs = append(refs, seg.Ref)
		}
	}
	return refs
}

// Refs returns the references of all items of the run, in order, whatever the model sees of them. An answer on which
// not all of its hooks have decided is left out.
func (s *State) Refs() []string {
	var refs []string
	undecided := s.undecidedAnswer()
	for _, seg := range s.Transcript {
		if seg.Kind != Replacement && (undecided == "" || seg.Ref != undecided) {
			refs = append(refs, seg.Ref)
		}
	}
	return refs
}

// HiddenRefs returns the references of the items that the caller did not send with its
// request and does not see, in order. A compaction does not change them: it is about what the
// model sees, and the caller's conversation goes on with the items themselves. An answer on which not all
// of its hooks have decided is left out.
func (s *State) HiddenRefs() []string {
	var refs []string
	undecided := s.undecidedAnswer()
	for _, seg := range s.Transcript {
		if (seg.Kind == Own || seg.Kind == Added) && (undecided == "" || seg.Ref != undecided) {
			refs = append(refs, seg.Ref)
		}
	}
	return refs
}

// LateRefs returns the rows of input that has no place in the transcript yet. If the run ends, no model has seen it, and
// it belongs to the conversation nevertheless: its sender was told that it is accepted.
func (s *State) LateRefs() (refs []string) {
	for _, seg := range s.late {
		refs = append(refs, seg.Ref)
	}
	return refs
}

// CutRef returns the row of an answer that broke off at the end of the run, if its text was shown or the run was ended
// from outside; "" = there is none. An answer on which hooks were to decide is none.
func (s *State) CutRef() string {
	f := s.Attempt.Failed
	if f == nil || !f.Forwarded && f.Class != model.Gone || s.Accepted.HoldsAnswers() {
		return ""
	}
	return f.PartialRef
}

// callsOpen reports whether a call of the latest turn has no result in the transcript.
func (s *State) callsOpen() bool { return len(s.Calls) > 0 && !s.resultsAppended }

// lateBytes is the size of the input that waits for its place.
func (s *State) lateBytes() (n int64) {
	for _, seg := range s.late {
		n += seg.Bytes
	}
	return n
}

// replaces reports whether the compaction replaces segments of the transcript, and more of them
// than the one before it.
func (s *State) replaces(b Compacted) bool {
	replaced := 0
	for _, seg := range s.Transcript {
		replaced = max(replaced, seg.Until)
	}
	return len(b.Refs) > 0 && b.Until > replaced && b.Until <= len(s.Transcript)
}

// pauses reports whether the run waits at its next limit.
func (s *State) pauses() bool { return s.Accepted != nil && s.Accepted.Pauses() && s.PauseOver == "" }

// CutAt returns when what is under way is cut off, in Unix milliseconds: at the deadline, or later if
// the run pauses there. It returns 0 before the run is accepted and while it waits.
func (s *State) CutAt() int64 {
	at := s.DeadlineAt()
	if at > 0 && s.pauses() {
		at += OvertimeMS
	}
	return at
}

// TimeIsUp reports whether the time limit of a run that pauses is used up at the time now, and no fact
// says so yet. The owner of the run must append Expired before it starts anything else.
func (s *State) TimeIsUp(now int64) bool {
	at := s.DeadlineAt()
	return s.pauses() && !s.TimeUp && s.Ended == "" && at > 0 && now >= at
}

// Cuts reports whether an Expired of the deadline ends the run.
func (s *State) Cuts(b Expired) bool { return b.Cut || !s.pauses() }

// PauseFor returns the fact with which a run waits for what a says. now is the time of the fact, in
// Unix milliseconds.
func (s *State) PauseFor(a Pause, waitID string, now int64) Paused {
	b := Paused{
		WaitID: waitID, Reason: a.Reason, Scope: a.Scope, EndsAt: a.EndsAt, ActiveMS: now - s.ActiveSince, CallerAt: s.Accepted.CallerAt,
	}
	if wait := s.Accepted.PauseMS; wait > 0 {
		b.ExpiresAt = now + wait
	}
	return b
}

// HeldAfter returns the limit of the run for which it would wait again at once after the raise; "" =
// it goes on. It must be called for a run that is Paused.
func (s *State) HeldAfter(b LimitsRaised) event.Reason {
	if a, ok := Decide(Apply(*s, Fact{Seq: s.Seq + 1, At: s.At, Version: Version, Body: b})).(Pause); ok {
		return a.Reason
	}
	return ""
}
