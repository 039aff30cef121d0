package run

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/crash"
	"github.com/turnpike-gateway/turnpike/internal/eventlog"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/internal/toolexec"
	"github.com/turnpike-gateway/turnpike/internal/window"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/tool"
)

// prepared is what the execution of a call needs.
type prepared struct {
	entry     *catalog.Entry
	arguments json.RawMessage
	options   json.RawMessage // what the request says of all calls of the tool; nil = nothing
}

// toolCaller performs the tool calls of a run.
type toolCaller struct {
	run       *runState
	tools     *toolSet
	catalog   *catalog.Catalog
	latest    *catalog.Set // the tools as their servers listed them last, for approved calls; nil = the run has not waited here
	cache     resultCache
	hooks     hookCaller
	observer  *runObserver
	yields    func() bool                     // reports whether the run is to be handed over to its next owner
	cancelled map[loop.CallKey]time.Duration  // duration of the calls that the end of the run cancelled
	entries   map[loop.CallKey]*catalog.Entry // of the calls that are to be executed
	reserver  *reserver
	holds     map[loop.CallKey]*reservation // of the prices of calls in flight that count in budgets
}

// keep keeps what a call that is to be executed needs.
func (t *toolCaller) keep(key loop.CallKey, p prepared) {
	if t.entries == nil {
		t.entries = map[loop.CallKey]*catalog.Entry{}
	}
	t.entries[key] = p.entry
	t.run.events.KeepArguments(key, p.arguments)
}

// prepared returns what keep has kept; its zero value if nothing.
func (t *toolCaller) prepared(key loop.CallKey) prepared {
	p := prepared{entry: t.entries[key]}
	p.arguments, _ = t.run.events.Arguments(key)
	if p.entry != nil {
		p.options = t.run.policy().OptionsOf(p.entry.Server, p.entry.Name)
	}
	return p
}

// prepare finds the tools of the calls, and parses and validates the arguments.
func (t *toolCaller) prepare(a loop.PrepareTools) error {
	rules := t.rules()
	var batch pending
	for _, key := range a.Calls {
		c, _ := t.run.state().Call(key)
		p := toolexec.Prepare(t.tools.visible(), rules, key, c.Name, t.run.events.RawArguments(c))
		p, err := t.before(p, c, &batch)
		if err != nil {
			return err
		}
		if p.Verdict == loop.Run || p.Verdict == loop.Ask {
			p.Bind()
			p.ArgsRef = "args:" + string(key)
			batch.rows = append(batch.rows, journal.Row{Ref: p.ArgsRef, Value: p.Arguments})
			t.keep(key, prepared{entry: p.Entry, arguments: p.Arguments})
		}
		batch.bodies = append(batch.bodies, p.CallPrepared)
	}
	leftOut := t.run.state().SkippedByFirst
	if err := t.run.append(batch.rows, batch.bodies...); err != nil {
		return err
	}
	if t.run.state().SkippedByFirst && !leftOut { // once in a run, also when another owner continues it
		t.run.log.Warn("the model asked for more than one tool call, and only the first is executed (tool_parallelism: first)",
			"round", t.run.state().Turn.Round, "calls", len(t.run.state().Calls))
	}
	return nil
}

// rules returns the settings for the calls of the latest turn.
func (t *toolCaller) rules() toolexec.Rules {
	p := t.run.policy()
	return toolexec.Rules{ClientTools: t.tools.clientNames(), Only: t.tools.callable(), Validation: p.Validation, NoUnpriced: p.NoUnpriced, Asks: p.Asks, Remembers: t.run.state().Remembers}
}

// recheck compares the approved calls that have not started with the tools that their servers
// have now, as the next owner of the run would. It lists the tools of the servers again that
// have announced a change since they were compared last. It must be called immediately before
// approved calls start.
func (t *toolCaller) recheck(ctx context.Context) error {
	if t.latest == nil || !t.latest.Outdated() || !slices.ContainsFunc(t.run.state().Calls, approvedToRun) {
		return nil
	}
	now, err := t.catalog.Renew(ctx, t.run.req.Org, t.run.req.Servers, t.latest, t.run.listAge())
	if err != nil {
		return t.run.stopped(err, failedServer(err))
	}
	recalled, err := now.Recall(t.tools.catalog.Seal(), t.run.accepted())
	if err != nil {
		return fmt.Errorf("run %s: the tools of approved calls: %w", t.run.lease.RunID, err)
	}
	t.latest = now
	for _, c := range t.run.state().Calls {
		if entry := recalled.Callable(c.Name); approvedToRun(c) && entry != nil {
			t.keep(c.Key, prepared{entry: entry, arguments: t.prepared(c.Key).arguments})
		}
	}
	return t.prepareAgain(now)
}

