package turnpike

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/eventlog"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/route"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/settings"
	"github.com/turnpike-gateway/turnpike/internal/window"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

// call is one run of an agent in this process: from its begin, or from where it is resumed.
type call struct {
	engine *engine
	id     string
	input  []item.Item
	o      options
	caller Caller

	sink sink // nil = nobody reads events

	// What has happened so far; the goroutine of the run writes it.
	waiting  *event.Waiting
	finished *event.Finished
	ended    map[string]outcome // tool calls, by their keys

	conversation Conversation // gets the turns; nil = nobody does
	sessions     SessionStore // keeps the session; nil = the run is part of none
	session      string       // id of it
	history      int          // how many items of the input are earlier turns of it

	lastTurn int   // the highest of the input
	turns    int   // that the conversation has got
	appended int   // items after the input that these turns have
	failed   error // of the conversation
	left     bool  // the run is not performed here any more; guarded by engine.mu

	mu     sync.Mutex
	causes map[string]error // why tool calls failed, by their keys
}

// everything returns the permissions of the program itself.
func everything() Caller { return Caller{ID: programID, Permissions: []string{"*"}} }

func detached() Option { return func(o *options) { o.detached = true } }

// newCall checks what a caller of the agent wants.
func (a *Agent) newCall(in Input, opts []Option) (*call, error) {
	o := options{caller: everything(), limits: a.Limits, mode: Auto}
	for _, opt := range opts {
		opt(&o)
	}
	e, err := a.prepare()
	if err != nil {
		return nil, err
	}
	if err := o.limits.check(); err != nil {
		return nil, err
	}
	if o.compaction != nil {
		if o.mode == Return {
			return nil, invalid("Compact is for runs of several model calls: Mode(Return) makes one")
		}
		if err := o.compaction.check(); err != nil {
			return nil, err
		}
	}
	switch {
	case in.err != nil:
		return nil, in.err
	case len(in.items) == 0:
		return nil, invalid("the input is empty")
	case o.mode != Auto && o.mode != Return:
		return nil, invalid("the mode %q is not known; use Auto or Return", o.mode)
	case o.detached && !e.durable:
		return nil, invalid("Start needs a store: a run in memory ends with its caller; set Agent.Store")
	case o.session != nil && o.mode == Return:
		return nil, invalid("a session executes tool calls: Mode(Return) is for Agent.Run, Stream and Generate")
	case o.mode == Return && a.Hooks.PreAnswer != nil:
		return nil, invalid("Mode(Return) asks no hooks, and Agent.Hooks.PreAnswer would not see the answer; use an agent without it")
	case o.detached && o.mode == Return:
		return nil, invalid("Start executes tool calls: Mode(Return) is for Run, Stream and Generate")
	case len(o.tools) > 0 && e.durable && o.mode == Auto:
		return nil, invalid("Tools cannot be used with a store: a resumed run has the tools of the agent only; put them into Agent.Tools")
	}
	if len(o.tools) > 0 {
		if err := checkTools(slices.Concat(e.own, o.tools)); err != nil {
			return nil, err
		}
	}
	if !o.limits.USD.IsZero() && !e.price(e.target).Known() {
		return nil, invalid("the model %s has no price, and Limits.USD applies; set Agent.Rates[%q]", e.target.Model, e.target.Model)
	}
	c := &call{
		engine:   e,
		id:       newRunID(),
		input:    in.items,
		o:        o,
		caller:   o.caller,
		lastTurn: item.LastTurn(in.items),
		ended:    map[string]outcome{},
	}
	c.conversation = a.Conversation
	if o.session != nil {
		if err := checkSession(o.session.id); err != nil {
			return nil, err
		}
		c.session, c.sessions = o.session.id, e.sessionsOf(o.session)
		c.conversation = c.sessions
	}
	return c, nil
}

// perform performs the run. sink gets its events; nil = nobody reads them.
func (c *call) perform(ctx context.Context, sink sink) (*Result, error) {
	if err := c.engine.ready(c.caller.ID); err != nil {
		return nil, err
	}
	if c.o.mode == Return {
		return c.ask(ctx, sink)
	}
	if c.sessions != nil {
		leave, err := c.continueSession(ctx)
		if err != nil {
			return nil, err
		}
		defer leave()
	}
	return c.performHere(ctx, sink)
}

