package agents

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/agent"
	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/conversation"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/money"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/surface"
	"github.com/turnpike-gateway/turnpike/item"
)

// sessions answers requests for sessions.
type sessions struct {
	base
	agents        *lookup
	store         agent.Sessions
	conversations journal.Conversations
	archive       journal.Archive
	segments      surface.Segments
	inbox         Inbox
	orgs          Orgs
}

// sessionObject is a session on the wire.
type sessionObject struct {
	ID         string            `json:"id"`
	AgentID    string            `json:"agent_id"`
	Principal  string            `json:"principal"`
	Pinned     bool              `json:"pinned"`
	Version    int               `json:"agent_version"` // of the snapshot
	Status     agent.Status      `json:"status"`
	StopReason *string           `json:"stop_reason"`
	Title      string            `json:"title"`
	Metadata   map[string]string `json:"metadata"`
	Runs       int               `json:"run_count"`
	Active     float64           `json:"active_seconds"` // of the runs that have ended
	Cost       money.Nano        `json:"cost_usd"`       // of those of them whose cost is known
	RunID      *string           `json:"last_run_id"`
	CreatedAt  *string           `json:"created_at"`
	UpdatedAt  *string           `json:"updated_at"`
}

func wireSession(s agent.Session) sessionObject {
	return sessionObject{
		ID: s.ID, AgentID: s.Agent, Principal: s.Principal, Pinned: s.Pinned, Version: s.Snapshot.Version, Status: s.Status(), Title: s.Title, Metadata: s.Metadata,
		Runs: s.Turns, Active: float64(s.Spent.ActiveMS) / 1000, Cost: money.Nano(s.Spent.NanoUSD), CreatedAt: millis.Time(s.CreatedAt), UpdatedAt: millis.Time(s.UpdatedAt),
		StopReason: surface.Given(s.StopReason()), RunID: surface.Given(s.RunID),
	}
}

// findSession returns the session with an id, if it exists for the caller.
func (h *sessions) findSession(ctx context.Context, caller caller.Caller, id string) (agent.Session, error) {
	s, err := h.store.Session(ctx, caller.Org.ID, id)
	if err == nil && !s.Sees(caller.Principal) {
		err = org.ErrNotFound
	}
	err = surface.Refused(err, aSession(id))
	return s, err
}

// Sessions answers GET /api/agents/{id}/sessions, the latest updated first.
func (h *sessions) Sessions() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		page, err := surface.ReadOffsetPage(r, "search", "created_after", "created_before", "min_runs", "max_runs")
		if err != nil {
			return 0, nil, err
		}
		a, err := h.agents.find(r, caller)
		if err != nil {
			return 0, nil, err
		}
		values := r.URL.Query()
		q := agent.SessionQuery{Agent: a.ID, Search: values.Get("search"), Limit: page.Limit, Offset: page.Offset}
		if !caller.Principal.Role.MayRead() {
			q.Principal = caller.Principal.ID
		}
		if q.CreatedAfter, err = surface.QueryTime(values, "created_after"); err != nil {
			return 0, nil, err
		}
		if q.CreatedBefore, err = surface.QueryTime(values, "created_before"); err != nil {
			return 0, nil, err
		}
		if q.MinTurns, err = surface.QueryNumber(values, "min_runs", 0, 0, surface.MaxOffset); err != nil {
			return 0, nil, err
		}
		if q.MaxTurns, err = surface.QueryNumber(values, "max_runs", 0, 1, surface.MaxOffset); err != nil {
			return 0, nil, err
		}
		found, total, err := h.store.Sessions(r.Context(), caller.Org.ID, q)
		if err != nil {
			return 0, nil, err
		}
		out := surface.Each(found, wireSession)
		return http.StatusOK, page.Of("sessions", out, total), nil
	})
}

// Limits of the messages with which a session begins.
const (
	maxInitial        = 200
	maxInitialMessage = 20_000 // characters
)

