package agents

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/agent"
	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/eventlog"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/settings"
	"github.com/turnpike-gateway/turnpike/internal/surface"
	"github.com/turnpike-gateway/turnpike/model"
)

// runIDHeader carries the id of the run of an answer.
const runIDHeader = "Turnpike-Run-Id"

// runs starts, shows and decides runs.
type runs struct {
	base
	agents       *lookup
	sessions     *sessions
	kit          *surface.Handler
	store        agent.Sessions
	archive      journal.Archive
	hookMessages journal.HookMessagesOfRun
	runner       Runner
	servers      Servers
	inbox        Inbox
	decisions    Decisions
}

// runBody is the body of a request that runs an agent.
type runBody struct {
	message, session string
	endUser          string
	maxSteps         *int
	maxContext       *int
	timeout          *int
	temperature      *float64
	format           model.Format
	reasoning        bool
	detached         bool
	busy             run.WhenBusy
}

// later are members of the contract that this version does not have.
var later = []string{"knowledge_bases", "runtime_knowledge_bases", "context_handler_id", "context_override", "context_items"}

func readRunBody(body []byte) (b runBody, err error) {
	f := surface.FieldsOf("", body)
	for _, name := range later {
		if v, ok := f.Take(name); ok && !surface.IsNull(v) {
			return b, fault.New(fault.NotConfigured, "not_available", "%s: this version of the gateway has no knowledge bases; leave it out", name).In(name)
		}
	}
	busy := string(run.Reject)
	var citations bool
	b.endUser = endUser(f)
	f.Text("message", &b.message)
	f.Text("session_id", &b.session)
	f.Number("max_steps", &b.maxSteps)
	f.Number("max_context_tokens", &b.maxContext)
	f.Number("timeout_seconds", &b.timeout)
	f.Decimal("temperature", &b.temperature)
	f.Bool("reasoning_requested", false, &b.reasoning)
	f.Bool("detached", false, &b.detached)
	f.Bool("citations_enabled", false, &citations)
	f.Text("when_busy", &busy)
	if v, ok := f.Take("response_format"); ok && f.Err == nil && !surface.IsNull(v) {
		b.format, f.Err = readFormat(v)
	}
	if err := f.Done(); err != nil {
		return b, err
	}
	switch {
	case !slices.Contains(whenBusies, run.WhenBusy(busy)):
		return b, surface.InvalidValue("when_busy", "when_busy must be reject, enqueue, steer or interrupt")
	case citations:
		return b, surface.InvalidValue("citations_enabled", "citations_enabled must be false: this version of the gateway has no knowledge bases")
	}
	b.busy = run.WhenBusy(busy)
	if err := agent.CheckMessage("message", b.message); err != nil {
		return b, surface.Refused(err, surface.Thing{})
	}
	s := agent.Settings{MaxSteps: b.maxSteps, MaxContextTokens: b.maxContext, TimeoutSeconds: b.timeout, Temperature: b.temperature}
	return b, surface.Refused(s.Check(), surface.Thing{})
}

// endUser reads the members that name the end user of a run.
func endUser(f *surface.Fields) string {
	var members []surface.Member
	for _, name := range []string{"safety_identifier", "user"} {
		v, _ := f.Take(name)
		if v != nil && !surface.IsNull(v) && json.Unmarshal(v, new(string)) != nil {
			f.Fail(name, "must be a string")
		}
		members = append(members, surface.Member{Name: name, Value: v})
	}
	v, ok := f.Take("metadata")
	if ok && !surface.IsNull(v) {
		if surface.FieldsOf("", v).Err != nil {
			f.Fail("metadata", "must be an object")
		}
		members = append(members, surface.Member{Name: "metadata", Value: v})
	}
	return surface.EndUser(members)
}

