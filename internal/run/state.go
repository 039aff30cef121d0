package run

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/clock"
	"github.com/turnpike-gateway/turnpike/internal/conversation"
	"github.com/turnpike-gateway/turnpike/internal/crash"
	"github.com/turnpike-gateway/turnpike/internal/eventlog"
	"github.com/turnpike-gateway/turnpike/internal/id"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/secret"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/tool"
)

// errDecideAgain reports that another writer has appended a fact after which the bodies
// are no longer allowed.
var errDecideAgain = errors.New("decide again")

// appendTimeout limits one append. The end of the caller's context does not cancel an
// append, because it is a fact that must be stored too.
const appendTimeout = 30 * time.Second

// runState is the state of one run, and the only writer of its journal in this process. The
// goroutine that performs the run owns it. The other parts of a driver read the state here,
// and append facts to it.
type runState struct {
	req      *Request
	start    start
	callerAt string // see [loop.Accepted].CallerAt
	lease    journal.Lease
	events   *eventlog.Writer  // of the facts that are stored
	results  *results          // that were truncated
	account  *memlimit.Account // charged with what the run keeps; nil = nothing is counted

	ctx    context.Context // of model and tool calls: ends with the caller, the deadline or the sink
	cancel context.CancelCauseFunc

	keys        *secret.Keyring // nil = nothing can be sealed
	relay       bool            // one model call, of which nothing is stored
	journal     journal.Journal
	storeFailed func(error)                              // called when the store fails
	allowed     func(orgID, principal string) org.Access // see Options.Access
	onCommit    func()                                   // called after each commit; nil = nothing is
	others      othersInput
	observer    *runObserver
	timing      *timing // of the latest model call, for the audit log
	log         *slog.Logger

	groups  *deltaGroups // of the model call in progress, if the run is durable
	dates   clock.Steady // of the run's facts; see now
	written time.Time    // before the last append that extended the lease; monotonic

	withheld withheld // what is not stored unless the run parks
	unsynced unsynced
	appends  appends
}

// accessNow returns what the key of the run may use now.
func (s *runState) accessNow() org.Access {
	if s.allowed == nil {
		return org.Access{}
	}
	return s.allowed(s.req.Org, s.req.Principal)
}

// state returns the state after the last fact. The caller must not change it; it changes
// with the next commit.
func (s *runState) state() *loop.State { return s.events.State() }

// policy returns the settings of the run as its journal has them. It must be called after
// Accepted, and the caller must not change them.
func (s *runState) policy() *loop.Policy { return &s.state().Accepted.Policy }

// durable reports whether another owner can continue the run.
func (s *runState) durable() bool { return s.state().Grade == loop.Durable }

// now returns the time of the run's next fact, in Unix milliseconds. It is never before the
// last fact, and setting the wall clock does not affect it: the difference between two
// facts of one owner is the time that has passed.
func (s *runState) now() int64 { return max(s.dates.Now().UnixMilli(), s.state().At) }

// date sets the run's clock to the last fact if the wall clock is behind it: it was set
// back since, or another process has written the fact.
func (s *runState) date() {
	if last := time.UnixMilli(s.state().At); last.After(s.dates.Now()) {
		s.dates = clock.NewSteady(last)
	}
}

// abandoned reports whether the run's context ended because another owner continues the run.
// The calls in progress are then not recorded.
func (s *runState) abandoned() bool {
	cause := context.Cause(s.ctx)
	return errors.Is(cause, journal.ErrFenced) || errors.Is(cause, errStopped) && s.durable()
}

// append stores the bodies as the next facts, together with rows, and applies them to the
// state.
func (s *runState) append(rows []journal.Row, bodies ...loop.Body) error {
	return s.commit(journal.Batch{Rows: rows}, bodies...)
}

