package responses

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/clock"
	"github.com/turnpike-gateway/turnpike/internal/conversation"
	"github.com/turnpike-gateway/turnpike/internal/eventlog"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/surface"
)

// storedResponses answers requests for stored responses.
type storedResponses struct {
	lookup
	runs     surface.StoredRuns
	segments surface.Segments
	kit      *surface.Handler // POST /v1/responses
	errors   *surface.Errors
	reads    reads
}

// stored is what the surface stores with a response: what it repeats of the request. The input is
// stored beside it, and output and usage come from the run.
type stored struct {
	Response  echo `json:"response"`
	Encrypted bool `json:"encrypted,omitempty"`
	Plain     bool `json:"plain,omitempty"`

	Background bool `json:"background,omitempty"`

	Model string `json:"model,omitempty"` // as the client named it

	Container *container `json:"container,omitempty"`    // nil = the gateway itself runs no code for it
	Outputs   bool       `json:"code_outputs,omitempty"` // calls that run code have their outputs

	// Input is the input in the first stored form: see journal.Conversation.
	Input []json.RawMessage `json:"input,omitempty"`

	input []journal.Entry
	tools *clientTools // those of the response and its input; nil = input is still there
}

// found is a response of an org: one that is stored, or one in progress, which its run stores when it
// ends.
type found struct {
	*journal.Conversation
	inProgress bool
	queued     bool // its run has not begun
}

// find returns a response of the caller's org, without its items and its input.
func (h *storedResponses) find(ctx context.Context, caller caller.Caller, id string) (kept found, s *stored, err error) {
	err = h.reads.do(ctx, caller.Org.ID, func() (err error) {
		if kept, s, err = h.findWhole(ctx, caller, id); err == nil {
			s.dropInput(caller)
		}
		return err
	})
	return kept, s, err
}

// findWhole returns a response with its input. It is called within reads.
func (h *storedResponses) findWhole(ctx context.Context, caller caller.Caller, id string) (found, *stored, error) {
	kept, err := h.findAny(ctx, caller, id)
	if err != nil {
		return kept, nil, err
	}
	s, err := h.echoOf(caller, id, kept.Conversation)
	return kept, s, err
}

// findAny returns a response of the caller's org.
func (h *storedResponses) findAny(ctx context.Context, caller caller.Caller, id string) (found, error) {
	for range 2 { // a response is stored before its run ends: it may end between the two
		kept, err := conversation.FindSegment(ctx, h.store, caller.Org.ID, id)
		if err != nil || kept != nil {
			return found{Conversation: kept}, err
		}
		u, err := h.segments.Unfinished(ctx, caller, id)
		if err != nil {
			return found{}, err
		}
		if u != nil {
			c := &journal.Conversation{RunID: u.RunID, Part: u.Part + 1, Input: u.Keep.Input, RequestJSON: u.Keep.RequestJSON, FinalOnly: u.Keep.FinalOnly}
			return found{c, true, u.Queued}, nil
		}
	}
	return found{}, notStored(id)
}

// include adds to the items of the response what the names ask for and is stored.
func (s *stored) include(names included) {
	s.Response.outputs = s.Response.outputs || slices.Contains(names, includeCodeOutputs)
}

// dropInput drops the input, which only lists of items have. What is left of the memory of the
// caller is that of the response.
func (s *stored) dropInput(caller caller.Caller) {
	tools := s.clientTools()
	caller.Account.Release(journal.InputBytes(s.input))
	s.tools, s.input = &tools, nil
}

// echoOf returns what the surface has stored of a response, or of items. It drops the items for
// the model, and the stored form. It is called within reads.
func (h *storedResponses) echoOf(caller caller.Caller, id string, kept *journal.Conversation) (*stored, error) {
	if err := caller.Account.Acquire(len(kept.RequestJSON) + journal.InputBytes(kept.Input)); err != nil {
		return nil, err
	}
	s := &stored{Response: newEcho(), input: kept.Input}
	if len(kept.RequestJSON) > 0 { // items that were added have none
		if err := json.Unmarshal(kept.RequestJSON, s); err != nil {
			return nil, fmt.Errorf("stored response %s: %w", id, err)
		}
	}
	for _, raw := range s.Input {
		s.input = append(s.input, journal.Entry{JSON: raw})
	}
	s.Input, kept.Input = nil, nil
	s.Response.encrypted, s.Response.plain, s.Response.background = s.Encrypted, s.Plain, s.Background
	s.Response.outputs, s.Response.container = s.Outputs, s.Container.id()
	kept.Items, kept.Full, kept.RequestJSON = nil, nil, nil
	return s, nil
}