// readFormat reads the form of an answer: {"type": "json_object"}, or json_schema with a json_schema.
func readFormat(v json.RawMessage) (out model.Format, err error) {
	f := surface.FieldsOf("response_format", v)
	f.Text("type", &out.Type)
	if s, ok := f.Take("json_schema"); ok && f.Err == nil {
		in := surface.FieldsOf("response_format.json_schema", s)
		in.Text("name", &out.Name)
		in.Text("description", &out.Description)
		surface.Field(in, "strict", "true or false", &out.Strict)
		out.Schema, _ = in.Take("schema")
		f.Err = in.Done()
	}
	if err := f.Done(); err != nil {
		return out, err
	}
	if (out.Type != "text" && out.Type != "json_object" && out.Type != "json_schema") || (out.Type == "json_schema") != (out.Schema != nil) {
		return out, surface.InvalidValue("response_format", "response_format must be {\"type\": \"text\"}, {\"type\": \"json_object\"}, or a json_schema with a schema")
	}
	return out, nil
}

// begun is a run that a request has started, or that its Idempotency-Key stands for already.
type begun struct {
	id    string
	turn  agent.SessionTurn
	body  runBody
	keyed bool
	joins bool // the message went into a run that had begun before
}

// begin starts a turn of a session. Without a session_id it creates the session, which is deleted if the run
// is refused.
func (h *runs) begin(r *http.Request, caller caller.Caller, noTools bool) (b begun, err error) {
	body, _, err := surface.ReadBody(r, caller.Account)
	if err != nil {
		return b, err
	}
	if b.body, err = readRunBody(body); err != nil {
		return b, err
	}
	a, err := h.agents.find(r, caller)
	if err != nil {
		return b, err
	}
	key, err := surface.SubmitKey(r.Header, caller.Principal.ID, agent.Surface+"\x00"+a.ID+"\x00"+r.URL.Path, body)
	if err != nil {
		return b, err
	}
	b.keyed = key != nil
	s, created, err := h.sessionOf(r, caller, a, b.body.session)
	if err != nil {
		return b, err
	}
	if created {
		defer func() { // a session that the run did not use is none
			if err != nil || b.turn.Session != s.ID {
				ctx, cancel := surface.Detached(r)
				defer cancel()
				_, _ = h.store.RemoveSession(ctx, caller.Org.ID, s.ID, true) // it is empty, and listed
			}
		}()
	}
	req, err := h.request(r, caller, s, b.body, key, noTools)
	if err != nil {
		return b, err
	}
	req.MaxQueued = settings.MaxQueued(caller.Org.Runtime)
	placed, err := h.inbox.Place(r.Context(), req, b.body.busy)
	if err != nil {
		return b, surface.Refused(err, aSession(s.ID))
	}
	b.id, b.joins = placed.RunID, placed.Joins
	ctx, cancel := surface.Detached(r) // a client that leaves now stops the run, too
	defer cancel()
	_, b.turn, err = h.store.TurnOf(ctx, caller.Org.ID, b.id)
	return b, surface.Refused(err, aSession(s.ID)) // it can be deleted meanwhile, and its run ends
}

// request returns the request for the next turn of the session.
func (h *runs) request(r *http.Request, caller caller.Caller, s agent.Session, body runBody, key *journal.SubmitKey, noTools bool) (*run.Request, error) {
	text, err := json.Marshal(map[string]string{"message": body.message})
	if err != nil {
		return nil, err
	}
	snapshot, err := json.Marshal(s.Snapshot)
	if err != nil {
		return nil, err
	}
	input := journal.SessionInput{ID: h.newID(agent.InputPrefix), Kind: agent.InputMessage, Principal: caller.Principal.ID, Body: text}
	if key != nil {
		input.Key, input.Digest = key.Principal+" "+key.Key, key.Hash
	}
	t := surface.Turn{
		Agent: s.Snapshot, Session: s.ID, Message: body.message, EndUser: body.endUser, Format: body.format, NoTools: noTools, Temp: body.temperature, Key: key,
		Servers: h.servers.Approvals(caller.Org.ID, s.Snapshot),
		Start:   &journal.SessionTurn{Session: s.ID, Version: s.Snapshot.Version, Snapshot: snapshot, Input: input, Reasoning: body.reasoning},
	}
	if body.maxSteps != nil {
		t.MaxSteps = *body.maxSteps
	}
	if body.timeout != nil {
		t.Timeout = time.Duration(*body.timeout) * time.Second
	}
	if body.maxContext != nil {
		t.Agent.Settings.MaxContextTokens = body.maxContext
	}
	return h.kit.Turn(r, caller, t)
}