// commit stores the bodies as the next facts, together with the rest of the batch, and
// applies them to the state. Every fact must be allowed by the rules (loop.Allowed). If
// another writer has appended facts, these are applied first, and the bodies follow if
// they are still allowed; otherwise commit returns errDecideAgain. It also does so if the run has got input and is to end,
// because what is stored of its conversation does not have that yet, or is to call a model, because what was reserved is
// for a shorter prompt, or is to get its first input, because the store has it already and its answer was lost.
func (s *runState) commit(batch journal.Batch, bodies ...loop.Body) error {
	if s.relay {
		return s.applyRelay(bodies)
	}
	trace := s.observer.traceRows(s.willBeDurable(bodies))
	batch.Rows = append(batch.Rows, trace...)
	if s.groups != nil { // this ends the model call
		batch.Rows = append(batch.Rows, s.groups.rows()...)
	}
	for behind := false; ; behind = true {
		next, err := s.number(&batch, bodies)
		if err != nil && behind {
			return errDecideAgain
		} else if err != nil {
			return fmt.Errorf("run %s: %w", s.lease.RunID, err)
		}
		sent := time.Now() // the store extends the lease later than this
		if err = s.write(batch); err == nil {
			s.written = sent
			s.unsynced.add(*s.state(), batch)
			s.observer.traceStored = s.observer.traceStored || len(trace) > 0
			s.observer.recorded(s.lease.Org, batch.Audit...)
			s.committed(batch.Facts, next)
			return nil
		}
		b, ok := errors.AsType[*journal.Behind](err)
		if !ok {
			return s.appendError(err)
		}
		if err := s.others.read(s, b.Facts); err != nil {
			return s.appendError(err)
		}
		if err := s.fold(b.Facts); err != nil {
			return s.appendError(err)
		}
		if s.state().Ended != "" {
			s.cancel(eventlog.ErrSinkFailed)
		}
		added := func(f loop.Fact) bool { return f.Body.Kind() == loop.KindInputAdded }
		if hasKind(bodies, loop.KindFinished, loop.KindReserved, loop.KindInputAdded) && slices.ContainsFunc(b.Facts, added) {
			return errDecideAgain
		}
	}
}

// fold applies what a *[journal.Behind] has: facts of other writers, and the run's own unsynced ones that follow them with other
// numbers.
func (s *runState) fold(facts []loop.Fact) error {
	own, before := s.unsynced.facts, s.unsynced.before
	s.unsynced = unsynced{}
	for len(facts) > 0 && len(own) > 0 && own[0].Seq < facts[0].Seq {
		before, own = loop.Apply(before, own[0]), own[1:]
	}
	if len(own) == 0 {
		for _, f := range facts {
			s.events.Add(f, loop.Apply(*s.state(), f))
		}
		return nil
	}
	moved := make(map[int64]int64, len(own))
	for _, f := range facts {
		if f.Epoch == s.lease.Epoch && len(own) > 0 { // without what is withheld of it
			moved[own[0].Seq] = f.Seq
			f.Body, own = own[0].Body, own[1:]
		}
		before = loop.Apply(before, f)
	}
	if len(own) > 0 || before.Seq < s.state().Seq {
		return fmt.Errorf("%w: %d facts were not stored", journal.ErrFenced, len(own))
	}
	s.withheld.renumber(moved)
	s.events.Reorder(before)
	return nil
}

// maxUnsynced is after how many facts a run waits for the disk.
const maxUnsynced = 64

// unsynced are the facts that the store may still hold back, so that another writer can come in front of them. The zero value has
// none.
type unsynced struct {
	before loop.State // that they follow
	facts  []loop.Fact
}

// add adds the facts of a batch that was appended in a state, or forgets all if it is on disk.
func (u *unsynced) add(before loop.State, b journal.Batch) {
	if b.Sync {
		*u = unsynced{}
		return
	}
	if len(u.facts) == 0 {
		u.before = before
	}
	u.facts = append(u.facts, b.Facts...)
}

// applyRelay is commit for a relay. Nothing of it is stored, and single facts of it have no audit entries, notices or
// messages for hooks: they are applied as they are.
func (s *runState) applyRelay(bodies []loop.Body) error {
	at := s.now()
	for _, body := range bodies {
		f := loop.Fact{Seq: s.state().Seq + 1, Epoch: s.lease.Epoch, At: at, Version: loop.Version, Body: body}
		if err := loop.Allowed(*s.state(), f); err != nil {
			return fmt.Errorf("run %s: %w", s.lease.RunID, err)
		}
		s.events.Add(f, loop.Apply(*s.state(), f))
	}
	return nil
}

