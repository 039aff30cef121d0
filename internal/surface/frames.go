package surface

import (
	"net/http"

	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/internal/sse"
)

// Frames is a stream of server-sent events that a client can continue after the last one that it has. Close it.
type Frames struct {
	out     *sse.Writer
	account *memlimit.Account // charged with the event that is sent
}

// Frames returns the stream of an answer, which begins with the first event or heartbeat.
func (h *Handler) Frames(w http.ResponseWriter, caller caller.Caller) *Frames {
	return &Frames{sse.NewWriter(w, sse.Options{Heartbeats: h.o.Heartbeats}), caller.Account}
}

// Send sends an event with an id, which may be "", and v as JSON. It returns when the client has taken it.
func (f *Frames) Send(id string, v any) error {
	data, err := Marshal(v)
	if err != nil {
		return err
	}
	if err := f.account.Acquire(2 * len(data)); err != nil {
		return err
	}
	defer f.account.Release(2 * len(data))
	return f.out.Identified(id, "", data)
}

// Started reports whether the stream has begun: only events can follow.
func (f *Frames) Started() bool { return f.out.Started() }

// Stop stops the heartbeats: only Send can begin the stream afterwards.
func (f *Frames) Stop() { f.out.StopHeartbeats() }

// Close ends the stream.
func (f *Frames) Close() { f.out.Close() }
