package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/crash"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/internal/route"
	"github.com/turnpike-gateway/turnpike/internal/window"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

// modelCaller makes the model calls of a run.
type modelCaller struct {
	run      *runState
	tools    *toolSet
	jitter   func(limit time.Duration) time.Duration
	observer *runObserver
	dropped  *droppedHeaders
	router   Router // nil = targets are tried in the order of the request

	targetOpen bool // the circuit breaker of the latest call's target is open

	conversation string // see conversationKey; "" = not computed yet
	reserver     *reserver

	forwarded bool         // the caller has received output of the attempt
	toolRan   bool         // a tool of the provider's own began to run
	warned    map[int]bool // the targets whose models take no tools, and that were logged
	told      map[int]bool // the items of the attempt of which something was reported
	timing    timing       // of the latest call
	relayed   relayed      // of a relay
}

// call makes one model call and appends how it ended.
func (m *modelCaller) call(a loop.CallModel) error {
	if !m.waitUntil(a.NotBefore) {
		return nil // the run is over; noticeEnd says why
	}
	if err := m.begin(a); err != nil || m.run.state().Ended != "" {
		return err
	}
	m.forwarded, m.toolRan, m.told, m.timing = false, false, map[int]bool{}, timing{sent: time.Now()}
	m.relayed.attempts, m.relayed.status = m.relayed.attempts+1, 0
	if a.Purpose == loop.PurposeRaw {
		return m.relay(a)
	}
	m.run.log.Debug("model call", "round", a.Round, "attempt", a.Attempt)
	memory := m.run.account.Share() // until the turn is stored
	defer memory.Close()
	if m.run.durable() {
		m.run.groups = newDeltaGroups(m.run, a.Round)
		defer func() { m.run.groups = nil }()
	}
	turn, err := m.stream(a, memory)
	if m.run.groups != nil {
		if err := m.run.groups.close(); err != nil {
			return err
		}
	}
	var refused *memlimit.Refused
	if errors.As(err, &refused) {
		m.run.cancel(refused)
	}
	if err != nil && m.run.abandoned() {
		return errHandOver
	}
	var fatal tool.Blocked
	if errors.As(err, &fatal) {
		return m.refusedURL(a, err, blockedBy(fatal))
	}
	if err != nil && !m.run.state().Usable(turn) {
		return m.fail(a, turn, err)
	}
	if m.run.relay {
		m.relayed.status = http.StatusOK
	}
	return m.record(a, turn, err)
}

// stream sends the request, and passes the deltas of its answer on as they arrive.
func (m *modelCaller) stream(a loop.CallModel, memory *memlimit.Share) (*model.Turn, error) {
	req := m.request(a)
	req.Memory = memory
	ctx, called := m.observed(a, req)
	began := time.Now()
	turn, err := m.run.req.Targets[a.Target].Client.Stream(crash.OnSent(ctx, crash.AfterModelSend), req, func(delta model.Delta) error {
		return m.pass(a.Round, delta)
	})
	m.billTime(a, turn, time.Since(began))
	called(ModelEnd{turn, err, m.timing.toFirst()})
	m.targetOpen = m.answeredBy(a.Target, err)
	return turn, err
}

// billTime sets the time that a call is billed for, for a model whose price is one of time.
func (m *modelCaller) billTime(a loop.CallModel, turn *model.Turn, took time.Duration) {
	targets := m.run.state().Accepted.Targets
	if turn != nil && turn.Usage.GPUMS == 0 && a.Target < len(targets) && targets[a.Target].Price.GPUSecond > 0 {
		turn.Usage.GPUMS = (took + time.Millisecond - 1).Milliseconds()
	}
}

// observed reports a model call that begins. The call of a relay is not reported, because the
// relay itself is.
func (m *modelCaller) observed(a loop.CallModel, req *model.Request) (context.Context, func(ModelEnd)) {
	if m.observer.observer == nil || m.run.relay {
		return m.run.ctx, func(ModelEnd) {}
	}
	return m.observer.modelCalled(m.observer.inRound(m.run.ctx, a.Round), ModelCall{
		Round: a.Round, Attempt: a.Attempt, Provider: m.run.req.Targets[a.Target].Provider, Request: req,
	})
}

// refusedURL appends that the outbound policy refuses a URL of the request, such as that of
// an image. The run ends.
func (m *modelCaller) refusedURL(a loop.CallModel, err error, b loop.Blocked) error {
	if err := m.fail(a, nil, err); err != nil || m.run.state().Ended != "" {
		return err
	}
	m.run.log.Warn("the outbound policy refuses a URL of the request", "param", m.run.events.Failed().Param, "reason", b.Reason, "address", b.Address, "setting", b.Setting)
	return m.run.append(nil, b)
}