func hasKind(bodies []loop.Body, kinds ...loop.Kind) bool {
	return slices.ContainsFunc(bodies, func(b loop.Body) bool { return slices.Contains(kinds, b.Kind()) })
}

// appendError returns a refusal by the journal unchanged. Any other error is a failure of the
// store: the run is not continued here, and the error asks the caller to retry.
func (s *runState) appendError(err error) error {
	var known *journal.Submitted
	var over *journal.OverBudget
	switch {
	case errors.Is(err, journal.ErrChanged): // the conversation, before a run that continues it has begun
		return fmt.Errorf("run %s: journal: %w", s.lease.RunID, err)
	case s.state().Seq == 0 && (errors.As(err, new(*journal.SessionBusy)) || s.req.Turn != nil && errors.Is(err, org.ErrNotFound)): // a turn that cannot begin
		return fmt.Errorf("run %s: journal: %w", s.lease.RunID, err)
	case errors.As(err, &known), errors.As(err, &over), errors.As(err, new(*org.CapError)), errors.As(err, new(*journal.Unreadable)), errors.Is(err, journal.ErrNoSlot), errors.Is(err, journal.ErrQueueFull), errors.Is(err, journal.ErrFenced), errors.Is(err, org.ErrExists):
		return fmt.Errorf("run %s: journal: %w", s.lease.RunID, err)
	}
	s.storeFailed(err)
	return journal.Unavailable(fmt.Errorf("run %s: journal: %w", s.lease.RunID, err))
}

// committed folds facts that the store has taken, after which the state is next, and
// emits their events.
func (s *runState) committed(facts []loop.Fact, next loop.State) {
	last := len(facts) - 1
	if last < 0 {
		return
	}
	if point := afterFact(facts[last].Body); point != "" {
		crash.At(point)
	}
	if s.groups != nil {
		s.groups.emit()
	}
	for _, f := range facts[:last] {
		s.events.Add(f, loop.Apply(*s.state(), f))
	}
	s.events.Add(facts[last], next)
	if s.onCommit != nil {
		s.onCommit()
	}
}

// afterFact returns the crash point between the storing of a batch that ends with the
// fact and its events; "" = none.
func afterFact(body loop.Body) crash.Point {
	switch b := body.(type) {
	case loop.InputAdded:
		return crash.AfterAccept
	case loop.TurnStarted:
		return crash.AfterModelIntent
	case loop.Turn:
		return crash.AfterTurn
	case loop.CallStarted:
		return crash.AfterCallIntent
	case loop.CallDone:
		if b.Attempt > 0 {
			return crash.AfterResult
		}
	case loop.Parked, loop.Paused:
		return crash.AfterPark
	case loop.Compacted:
		return crash.AfterCompacted
	case loop.Finished:
		return crash.AfterFinish
	case loop.Accepted:
		if b.Deferred {
			return crash.AfterAccept
		}
	case loop.Blocked, loop.CallPrepared, loop.CallResolved, loop.CallWaiting,
		loop.CancelRequested, loop.Catalogued, loop.Expired, loop.HookRan, loop.LimitsRaised, loop.ReserveRefused, loop.Reserved, loop.Resumed, loop.Routed,
		loop.TurnFailed: // no crash point
	}
	return ""
}

// number makes facts of the bodies, with their audit entries and notices, and returns the state
// after them. It returns an error if the rules do not allow a fact.
func (s *runState) number(b *journal.Batch, bodies []loop.Body) (loop.State, error) {
	b.Facts, b.Sync, b.Audit, b.Notices, b.HookMessages = make([]loop.Fact, len(bodies)), s.mustSync(*b, bodies), nil, nil, nil
	next, at := *s.state(), s.now()
	audited := auditor{runID: s.lease.RunID, principal: s.req.Principal, timing: *s.timing}
	for i, body := range bodies {
		f := loop.Fact{Seq: next.Seq + 1, Epoch: s.lease.Epoch, At: at, Version: loop.Version, Body: body}
		if err := loop.Allowed(next, f); err != nil {
			return next, err
		}
		b.Audit = append(b.Audit, audited.entries(&next, f)...)
		next = loop.Apply(next, f)
		b.Facts[i] = f
		if n, told := loop.NoticeOf(next, f); told {
			b.Notices = append(b.Notices, s.notice(n, f.At))
		}
		if _, ended := body.(loop.Finished); ended && s.req.AgentSession != "" {
			b.SessionSpent = sessionSpent(&next, at)
		}
		for _, h := range loop.HooksAfter(next, f) {
			b.HookMessages = append(b.HookMessages, s.hookMessage(&next, h, f.At))
		}
	}
	return next, nil
}