// sessionOf returns the session that a run continues, with the snapshot that the run has; "" creates one.
func (h *runs) sessionOf(r *http.Request, caller caller.Caller, a agent.Agent, id string) (s agent.Session, created bool, err error) {
	if id != "" {
		s, err = h.store.Session(r.Context(), caller.Org.ID, id)
		if err == nil && (s.Agent != a.ID || !s.Continues(caller.Principal)) {
			err = org.ErrNotFound
		}
		err = surface.Refused(err, aSession(id))
		if err != nil || s.Pinned {
			return s, false, err
		}
	}
	snapshot, err := h.agents.resolve(r, caller, a)
	if err != nil {
		return s, false, err
	}
	if id != "" {
		s.Snapshot = snapshot
		return s, false, nil
	}
	s = agent.Session{Org: caller.Org.ID, ID: h.newID(agent.SessionPrefix), Agent: a.ID, Principal: caller.Principal.ID, Snapshot: snapshot, CreatedAt: h.now()}
	return s, true, surface.Refused(h.store.CreateSession(r.Context(), s, a.Declared), anAgent(a.ID))
}

// Stream answers POST /api/agents/{id}/run/stream: with frames, or with one JSON object if the client takes no stream.
func (h *runs) Stream(w http.ResponseWriter, r *http.Request, caller caller.Caller) error {
	b, err := h.begin(r, caller, false)
	if err != nil {
		return surface.Failed(h.log, err)
	}
	w.Header().Set(runIDHeader, b.id)
	if surface.WantsJSON(r.Header) {
		return h.whole(w, r, caller, b)
	}
	err = h.follow(w, r, caller, b.turn, frameID{}, true)
	h.clientLeft(r, caller, b)
	return err
}

// follow sends the frames of a run after one of them, while they happen, until its end. With refuse, a run that
// the outbound policy ends before the first frame is answered with its error.
func (h *runs) follow(w http.ResponseWriter, r *http.Request, caller caller.Caller, turn agent.SessionTurn, after frameID, refuse bool) error {
	out := h.kit.Frames(w, caller)
	defer out.Close()
	p := h.projection(caller, turn)
	if refuse {
		p.refuse = func(end event.Finished) error {
			if out.Stop(); out.Started() {
				return nil
			}
			return surface.EndFault(end, p.reveals)
		}
	}
	p.send = func(id string, frame ordered) error {
		if at, err := parseFrameID(id); err != nil || !at.after(after) {
			return err
		}
		return out.Send(id, frame)
	}
	err := h.runner.Follow(r.Context(), eventlog.Follow{Org: caller.Org.ID, RunID: turn.RunID, Account: caller.Account, Client: true}, p)
	out.Stop() // no other goroutine begins the stream now
	switch {
	case err == nil && !out.Started():
		w.WriteHeader(http.StatusNoContent)
	case err == nil, surface.ClientLeft(r.Context()):
	case !out.Started():
		return surface.Failed(h.log, err)
	default:
		var object errorObject
		_ = json.Unmarshal(Errors().Body(surface.Failed(h.log, err)), &object) // what Body has encoded
		failed := errorFrame{object.Error, object.Code, turn.RunID}
		_ = out.Send("", ordered{frameHead{Event: "error", Type: "error"}, failed}) // after an error the client has left
	}
	return nil
}

func (h *runs) projection(caller caller.Caller, turn agent.SessionTurn) *projection {
	return &projection{turn: turn, charge: caller.Account.Acquire, reveals: caller.Principal.Role.MaySeeAddresses()}
}