// begin appends that a model call is about to be sent, and reserves its maximum cost in the
// budgets. If a budget has no room for it, the run ends.
func (m *modelCaller) begin(a loop.CallModel) error {
	started := loop.TurnStarted{Round: a.Round, Attempt: a.Attempt, Target: a.Target, Purpose: a.Purpose, Warned: a.Warn, NoTools: a.Purpose == loop.PurposeTurn && !a.OfferTools}
	if started.Toolless = a.OfferTools && !m.run.relay && m.tools.toolless(a.Target); started.Toolless {
		m.warnToolless(a)
	}
	if (a.MaxCost == budget.Amount{}) {
		return m.run.append(nil, started)
	}
	var err error
	m.reserver.hold, err = m.reserver.reserve(attemptID(a.Round, a.Attempt), a.MaxCost, func(scopes []string) []loop.Body {
		return []loop.Body{loop.Reserved{Round: a.Round, Attempt: a.Attempt, Scopes: scopes, Amount: a.MaxCost}, started}
	})
	if over, ok := errors.AsType[*journal.OverBudget](err); ok {
		// Also if the run pauses: the call is not made.
		return cmp.Or(m.run.append(nil, a.Refused(over.Budget, over.Used.Spent.Add(over.Used.Reserved))), errDecideAgain)
	}
	return err
}

// warnToolless logs that the tools of the gateway are left out, once for each target.
func (m *modelCaller) warnToolless(a loop.CallModel) {
	left := m.run.state().MissingServers(true)
	if len(left) == 0 || m.warned[a.Target] {
		return
	}
	if m.warned == nil {
		m.warned = map[int]bool{}
	}
	m.warned[a.Target] = true
	t := m.run.req.Targets[a.Target]
	m.run.log.Warn("the model takes no tools: those of the gateway are left out", "provider", t.Provider, "model", t.Model, "servers", left)
}

func attemptID(round, attempt int) string { return fmt.Sprintf("%d.%d", round, attempt) }

// waitUntil waits until a time in Unix milliseconds. It returns false if the context of the
// run has ended.
func (m *modelCaller) waitUntil(at int64) bool {
	wait := time.Duration(at-m.run.now()) * time.Millisecond
	if at == 0 || wait <= 0 {
		return m.run.ctx.Err() == nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-m.run.ctx.Done():
		return false
	}
}

// request returns the request of the call.
func (m *modelCaller) request(a loop.CallModel) *model.Request {
	req := m.run.req.modelRequest(a.Target, m.run.files().Shown(m.run.events.Transcript(m.run.state().Seen())))
	req.MaxTokens = int(m.run.policy().MaxTokens)
	if a.MaxOutput > 0 {
		req.MaxTokens = int(a.MaxOutput)
	}
	if a.Warn {
		req.Items = append(slices.Clip(req.Items), item.NewText(item.Developer, loop.BudgetWarning))
	}
	if a.Continues {
		req.Items = append(slices.Clip(req.Items), item.NewText(item.User, loop.ContinueMessage))
	}
	if !a.OfferTools {
		req.Tools, req.Hosted, req.ToolChoice = nil, nil, model.ToolChoice{}
		return req
	}
	req.Tools, req.ToolChoice = m.tools.offered(a.OfferReread), m.tools.choice
	if m.tools.toolless(a.Target) {
		req.Tools = slices.DeleteFunc(req.Tools, func(t model.Tool) bool { return !m.tools.ofRequest(t.Name) })
		if len(req.Tools)+len(req.Hosted) == 0 {
			req.ToolChoice = model.ToolChoice{}
		}
	}
	if !a.KeepToolChoice {
		req.ToolChoice = model.ToolChoice{}
		if m.tools.choice.Mode != "" && len(req.Tools)+len(req.Hosted) > 0 {
			req.ToolChoice = model.ToolChoice{Mode: model.ChooseAuto, Only: m.tools.allowed(), OnlyHosted: m.tools.choice.OnlyHosted}
		}
	}
	return req
}

// pass passes a delta on. The error is the cause of the run's context, or that of the store.
func (m *modelCaller) pass(round int, delta model.Delta) error {
	if delta.Text == "" && delta.Kind != model.CallDelta && delta.Kind != model.DoneDelta {
		return nil
	}
	m.timing.received(time.Now())
	m.toolRan = m.toolRan || delta.Kind == model.ProgressDelta
	p := m.run.policy()
	if p.HoldsAnswers() { // told when hooks have decided on the answer
		return context.Cause(m.run.ctx)
	}
	m.forwarded = m.forwarded || slices.Contains(p.Live, delta.Kind) || p.Live != nil && p.Native != "" && (delta.Kind == model.NativeDelta || delta.Kind == model.ProgressDelta)
	if !m.wanted(delta) {
		return context.Cause(m.run.ctx)
	}
	m.told[delta.Item] = true
	switch {
	case m.run.groups != nil:
		if err := m.run.groups.add(delta); err != nil {
			return err
		}
	default:
		m.run.events.Delta(round, delta)
		if delta.Kind == model.TextDelta {
			crash.At(crash.AfterDelta)
		}
	}
	return context.Cause(m.run.ctx)
}

