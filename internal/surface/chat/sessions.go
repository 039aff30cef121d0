package chat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"

	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/conversation"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/file"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/settings"
	"github.com/turnpike-gateway/turnpike/internal/surface"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// Sessions answers the requests at /v1/sessions. A key has its own sessions, and no others.
type Sessions struct {
	stored *conversation.Sessions
	log    *slog.Logger
}

// NewSessions returns Sessions.
func NewSessions(stored *conversation.Sessions, log *slog.Logger) *Sessions {
	return &Sessions{stored, log}
}

// Routes returns the routes of the API. The endpoints of a nil Sessions must not be called.
func (h *Sessions) Routes() []surface.Route {
	g := surface.Group{Errors: Errors(), Roles: surface.Runners, MaxBody: surface.MaxBody, ModelAPI: true}
	return []surface.Route{
		g.Route("GET /v1/sessions/{id}", surface.Admitted(h.Get)),
		g.Route("PUT /v1/sessions/{id}", surface.Admitted(h.Put)),
		g.Route("DELETE /v1/sessions/{id}", surface.Admitted(h.Delete)),
		g.Route("POST /v1/sessions/{id}/fork", surface.Admitted(h.Fork)),
		g.Route("POST /v1/sessions/{id}/rewind", surface.Admitted(h.Rewind)),
	}
}

// sessionObject is what the API says of a session.
type sessionObject struct {
	ID     string `json:"id"`
	Object string `json:"object"` // session
	Turns  int    `json:"turns"`
}

// exported is a session with everything that another gateway needs.
type exported struct {
	sessionObject
	CreatedAt int64             `json:"created_at"` // in seconds since 1970, as the others
	UpdatedAt int64             `json:"updated_at"`
	ExpiresAt *int64            `json:"expires_at"` // null = never
	Messages  []json.RawMessage `json:"messages"`
	CallIDs   map[string]string `json:"call_ids"` // the ids in Messages, by those that the client got
}

func object(id string, items []item.Item) sessionObject {
	return sessionObject{id, "session", len(conversation.Turns(items))}
}

// name returns the name of the session of a request. The error is for one that no session can have.
func name(r *http.Request, caller caller.Caller) (conversation.SessionName, error) {
	id := r.PathValue("id")
	return conversation.SessionName{Org: caller.Org.ID, Principal: caller.Principal.ID, ID: id}, conversation.CheckSessionID("id", id)
}

// find returns a session of the caller.
func (h *Sessions) find(ctx context.Context, n conversation.SessionName) (*journal.Conversation, error) {
	c, err := h.stored.Find(ctx, n)
	if err != nil {
		return nil, surface.Failed(h.log, err)
	}
	if c == nil {
		return nil, notStored(n)
	}
	return c, nil
}

func notStored(n conversation.SessionName) error {
	return fault.New(fault.NotFound, "session_not_found", "no session of this API key has the id %q; it was deleted, or its time is over", n.ID).In("id")
}

// Get answers GET /v1/sessions/{id}.
func (h *Sessions) Get(w http.ResponseWriter, r *http.Request, caller caller.Caller) error {
	n, err := name(r, caller)
	if err != nil {
		return err
	}
	c, err := h.find(r.Context(), n)
	if err != nil {
		return err
	}
	if err := h.stored.Read(r.Context(), n, c); err != nil {
		return surface.Failed(h.log, err)
	}
	messages, err := messagesOf(c.Items)
	if err != nil {
		return err
	}
	info := conversation.Info(c)
	out := exported{sessionObject: object(n.ID, c.Items), CreatedAt: info.CreatedAt / 1000, UpdatedAt: info.UpdatedAt / 1000, Messages: messages, CallIDs: map[string]string{}}
	maps.Copy(out.CallIDs, c.CallIDs)
	if at := info.ExpiresAt(); at != 0 {
		out.ExpiresAt = new(at / 1000)
	}
	return surface.WriteStored(w, caller, http.StatusOK, out)
}

// Put answers PUT /v1/sessions/{id}.
func (h *Sessions) Put(w http.ResponseWriter, r *http.Request, caller caller.Caller) error {
	n, err := name(r, caller)
	if err != nil {
		return err
	}
	body, err := surface.ReadObject(r, caller.Account)
	if err != nil {
		return err
	}
	c, err := imported(body)
	if err != nil {
		return err
	}
	ctx, cancel := surface.Detached(r)
	defer cancel()
	if err := h.stored.Put(ctx, n, c, settings.SessionTTL(caller.Org.Runtime)); err != nil {
		return surface.Failed(h.log, err)
	}
	return surface.WriteJSON(w, http.StatusOK, object(n.ID, c.Items))
}