// performHere performs a run whose input is complete.
func (c *call) performHere(ctx context.Context, sink sink) (*Result, error) {
	req, err := c.request(ctx, sink != nil)
	if err != nil {
		return nil, c.failure(ctx, run.Performed{}, err)
	}
	c.sink = sink
	defer c.engine.enter(c)()
	if err := c.begin(ctx); err != nil {
		return nil, err
	}
	p, err := c.engine.here.Perform(ctx, req, c)
	return c.end(ctx, p, err)
}

// start begins a run without its caller.
func (c *call) start(ctx context.Context) (id string, err error) {
	if err := c.engine.ready(c.caller.ID); err != nil {
		return "", err
	}
	leaveSession := func() {}
	if c.sessions != nil {
		if leaveSession, err = c.continueSession(ctx); err != nil {
			return "", err
		}
	}
	req, err := c.request(ctx, true)
	if err != nil {
		leaveSession()
		return "", c.failure(ctx, run.Performed{}, err)
	}
	leaveHere := c.engine.enter(c)
	leave := func() { leaveHere(); leaveSession() }
	if err := c.begin(ctx); err != nil {
		leave()
		return "", err
	}
	if _, err := c.engine.runner.Start(ctx, req); err != nil {
		leave()
		return "", c.failure(ctx, run.Performed{}, err)
	}
	c.engine.watching.Go(func() {
		defer leave()
		c.watch(c.engine.life)
	})
	return c.id, nil
}

// watch waits until a run that has begun without its caller has left this process, and appends its last turns
// to the conversation.
func (c *call) watch(ctx context.Context) {
	e := c.engine
	err := e.runner.Follow(ctx, eventlog.Follow{Org: orgID, RunID: c.id, ToWaiting: true}, discard{})
	if err == nil && c.conversation != nil {
		var p run.Performed
		if p, err = e.here.Transcript(ctx, c.key()); err == nil {
			err = c.appendTurns(ctx, settled(p))
		}
	}
	if err != nil && ctx.Err() == nil {
		e.log.Error("the last turns of a run are not in its conversation", "run", c.id, "error", err)
	}
}

// discard is a sink that nobody reads.
type discard struct{}

// Emit implements eventlog.Sink.
func (discard) Emit(event.Position, event.Event) error { return nil }

// request returns the request of the run.
func (c *call) request(ctx context.Context, live bool) (*run.Request, error) {
	e, a := c.engine, c.engine.agent
	servers, err := c.servers(ctx)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, s := range servers {
		names = append(names, s.Name)
	}
	p := c.settings(live)
	p.Parallelism, p.Validation, p.AbortOnTool = loop.Parallelism(a.Parallelism), loop.Validation(a.Validation), a.ToolErrors == Abort
	p.Durable, p.ResultMaxBytes, p.Context, p.Hooks, p.Servers = e.durable, a.ResultMaxBytes, c.compaction().policy(), a.Hooks.policy(), names
	r := c.base(settings.Library(p))
	r.Servers = servers
	return r, nil
}

// settings returns what the settings of all runs are made of.
func (c *call) settings(live bool) settings.Program {
	return settings.Program{Streams: live, Limits: c.o.limits.sealed(), MaxTokens: c.o.limits.OutputPerTurn}
}

// base returns what all requests have.
func (c *call) base(p loop.Policy) *run.Request {
	e, a := c.engine, c.engine.agent
	target := e.target
	target.Window = c.compaction().size(target.Model)
	r := &run.Request{
		Who: run.Who{
			Org:          orgID,
			Principal:    c.caller.ID,
			Permissions:  c.caller.Permissions,
			CallerOrg:    c.caller.Org,
			Surface:      surfaceName,
			RunID:        c.id,
			ID:           c.id,
			Agent:        cmp.Or(a.Name, "agent"),
			AgentSession: c.session,
		},
		Input: run.Input{
			Conversation: run.Conversation{Items: c.input, Options: a.Options},
			Model:        e.target.Model, Targets: []route.Target{{Target: target, Client: c.client(p.Context)}},
		},
		Policy: p,
	}
	if a.Instructions != "" {
		r.System = []item.Item{item.NewText(item.System, a.Instructions)}
	}
	switch {
	case c.o.format.Type != "":
		r.Options.Format = c.o.format
	case a.Output != nil:
		r.Options.Format = model.Format{Type: "json_schema", Name: "answer", Schema: a.Output, Strict: new(true)}
	}
	return r
}

