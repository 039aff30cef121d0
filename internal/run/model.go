package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/crash"
	"github.com/turnpike-gateway/turnpike/internal/ledger"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// The waits between attempts when the provider does not say: 250 ms, 500 ms, …
// each with as much jitter on top.
const (
	firstWait = 250 * time.Millisecond
	maxWait   = 4 * time.Second
)

// callModel makes one model call and records how it ended.
func (d *drive) callModel(a loop.CallModel) error {
	if !d.waitUntil(a.NotBefore) {
		return nil // the run is over; noticeEnd says why
	}
	if err := d.begin(a); err != nil || d.state.Ended != "" {
		return err
	}
	d.said, d.timing = false, timing{sent: time.Now()}
	if a.Purpose == loop.PurposeRaw {
		return d.relay(a)
	}
	d.emit(event.RoundStarted{Round: a.Round, Attempt: a.Attempt})
	d.log.Debug("model call", "round", a.Round, "attempt", a.Attempt)
	req := d.modelRequest(a)
	memory := d.account.Part() // until the turn is stored
	defer memory.Close()
	req.Memory = memory
	ctx, called := d.modelCalled(a, req)
	turn, err := d.req.Targets[a.Target].Model.Stream(crash.OnSent(ctx, crash.AfterModelSend), req, func(delta model.Delta) error {
		return d.pass(a.Round, delta)
	})
	called(turn, err)
	var refused *ledger.Refused
	if errors.As(err, &refused) {
		d.cancel(refused)
	}
	if err != nil && d.abandoned() {
		return errHandOver
	}
	if err != nil && (turn == nil || !hasCompleteCall(turn)) {
		return d.fail(a, turn, err)
	}
	return d.record(a, turn)
}

// begin records that a model call is about to be sent, and sets aside what it
// may cost at most. A budget without room for it ends the run.
func (d *drive) begin(a loop.CallModel) error {
	started := loop.TurnStarted{Round: a.Round, Attempt: a.Attempt, Target: a.Target, Purpose: a.Purpose}
	if (a.MaxCost == budget.Amount{}) {
		return d.append(nil, started)
	}
	var batch Batch
	scopes := []string{"run"}
	for _, b := range d.state.Accepted.Budgets {
		batch.Holds = append(batch.Holds, Hold{ID: attemptID(a.Round, a.Attempt), Budget: b, Amount: a.MaxCost})
		scopes = append(scopes, b.Scope)
	}
	err := d.commit(batch, loop.Reserved{Round: a.Round, Attempt: a.Attempt, Scopes: scopes, Amount: a.MaxCost}, started)
	var over *OverBudget
	if !errors.As(err, &over) {
		crash.At(crash.AfterModelIntent)
		return err
	}
	reason := event.Tokens
	if a.MaxCost.NanoUSD > 0 {
		reason = event.Money
	}
	return d.append(nil, loop.ReserveRefused{Round: a.Round, Attempt: a.Attempt, Scope: over.Scope, Amount: a.MaxCost, Reason: reason})
}

// settled says what the model call has cost that ends with the fact.
func (d *drive) settled(end loop.Body) []Settled {
	r := d.state.Reserved
	if r == nil || len(d.state.Accepted.Budgets) == 0 {
		return nil
	}
	return []Settled{{attemptID(r.Round, r.Attempt), d.state.Cost(end)}}
}

func attemptID(round, attempt int) string { return fmt.Sprintf("%d.%d", round, attempt) }

// abandoned reports whether the call was cut off so that somebody else can go
// on with the run: nothing of it is recorded.
func (d *drive) abandoned() bool {
	cause := context.Cause(d.ctx)
	return errors.Is(cause, ErrFenced) || errors.Is(cause, errStopped) && d.state.Grade == loop.Durable
}

// waitUntil waits for a time in Unix milliseconds and reports whether the run
// goes on then.
func (d *drive) waitUntil(at int64) bool {
	wait := time.Duration(at-d.now()) * time.Millisecond
	if at == 0 || wait <= 0 {
		return d.ctx.Err() == nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-d.ctx.Done():
		return false
	}
}

