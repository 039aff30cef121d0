package responses

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/turnpike-gateway/turnpike/internal/eventlog"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/surface"
)

// stored is what the surface stores with a response: what it repeats of the request, and
// the input as the client sent it. Output and usage come from the run.
type stored struct {
	Response  echo              `json:"response"`
	Encrypted bool              `json:"encrypted,omitempty"`
	Plain     bool              `json:"plain,omitempty"`
	Input     []json.RawMessage `json:"input"`
	Model     string            `json:"model,omitempty"` // as the client named it

	tools *clientTools // those of the response and its input; nil = Input is still there
}

// find returns a stored response of the caller's org, without its items and its input.
func (h *Handler) find(ctx context.Context, caller run.Caller, id string) (kept *journal.Conversation, s *stored, err error) {
	err = h.reads.do(ctx, caller.Org.ID, func() (err error) {
		if kept, s, err = h.findEnded(ctx, caller, id); err == nil {
			s.dropInput(caller)
		}
		return err
	})
	return kept, s, err
}

// findEnded returns a stored response with its input. It is called within reads.
func (h *Handler) findEnded(ctx context.Context, caller run.Caller, id string) (*journal.Conversation, *stored, error) {
	kept, ended, err := h.findAny(ctx, caller, id)
	if err != nil {
		return nil, nil, err
	}
	if !ended {
		return nil, nil, inProgress(id, kept.RunID)
	}
	s, err := h.echoOf(caller, id, kept)
	return kept, s, err
}

// dropInput drops the input, which only lists of items have. What is left of the memory of the
// caller is that of the response.
func (s *stored) dropInput(caller run.Caller) {
	tools, n := s.clientTools(), 0
	for _, raw := range s.Input {
		n += len(raw)
	}
	s.tools, s.Input = &tools, nil
	caller.Account.Release(n)
}

// echoOf returns what the surface has stored of a response, or of items. It drops the items for
// the model, and the stored form. It is called within reads.
func (h *Handler) echoOf(caller run.Caller, id string, kept *journal.Conversation) (*stored, error) {
	if err := caller.Account.Acquire(len(kept.RequestJSON)); err != nil {
		return nil, err
	}
	s := &stored{Response: newEcho()}
	if err := json.Unmarshal(kept.RequestJSON, s); err != nil {
		return nil, fmt.Errorf("stored response %s: %w", id, err)
	}
	s.Response.encrypted, s.Response.plain = s.Encrypted, s.Plain
	kept.Items, kept.Full, kept.RequestJSON = nil, nil, nil
	return s, nil
}

// render makes the response object again from the events of its run. The error wraps
// org.ErrNotFound if the run was deleted.
func (h *Handler) render(ctx context.Context, caller run.Caller, x surface.Extensions, kept *journal.Conversation, s *stored) (*response, error) {
	tools := s.clientTools()
	tell := func(sink eventlog.Sink) error {
		return eventlog.ShowPart(ctx, h.o.Runs, kept, caller.Org.ID, caller.Account, s.Model, sink)
	}
	made, failure, err := h.errors.Again(caller, kept.FinalOnly, x, tell, func(a *surface.Answer) surface.Object {
		a.Session = s.session()
		return newEncoder(a, nil, s.Response, tools)
	})
	if err != nil {
		return nil, err
	}
	if failure != nil {
		return made.(*encoder).failed(failure), nil
	}
	return made.(*encoder).finished(), nil
}

// session returns the id of the conversation of the response; "" = none.
func (s *stored) session() string {
	if s.Response.Conversation == nil {
		return ""
	}
	return s.Response.Conversation.ID
}

func notStored(id string) error {
	return fault.New(fault.NotFound, "response_not_found", "no stored response has the id %.100q", id).In("response_id")
}

// inProgress is the error for a response that is stored when its run ends.
func inProgress(id, runID string) error {
	return fault.New(fault.Conflict, "response_in_progress", "the response %.100q is still being created; wait until it ends (GET with stream=true follows it), "+
		"or cancel its run: POST /v1/runs/%s/cancel", id, runID).In("response_id")
}

// Get answers GET /v1/responses/{id}.
func (h *Handler) Get(w http.ResponseWriter, r *http.Request, caller run.Caller) error {
	asked, err := newReplay(r.URL.Query())
	if err != nil {
		return err
	}
	x, err := h.kit.AskedExtensions(r.Header, caller)
	if err != nil {
		return err
	}
	id := r.PathValue("id")
	kept, s, err := h.find(r.Context(), caller, id)
	if err != nil {
		return surface.Failed(h.o.Log, err)
	}
	object, err := h.render(r.Context(), caller, x, kept, s)
	if errors.Is(err, org.ErrNotFound) { // the run was deleted: its time is over
		return notStored(id)
	} else if err != nil {
		return surface.Failed(h.o.Log, err)
	}
	if len(asked.included) > 0 {
		items, err := generic(object.Output)
		if err == nil {
			err = asked.note(w, caller, items)
		}
		if err != nil {
			return err
		}
	}
	return surface.WriteJSON(w, http.StatusOK, object)
}

// clientTools returns the tools of the client that the model knows under another name or in
// another form.
func (s *stored) clientTools() clientTools {
	if s.tools != nil {
		return *s.tools
	}
	d := newDecoder(&run.Request{})
	for i, raw := range s.Response.Tools {
		_, _ = d.decodeTool(path("tools", i), group{}, raw) // it was accepted once; other kinds are left out
	}
	for i, raw := range s.Input {
		if kindOf(raw) == "additional_tools" {
			_ = d.addTools(path("input", i), raw)
		}
	}
	return d.tools
}

// kindOf returns the type of an input item; "" if it has none.
func kindOf(raw json.RawMessage) string {
	var w struct {
		Type string `json:"type"`
	}
	_ = json.Unmarshal(raw, &w) // it was accepted once
	return w.Type
}

// deleted is the answer to a request that deletes a response.
type deleted struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Deleted bool   `json:"deleted"`
}

// Delete answers DELETE /v1/responses/{id}.
func (h *Handler) Delete(w http.ResponseWriter, r *http.Request, caller run.Caller) error {
	id := r.PathValue("id")
	for range 2 { // it may end while it is looked for
		was, err := h.o.Runs.DeleteResponse(r.Context(), caller.Org.ID, id)
		if err != nil {
			return surface.Failed(h.o.Log, err)
		}
		if was {
			return surface.WriteJSON(w, http.StatusOK, deleted{id, "response", true})
		}
		kept, ended, err := h.findAny(r.Context(), caller, id)
		if err != nil {
			return surface.Failed(h.o.Log, err)
		}
		if !ended {
			return inProgress(id, kept.RunID)
		}
	}
	return notStored(id)
}