// readInitial reads the messages with which a session begins.
func readInitial(all []json.RawMessage) (items []item.Item, err error) {
	if len(all) > maxInitial {
		return nil, surface.InvalidValue("initial_messages", "initial_messages has %d messages, and at most %d are allowed", len(all), maxInitial)
	}
	for i, v := range all {
		at := fmt.Sprintf("initial_messages[%d]", i)
		f := surface.FieldsOf(at, v)
		var role, content string
		f.Text("role", &role)
		f.Text("content", &content)
		switch err := f.Done(); {
		case err != nil:
			return nil, err
		case role != string(item.User) && role != string(item.Assistant):
			return nil, surface.InvalidValue(at+".role", "%s.role must be user or assistant", at)
		case content == "" || len([]rune(content)) > maxInitialMessage:
			return nil, surface.InvalidValue(at+".content", "%s.content must have 1 to %d characters", at, maxInitialMessage)
		}
		items = append(items, item.NewText(item.Role(role), content))
	}
	return items, nil
}

// CreateSession answers POST /api/agents/{id}/sessions.
func (h *sessions) CreateSession() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		f, err := surface.ReadOptionalFields(r, caller.Account)
		if err != nil {
			return 0, nil, err
		}
		s := agent.Session{Org: caller.Org.ID, ID: h.newID(agent.SessionPrefix), Principal: caller.Principal.ID, CreatedAt: h.now()}
		f.Text("title", &s.Title)
		f.Bool("pinned", false, &s.Pinned)
		f.Texts("metadata", &s.Metadata)
		initial, _ := f.List("initial_messages")
		if err := f.Done(); err != nil {
			return 0, nil, err
		}
		items, err := readInitial(initial)
		if err == nil {
			err = surface.Refused(agent.CheckSession(s.Title, s.Metadata), surface.Thing{})
		}
		if err != nil {
			return 0, nil, err
		}
		a, err := h.agents.find(r, caller)
		if err != nil {
			return 0, nil, err
		}
		s.Agent = a.ID
		if s.Snapshot, err = h.agents.resolve(r, caller, a); err != nil {
			return 0, nil, err
		}
		if err := surface.Refused(h.store.CreateSession(r.Context(), s, a.Declared), anAgent(a.ID)); err != nil {
			return 0, nil, err
		}
		if len(items) > 0 {
			if err := h.addInitial(r.Context(), s, items); err != nil {
				return 0, nil, err
			}
		}
		if s.UpdatedAt = s.CreatedAt; s.Metadata == nil {
			s.Metadata = map[string]string{}
		}
		return http.StatusCreated, wireSession(s), nil
	})
}

// addInitial adds messages to the conversation of a session that has just been created, as a part that is
// deleted with it.
func (h *sessions) addInitial(ctx context.Context, s agent.Session, items []item.Item) error {
	part := conversation.PartOf(strings.TrimPrefix(s.ID, agent.SessionPrefix), true)
	if err := conversation.Save(ctx, h.conversations, s.Org, part, journal.Conversation{Items: items, Owner: s.ID}, journal.Kept); err != nil {
		return err
	}
	_, err := conversation.Change(ctx, h.conversations, s.Org, s.ID, journal.Kept, func(c *journal.Conversation) bool {
		c.Parts = append(c.Parts, part)
		return true
	})
	return err
}

// Session answers GET /api/sessions/{id}.
func (h *sessions) Session() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		if err := surface.CheckQuery(r.URL.Query()); err != nil {
			return 0, nil, err
		}
		s, err := h.findSession(r.Context(), caller, r.PathValue("id"))
		return http.StatusOK, wireSession(s), err
	})
}

// changeable returns the session with an id, if the caller may delete it.
func (h *sessions) changeable(ctx context.Context, caller caller.Caller, id string) (agent.Session, error) {
	s, err := h.findSession(ctx, caller, id)
	if err == nil && !s.Continues(caller.Principal) {
		err = aSession(id).Missing()
	}
	return s, err
}

// Rewind answers POST /api/sessions/{id}/rewind.
func (h *sessions) Rewind() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		run, err := surface.ReadRewind(r, caller.Account)
		if err != nil {
			return 0, nil, err
		}
		s, err := h.changeable(r.Context(), caller, r.PathValue("id"))
		if err != nil {
			return 0, nil, err
		}
		ctx, cancel := surface.Detached(r)
		defer cancel()
		c, dropped, err := conversation.Rewind(ctx, h.conversations, s.Org, s.ID, run, journal.Kept)
		switch {
		case err != nil:
		case c == nil: // it was deleted meanwhile
			err = aSession(s.ID).Missing()
		default: // a fork may have had turns of a session that was deleted
			err = h.segments.Forget(ctx, s.Org, dropped)
		}
		return http.StatusOK, wireSession(s), err
	})
}