// clientLeft stops the run of a client that has left, unless the client, or a person, is to come back for it.
func (h *runs) clientLeft(r *http.Request, caller caller.Caller, b begun) {
	if !surface.ClientLeft(r.Context()) {
		return
	}
	ctx, cancel := surface.Detached(r)
	defer cancel()
	s, _, err := h.store.TurnOf(ctx, caller.Org.ID, b.id)
	status := s.Status()
	if s.RunID != b.id { // its turn has not begun
		status = agent.Running
	}
	if err == nil && agent.StopsWithClient(b.keyed || b.joins, b.body.detached, status) {
		err = h.inbox.Leave(ctx, caller.Org.ID, b.id, caller.Principal.ID)
	}
	if f := new(fault.Error); err != nil && !errors.Is(err, org.ErrNotFound) && !(errors.As(err, &f) && f.Code == fault.Conflict) {
		h.log.Warn("a run whose client has left was not stopped", "run", b.id, "org", caller.Org.ID, "error", err)
	}
}

// Run answers POST /api/agents/{id}/run: one model call without tools.
func (h *runs) Run(w http.ResponseWriter, r *http.Request, caller caller.Caller) error {
	b, err := h.begin(r, caller, true)
	if err != nil {
		return surface.Failed(h.log, err)
	}
	w.Header().Set(runIDHeader, b.id)
	w.Header().Set("Turnpike-Hint", withTools)
	return h.whole(w, r, caller, b, toollessRun{Hint: withTools})
}

// withTools says how an agent runs with its tools.
const withTools = "POST /api/agents/{id}/run/stream runs the agent with its tools; with the header Accept: application/json it answers with one object"

// whole answers with the run as one JSON object when it has ended, or waits for a person.
func (h *runs) whole(w http.ResponseWriter, r *http.Request, caller caller.Caller, b begun, others ...any) error {
	p := h.projection(caller, b.turn)
	err := h.runner.Follow(r.Context(), eventlog.Follow{Org: caller.Org.ID, RunID: b.id, Account: caller.Account, ToWaiting: true}, p)
	h.clientLeft(r, caller, b)
	if err != nil {
		return surface.Failed(h.log, err)
	}
	if len(p.waits) > 0 {
		others = append(others, waitingRun{p.waits})
	}
	return p.write(w, others...)
}

// findRun returns the turn that the path names, if it exists for the caller.
func (h *runs) findRun(r *http.Request, caller caller.Caller) (agent.Session, agent.SessionTurn, error) {
	id := r.PathValue("id")
	s, turn, err := h.store.TurnOf(r.Context(), caller.Org.ID, id)
	if err == nil && !s.Sees(caller.Principal) {
		err = org.ErrNotFound
	}
	return s, turn, surface.Refused(err, aRun(id))
}

// GetRun answers GET /api/agents/runs/{id}.
func (h *runs) GetRun(w http.ResponseWriter, r *http.Request, caller caller.Caller) error {
	s, turn, err := h.findRun(r, caller)
	if err != nil {
		return surface.Failed(h.log, err)
	}
	out, err := h.runObject(r.Context(), caller, s, turn, true)
	if err != nil {
		return surface.Failed(h.log, err)
	}
	return surface.WriteStored(w, caller, http.StatusOK, out)
}