// approvedToRun reports whether a person has approved the call, and it has no result.
func approvedToRun(c *loop.Call) bool { return c.Wait != nil && c.Runnable() }

// prepareAgain prepares the approved calls whose tool or arguments are not those that were
// approved: they must be approved again. now are the tools as their servers have them now.
func (t *toolCaller) prepareAgain(now *catalog.Set) error {
	var bodies []loop.Body
	var rows []journal.Row
	for _, c := range t.run.state().Calls {
		if !approvedToRun(c) || c.Attempt > 0 {
			continue
		}
		entry := now.Callable(c.Name)
		if entry == nil || entry.Server != c.Prepared.Server { // it is gone, and is answered so
			continue
		}
		moved := c.Prepared.Place != "" && c.Prepared.Place != entry.Place.ID // an older version has stored no place
		if entry.Digest == c.Prepared.ToolDigest && toolexec.ArgumentsDigest(t.prepared(c.Key).arguments) == c.Prepared.ArgsDigest && !moved {
			continue
		}
		p := toolexec.Prepare(now, t.rules(), c.Key, c.Name, t.effectiveArguments(*c))
		p.Revision = c.Prepared.Revision + 1
		if p.Verdict == loop.Run { // it was asked for, and stays so
			p.Verdict, p.Asker = loop.Ask, c.Prepared.Asker
		}
		if p.Verdict == loop.Ask {
			p.Bind()
			p.ArgsRef = fmt.Sprintf("args:%s.%d", c.Key, p.Revision)
			rows = append(rows, journal.Row{Ref: p.ArgsRef, Value: p.Arguments})
			t.keep(c.Key, prepared{entry: p.Entry, arguments: p.Arguments})
		}
		why := "the tool has changed since the approval was asked for"
		if moved {
			why = "the server has another URL, or was deleted and created again, since the approval was asked for"
		}
		t.run.log.Warn("approval_void", "approval", c.WaitID(), "call", c.Key, "server", c.Prepared.Server, "tool", c.Prepared.Tool, "reason", why)
		bodies = append(bodies, p.CallPrepared)
	}
	if bodies == nil {
		return nil
	}
	return t.run.append(rows, bodies...)
}

// answer appends the results of calls that are answered without being executed.
func (t *toolCaller) answer(a loop.AnswerCalls) error {
	var rows []journal.Row
	var settled []journal.Settled
	bodies := make([]loop.Body, len(a.Calls))
	for i, key := range a.Calls {
		c, _ := t.run.state().Call(key)
		body, more := t.done(c, c.Attempt, toolexec.Done{Outcome: a.Outcome, Parts: tool.Text(a.Text).Parts}, t.cancelled[key])
		bodies[i], rows = body, append(rows, more...)
		settled = append(settled, t.paid(body)...)
	}
	if err := t.run.commit(journal.Batch{Rows: rows, Settled: settled}, bodies...); err != nil {
		return err
	}
	for _, key := range a.Calls {
		c, _ := t.run.state().Call(key)
		t.answered(c, a.Outcome, item.PlainText(t.run.events.Items(c.ResultRef)[0].Parts))
	}
	return nil
}

// done returns the fact that ends a call and the rows that hold its result.
func (t *toolCaller) done(c loop.Call, attempt int, r toolexec.Done, took time.Duration) (loop.CallDone, []journal.Row) {
	ref, valueRef := resultOf(c.Key), "value:"+string(c.Key)
	if t.run.events.Stored(ref) { // only in a run that is given up
		again := fmt.Sprintf(".%d", attempt)
		ref, valueRef = ref+again, valueRef+again
	}
	structured := r.Structured
	if structured == nil { // it is too large, or a hook has replaced it
		structured = r.Made
	}
	result := item.Item{
		Kind: item.ToolResult, CallID: c.ProviderID, Name: c.Name, Parts: r.Parts, Structured: structured, Label: r.Label,
		IsError: r.Outcome != loop.OK && r.Outcome != loop.Cached,
	}
	done := loop.CallDone{
		Key: c.Key, Attempt: attempt, Outcome: r.Outcome, ResultRef: ref, ResultDigest: r.Digest,
		Bytes: int64(window.PartBytes(r.Parts)), Micros: took.Microseconds(), Label: r.Label,
	}
	rows := t.run.events.Store(ref, []item.Item{result})
	if r.Value.JSON != nil {
		if bytes.Equal(r.Value.JSON, structured) { // it is stored once
			r.Value.JSON = nil
		}
		done.ValueRef = valueRef
		rows = append(rows, t.run.events.KeepValue(valueRef, r.Value))
	}
	return done, rows
}