// render makes the response object again from the events of its run: from those that there are, if the
// response is in progress. The error wraps org.ErrNotFound if the run was deleted.
func (h *storedResponses) render(
	ctx context.Context, caller caller.Caller, x surface.Extensions, kept found, s *stored,
) (*response, error) {
	tools := s.clientTools()
	tell := func(sink eventlog.Sink) error {
		if kept.inProgress {
			return h.runs.Follow(ctx, eventlog.Follow{
				Org: caller.Org.ID, RunID: kept.RunID, Account: caller.Account, Final: true, ToWaiting: true, Part: kept.Part, Now: true,
			}, sink)
		}
		return h.show(ctx, caller, kept.Conversation, s.Model, sink)
	}
	made, failure, err := h.errors.Again(caller, kept.FinalOnly, x, tell, func(a *surface.Answer) surface.Object {
		a.Session = s.session()
		return newEncoder(a, nil, s.Response, tools)
	})
	if err != nil {
		return nil, err
	}
	if e := made.(*encoder); !e.Over() {
		return e.soFar(kept.queued), nil
	}
	if failure != nil {
		return made.(*encoder).failed(failure), nil
	}
	return made.(*encoder).finished(), nil
}

// show reports the events of a stored response: those of a part of its run.
func (h *storedResponses) show(ctx context.Context, caller caller.Caller, c *journal.Conversation, model string, sink eventlog.Sink) error {
	if c.Waiting != nil { // it only says which approvals are still to be decided
		begin := event.Started{RunID: c.RunID, Model: model, At: c.Waiting.At, Part: eventlog.PartSuffix(c.Part-1, c.Step)}
		return eventlog.ShowStep(sink, begin, *c.Waiting)
	}
	return h.runs.Follow(ctx, eventlog.Follow{Org: caller.Org.ID, RunID: c.RunID, Account: caller.Account, Final: true, ToWaiting: true, Part: c.Part}, sink)
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

// Get answers GET /v1/responses/{id}.
func (h *storedResponses) Get(w http.ResponseWriter, r *http.Request, caller caller.Caller) error {
	asked, err := newReplay(r.URL.Query())
	if err != nil {
		return err
	}
	return h.write(w, r, caller, r.PathValue("id"), asked)
}

// write answers with a response.
func (h *storedResponses) write(w http.ResponseWriter, r *http.Request, caller caller.Caller, id string, asked replay) error {
	x, err := h.kit.AskedExtensions(r.Header, caller)
	if err != nil {
		return err
	}
	kept, s, err := h.find(r.Context(), caller, id)
	if err != nil {
		return surface.Failed(h.log, err)
	}
	s.include(asked.included)
	object, err := h.render(r.Context(), caller, x, kept, s)
	if errors.Is(err, org.ErrNotFound) { // the run was deleted: its time is over
		return notStored(id)
	} else if err != nil {
		return surface.Failed(h.log, err)
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
	return surface.WriteStored(w, caller, http.StatusOK, object)
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
	for i, e := range s.input {
		if kindOf(e.JSON) == "additional_tools" {
			_ = d.addTools(path("input", i), e.JSON)
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

// Delete answers DELETE /v1/responses/{id}.
func (h *storedResponses) Delete(w http.ResponseWriter, r *http.Request, caller caller.Caller) error {
	id := r.PathValue("id")
	was, err := h.segments.Delete(r.Context(), caller, "", id)
	if err != nil {
		return surface.Failed(h.log, err)
	}
	if !was {
		return notStored(id)
	}
	return surface.WriteJSON(w, http.StatusOK, surface.Deleted(id, "response"))
}

// cancelWait is how long a cancellation waits for the end of the run: for what is under way to be cut off
// and accounted for.
const cancelWait = 5 * time.Second

// Cancel answers POST /v1/responses/{id}/cancel. It is for responses in the background. A response that has
// ended is returned as it is.
func (h *storedResponses) Cancel(w http.ResponseWriter, r *http.Request, sender caller.Caller) error {
	if err := surface.CheckQuery(r.URL.Query()); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, r.Body); err != nil { // it has nothing to say
		return surface.Failed(h.log, err)
	}
	id := r.PathValue("id")
	var kept found
	var s *stored
	look := func(_ http.ResponseWriter, r *http.Request, caller caller.Caller) (err error) {
		kept, s, err = h.find(r.Context(), caller, id)
		return err
	}
	if err := surface.Admitted(look)(w, r, sender); err != nil {
		return surface.Failed(h.log, err)
	}
	if !s.Background {
		return fault.New(fault.Invalid, "not_in_background", "the response %.100q was not created with background: true, and only such responses can be cancelled here; "+
			"close the connection of its request, or cancel its run: POST /v1/runs/%s/cancel", id, kept.RunID).In("response_id")
	}
	by := sender.Author(clock.Wall())
	ctx, cancel := context.WithTimeout(r.Context(), cancelWait) // nothing of the store is used while it waits
	defer cancel()
	if err := h.segments.Cancel(ctx, sender.Org.ID, kept.Conversation, kept.inProgress, by); err != nil {
		return surface.Failed(h.log, err)
	}
	return surface.Admitted(func(w http.ResponseWriter, r *http.Request, caller caller.Caller) error {
		return h.write(w, r, caller, id, replay{})
	})(w, r, sender)
}