// Fork answers POST /api/sessions/{id}/fork.
func (h *sessions) Fork() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		body, err := surface.ReadOptionalFields(r, caller.Account)
		if err != nil {
			return 0, nil, err
		}
		var turns *int
		body.Number("turns", &turns)
		if err := body.Done(); err != nil {
			return 0, nil, err
		}
		from, err := h.changeable(r.Context(), caller, r.PathValue("id"))
		if err != nil {
			return 0, nil, err
		}
		a, err := h.agents.byID(r.Context(), caller, from.Agent)
		if err != nil {
			return 0, nil, err
		}
		s := agent.Session{
			Org: from.Org, ID: h.newID(agent.SessionPrefix), Agent: from.Agent, Principal: from.Principal,
			Pinned: from.Pinned, Snapshot: from.Snapshot, Title: from.Title, Metadata: from.Metadata, CreatedAt: h.now(),
		}
		ctx, cancel := surface.Detached(r)
		defer cancel()
		for again := true; again; {
			if again, err = h.fork(ctx, s, a.Declared, from.ID, turns); err != nil && !again {
				return 0, nil, err
			}
		}
		s.UpdatedAt = s.CreatedAt
		return http.StatusCreated, wireSession(s), nil
	})
}

// fork stores a session with the first turns of another one; nil = with all. again says that it has changed meanwhile.
func (h *sessions) fork(ctx context.Context, s agent.Session, declared bool, from string, turns *int) (again bool, err error) {
	n := conversation.AllTurns
	if turns != nil {
		n = *turns
	}
	f, of, err := conversation.ForkOf(ctx, h.conversations, s.Org, from, n, func(string) bool { return true })
	switch {
	case err != nil:
		return false, err
	case f == nil: // it was deleted meanwhile
		return false, aSession(from).Missing()
	case turns != nil && (n < 1 || n > of):
		return false, surface.InvalidValue("turns",
			"turns: the session has %d runs in its history; use 1 to %d, or leave turns out for all", of, of)
	}
	f.ID = s.ID
	again, err = conversation.Forked(ctx, f, h.store.ForkSession(ctx, s, declared, *f))
	return again, surface.Refused(err, anAgent(s.Agent))
}

// DeleteSession answers DELETE /api/sessions/{id}, and that below an agent.
func (h *sessions) DeleteSession(member string) surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		id := r.PathValue(member)
		s, err := h.changeable(r.Context(), caller, id)
		if err == nil && member != "id" && s.Agent != r.PathValue("id") {
			err = aSession(id).Missing()
		}
		if err == nil {
			err = h.dropSession(r.Context(), caller, s)
		}
		err = surface.Refused(err, aSession(id))
		return http.StatusOK, surface.Deleted(id, ""), err
	})
}

// DeleteAgent answers DELETE /api/agents/{id}: the sessions of the agent are deleted with it.
func (h *sessions) DeleteAgent() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		a, err := h.agents.find(r, caller)
		switch {
		case err != nil:
			return 0, nil, err
		case a.Declared:
			return 0, nil, surface.Declared("agent", a.Name)
		}
		if err := h.dropSessions(r.Context(), caller, a.ID); err != nil {
			return 0, nil, err
		}
		if err := h.agents.store.RemoveAgent(r.Context(), a.Org, a.ID, caller.Author(h.now())); err != nil {
			return 0, nil, surface.Refused(err, anAgent(a.ID))
		}
		err = h.inbox.EndOrphaned(context.WithoutCancel(r.Context())) // of sessions and turns that began meanwhile
		return http.StatusOK, surface.Deleted(a.ID, ""), err
	})
}