// resultOf refers to the row with the result of a call.
func resultOf(key loop.CallKey) string { return "result:" + string(key) }

// affordable returns the result without its binary content if the run has no
// memory for it.
func (t *toolCaller) affordable(r toolexec.Done) toolexec.Done {
	n := eventlog.DataBytes(r.Parts)
	if err := t.run.account.Acquire(n); err != nil {
		return r.WithoutData("the run has no memory left for it")
	}
	t.run.account.Release(n) // store counts it
	return r
}

// ended is done for the result of an execution. If the result was truncated, its full text
// is kept for read_result.
func (t *toolCaller) ended(c loop.Call, attempt int, r toolexec.Done, took time.Duration) (loop.CallDone, []journal.Row) {
	body, rows := t.done(c, attempt, r, took)
	if r.Full != "" {
		body.FullRef = "full:" + string(c.Key)
		rows = append(rows, journal.Row{Ref: body.FullRef, Value: r.Full})
		t.run.results.keep(map[string]string{resultID(t.run.lease.RunID, c.Key): r.Full})
	}
	return body, rows
}

// outcome is how one execution ended.
type outcome struct {
	call   loop.Call
	memory *memlimit.Share // of the call, until its result is stored
	done   toolexec.Done
	err    error
	took   time.Duration
	hooks  []loop.HookRan // what the hooks after the call have decided
}

// execute executes the calls at the same time, as far as the rules allow, and appends each
// result when its call ends. The rules put the results into order. Calls that have not
// started when the run ends, or is handed over, have no facts.
func (t *toolCaller) execute(a loop.ExecuteTools) error {
	before := t.run.state().Seq
	if err := t.recheck(t.run.ctx); err != nil || t.run.state().Seq != before || t.run.ctx.Err() != nil {
		return err // the rules decide again
	}
	t.withdraw(a.Calls)
	waiting, err := t.fromCache(a.Calls)
	if err != nil || len(waiting) == 0 {
		return err
	}
	e := execution{round: t.run.state().Turn.Round, waiting: waiting, results: make(chan outcome, 1)}
	var cancel context.CancelFunc
	e.ctx, cancel = context.WithCancel(t.observer.inRound(t.run.ctx, e.round))
	defer cancel()
	failed := t.start(&e)
	for len(e.inFlight) > 0 {
		r := <-e.results
		e.inFlight = slices.DeleteFunc(e.inFlight, func(key loop.CallKey) bool { return key == r.call.Key })
		if err := t.settle(r.call, r); err != nil && failed == nil {
			failed = err
		}
		if failed == nil {
			failed = t.start(&e)
		}
		if failed != nil || t.run.state().Ended != "" {
			cancel() // the run ends: the other calls are cancelled
		}
	}
	return failed
}

// fromCache appends the results of the calls that are in the result cache, and returns the
// other calls.
func (t *toolCaller) fromCache(keys []loop.CallKey) ([]loop.CallKey, error) {
	if !t.cache.used() {
		return keys, nil
	}
	var rest []loop.CallKey
	var rows []journal.Row
	var bodies []loop.Body
	var texts []string
	var found []loop.Call
	for _, key := range keys {
		c, _ := t.run.state().Call(key)
		earlier, ok := tool.Result{}, false
		if !t.run.state().MayChangeResult(c) {
			earlier, ok = t.cache.find(t.prepared(key))
		}
		if !ok {
			rest = append(rest, key)
			continue
		}
		result := t.affordable(toolexec.Again(earlier, t.limitOf(key)))
		body, more := t.ended(c, 0, result, 0)
		bodies, rows = append(bodies, body), append(rows, more...)
		found, texts = append(found, c), append(texts, result.Text())
	}
	if len(bodies) == 0 {
		return rest, nil
	}
	if err := t.run.append(rows, bodies...); err != nil {
		return nil, err
	}
	for i, c := range found {
		t.answered(c, loop.Cached, texts[i])
	}
	return rest, nil
}