// runObject returns a run on the wire, with the results of its calls if it is to be whole.
func (h *runs) runObject(ctx context.Context, caller caller.Caller, s agent.Session, turn agent.SessionTurn, whole bool) (ordered, error) {
	p := h.projection(caller, turn)
	p.whole = whole
	err := h.runner.Follow(ctx, eventlog.Follow{Org: caller.Org.ID, RunID: turn.RunID, Account: caller.Account, Now: true}, p)
	if errors.Is(err, org.ErrNotFound) { // retention_days has deleted it
		return ordered{deletedRun{turn.RunID, s.ID, s.Agent, turn.Version, "deleted", millis.Time(turn.CreatedAt)}}, nil
	}
	if err != nil {
		return nil, err
	}
	record := runRecord{
		AgentID: s.Agent, AgentVersion: turn.Version, Model: surface.Given(p.model), Targets: append([]target{}, p.targets...),
		CreatedAt: millis.Time(turn.CreatedAt), Approvals: append([]string{}, p.waits...),
	}
	if record.Input, err = h.input(ctx, caller, s, turn); err != nil {
		return nil, err
	}
	if p.end != nil {
		record.CompletedAt = millis.Time(p.end.At)
	}
	told, err := h.hookMessages.HookMessages(ctx, caller.Org.ID, turn.RunID)
	if err != nil {
		return nil, err
	}
	record.OnRunComplete = toldHooks(told)
	return ordered{p.result(), record}, nil
}

// input returns the messages of a run, parted by blank lines; nil if there are none.
func (h *runs) input(ctx context.Context, caller caller.Caller, s agent.Session, turn agent.SessionTurn) (*string, error) {
	inputs, err := h.store.InputsOf(ctx, s.Org, s.ID, turn.RunID)
	if err != nil {
		return nil, err
	}
	var texts []string
	for _, in := range inputs {
		var body struct{ Message string }
		if in.Kind != agent.InputMessage || json.Unmarshal(in.Body, &body) != nil {
			continue
		}
		if err := caller.Account.Acquire(2 * len(body.Message)); err != nil {
			return nil, err
		}
		texts = append(texts, body.Message)
	}
	return surface.Given(strings.Join(texts, "\n\n")), nil
}

// SessionRuns answers GET /api/sessions/{id}/runs, the latest first.
func (h *runs) SessionRuns() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		page, err := surface.ReadOffsetPage(r)
		if err != nil {
			return 0, nil, err
		}
		page.Limit = min(page.Limit, maxRunsOfPage)
		s, err := h.sessions.findSession(r.Context(), caller, r.PathValue("id"))
		if err != nil {
			return 0, nil, err
		}
		turns, total, err := h.store.SessionTurns(r.Context(), s.Org, s.ID, page.Limit, page.Offset)
		if err != nil {
			return 0, nil, err
		}
		out := []ordered{}
		for _, t := range turns {
			one, err := h.runObject(r.Context(), caller, s, t, false)
			if err != nil {
				return 0, nil, err
			}
			out = append(out, one)
		}
		return http.StatusOK, page.Of("runs", out, total), nil
	})
}

// maxRunsOfPage is how many runs a page has at most.
const maxRunsOfPage = 100

// toldHook is a hook at OnRunComplete of a run, on the wire.
type toldHook struct {
	Hook      string              `json:"hook_id"`
	Position  int                 `json:"position"`
	Status    journal.HookOutcome `json:"status"`
	LatencyMS float64             `json:"latency_ms"` // 0 = it was not told
	EndedAt   *string             `json:"ended_at"`   // null = it waits
}

func toldHooks(all []journal.HookMessage) []toldHook {
	return surface.Each(all, func(m journal.HookMessage) toldHook {
		return toldHook{m.Hook, m.Position, m.Outcome, float64(m.Micros) / 1000, millis.Unix(m.EndedAt)}
	})
}

// Events answers GET /api/agents/runs/{id}/events: the frames of the run after that which Last-Event-ID names.
// A run that has ended, and has no more of them, is answered with 204.
func (h *runs) Events(w http.ResponseWriter, r *http.Request, caller caller.Caller) error {
	if err := surface.CheckQuery(r.URL.Query()); err != nil {
		return err
	}
	var after frameID
	if last := r.Header.Values("Last-Event-Id"); len(last) > 1 {
		return surface.InvalidValue("Last-Event-ID", "Last-Event-ID is given more than once")
	} else if len(last) == 1 && last[0] != "" {
		var err error
		if after, err = parseFrameID(strings.TrimSpace(last[0])); err != nil {
			return surface.InvalidValue("Last-Event-ID", "%v", err)
		}
	}
	_, turn, err := h.findRun(r, caller)
	if err != nil {
		return surface.Failed(h.log, err)
	}
	if r.Method == http.MethodHead { // which has no events to wait for
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(http.StatusOK)
		return nil
	}
	return h.follow(w, r, caller, turn, after, false)
}