// sessionSpent returns what a run that ends at a time adds to the sums of its session.
func sessionSpent(s *loop.State, at int64) journal.SessionSpent {
	out := journal.SessionSpent{ActiveMS: s.ActiveMS}
	if s.ActiveSince != 0 {
		out.ActiveMS += max(0, at-s.ActiveSince)
	}
	if paid := s.Paid(); paid != nil {
		out.NanoUSD = *paid
	}
	return out
}

// notice returns what the webhooks of the org are told.
func (s *runState) notice(n loop.Notice, at int64) journal.Notice {
	out := journal.Notice{Event: n.Event, Object: s.lease.RunID, Subject: s.lease.RunID, At: at}
	if n.Response {
		out.Object = conversation.Segment{Run: s.lease.RunID, Part: n.Part}.ID()
	}
	return out
}

// hookMessage returns what a hook is told after the run. next is the state after the end.
func (s *runState) hookMessage(next *loop.State, h loop.Hook, at int64) journal.HookMessage {
	m := journal.HookMessage{
		ID: id.New(journal.HookMessagePrefix), Org: s.lease.Org, RunID: s.lease.RunID, Hook: h.ID, Agent: h.Agent, Position: h.Position, At: at, Outcome: journal.HookWaiting,
	}
	if !s.storesNothing() && next.Turn != nil {
		m.AnswerRef = next.AnswerRef()
	}
	return m
}

// willBeDurable reports whether the run is durable, or becomes durable by one of the bodies.
func (s *runState) willBeDurable(bodies []loop.Body) bool {
	return s.durable() || slices.ContainsFunc(bodies, func(b loop.Body) bool { return b.Kind() == loop.KindParked })
}

// mustSync reports whether the batch must be on disk before the run continues. For a
// durable run this is every batch. For a light run it is its first and last fact, a fact
// for which it waits, a batch without facts, by which it learns what others have written,
// the start of every call that must not be executed twice, and holds: no model is called
// before all budgets have room.
func (s *runState) mustSync(batch journal.Batch, bodies []loop.Body) bool {
	if s.durable() || len(bodies) == 0 || len(batch.Reservations) > 0 || len(s.unsynced.facts) >= maxUnsynced {
		return true
	}
	for _, body := range bodies {
		switch b := body.(type) {
		case loop.Accepted, loop.Finished, loop.CallWaiting, loop.Parked, loop.Paused:
			return true
		case loop.CallStarted:
			if c, ok := s.state().Call(b.Key); ok && c.Prepared.Class != tool.Read {
				return true
			}
		case loop.Blocked, loop.CallDone, loop.CallPrepared, loop.CallResolved, loop.CancelRequested,
			loop.Catalogued, loop.Compacted, loop.Expired, loop.HookRan, loop.InputAdded, loop.LimitsRaised, loop.ReserveRefused, loop.Reserved, loop.Resumed, loop.Routed,
			loop.Turn, loop.TurnFailed, loop.TurnStarted: // written with the next batch
		}
	}
	return false
}

// write stores the batch.
func (s *runState) write(b journal.Batch) error {
	forgets, parking := s.storesNothing(), eventlog.Parks(b.Facts)
	var more withheld
	switch {
	case forgets && parking:
		b.Rows = append(s.withheld.all(), b.Rows...)
	case forgets:
		b, more = withoutBodies(b)
	}
	if account := s.account; !b.Sync && account != nil {
		b.Retain = func(bytes int) { retain(account, bytes) }
	}
	err := s.journal.Append(s.appends.context(s.ctx), s.lease, s.state().Seq, b)
	switch {
	case err != nil || !forgets:
	case parking:
		s.account.Release(s.withheld.bytes)
		s.withheld = withheld{}
	case s.req.Policy.MayWait():
		s.withheld.add(more, s.account)
	}
	return err
}

// retain charges a run with the bytes of batches that wait for space in the store.
func retain(account *memlimit.Account, bytes int) {
	if bytes > 0 {
		account.Add(bytes)
	} else {
		account.Release(-bytes)
	}
}

