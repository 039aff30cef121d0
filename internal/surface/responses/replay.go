package responses

import (
	"errors"
	"net/http"
	"net/url"
	"strconv"

	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/eventlog"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/surface"
)

// replay is how a client wants a stored response.
type replay struct {
	stream bool
	included
	after int64 // the number of the last event that it has; -1 = none
	plain *bool // whether deltas have no obfuscation; nil = as the first stream
}

// newReplay reads the query of GET /v1/responses/{id}.
func newReplay(query url.Values) (replay, error) {
	out := replay{after: -1}
	var err error
	if out.stream, err = flag(query, "stream"); err != nil {
		return out, err
	}
	if query.Has("include_obfuscation") {
		obfuscated, err := flag(query, "include_obfuscation")
		if err != nil {
			return out, err
		}
		out.plain = new(!obfuscated)
	}
	if out.included, err = newIncluded(query); err != nil || !query.Has("starting_after") {
		return out, err
	}
	const name = "starting_after"
	if !out.stream {
		return out, fault.New(fault.Invalid, "invalid_value", "starting_after is for a stream; add stream=true, or leave it out").In(name)
	}
	if out.after, err = strconv.ParseInt(query.Get(name), 10, 64); err != nil || out.after < 0 {
		return out, fault.New(fault.Invalid, "invalid_value", "starting_after must be the sequence_number of an event, from 0").In(name)
	}
	return out, nil
}

// flag reads a parameter that is true or false.
func flag(query url.Values, name string) (bool, error) {
	switch query.Get(name) {
	case "true":
		return true, nil
	case "", "false":
		return false, nil
	}
	return false, fault.New(fault.Invalid, "invalid_value", "%s must be true or false", name).In(name)
}

// Streamed answers GET /v1/responses/{id}: with a stream if the request asks for one, otherwise
// with object.
func (h *storedResponses) Streamed(object surface.Endpoint) surface.Endpoint {
	return func(w http.ResponseWriter, r *http.Request, caller caller.Caller) error {
		asked, err := newReplay(r.URL.Query())
		if err != nil {
			return err
		}
		if !asked.stream {
			return object(w, r, caller)
		}
		return h.replay(w, r, caller, asked)
	}
}

// replay streams a stored response again, or one whose run has not ended.
func (h *storedResponses) replay(w http.ResponseWriter, r *http.Request, caller caller.Caller, asked replay) error {
	id := r.PathValue("id")
	kept, s, err := h.find(r.Context(), caller, id)
	if err != nil {
		return surface.Failed(h.log, err)
	}
	if asked.after >= 0 {
		pieces, err := h.runs.HasPieces(r.Context(), caller.Org.ID, kept.RunID)
		if errors.Is(err, org.ErrNotFound) {
			return notStored(id)
		} else if err != nil {
			return surface.Failed(h.log, err)
		}
		if !pieces {
			return fault.New(fault.Invalid, "unsupported_value", "starting_after: the run of this response is not durable, so the pieces of its texts are not stored and its events have other numbers; "+
				"leave it out, or send requests with an Idempotency-Key or background: true").In("starting_after")
		}
	}
	if err := asked.noteStream(w, caller, s.Encrypted); err != nil {
		return err
	}
	s.include(asked.included)
	if asked.plain != nil {
		s.Response.plain = *asked.plain
	}
	tools := s.clientTools()
	tell := func(sink eventlog.Sink) error {
		return h.show(r.Context(), caller, kept.Conversation, s.Model, sink)
	}
	err = h.kit.Replay(w, r, caller, kept.FinalOnly, tell, func(out *surface.Stream) surface.Encoder {
		e := newEncoder(&out.Answer, out, s.Response, tools)
		e.after, e.Session = asked.after, s.session()
		return e
	})
	if errors.Is(err, org.ErrNotFound) { // the run was deleted: its time is over
		return notStored(id)
	}
	return surface.Failed(h.log, err)
}