// Delete answers DELETE /v1/sessions/{id}. There need not be such a session.
func (h *Sessions) Delete(w http.ResponseWriter, r *http.Request, caller caller.Caller) error {
	n, err := name(r, caller)
	if err != nil {
		return err
	}
	ctx, cancel := surface.Detached(r)
	defer cancel()
	if _, err := h.stored.Delete(ctx, n); err != nil {
		return surface.Failed(h.log, err)
	}
	return surface.WriteJSON(w, http.StatusOK, surface.Deleted(n.ID, "session"))
}

// Fork answers POST /v1/sessions/{id}/fork.
func (h *Sessions) Fork(w http.ResponseWriter, r *http.Request, caller caller.Caller) error {
	n, err := name(r, caller)
	if err != nil {
		return err
	}
	body, err := surface.ReadObject(r, caller.Account)
	if err == nil {
		err = surface.OnlyMembers(body, sessionMember, "turns")
	}
	if err != nil {
		return err
	}
	if body[sessionMember] == nil {
		return fault.New(fault.Invalid, "missing_required_parameter", "session_id is required: the id of the new session").In(sessionMember)
	}
	var other string
	if err := decodeInto(surface.Member{Name: sessionMember, Value: body[sessionMember]}, &other); err != nil {
		return err
	}
	if err := conversation.CheckSessionID(sessionMember, other); err != nil {
		return err
	}
	turns := conversation.AllTurns
	if v := body["turns"]; v != nil && string(v) != "null" {
		if err := decodeInto(surface.Member{Name: "turns", Value: v}, &turns); err != nil {
			return err
		}
		turns = max(turns, 0)
	}
	ctx, cancel := surface.Detached(r)
	defer cancel()
	of, err := h.stored.Fork(ctx, n, other, turns, settings.SessionTTL(caller.Org.Runtime))
	switch {
	case errors.Is(err, conversation.ErrNoSession):
		return notStored(n)
	case errors.Is(err, org.ErrExists):
		return fault.New(fault.Conflict, "session_exists", "session_id: a session with the id %q exists; use another id, or delete it first", other).In(sessionMember)
	case err != nil:
		return surface.Failed(h.log, err)
	case turns == conversation.AllTurns:
		turns = of
	case turns == 0 || turns > of:
		return fault.New(fault.Invalid, "invalid_value", "turns: the session has %d turns; use 1 to %d, or leave turns out to copy all", of, of).In("turns")
	}
	return surface.WriteJSON(w, http.StatusOK, sessionObject{other, "session", turns})
}

// Rewind answers POST /v1/sessions/{id}/rewind.
func (h *Sessions) Rewind(w http.ResponseWriter, r *http.Request, caller caller.Caller) error {
	n, err := name(r, caller)
	if err != nil {
		return err
	}
	run, err := surface.ReadRewind(r, caller.Account)
	if err != nil {
		return err
	}
	ctx, cancel := surface.Detached(r)
	defer cancel()
	c, err := h.stored.Rewind(ctx, n, run)
	if err == nil && c == nil {
		return notStored(n)
	}
	if err == nil {
		err = h.stored.Read(ctx, n, c)
	}
	if err != nil {
		return surface.Failed(h.log, err)
	}
	return surface.WriteJSON(w, http.StatusOK, object(n.ID, c.Items))
}

// imported reads a session in the form of exported. What the gateway says of it by itself is not read.
func imported(body map[string]json.RawMessage) (c journal.Conversation, err error) {
	if err := surface.OnlyMembers(body, "messages", "call_ids", "id", "object", "turns", "created_at", "updated_at", "expires_at"); err != nil {
		return c, err
	}
	if err := checkIDs([]surface.Member{{Name: "messages", Value: body["messages"]}}); err != nil {
		return c, err
	}
	var a asked
	if c.Items, err = a.decodeMessages(body["messages"]); err != nil {
		return c, err
	}
	if a.native != "" {
		return c, fault.New(fault.Invalid, "unsupported_value", "%s has a form that cannot be stored in a session", a.native).In(a.native)
	}
	if err := conversation.CheckLength("messages", c.Items); err != nil {
		return c, err
	}
	if err := checkComplete(c.Items); err != nil {
		return c, err
	}
	c.CallIDs = map[string]string{}
	if v := body["call_ids"]; v != nil && string(v) != "null" {
		err = decodeInto(surface.Member{Name: "call_ids", Value: v}, &c.CallIDs)
	}
	return c, err
}