// appends have contexts that end after appendTimeout, or up to a third earlier: appends that follow each other share
// one and its timer. The zero value is ready.
type appends struct {
	ctx    context.Context // nil = none
	cancel context.CancelFunc
	since  time.Time
}

// context returns the context for an append of a run with this one.
func (a *appends) context(run context.Context) context.Context {
	if a.ctx == nil || time.Since(a.since) > appendTimeout/3 {
		a.end()
		a.ctx, a.cancel = context.WithTimeout(context.WithoutCancel(run), appendTimeout)
		a.since = time.Now()
	}
	return a.ctx
}

// end releases the timer.
func (a *appends) end() {
	if a.cancel != nil {
		a.cancel()
		a.ctx, a.cancel = nil, nil
	}
}

// storesNothing reports whether no bodies of the run are stored: nobody may read them. When the
// run parks, they are, because somebody else will continue it.
func (s *runState) storesNothing() bool {
	p := &s.req.Policy
	if a := s.state().Accepted; a != nil {
		p = &a.Policy
	}
	return p.StoresNoTexts() && !s.durable()
}

// requestRows returns the rows from which requestOf restores the request.
func (s *runState) requestRows() []journal.Row { return s.requestRowsAs(requestRef) }

func (s *runState) requestRowsAs(ref string) []journal.Row {
	q, b := s.req, &s.start
	stored := storedRequest{
		Input: q.Input, FromRequest: q.namesFromRequest(), RequestServers: s.storeRequestServers(), Previous: previousOf(q.Continues), Session: namedOf(q.Continues),
		Store: b.store, NotOwn: b.notOwn, SystemItems: b.system, Place: b.place, Inherited: b.inherited,
		Permissions: q.Permissions, CallerOrg: q.CallerOrg,
	}
	if !q.addsLater() || ref != requestRef { // the input is stored as the transcript that the run begins with
		stored.System, stored.Items = nil, nil
	}
	rows := []journal.Row{{Ref: ref, Value: stored}}
	if len(b.parts) > 0 {
		rows = append(rows, journal.Row{Ref: partsRef, Value: journal.Parts(b.parts)})
	}
	if len(s.results.full) > 0 { // of a run that waits now, its own as well
		rows = append(rows, journal.Row{Ref: inputFull, Value: s.results.full})
	}
	return rows
}

// listAge returns how old the tool lists may be from which a run goes on. Those for a call
// that a person has approved are from after the decision.
func (s *runState) listAge() time.Duration {
	age := time.Duration(s.policy().CatalogTTLNS)
	for _, c := range s.state().Calls {
		if approvedToRun(c) {
			age = min(age, time.Duration(max(0, s.now()-c.Decided))*time.Millisecond)
		}
	}
	return age
}

// accepted returns the digests of the tools that were changed since the run began and were
// shown to a person since, by name.
func (s *runState) accepted() map[string]string {
	out := map[string]string{}
	for _, c := range s.state().Calls {
		if c.Prepared != nil && c.Prepared.Revision > 0 {
			out[c.Name] = c.Prepared.ToolDigest
		}
	}
	return out
}

// userMessageRows returns the rows with what the user has said, for the approvals that the facts ask
// for, and what the hooks that ask have to say. Of a run whose texts are not to be stored only the latter.
func (s *runState) userMessageRows(facts []loop.Body) (rows []journal.Row) {
	said, ok := UserMessage{}, false
	if !s.policy().NoStore {
		said, ok = lastUserMessage(s.events)
	}
	for _, f := range facts {
		if w, asks := f.(loop.CallWaiting); asks && (ok || w.Message != "") {
			said.Asks = cut(w.Message)
			rows = append(rows, journal.Row{Ref: userMessageRef(w.WaitID), Value: said})
		}
	}
	return rows
}