// servers returns the servers of the run with the tools that its caller may use and wants.
func (c *call) servers(ctx context.Context) ([]catalog.Server, error) {
	e := c.engine
	servers := slices.Clone(e.servers)
	if len(c.o.tools) > 0 {
		servers = append(servers, catalog.Server{Name: "call", Source: e.gate(tool.Tools(c.o.tools)), FromRequest: true})
	}
	if c.o.narrowed {
		if err := c.checkOnly(ctx, servers); err != nil {
			return nil, err
		}
	}
	if allowed := c.allowed(); allowed != nil {
		for i := range servers {
			servers[i].Only = allowed
		}
	}
	return servers, nil
}

// allowed returns the names of the tools that the run may use; nil = all.
func (c *call) allowed() []string {
	names := c.o.only
	if !c.o.narrowed {
		if c.caller.May("*") {
			return nil
		}
		names = c.caller.Permissions
	}
	out := []string{}
	for _, name := range names {
		if c.caller.May(name) && !strings.ContainsAny(name, `*?[\`) {
			out = append(out, name)
		}
	}
	return out
}

// checkOnly returns an error if a name of Only is that of no tool.
func (c *call) checkOnly(ctx context.Context, servers []catalog.Server) error {
	var set *catalog.Set
	for _, name := range c.o.only {
		is := func(t tool.Tool) bool { return t.Definition().Name == name }
		if slices.ContainsFunc(c.engine.own, is) || slices.ContainsFunc(c.o.tools, is) {
			continue
		}
		if set == nil && len(c.engine.agent.Sources) > 0 {
			var err error
			if set, err = c.engine.catalog.For(ctx, orgID, servers, settings.ProgramCatalogTTL); err != nil {
				return err
			}
		}
		if set == nil || set.Lookup(name) == nil {
			return invalid("Only names the tool %q, and the agent has no such tool", name)
		}
	}
	return nil
}

// Emit implements eventlog.Sink.
func (c *call) Emit(at event.Position, e event.Event) error {
	if done, ok := e.(event.ToolDone); ok {
		c.ended[done.Key] = outcome{done.Outcome, done.Duration}
	} else if w, ok := e.(event.Waiting); ok {
		c.waiting = &w
	} else if f, ok := e.(event.Finished); ok {
		c.finished = &f
	}
	if c.sink != nil {
		c.sink(at, e)
	}
	return nil
}

var _ eventlog.Sink = (*call)(nil)

// end returns the result of a run that has left this process.
func (c *call) end(ctx context.Context, p run.Performed, err error) (*Result, error) {
	if err == nil {
		err = c.appendTurns(context.WithoutCancel(ctx), settled(p))
	}
	if failure := c.failure(ctx, p, err); failure != nil {
		return nil, failure
	}
	r := c.result(p)
	if !c.o.trace {
		r.Steps = nil
	}
	return r, nil
}

// result returns the result of the run, with its steps; nil if it has not begun.
func (c *call) result(p run.Performed) *Result {
	if p.State.Accepted == nil {
		return nil
	}
	return newResult(c.id, &p.State, p.Items[p.Input:], c.ended)
}

// failure returns the error of a run; nil if it has an answer. err is that of the driver.
func (c *call) failure(ctx context.Context, p run.Performed, err error) error {
	has := Partial{c.result(p)}
	s := &p.State
	switch {
	case c.failed != nil:
		return &LostError{Message: "the conversation of the run cannot be stored", Cause: c.failed, Partial: has}
	case err != nil:
		return errorOf(ctx, err, has)
	case s.Finished == nil:
		w := &Waiting{RunID: c.id, Partial: has}
		for _, a := range c.waiting.Approvals {
			w.Approvals = append(w.Approvals, Approval{ID: a.ID, Tool: a.Name, Arguments: a.Arguments, ExpiresAt: a.ExpiresAt})
		}
		return w
	case s.Finished.Reason == event.Cancelled, s.Finished.Reason == event.CallerGone,
		ctx.Err() != nil && (s.Finished.Reason.Limit() || s.Finished.Reason.Failed()): // an abort wins
		cause := context.Cause(ctx)
		if cause == nil {
			cause = errCancelled
		}
		return &AbortError{Cause: cause, Partial: has}
	}
	return c.ending(p, has)
}

var errCancelled = errors.New("the run was cancelled")

// errorOf returns the error of a run that could not be recorded, or was refused.
func errorOf(ctx context.Context, err error, has Partial) error {
	var own Failure
	var known *fault.Error
	var full *memlimit.Refused
	var fatal tool.Blocked
	var not *run.NotNow
	switch {
	case errors.As(err, &own):
		return err
	case errors.As(err, &full):
		return &LimitError{Kind: MemoryLimit, Message: memoryMessage(fault.From(full).Reason), Partial: has}
	case errors.As(err, &fatal):
		reason, address := fatal.Blocked()
		return &BlockedError{Reason: reason, Address: address, Partial: has}
	case ctx.Err() != nil:
		return &AbortError{Cause: context.Cause(ctx), Partial: has}
	case errors.Is(err, org.ErrNotFound):
		message := err.Error() + ": the Store does not have it; an agent without a Store forgets a run when it has ended"
		return &ResumeError{Message: message, status: http.StatusNotFound, Partial: has}
	case errors.As(err, &not):
		return &ResumeError{Message: not.Error(), status: 409, Partial: has}
	case errors.As(err, &known) && known.Reason == "stopping":
		return &LostError{Message: "the agent's store is closed; runs need it until they have ended", Partial: has}
	case errors.As(err, &known) && known.Code == fault.Conflict:
		return &ResumeError{Message: known.Message, status: 409, Partial: has}
	case errors.As(err, &known) && (known.Code == fault.Invalid || known.Code == fault.Unprocessable):
		return &ValidationError{Message: known.Message, Partial: has}
	case errors.As(err, &known) && known.Err != nil: // its message names the gateway
		err = known.Err
	}
	return &LostError{Message: "the run cannot go on", Cause: err, Partial: has}
}

// ending returns the error of a run that has ended; nil if it has an answer.
func (c *call) ending(p run.Performed, has Partial) error {
	s := &p.State
	var f event.Failure
	if c.finished != nil && c.finished.Failure != nil {
		f = *c.finished.Failure
	}
	limit := func(kind LimitKind, format string, args ...any) error {
		return &LimitError{Kind: kind, Message: fmt.Sprintf(format, args...), Partial: has}
	}
	switch s.Finished.Reason {
	case event.Complete, event.ClientCalls, event.OutputCut, event.Refused:
		if message, denied := s.AnswerDenial(); denied {
			return &HookError{Message: message, Partial: has}
		}
		return nil
	case event.MaxRounds:
		return limit(IterationLimit, "the run has used its %d rounds (Limits.Rounds)", s.Limits.Rounds)
	case event.MaxCalls:
		return limit(CallLimit, "the run has used its %d tool calls (Limits.Calls)", s.Limits.Calls)
	case event.Tokens:
		return limit(
			TokenLimit,
			"the run has used %d of its %d tokens, and the next model call may need more than the rest (Limits.Tokens)",
			s.Spent.Tokens,
			s.Limits.Tokens,
		)
	case event.Money, event.BudgetExceeded:
		return limit(
			CostLimit,
			"the run has spent %s of its %s US dollars, and the next model call may cost more than the rest (Limits.USD)",
			tool.NanoUSD(s.Spent.NanoUSD),
			tool.NanoUSD(*s.Limits.NanoUSD),
		)
	case event.Deadline:
		return limit(TimeLimit, "the run has taken %v (Limits.Time)", time.Duration(s.Limits.ActiveMS)*time.Millisecond)
	case event.Memory:
		return limit(MemoryLimit, "%s", memoryMessage(f.Code))
	case event.NoProgress:
		return &ProgressError{Repeated: s.Repeated(), Partial: has}
	case event.Blocked:
		return &BlockedError{Reason: s.Blocked.Reason, Address: s.Blocked.Address, Server: loop.LabelOf(s.Blocked.Server), Partial: has}
	case event.ModelError:
		message := c.modelMessage(f.Message, p.Failed)
		if n := s.Attempt.AttemptsOnTarget; s.Cause().Exhausted && n > 1 {
			message += fmt.Sprintf(" (tried %d times)", n)
		}
		return &ModelError{Message: message, Cause: p.Failed, Partial: has}
	case event.TooLong:
		return &ContextError{Message: f.Message, Cause: p.Failed, Partial: has}
	case event.ServerUnavailable:
		server := loop.LabelOf(s.Cause().Server)
		message := fmt.Sprintf("the MCP server %s is required and not available", server)
		for _, one := range s.Catalogued.Servers {
			if one.Label == s.Cause().Server && one.Error != "" {
				message += ": " + one.Error
			}
		}
		return &ServerError{Server: server, Message: message, Partial: has}
	case event.ToolAbort:
		return c.toolFailure(s, f.Message, has)
	case event.Invalid, event.HookDenied:
		return &ValidationError{Message: f.Message, Partial: has}
	case event.Cancelled, event.CallerGone, event.Lost:
	}
	message := strings.Replace(cmp.Or(f.Message, "the run was lost"), "the gateway ", "the process ", 1)
	return &LostError{Message: message, Partial: has}
}

// memoryMessage returns what a program reads of a run that needs more memory than it gets. code is that of the failure.
func memoryMessage(code string) string {
	if code == "run_memory_exceeded" {
		return fmt.Sprintf(
			"the run needs more than the %d MiB of memory that one run may hold; make the input or the results of tools shorter",
			memlimit.DefaultRun>>20,
		)
	}
	return fmt.Sprintf(
		"the runs of the agent hold too much of the %d MiB of memory that they share; try again when some of them have ended",
		memlimit.DefaultProcess>>20,
	)
}

// modelMessage returns what a program reads of a failed model call. message is what clients of a gateway read.
func (c *call) modelMessage(message string, failed *model.Error) string {
	provider := c.engine.target.Provider
	options := "the options of the model"
	if slices.Contains([]string{"openai", "anthropic", "gemini", "bedrock"}, provider) {
		options = provider + ".Options"
	}
	switch {
	case failed == nil:
		return cmp.Or(message, "the model call failed")
	case failed.Credential && provider == "bedrock":
		return fmt.Sprintf(
			"%s refuses the credentials (status %d): %s; check APIKey, or AccessKeyID and SecretAccessKey, in %s",
			provider,
			failed.Status,
			failed.Message,
			options,
		)
	case failed.Credential:
		return fmt.Sprintf("%s refuses the API key (status %d): %s; check APIKey in %s", provider, failed.Status, failed.Message, options)
	case failed.Status == 0 && failed.Param == "" && failed.Message == "":
		cause := "the connection failed"
		if failed.Err != nil {
			cause = failed.Err.Error()
		}
		return fmt.Sprintf(
			"%s could not be reached, or its answer broke off: %s; if it happens again, check BaseURL in %s",
			provider,
			cause,
			options,
		)
	case failed.Status == 0 && failed.Param == "" && failed.Err != nil:
		return fmt.Sprintf("%s: %v", provider, failed)
	}
	if rest, ok := strings.CutPrefix(message, "The provider "); ok { // as Go writes errors
		return "the provider " + rest
	}
	return message
}

// toolFailure returns the error of a run that a tool call has ended.
func (c *call) toolFailure(s *loop.State, message string, has Partial) error {
	one, _ := s.Call(s.Cause().Call)
	message = strings.TrimPrefix(message, "tool "+one.Name+" failed: ")
	message = strings.TrimPrefix(message, "Error: ")
	var told struct{ Error string } // the model reads JSON
	if json.Unmarshal([]byte(message), &told) == nil && told.Error != "" {
		message = told.Error
	}
	if one.Outcome == loop.Unknown {
		message = strings.TrimPrefix(message, "outcome_unknown: tool "+one.Name+": ")
		return &UnknownOutcome{Tool: one.Name, CallID: one.ProviderID, Message: message, Partial: has}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return &ToolError{Tool: one.Name, CallID: one.ProviderID, Message: message, Cause: c.causes[string(one.Key)], Partial: has}
}

// note remembers why a tool call failed.
func (c *call) note(key string, cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.causes == nil {
		c.causes = map[string]error{}
	}
	c.causes[key] = cause
}

// client returns the agent's model for this run. Of a run that shortens its prompts, these do not have all turns: the
// conversation gets them when the run ends, or waits.
func (c *call) client(p loop.ContextPolicy) model.Model {
	if c.conversation == nil || p.Mode != loop.ContextOff {
		return c.engine.agent.Model
	}
	return recorded{c}
}

// recorded is the model of a run whose turns a conversation gets.
type recorded struct{ call *call }

// Stream implements model.Model. What the request has more than the one before are the turns since.
func (r recorded) Stream(ctx context.Context, req *model.Request, emit func(model.Delta) error) (*model.Turn, error) {
	if err := r.call.appendTurns(ctx, req.Items); err != nil {
		return nil, &model.Error{Class: model.Invalid, Unsent: true, Message: "the conversation of the run cannot be stored", Err: err}
	}
	return r.call.engine.agent.Model.Stream(ctx, req, emit)
}

// begin appends the input to the conversation.
func (c *call) begin(ctx context.Context) error {
	if c.conversation == nil {
		return nil
	}
	c.turns = 1
	if c.o.skipInput {
		return nil
	}
	if err := c.conversation.Append(
		ctx,
		Turn{Session: c.session, RunID: c.id, Caller: c.caller, Role: InputTurn, Items: slices.Clone(c.input[c.history:])},
	); err != nil {
		return &LostError{Message: "the conversation of the run cannot be stored", Cause: err}
	}
	return nil
}

// settled returns the transcript of a run that has left this process, without the results of a turn
// whose other calls still wait.
func settled(p run.Performed) []item.Item {
	items := p.Items
	for p.State.Finished == nil && len(items) > p.Input && items[len(items)-1].Kind == item.ToolResult {
		items = items[:len(items)-1]
	}
	return items
}

// appendTurns appends what the transcript has more than the conversation.
func (c *call) appendTurns(ctx context.Context, items []item.Item) error {
	if c.conversation == nil || c.failed != nil {
		return c.failed
	}
	begin := slices.IndexFunc(items, func(it item.Item) bool { return it.Turn > c.lastTurn })
	if begin < 0 {
		return nil
	}
	items = items[begin:]
	for c.appended < len(items) {
		end, role := c.appended+1, ToolTurn
		if items[c.appended].Kind != item.ToolResult {
			end, role = item.TurnEnd(items, c.appended), AssistantTurn
		}
		for role == ToolTurn && end < len(items) && items[end].Kind == item.ToolResult {
			end++
		}
		turn := Turn{
			Session: c.session,
			RunID:   c.id,
			Caller:  c.caller,
			Number:  c.turns,
			Role:    role,
			Items:   slices.Clone(items[c.appended:end]),
		}
		if err := c.conversation.Append(ctx, turn); err != nil {
			c.failed = err
			return err
		}
		c.appended, c.turns = end, c.turns+1
	}
	return nil
}

// gate returns the source with what the agent does around each call of its tools.
func (e *engine) gate(s tool.Source) tool.Source { return gatedSource{s, e} }

type gatedSource struct {
	tool.Source
	engine *engine
}

// List implements tool.Source.
func (g gatedSource) List(ctx context.Context) ([]tool.Tool, error) {
	tools, err := g.Source.List(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]tool.Tool, len(tools))
	for i, t := range tools {
		out[i] = gated{t, g.engine}
	}
	return out, nil
}

// Changes implements tool.Announcer.
func (g gatedSource) Changes() uint64 {
	if a, ok := g.Source.(tool.Announcer); ok {
		return a.Changes()
	}
	return 0
}

// gated is a tool as the runs of an agent call it.
type gated struct {
	tool.Tool
	engine *engine
}

// Class implements tool.Classed.
func (g gated) Class() tool.Class { return tool.ClassOf(g.Tool) }

// Cost implements tool.Priced.
func (g gated) Cost() tool.Money {
	if p, ok := g.Tool.(tool.Priced); ok {
		return p.Cost()
	}
	return tool.Money{}
}

// Asks implements tool.Asker.
func (g gated) Asks(arguments json.RawMessage) bool {
	if a, ok := g.Tool.(tool.Asker); ok && a.Asks(arguments) {
		return true
	}
	approve := g.engine.agent.NeedsApproval
	return approve != nil && approve(g.Definition().Name, arguments)
}

// Call implements tool.Tool.
func (g gated) Call(ctx context.Context, c tool.Call) (tool.Result, error) {
	if name := g.Definition().Name; !c.Caller.May(name) {
		return tool.Error(fmt.Sprintf("the caller may not use the tool %s", name)), nil
	}
	defer func() {
		if p := recover(); p != nil { // the executor of calls turns it into a result
			g.engine.log.Error("a tool has panicked", "run", c.RunID, "tool", g.Definition().Name, "panic", p, "stack", string(debug.Stack()))
			panic(p)
		}
	}()
	r, err := g.once(ctx, c)
	cause := err
	if cause == nil {
		cause = r.Cause
	}
	if cause != nil {
		g.engine.mu.Lock()
		of := g.engine.calls[c.RunID]
		g.engine.mu.Unlock()
		if of != nil {
			of.note(c.Key, cause)
		}
	}
	return r, err
}

// targetOf returns the target that a model is.
func targetOf(m model.Model) loop.Target {
	if n, ok := m.(model.Named); ok {
		provider, name := n.ModelName()
		return loop.Target{Provider: provider, Model: name, Images: window.TakesImages(name)}
	}
	return loop.Target{Provider: "custom", Model: "model"}
}
