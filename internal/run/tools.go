package run

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/crash"
	"github.com/turnpike-gateway/turnpike/internal/ledger"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/toolexec"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/tool"
)

// prepared is what a call that is to run needs.
type prepared struct {
	entry     *catalog.Entry
	arguments json.RawMessage
}

// prepare looks the calls up, parses and validates them.
func (d *drive) prepare(a loop.PrepareTools) error {
	rules := toolexec.Rules{ClientTools: d.clientNames(), Only: d.req.ToolChoice.Only, Validation: d.req.ArgValidation}
	bodies := make([]loop.Body, len(a.Calls))
	var rows []Row
	for i, key := range a.Calls {
		c, _ := d.state.Call(key)
		p := toolexec.Prepare(d.visible(), rules, key, c.Name, d.rawArguments(c))
		if p.Verdict == loop.Run {
			p.ArgsRef = "args:" + string(key)
			rows = append(rows, Row{p.ArgsRef, p.Arguments})
			d.keepArguments(key, prepared{p.Entry, p.Arguments})
		}
		bodies[i] = p.CallPrepared
	}
	leftOut := d.state.SkippedByFirst
	if err := d.append(rows, bodies...); err != nil {
		return err
	}
	if d.state.SkippedByFirst && !leftOut { // once in a run, also when another owner continues it
		d.log.Warn("the model asked for more than one tool call, and only the first is executed (tool_parallelism: first)",
			"round", d.state.Turn.Round, "calls", len(d.state.Calls))
	}
	return nil
}

func (d *drive) keepArguments(key loop.CallKey, p prepared) {
	if d.args == nil {
		d.args = map[loop.CallKey]prepared{}
	}
	d.args[key] = p
}

// rawArguments returns what the model wrote.
func (d *drive) rawArguments(c loop.Call) string {
	for i, tc := range d.state.Turn.Calls {
		if loop.Key(d.state.Turn.Round, i) == c.Key {
			return tc.Arguments
		}
	}
	return ""
}

// answer gives calls a result without executing them.
func (d *drive) answer(a loop.AnswerCalls) error {
	var rows []Row
	bodies := make([]loop.Body, len(a.Calls))
	for i, key := range a.Calls {
		c, _ := d.state.Call(key)
		body, more := d.done(c, c.Attempt, toolexec.Done{Outcome: a.Outcome, Text: a.Text}, d.cut[key])
		bodies[i], rows = body, append(rows, more...)
	}
	if err := d.append(rows, bodies...); err != nil {
		return err
	}
	for _, key := range a.Calls {
		c, _ := d.state.Call(key)
		text := d.items[c.ResultRef][0].Text()
		d.toolAnswered(c, a.Outcome, text)
		d.emit(d.toolDone(c, a.Outcome, text, d.cut[key]))
	}
	return nil
}

// done returns the fact that ends a call and the rows that hold its result.
func (d *drive) done(c loop.Call, attempt int, r toolexec.Done, took time.Duration) (loop.CallDone, []Row) {
	ref := "result:" + string(c.Key)
	if _, taken := d.items[ref]; taken { // only in a run that is given up
		ref += fmt.Sprintf(".%d", attempt)
	}
	result := item.NewResult(c.ProviderID, r.Text, r.Outcome != loop.OK && r.Outcome != loop.Cached)
	result.Name = c.Name
	return loop.CallDone{
		Key: c.Key, Attempt: attempt, Outcome: r.Outcome, ResultRef: ref, ResultDigest: r.Digest,
		Bytes: int64(len(r.Text)), Micros: took.Microseconds(),
	}, d.store(ref, []item.Item{result})
}

// ended is done for a result of which there may be more than the model is told:
// all of it is kept for reading.
func (d *drive) ended(c loop.Call, attempt int, r toolexec.Done, took time.Duration) (loop.CallDone, []Row) {
	body, rows := d.done(c, attempt, r, took)
	if r.Full != "" {
		body.FullRef = "full:" + string(c.Key)
		rows = append(rows, Row{body.FullRef, r.Full})
		d.keepAll(map[string]string{d.rereadID(c.Key): r.Full})
	}
	return body, rows
}

// outcome is how one execution ended.
type outcome struct {
	index  int
	memory *ledger.Part // of the call, until its result is stored
	done   toolexec.Done
	err    error
	took   time.Duration
}