// dropSession deletes a session, ends the run of it that has not ended, and deletes its runs. The session is deleted first,
// so that no fork begins with half of it. What a fork has, too, stays until that is deleted.
func (h *sessions) dropSession(ctx context.Context, caller caller.Caller, s agent.Session) error {
	parts, err := conversation.Parts(ctx, h.conversations, s.Org, s.ID)
	if err != nil && !errors.As(err, new(*journal.Unreadable)) {
		return err
	}
	for offset := 0; ; offset += surface.MaxLimit {
		turns, _, err := h.store.SessionTurns(ctx, s.Org, s.ID, surface.MaxLimit, offset)
		if err != nil {
			return err
		}
		for _, t := range turns { // also those that were taken out
			parts = append(parts, conversation.SegmentID(t.RunID, ""))
		}
		if len(turns) < surface.MaxLimit {
			break
		}
	}
	unfinished, err := h.store.RemoveSession(ctx, s.Org, s.ID, false)
	for _, runID := range unfinished { // a turn that has begun meanwhile
		if _, more := h.segments.Delete(ctx, caller, s.ID, conversation.SegmentID(runID, "")); more != nil {
			err = more
		}
	}
	if err == nil {
		h.orgs.SessionDeleted(s.Org, s.ID)
		err = h.segments.Forget(ctx, s.Org, parts)
	}
	return err
}

// dropSessions deletes the sessions of an agent that is to be deleted.
func (h *sessions) dropSessions(ctx context.Context, caller caller.Caller, agentID string) error {
	for {
		found, _, err := h.store.Sessions(ctx, caller.Org.ID, agent.SessionQuery{Agent: agentID, Limit: surface.MaxLimit})
		if err != nil || len(found) == 0 {
			return err
		}
		for _, s := range found {
			if err := h.dropSession(ctx, caller, s); err != nil && !errors.Is(err, org.ErrNotFound) {
				return err
			}
		}
	}
}

// message is a message of a session on the wire.
type message struct {
	Role      string  `json:"role"`
	Content   string  `json:"content"`
	CreatedAt *string `json:"created_at"` // null = not known

	// RunID is the run that has added it. Its events name the calls as ToolCalls and ToolCallID do.
	RunID      string        `json:"run_id,omitempty"`
	ToolCalls  []messageCall `json:"tool_calls,omitempty"`
	ToolCallID string        `json:"tool_call_id,omitempty"`
}

type messageCall struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// Messages answers GET /api/sessions/{id}/messages, the oldest first: what the turns that have ended have
// added, and those that wait, so far.
func (h *sessions) Messages() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		page, err := surface.ReadOffsetPage(r)
		if err != nil {
			return 0, nil, err
		}
		s, err := h.findSession(r.Context(), caller, r.PathValue("id"))
		if err != nil {
			return 0, nil, err
		}
		memory := caller.Account.Share()
		defer memory.Close()
		ref := conversation.Ref{ID: s.ID, Named: true, Member: "session_id", Code: "not_found"}
		asked := conversation.Request{Org: s.Org, Principal: s.Principal, Continues: ref}
		entries, err := conversation.Entries(r.Context(), h.conversations, h.archive, asked, memory)
		if err != nil {
			return 0, nil, err
		}
		all := messagesOf(entries, s.CreatedAt)
		return http.StatusOK, page.Of("messages", surface.Cut(all, page), len(all)), nil
	})
}

// messagesOf returns the entries on the wire. The calls of one answer of the model are one message, after its text. What a
// client has added is as old as the session.
func messagesOf(entries []conversation.Entry, created time.Time) []message {
	all := []message{}
	var last conversation.Entry // of the last message
	for _, e := range entries {
		text, call := item.PlainText(e.Parts), cmp.Or(e.Call, e.CallID)
		m := message{Role: string(e.Role), Content: text, RunID: e.RunID, CreatedAt: millis.Time(created)}
		if e.RunID != "" {
			m.CreatedAt = millis.Unix(e.At)
		}
		switch e.Kind {
		case item.Message:
		case item.ToolCall:
			m.Role, m.ToolCalls = string(item.Assistant), []messageCall{{call, e.Name, e.Arguments}}
		case item.ToolResult:
			m.Role, m.ToolCallID = "tool", call
		default: // no message shows it
			continue
		}
		if e.Kind == item.ToolCall && last.Kind == item.ToolCall && e.SameAnswer(last) {
			with := &all[len(all)-1]
			with.ToolCalls = append(with.ToolCalls, m.ToolCalls...)
		} else {
			all, last = append(all, m), e
		}
	}
	return all
}