func (d *drive) modelRequest(a loop.CallModel) *model.Request {
	req := &model.Request{
		Model:     d.req.Targets[a.Target].Name,
		Items:     item.For(d.transcript(d.state.Transcript), d.req.Targets[a.Target].Provider),
		MaxTokens: int(a.MaxOutput),
		Options:   d.req.Options,
		Params:    d.req.Params,
		Dialect:   d.req.Dialect,
	}
	if !a.OfferTools {
		return req
	}
	offered := d.tools.Offered()
	if a.OfferReread {
		offered = d.visible().Offered()
	}
	req.Tools = make([]model.Tool, 0, len(d.req.ClientTools)+len(offered))
	req.Tools = append(append(req.Tools, d.req.ClientTools...), offered...)
	if a.KeepToolChoice {
		req.ToolChoice = d.req.ToolChoice
	} else if d.req.ToolChoice.Mode != "" && len(req.Tools) > 0 {
		req.ToolChoice = model.ToolChoice{Mode: "auto", Only: d.req.ToolChoice.Only}
	}
	return req
}

// pass reports a delta of the model.
func (d *drive) pass(round int, delta model.Delta) error {
	if delta.Text == "" {
		return nil
	}
	d.timing.heard(time.Now())
	d.said = d.said || d.req.Live
	switch delta.Kind {
	case model.TextDelta:
		d.emit(event.TextDelta{Round: round, Text: delta.Text})
		crash.At(crash.AfterDelta)
	case model.ReasoningDelta:
		d.emit(event.ReasoningDelta{Round: round, Text: delta.Text})
	case model.RefusalDelta:
		d.emit(event.RefusalDelta{Round: round, Text: delta.Text})
	}
	return context.Cause(d.ctx)
}

func hasCompleteCall(turn *model.Turn) bool {
	for _, c := range turn.Calls {
		if c.Complete {
			return true
		}
	}
	return false
}

// record appends a turn. A turn that broke after complete calls is one: they
// run, and the model is asked again.
func (d *drive) record(a loop.CallModel, turn *model.Turn) error {
	ref := fmt.Sprintf("turn:%d", a.Round)
	items := d.signed(a, turn)
	body := loop.Turn{Round: a.Round, Purpose: a.Purpose, ItemsRef: ref, Stop: turn.Stop, Usage: turn.Usage, Bytes: textBytes(items)}
	for _, c := range turn.Calls {
		body.Calls = append(body.Calls, loop.TurnCall{ProviderID: c.ID, Name: c.Name, Arguments: c.Arguments, Complete: c.Complete})
	}
	crash.At(crash.BeforeTurn)
	if err := d.commit(Batch{Rows: d.store(ref, items), Settled: d.settled(body)}, body); err != nil {
		return err
	}
	crash.At(crash.AfterTurn)
	d.emit(event.RoundDone{Round: a.Round, Stop: turn.Stop, Usage: turn.Usage})
	return nil
}

// signed returns the items of a turn with the provider that wrote them.
func (d *drive) signed(a loop.CallModel, turn *model.Turn) []item.Item {
	for i := range turn.Items {
		if it := &turn.Items[i]; it.Kind == item.Reasoning || it.Native.JSON != nil {
			it.Native.Provider = d.req.Targets[a.Target].Provider
		}
	}
	return turn.Items
}

// fail appends how the attempt failed. What was said of it stays with its row.
func (d *drive) fail(a loop.CallModel, turn *model.Turn, err error) error {
	failure := asModelError(err)
	if d.ctx.Err() != nil {
		failure = &model.Error{Class: model.Gone, Err: context.Cause(d.ctx)}
	}
	d.failed = failure
	log := d.providerLog(a)
	log.Warn("model call failed", "round", a.Round, "attempt", a.Attempt, "class", failure.Class, "error", failure.Error())
	if d.refusedCredential() {
		warnOfCredential(log, failure.Status)
	}
	ref := fmt.Sprintf("failure:%d.%d", a.Round, a.Attempt)
	body := loop.TurnFailed{
		Attempt: a.Attempt, Class: failure.Class, Status: failure.Status, ErrorRef: ref, Forwarded: d.said,
		RetryAt: d.now() + d.retryWait(a.Attempt, failure).Milliseconds(),
	}
	rows := []Row{{ref, newStoredFailure(failure)}}
	if turn != nil {
		body.Usage = turn.Usage
		body.PartialRef = fmt.Sprintf("partial:%d.%d", a.Round, a.Attempt)
		rows = append(rows, Row{body.PartialRef, item.List(d.signed(a, turn))})
	}
	return d.commit(Batch{Rows: rows, Settled: d.settled(body)}, body)
}