// execute records the intent to run all the calls, runs them at the same time
// and records each as it ends. The order of the results is the rules' affair.
func (d *drive) execute(a loop.ExecuteTools) error {
	keys, err := d.fromCache(a.Calls)
	if err != nil || len(keys) == 0 {
		return err
	}
	calls, err := d.intend(keys)
	if err != nil {
		return err
	}
	round := d.state.Turn.Round
	ctx, cancel := context.WithCancel(d.inRound(round))
	defer cancel()
	results := make(chan outcome)
	for i, c := range calls {
		d.emit(d.toolStarted(c))
		go func() { results <- d.executeOne(ctx, round, i, c) }()
	}
	var failed error
	for range calls {
		r := <-results
		if err := d.settle(calls[r.index], r); err != nil && failed == nil {
			failed = err
		}
		if failed != nil || d.state.Ended != "" {
			cancel() // the run is over: the others need not finish
		}
	}
	return failed
}

// intend appends call_started for every call before anything is sent.
func (d *drive) intend(keys []loop.CallKey) ([]loop.Call, error) {
	bodies := make([]loop.Body, len(keys))
	for i, key := range keys {
		c, _ := d.state.Call(key)
		bodies[i] = loop.CallStarted{Key: key, Attempt: c.Attempt + 1, IdemKey: d.idempotencyKey(c)}
	}
	if err := d.append(nil, bodies...); err != nil {
		return nil, err
	}
	crash.At(crash.AfterCallIntent)
	calls := make([]loop.Call, len(keys))
	for i, key := range keys {
		calls[i], _ = d.state.Call(key)
	}
	return calls, nil
}

func (d *drive) executeOne(ctx context.Context, round, index int, c loop.Call) outcome {
	p := d.args[c.Key]
	ctx, called := d.toolCalled(ctx, round, c, c.Attempt)
	begin := time.Now()
	memory := d.account.Part()
	done, err := toolexec.Execute(crash.OnSent(ctx, crash.AfterCallSend), p.entry, tool.Call{
		RunID: d.lease.RunID, Key: string(c.Key), Attempt: c.Attempt,
		Class: c.Prepared.Class, Arguments: p.arguments, IdempotencyKey: d.idempotencyKey(c), Memory: memory,
	}, toolexec.Cap{Bytes: d.req.ResultMaxBytes, Hint: d.rereadHint(c.Key)})
	took := atLeastOne(time.Since(begin))
	called(toolEnd(done, err))
	return outcome{index, memory, done, err, took}
}

// settle records how a call ended. One that may have left when it was cut off by
// the end of the run stays open, for the rules or the run's next owner.
func (d *drive) settle(c loop.Call, r outcome) error {
	defer r.memory.Close()
	var fatal tool.Fatal
	switch {
	case r.err == nil, errors.As(r.err, &fatal):
	case r.done.Outcome != loop.NotRun, d.abandoned():
		if d.cut == nil {
			d.cut = map[loop.CallKey]time.Duration{}
		}
		d.cut[c.Key] = r.took
		return d.stopped(r.err, c.Prepared.Server)
	default:
		r.done.Text, r.err = "Not sent: the run ended first.", nil
	}
	body, rows := d.ended(c, c.Attempt, r.done, r.took)
	crash.At(crash.BeforeResult)
	if err := d.append(rows, body); err != nil {
		return err
	}
	crash.At(crash.AfterResult)
	d.remember(c, r.done)
	if r.done.Hidden > 0 {
		d.log.Warn("tool_result_hidden_text", "call", c.Key, "tool", c.Name, "server", c.Prepared.Server, "characters", r.done.Hidden)
	}
	d.log.Debug("tool call", "call", c.Key, "tool", c.Name, "outcome", r.done.Outcome, "ms", r.took.Milliseconds())
	d.emit(d.toolDone(c, r.done.Outcome, r.done.Text, r.took))
	if fatal != nil {
		return d.stopped(r.err, c.Prepared.Server)
	}
	return nil
}

// idempotencyKey is the same for every attempt of a call and for no other call;
// a reading call needs none.
func (d *drive) idempotencyKey(c loop.Call) string {
	if c.Prepared.Class == tool.Read {
		return ""
	}
	sum := sha256.Sum256([]byte(d.req.Org + "\x00" + d.lease.RunID + "\x00" + string(c.Key)))
	return "turnpike:" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:]))
}

func (d *drive) toolStarted(c loop.Call) event.ToolStarted {
	return event.ToolStarted{
		Round: d.state.Turn.Round, Key: string(c.Key), Name: c.Name, Server: c.Prepared.Server, Arguments: d.args[c.Key].arguments,
	}
}

func (d *drive) toolDone(c loop.Call, o loop.Outcome, text string, took time.Duration) event.ToolDone {
	e := event.ToolDone{Round: d.state.Turn.Round, Key: string(c.Key), Name: c.Name, Outcome: string(o), Text: text, Duration: took}
	if c.Prepared != nil {
		e.Server = c.Prepared.Server
	}
	return e
}