// wanted reports whether a delta is an event of the run.
func (m *modelCaller) wanted(delta model.Delta) bool {
	p := m.run.policy()
	switch delta.Kind {
	case model.CallDelta:
		return m.run.events.CallDeltas()
	case model.NativeDelta, model.ProgressDelta:
		return p.Native != ""
	case model.DoneDelta:
		return p.ItemEnds && m.told[delta.Item]
	}
	return true
}

// record appends a turn. It may be one that broke off after complete tool calls: these are
// executed, and the model is called again. err is how it ended.
func (m *modelCaller) record(a loop.CallModel, turn *model.Turn, err error) error {
	items := m.signed(a, turn)
	body := loop.Turn{Round: a.Round, Purpose: a.Purpose, ItemsRef: fmt.Sprintf("turn:%d", a.Round), Stop: turn.Stop, Usage: turn.Usage, Bytes: window.Bytes(items), Unsendable: m.unsendable(items), Uncounted: uncounted(m.run.state(), turn, err)}
	for _, c := range turn.Calls {
		body.Calls = append(body.Calls, m.tools.called(c))
	}
	body.Continues = m.run.state().ContinuesAfter(body, hasText(items))
	rows := m.storeAnswer(&body, items)
	crash.At(crash.BeforeTurn)
	return m.run.commit(journal.Batch{Rows: rows, Settled: m.reserver.settled(body)}, body)
}

// signed returns the items of a turn, with the name of the provider where it is needed to
// send them back.
func (m *modelCaller) signed(a loop.CallModel, turn *model.Turn) []item.Item {
	for i := range turn.Items {
		if it := &turn.Items[i]; it.Kind == item.Reasoning || it.Native.JSON != nil {
			it.Native.Provider = m.run.req.Targets[a.Target].Provider
		}
	}
	return turn.Items
}

// unsendable reports whether the items have something that the provider needs back and the
// caller does not get. Of reasoning, the caller gets the readable text at most.
func (m *modelCaller) unsendable(items []item.Item) bool {
	return slices.ContainsFunc(items, func(it item.Item) bool {
		if it.Native.Dialect == m.run.req.Dialect {
			return it.Native.Opaque
		}
		return (it.Kind == item.Reasoning || it.Kind == item.Other || it.Native.Opaque) && it.Native.JSON != nil
	})
}

// fail appends how the attempt failed. What was received of the turn is stored with it.
func (m *modelCaller) fail(a loop.CallModel, turn *model.Turn, err error) error {
	failure := asModelError(err)
	if m.run.ctx.Err() != nil {
		failure = &model.Error{Class: model.Gone, Err: context.Cause(m.run.ctx)}
	}
	ref := fmt.Sprintf("failure:%d.%d", a.Round, a.Attempt)
	rows := []journal.Row{m.run.events.CallFailed(ref, failure)}
	credential := m.run.events.Failed().Credential
	if m.run.relay {
		m.relayed.status = max(m.relayed.status, failure.Status)
	}
	log := m.providerLog(a)
	log.Warn("model call failed", "round", a.Round, "attempt", a.Attempt, "class", failure.Class, "error", failure.Error())
	if credential {
		warnOfCredential(log, failure.Status)
	}
	body := loop.TurnFailed{
		Attempt: a.Attempt, Class: failure.Class, Status: failure.Status, ErrorRef: ref, Forwarded: m.forwarded, ToolRan: m.toolRan,
		RetryAt: m.retryAt(failure), Credential: credential, Param: failure.Param,
		Unsent: failure.Unsent || failure.Param != "", TargetOpen: m.targetOpen,
	}
	body.Refused = m.relayed.status >= http.StatusBadRequest || len(failure.Body) > 0 && m.timing.first.IsZero()
	body.Uncounted = !body.Refused && !body.Unsent && body.Status < http.StatusBadRequest && uncounted(m.run.state(), turn, err)
	if failure.Class == model.TooLong {
		body.Limit = window.FromError(failure.Error())
	}
	if turn != nil {
		body.Usage = turn.Usage
		if body.Uncounted {
			body.Usage = m.usedOf(turn)
		}
		body.PartialRef = fmt.Sprintf("partial:%d.%d", a.Round, a.Attempt)
		rows = append(rows, m.run.events.Store(body.PartialRef, m.signed(a, turn))...)
	}
	return m.run.commit(journal.Batch{Rows: rows, Settled: m.reserver.settled(body)}, body)
}