// storeRequestServers returns the servers that the request declared, for the next owner of the run.
// Without a master key it leaves out the servers with a URL: see [runState.missesBrought].
func (s *runState) storeRequestServers() (out []storedRequestServer) {
	for _, declared := range s.req.RequestServers {
		stored := storedRequestServer{Label: declared.Label, Name: declared.Server(), Tools: declared.Tools, ReadOnly: declared.ReadOnly}
		if !declared.URL.IsZero() {
			at := slices.IndexFunc(s.req.Servers, func(server catalog.Server) bool { return server.Name == declared.Server() })
			if s.keys == nil || at < 0 {
				continue
			}
			sealed, err := declared.seal(s.keys, s.req.Org, s.lease.RunID)
			if err != nil {
				s.log.Error("a server that the request declared is not stored", "server", declared.Label, "error", err)
				continue
			}
			stored.Address, stored.Origin = sealed, s.req.Servers[at].Origin
		}
		out = append(out, stored)
	}
	return out
}

// loadRequestServers returns the servers that were stored. One that cannot be opened is left out.
func (s *runState) loadRequestServers(stored []storedRequestServer) (out []RequestServer) {
	for _, one := range stored {
		declared := RequestServer{Label: one.Label, name: one.Name, Tools: one.Tools, ReadOnly: one.ReadOnly, origin: one.Origin}
		if one.Address != nil {
			if err := declared.open(s.keys, s.lease.Org, s.lease.RunID, one.Address); err != nil {
				s.log.Error("a server that the request declared cannot be used", "server", one.Label, "error", err)
				continue
			}
		}
		out = append(out, declared)
	}
	return out
}

// stopped appends Blocked if err says that the outbound policy refused an address of the
// server. It returns nil if the run has ended, or its context, for which noticeEnd appends a
// fact. Any other error is returned.
func (s *runState) stopped(err error, server string) error {
	var fatal tool.Blocked
	switch {
	case errors.As(err, &fatal):
		b := blockedBy(fatal)
		b.Server, b.URL = server, s.req.urlOf(server)
		s.log.Warn("the outbound policy refuses an MCP server", "server", b.Server, "url", b.URL, "reason", b.Reason, "address", b.Address, "setting", b.Setting)
		return s.append(nil, b)
	case s.ctx.Err() != nil || s.state().Ended != "":
		return nil
	}
	return err
}

// origins returns where the items come from that the run adds to its conversation: so many of its input, and its answers
// and results.
func (s *runState) origins(input int) (out []journal.Origin) {
	hidden := s.state().HiddenRefs()
	for _, seg := range s.state().Transcript {
		switch {
		case seg.Kind == loop.Input && input > 0:
			out = append(out, journal.Origin{Items: input, At: seg.At})
			input = 0
		case slices.Contains(hidden, seg.Ref):
			out = append(out, journal.Origin{Items: len(s.events.Items(seg.Ref)), At: seg.At, Round: seg.Round})
		}
	}
	return out
}

// unansweredCalls returns results for the calls of a turn that waits for approvals: those that
// there are, and for the others that they were not made. They are for a client that goes on
// without answering.
func (s *runState) unansweredCalls() (out []item.Item) {
	if !slices.ContainsFunc(s.state().Calls, func(c *loop.Call) bool { return c.Prepared != nil && c.Prepared.Verdict == loop.Ask && !c.Done }) {
		return nil
	}
	for _, c := range s.state().Calls {
		if c.Done {
			out = append(out, s.events.Items(c.ResultRef)...)
			continue
		}
		out = append(out, item.NewResult(c.ProviderID, conversation.NotApproved, true))
	}
	return out
}

// cutText returns the text of an answer that broke off when the run ended, as it was shown.
func (s *runState) cutText() (out []item.Item) {
	for _, it := range s.events.Items(s.state().CutRef()) {
		if text := it.Text(); it.Kind == item.Message && text != "" {
			said := item.NewText(item.Assistant, text)
			said.Turn = it.Turn
			out = append(out, said)
		}
	}
	return out
}

// failedServer returns the server of a failure that the catalogue has returned; "" = unknown.
func failedServer(err error) string {
	if of, ok := errors.AsType[*catalog.ServerError](err); ok {
		return of.Server
	}
	return ""
}

// blockedBy returns the fact that the outbound policy has refused an address.
func blockedBy(fatal tool.Blocked) loop.Blocked {
	var b loop.Blocked
	b.Reason, b.Address = fatal.Blocked()
	if remedy, ok := fatal.(interface{ Setting() string }); ok {
		b.Setting = remedy.Setting()
	}
	return b
}