// withdraw makes calls fail, unsent, whose tools the key of the run may not use any more. Their
// results are not taken from the cache either.
func (t *toolCaller) withdraw(keys []loop.CallKey) {
	access := t.run.accessNow()
	if access.IsFull() {
		return
	}
	for _, key := range keys {
		if entry := t.entries[key]; entry != nil && !entry.AllowedBy(access) {
			t.entries[key] = entry.Withdrawn()
		}
	}
}

// execution is the state of one execute.
type execution struct {
	ctx      context.Context // of the calls
	round    int
	waiting  []loop.CallKey // calls that have not started, in order
	inFlight []loop.CallKey // calls that have started and have not ended
	results  chan outcome   // with room for one
}

// start starts the waiting calls that the rules allow now. It starts none if the run ends or
// is to be handed over.
func (t *toolCaller) start(e *execution) error {
	if len(e.waiting) == 0 || e.ctx.Err() != nil || t.yields() {
		return nil
	}
	if err := t.recheck(e.ctx); err != nil || e.ctx.Err() != nil {
		return err
	}
	keys := t.run.state().Startable(e.waiting, e.inFlight)
	if len(keys) == 0 {
		return nil
	}
	t.withdraw(keys)
	calls, err := t.intend(keys)
	if err != nil {
		return err
	}
	e.waiting = slices.DeleteFunc(e.waiting, func(key loop.CallKey) bool { return slices.Contains(keys, key) })
	for _, c := range calls {
		e.inFlight = append(e.inFlight, c.Key)
		// Read here: results of other calls change the state while this one is executed.
		limit := t.limitOf(c.Key)
		p, observed := t.run.withFiles(t.prepared(c.Key)), t.observed(e.round, c, c.Attempt)
		hooks := hooked{base: t.hooks.question(loop.Hook{}), due: t.run.state().HooksDue(loop.PostToolUse, c.Key)}
		call := func() { e.results <- t.executeOne(e.ctx, p, c, observed, limit, hooks) }
		if len(e.inFlight) == 1 && len(calls) == 1 { // nothing else can happen meanwhile: no goroutine whose stack must grow
			call()
		} else {
			go call()
		}
	}
	return nil
}

// intend appends call_started for the calls, before any of them is sent, and returns those that may
// be sent. A call of these may still wait until its server has less than max_concurrent_calls; if
// the run ends before, the call is answered as not sent.
func (t *toolCaller) intend(keys []loop.CallKey) ([]loop.Call, error) {
	var together []loop.Body
	var sent []loop.CallKey
	for _, key := range keys {
		c, _ := t.run.state().Call(key)
		started := loop.CallStarted{Key: key, Attempt: c.Attempt + 1, IdemKey: t.idempotencyKey(c)}
		if !t.sharesPrice(c) {
			together, sent = append(together, started), append(sent, key)
			continue
		}
		if ok, err := t.pay(c, started); err != nil {
			return nil, err
		} else if ok {
			sent = append(sent, key)
		}
	}
	if len(together) > 0 {
		if err := t.run.append(nil, together...); err != nil {
			return nil, err
		}
	}
	calls := make([]loop.Call, len(sent))
	for i, key := range sent {
		calls[i], _ = t.run.state().Call(key)
	}
	return calls, nil
}

// limitOf returns the limit on the result of a call.
func (t *toolCaller) limitOf(key loop.CallKey) toolexec.Cap {
	p := t.run.policy()
	return toolexec.Cap{Bytes: p.ResultMaxBytes, Chars: p.ResultMaxChars, Hint: t.tools.rereadHint(key), HeadOnly: p.HeadOnly}
}

// executeOne executes a call. toolexec truncates a result that is larger than the limit.
// It reads nothing of the run that changes meanwhile.
func (t *toolCaller) executeOne(ctx context.Context, p prepared, c loop.Call, observed ToolCall, limit toolexec.Cap, hooks hooked) outcome {
	ctx, called := t.observer.toolCalled(ctx, observed)
	begin := time.Now()
	memory := t.run.account.Share()
	done, err := toolexec.Execute(crash.OnSent(ctx, crash.AfterCallSend), p.entry, tool.Call{
		RunID: t.run.lease.RunID, Key: string(c.Key), Attempt: c.Attempt,
		Class: c.Prepared.Class, Arguments: p.arguments, IdempotencyKey: t.idempotencyKey(c), Memory: memory,
		Caller: t.run.req.caller(), Options: p.options, Session: t.run.toolSession(), EndUser: t.run.req.EndUser,
	}, limit)
	took := atLeastOne(time.Since(begin))
	called(toolEnd(done, err))
	done, hookErr := t.hooks.after(ctx, &hooks, c, p.arguments, done, limit)
	return outcome{c, memory, done, cmp.Or(err, hookErr), took, hooks.ran}
}