// providerLog returns a log that names the org and the provider of the call. The log
// of a relay does not name its org.
func (m *modelCaller) providerLog(a loop.CallModel) *slog.Logger {
	log := m.run.log.With("provider", m.run.req.Targets[a.Target].Provider)
	if m.run.relay {
		log = log.With("org", m.run.req.Org)
	}
	return log
}

// warnOfCredential logs that the provider refuses the gateway's credential, which only the
// operator can correct.
func warnOfCredential(log *slog.Logger, status int) {
	log.Warn("a provider refuses the gateway's credential: check its api_key", "status", status)
}

func asModelError(err error) *model.Error {
	var failure *model.Error
	if errors.As(err, &failure) {
		return failure
	}
	return &model.Error{Class: model.Transient, Err: err}
}

// retryAt returns when the next attempt may be sent, in Unix milliseconds.
func (m *modelCaller) retryAt(failure *model.Error) int64 {
	wait, jitter := m.run.state().Backoff(failure.RetryAfter.Milliseconds())
	return m.run.now() + wait + m.jitter(time.Duration(jitter)*time.Millisecond).Milliseconds()
}

// route asks the router for the order of the round's targets, and appends it.
func (m *modelCaller) route(a loop.Route) error {
	body := loop.Routed{Round: a.Round, Attempt: a.Attempt, Order: a.Left}
	if m.router != nil {
		ask := m.ask()
		ask.Left = a.Left
		if a.Last >= 0 {
			ask.Last = a.Last
		}
		chosen := m.router.Order(ask)
		body.Order, body.Skipped = chosen.Order, chosen.Skipped
		if a.Attempt == 0 {
			body.First = chosen.First
		}
	}
	for _, s := range body.Skipped {
		t := m.run.req.Targets[s.Target]
		m.run.log.Debug("a target is not tried", "provider", t.Provider, "model", t.Model, "reason", s.Reason)
	}
	return m.run.append(nil, body)
}

// ask returns the question of the run to the router, without what concerns one round.
func (m *modelCaller) ask() route.Ask {
	req := m.run.req
	a := route.Ask{Model: req.Model, Last: -1}
	for _, t := range req.Targets {
		a.Targets = append(a.Targets, t.Target)
	}
	if len(a.Targets) == 1 {
		return a
	}
	a.Last = slices.IndexFunc(a.Targets, func(t loop.Target) bool {
		return t.Provider == m.run.start.lastTarget.Provider && t.Model == m.run.start.lastTarget.Model
	})
	if m.conversation == "" {
		m.conversation = req.Org + " " + req.conversationKey(m.run.events.Items("input"))
	}
	a.Key = m.conversation
	return a
}

// servedBy returns a target as events name it.
func (m *modelCaller) servedBy(target int) event.Target {
	t := m.run.req.Targets[target]
	return event.Target{Provider: t.Provider, Model: t.Model}
}

// uncounted reports whether the cost of a model call that has ended with err is reserved, and the provider has not
// counted all of it. turn is what was received of the answer; nil = nothing.
func uncounted(s *loop.State, turn *model.Turn, err error) bool {
	return s.Reserved != nil && (turn == nil || err != nil && turn.Stop == "" || turn.Usage.Estimated || turn.Usage.Input+turn.Usage.Output == 0)
}

// usedOf returns what a model call has used at least that is not counted. The output is estimated by what was
// received; without any count the input is, too.
func (m *modelCaller) usedOf(turn *model.Turn) model.Usage {
	s, u := m.run.state(), turn.Usage
	if len(turn.Items) == 0 {
		return u
	}
	per := s.Accepted.Rules.Estimate.BytesPerToken
	estimate := func(counted *int64, tokens int64) {
		if tokens > *counted {
			*counted, u.Estimated = tokens, true
		}
	}
	if u.Input == 0 {
		estimate(&u.Input, s.CountedTokens+(s.UncountedBytes+per-1)/per)
	}
	estimate(&u.Output, (window.Bytes(turn.Items)+per-1)/per)
	u.Total = max(u.Total, u.Input+u.Output)
	return u
}

// answeredBy tells the router how a target has answered a call that ended with err. A caller
// who leaves and a request that is wrong say nothing about the target. It returns whether the target is not to
// be tried again for now.
func (m *modelCaller) answeredBy(target int, err error) (open bool) {
	if m.router == nil {
		return false
	}
	outcome := route.Answered
	var failure *model.Error
	switch {
	case err == nil:
	case m.run.ctx.Err() == nil && errors.As(err, &failure) && (failure.Class == model.Transient || failure.Class == model.Target) && failure.Param == "":
		outcome = route.Failed
	default:
		outcome = route.NoVerdict
	}
	return m.router.Report(m.ask(), target, outcome, m.timing.toFirst())
}
