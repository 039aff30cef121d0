package runs

import (
	"net/http"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/eventlog"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/internal/sse"
	"github.com/turnpike-gateway/turnpike/internal/surface"
)

// Events answers GET /v1/runs/{id}/events: the events of the run, as they happen, until
// its Finished event. The header Last-Event-ID, which clients send when they connect
// again, has precedence over the parameter after, which is part of their URL. An error
// after the stream has begun is an event in the format of the route.
//
// If the run has ended and has no event after the position, the answer is 204, after
// which browsers do not connect again.
func (h *Handler) Events(format *surface.Errors) surface.Endpoint {
	return func(w http.ResponseWriter, r *http.Request, caller caller.Caller) error {
		after, err := position(r)
		if err != nil {
			return err
		}
		s, err := h.find(r.Context(), caller, r.PathValue("id"))
		if err != nil {
			return h.failed(err)
		}
		if r.Method == http.MethodHead { // which has no events to wait for
			w.Header().Set("Content-Type", "text/event-stream")
			w.WriteHeader(http.StatusOK)
			return nil
		}
		out := sse.NewWriter(w, sse.Options{Heartbeats: h.o.Heartbeats})
		defer out.Close()
		f := eventlog.Follow{Org: caller.Org.ID, RunID: s.RunID, After: after, Account: caller.Account}
		err = h.o.Runner.Follow(r.Context(), f, &stream{out, caller.Account, caller.Principal.Role.MaySeeAddresses()})
		out.StopHeartbeats() // no other goroutine begins the stream now
		switch {
		case err == nil && !out.Started():
			w.WriteHeader(http.StatusNoContent)
		case err == nil, surface.ClientLeft(r.Context()): // it has ended, or the client has left
		case !out.Started():
			return h.failed(err)
		default:
			_ = out.Named("error", format.Body(h.failed(err))) // after an error the client has left
		}
		return nil
	}
}

// position returns the position after which the client wants events.
func position(r *http.Request) (event.Position, error) {
	values := r.URL.Query()
	if err := surface.CheckQuery(values, "after"); err != nil {
		return event.Position{}, err
	}
	param, text := "after", values.Get("after")
	if len(r.Header.Values("Last-Event-Id")) > 1 {
		return event.Position{}, surface.InvalidValue("Last-Event-ID", "Last-Event-ID is given more than once")
	}
	if last := r.Header.Get("Last-Event-Id"); last != "" {
		param, text = "Last-Event-ID", last
	} else if !values.Has("after") {
		return event.Position{}, nil
	}
	at, err := event.ParsePosition(text)
	if err != nil {
		return at, surface.InvalidValue(param, "%v", err)
	}
	return at, nil
}

// stream is the sink of an event stream.
type stream struct {
	out        *sse.Writer
	account    *memlimit.Account // charged with the event that is sent
	mayAddress bool
}

// Emit implements eventlog.Sink. It returns when the client has taken the event.
func (s *stream) Emit(at event.Position, e event.Event) error {
	data, err := event.Encode(visible(e, s.mayAddress))
	if err != nil {
		return err
	}
	held := 2 * len(data) // the data, and the frame
	if err := s.account.Acquire(held); err != nil {
		return err
	}
	defer s.account.Release(held)
	return s.out.Identified(at.String(), e.Type(), data)
}