// CancelRun answers POST /api/agents/runs/{id}/cancel.
func (h *runs) CancelRun() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		f, err := surface.ReadOptionalFields(r, caller.Account)
		if err == nil {
			err = f.Done()
		}
		if err != nil {
			return 0, nil, err
		}
		s, turn, err := h.findRun(r, caller)
		if err == nil && !s.Continues(caller.Principal) {
			err = aRun(r.PathValue("id")).Missing()
		}
		if err == nil {
			err = h.runner.Cancel(r.Context(), caller.Org.ID, turn.RunID, caller.Author(h.now()))
		}
		return http.StatusAccepted, map[string]string{"run_id": turn.RunID, "status": "cancelling"}, surface.Refused(err, aRun(r.PathValue("id")))
	})
}

// ApproveRun answers POST /api/agents/runs/{id}/approve.
func (h *runs) ApproveRun() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		f, err := surface.ReadFields(r, caller.Account)
		if err != nil {
			return 0, nil, err
		}
		var approved *bool
		var id, reason string
		var early bool
		surface.Field(f, "approved", "true or false", &approved)
		surface.Field(f, "early", "true or false", &early)
		f.Text("approval_id", &id)
		f.Text("reason", &reason)
		if err := f.Done(); err != nil {
			return 0, nil, err
		}
		if approved == nil {
			return 0, nil, surface.InvalidValue("approved", "approved is required: true or false")
		}
		_, turn, err := h.findApprovable(r, caller)
		if err != nil {
			return 0, nil, err
		}
		by := run.KeyDecider(caller.Org, caller.Principal, caller.Author(h.now()))
		d := journal.Decision{Approved: *approved, Message: reason}
		if id == "" {
			n := run.Next{Org: caller.Org.ID, RunID: turn.RunID, Decision: d, Early: early}
			a, err := h.decisions.DecideNext(r.Context(), n, by)
			err = surface.Refused(err, surface.Thing{Kind: "active run of an agent", ID: turn.RunID})
			return http.StatusOK, resumed{"resumed", surface.Given(a.ID)}, err
		}
		a, err := h.approvalOf(r.Context(), caller, turn.RunID, id)
		if err != nil {
			return 0, nil, err
		}
		a, err = h.decisions.Decide(r.Context(), caller.Org.ID, a.ID, d, by)
		if errors.Is(err, org.ErrNotFound) || err != nil && a.Status == journal.ApprovalVoid {
			err = surface.Thing{Kind: "approval of an active run", ID: id}.Missing()
		}
		return http.StatusOK, resumed{"resumed", &a.ID}, err
	})
}

// resumed is the answer to a decision. The approval of one that was made before its call is asked for has no id
// yet.
type resumed struct {
	Status   string  `json:"status"`
	Approval *string `json:"approval_id"`
}

// findApprovable is findRun for callers that may also decide the approvals of the runs of others.
func (h *runs) findApprovable(r *http.Request, caller caller.Caller) (agent.Session, agent.SessionTurn, error) {
	if !caller.Principal.Role.MayApprove() {
		return h.findRun(r, caller)
	}
	id := r.PathValue("id")
	s, turn, err := h.store.TurnOf(r.Context(), caller.Org.ID, id)
	return s, turn, surface.Refused(err, aRun(id))
}

// approvalOf returns the approval of a run with an id.
func (h *runs) approvalOf(ctx context.Context, caller caller.Caller, runID, id string) (journal.Approval, error) {
	a, err := h.archive.Approval(ctx, caller.Org.ID, id)
	if err == nil && (a.RunID != runID || a.IsPause()) || errors.Is(err, org.ErrNotFound) {
		err = surface.Thing{Kind: "approval of the run", ID: id}.Missing()
	}
	return a, err
}