// checkComplete refuses items of which a provider would not take the next message: calls without results in the
// middle, and files of this gateway, which may not be there any more.
func checkComplete(items []item.Item) error {
	open := map[string]int{}
	for i, it := range items {
		switch it.Kind {
		case item.ToolCall:
			open[it.CallID]++
		case item.ToolResult:
			if open[it.CallID]--; open[it.CallID] == 0 {
				delete(open, it.CallID)
			}
		case item.Message, item.Reasoning, item.Other:
		}
		for _, p := range it.Parts {
			if file.IsID(p.FileID) {
				return fault.New(fault.Invalid, "unsupported_value", "messages: the session names the file %q; put its content in place of the id", p.FileID).In("messages")
			}
		}
		if next := i + 1; next < len(items) && items[next].Kind == item.Message && (items[next].Turn == 0 || items[next].Turn != it.Turn) && len(open) > 0 {
			id := slices.Sorted(maps.Keys(open))[0]
			return fault.New(fault.Invalid, "invalid_value", "messages: no message with the role tool answers the call with the id %.100q; add its result, or leave out the call", id).In("messages")
		}
	}
	return nil
}

// messagesOf returns items as messages of the API.
func messagesOf(items []item.Item) ([]json.RawMessage, error) {
	out := []json.RawMessage{}
	for turn := range item.Turns(items) {
		first := turn[0]
		var m any
		switch {
		case first.Turn == 0 && first.Native.Dialect == model.DialectChat && first.Native.Provider == "" && first.Native.JSON != nil && first.Kind == item.Message:
			out = append(out, first.Native.JSON)
			continue
		case first.Kind == item.ToolResult:
			m = storedMessage{Role: roleTool, ToolCallID: first.CallID, Content: contentOf(first.Parts)}
		case first.Turn == 0 && first.Kind == item.Message:
			m = storedMessage{Role: first.Role, Name: first.Name, Content: contentOf(first.Parts)}
		default:
			answer, ok := answerOf(turn)
			if !ok {
				continue
			}
			m = answer
		}
		text, err := surface.Marshal(m)
		if err != nil {
			return nil, fmt.Errorf("session: %w", err)
		}
		out = append(out, text)
	}
	return out, nil
}

// storedMessage is a message of a session.
type storedMessage struct {
	Role       item.Role  `json:"role"`
	Name       string     `json:"name,omitempty"`
	Content    any        `json:"content"` // text, parts or null
	Refusal    string     `json:"refusal,omitempty"`
	ToolCallID string     `json:"tool_call_id,omitempty"`
	ToolCalls  []toolCall `json:"tool_calls,omitempty"`
}

// answerOf returns the message of a model's answer; false = it says and asks nothing.
func answerOf(turn []item.Item) (m storedMessage, ok bool) {
	m = storedMessage{Role: item.Assistant}
	var parts []item.Part
	for _, it := range turn {
		switch it.Kind {
		case item.Message:
			ok = true
			for _, p := range it.Parts {
				if p.Kind == item.Refusal {
					m.Refusal += p.Text
					continue
				}
				parts = append(parts, p)
			}
		case item.ToolCall:
			ok = true
			m.ToolCalls = append(m.ToolCalls, toolCall{ID: it.CallID, Type: "function", Function: function{it.Name, it.Arguments}})
		case item.Reasoning, item.ToolResult, item.Other:
		}
	}
	if len(parts) > 0 || m.Refusal == "" && len(m.ToolCalls) == 0 {
		text := ""
		for _, p := range parts {
			text += p.Describe()
		}
		m.Content = text
	}
	return m, ok
}

// contentOf returns parts as the content of a message: text, or a list if there are images.
func contentOf(parts []item.Part) any {
	if !slices.ContainsFunc(parts, func(p item.Part) bool { return imageOf(p) != "" }) {
		return item.PlainText(parts)
	}
	list := make([]map[string]any, 0, len(parts))
	for _, p := range parts {
		if url := imageOf(p); url != "" {
			list = append(list, map[string]any{"type": "image_url", "image_url": map[string]string{"url": url}})
			continue
		}
		list = append(list, map[string]any{"type": "text", "text": p.Describe()})
	}
	return list
}

// imageOf returns the URL of an image; "" = the part is none.
func imageOf(p item.Part) string {
	switch {
	case p.Kind != item.Image:
		return ""
	case p.URL == "" && p.Data != "":
		return "data:" + p.MIMEType + ";base64," + p.Data
	}
	return p.URL
}