// providerLog returns a log that names the org and the provider of the call. The log
// of a relay does not name its org.
func (d *drive) providerLog(a loop.CallModel) *slog.Logger {
	log := d.log.With("provider", d.req.Targets[a.Target].Provider)
	if d.req.Raw != nil {
		log = log.With("org", d.req.Org)
	}
	return log
}

// warnOfCredential tells the operator, whom the callers cannot help.
func warnOfCredential(log *slog.Logger, status int) {
	log.Warn("a provider refuses the gateway's credential: check its api_key", "status", status)
}

// warnOfRelay tells the operator that the answer to a relayed request shows a wrong
// setting. The caller gets the answer unchanged.
func (d *drive) warnOfRelay(a loop.CallModel, answer *model.RelayResponse) {
	page := strings.HasPrefix(strings.ToLower(answer.Header.Get("Content-Type")), "text/html")
	switch {
	case answer.Status == http.StatusUnauthorized, answer.Status == http.StatusForbidden:
		warnOfCredential(d.providerLog(a), answer.Status)
	case page && (answer.Status < 300 || answer.Status == http.StatusNotFound):
		d.providerLog(a).Warn("a provider answered a relayed request with a web page: check its base_url", "status", answer.Status)
	}
}

func asModelError(err error) *model.Error {
	var failure *model.Error
	if errors.As(err, &failure) {
		return failure
	}
	return &model.Error{Class: model.Transient, Err: err}
}

// retryWait is how long to wait before the next attempt: what the provider
// asked for, or twice as long as the last time; jitter on top.
func (d *drive) retryWait(attempt int, failure *model.Error) time.Duration {
	if failure.RetryAfter > 0 {
		return failure.RetryAfter + d.o.Jitter(failure.RetryAfter/10)
	}
	wait := time.Duration(math.Min(float64(firstWait)*math.Pow(2, float64(attempt-1)), float64(maxWait)))
	return wait + d.o.Jitter(wait)
}

// passedOn is what a relay has passed back.
type passedOn struct {
	status int // of the provider; 0 = it has not answered
	bytes  int64
}

// relay passes the request on and the answer back, whatever they say.
func (d *drive) relay(a loop.CallModel) error {
	target := d.req.Targets[a.Target].Model
	relayer, ok := target.(model.Relayer)
	if !ok {
		return d.fail(a, nil, &model.Error{Class: model.Target, Message: "this provider does not speak the caller's dialect"})
	}
	answer, err := relayer.Relay(d.ctx, d.req.Raw)
	if err != nil {
		return d.fail(a, nil, err)
	}
	defer answer.Body.Close()
	d.freeBody()
	d.passed.status = answer.Status
	d.warnOfRelay(a, answer)
	d.emit(event.RelayHead{Status: answer.Status, Header: answer.Header, Length: answer.Length})
	d.said = true
	if err := d.pump(answer.Body); err != nil {
		return d.fail(a, nil, err)
	}
	return d.append(nil, loop.Turn{Purpose: loop.PurposeRaw, Stop: model.StopEnd})
}

// freeBody forgets the request's body: an answer may be open for long after its
// request was sent.
func (d *drive) freeBody() {
	d.account.Release(cap(d.req.Raw.Body))
	d.req.Raw.Body = nil
}

// pump passes the bytes on as they come: one event for each read.
func (d *drive) pump(body io.Reader) error {
	lent := relayBuffer{account: d.account}
	defer lent.done()
	for n := 0; ; {
		var err error
		buf := lent.next(n)
		n, err = body.Read(buf)
		if n > 0 {
			if d.passed.bytes == 0 {
				d.timing.heard(time.Now())
			}
			d.passed.bytes += int64(n)
			d.emit(event.RelayBody{Data: buf[:n]})
			if cause := context.Cause(d.ctx); cause != nil {
				return cause
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return &model.Error{Class: model.Transient, Err: err}
		}
	}
}