// settle appends how a call ended. A call that was cancelled by the end of the run, and may
// have been sent, stays open: the rules or the next owner of the run account for it.
func (t *toolCaller) settle(c loop.Call, r outcome) error {
	defer r.memory.Close()
	var fatal tool.Blocked
	switch {
	case r.err == nil, errors.As(r.err, &fatal):
	case r.done.Outcome != loop.NotRun, t.run.abandoned():
		if t.cancelled == nil {
			t.cancelled = map[loop.CallKey]time.Duration{}
		}
		t.cancelled[c.Key] = r.took
		return t.run.stopped(r.err, c.Prepared.Server)
	default:
		r.done.Parts, r.err = tool.Text("Not sent: the run ended first.").Parts, nil
	}
	r.done = t.affordable(r.done)
	body, rows := t.ended(c, c.Attempt, r.done, r.took)
	crash.At(crash.BeforeResult)
	var bodies []loop.Body
	for _, ran := range r.hooks {
		if ran.PatchRef != "" {
			ran.PatchRef = body.ResultRef
		}
		bodies = append(bodies, ran)
	}
	if err := t.run.commit(journal.Batch{Rows: rows, Settled: t.paid(body)}, append(bodies, body)...); err != nil {
		return err
	}
	if !t.run.state().MayChangeResult(c) {
		t.cache.remember(t.prepared(c.Key), r.done)
	}
	if r.done.Hidden > 0 {
		t.run.log.Warn("tool_result_hidden_text", "call", c.Key, "tool", c.Name, "server", c.Prepared.Server, "characters", r.done.Hidden)
	}
	t.run.log.Debug("tool call", "call", c.Key, "tool", c.Name, "outcome", r.done.Outcome, "ms", r.took.Milliseconds())
	if fatal != nil {
		return t.run.stopped(r.err, c.Prepared.Server)
	}
	return nil
}

// idempotencyKey returns the key of a call, which all its attempts have, and no other call;
// "" for a call that only reads.
func (t *toolCaller) idempotencyKey(c loop.Call) string {
	if c.Prepared.Class == tool.Read {
		return ""
	}
	sum := sha256.Sum256([]byte(t.run.req.Org + "\x00" + t.run.lease.RunID + "\x00" + string(c.Key)))
	return "turnpike:" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:]))
}

// answered reports a call that was answered without being executed.
func (t *toolCaller) answered(c loop.Call, o loop.Outcome, text string) {
	turn := t.run.state().Turn
	if t.observer.observer == nil || turn == nil {
		return
	}
	_, end := t.observer.toolCalled(t.observer.inRound(t.run.ctx, turn.Round), t.observed(turn.Round, c, 0))
	end(ToolEnd{Outcome: o, Text: text})
}

// observed returns an attempt at a call as the observer gets it.
func (t *toolCaller) observed(round int, c loop.Call, attempt int) ToolCall {
	call := ToolCall{Round: round, Index: c.Index, Attempt: attempt, ID: c.ProviderID, Name: c.Name, Arguments: t.prepared(c.Key).arguments}
	if c.Prepared != nil {
		call.Server = c.Prepared.Server
	}
	if call.Approval = c.WaitID(); c.Decided > 0 {
		call.Waited = time.Duration(c.Decided-c.AskedAt) * time.Millisecond
	}
	return call
}

// refuseToAsk answers the calls that cannot be asked for.
func (t *toolCaller) refuseToAsk(calls []loop.CallKey, why error) error {
	t.run.log.Warn("tool calls are not executed: no more approvals can wait", "principal", t.run.req.Principal, "calls", len(calls), "error", why)
	var bodies []loop.Body
	for _, key := range calls {
		c, _ := t.run.state().Call(key)
		if c.Wait != nil {
			continue
		}
		p := *c.Prepared
		p.Revision++
		p.Verdict, p.Answer = loop.Answer, `{"error":"the call needs the approval of a person, and too many calls wait for one already; try again later"}`
		bodies = append(bodies, p)
	}
	if err := t.run.append(nil, bodies...); err != nil {
		return err
	}
	return errDecideAgain
}
