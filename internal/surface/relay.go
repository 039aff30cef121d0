package surface

import (
	"maps"
	"net/http"
	"strconv"
	"strings"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/header"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/internal/relay"
	"github.com/turnpike-gateway/turnpike/internal/run"
)

// relay passes the body on as it is and the answer back as it is.
func (h *Handler) relay(w http.ResponseWriter, r *http.Request, req *run.Request, body []byte, members []Member) error {
	body, err := routed(req, body, members)
	if err != nil {
		return err
	}
	req.Relay.Raw = &relay.Request{
		Dialect: h.s.Dialect, Path: h.s.RelayPath, Header: forwarded(r.Header), Body: body, Release: func() { memlimit.Return(body) },
	}
	return h.runRelay(w, r, req)
}

// runRelay performs a relay and passes its answer on.
func (h *Handler) runRelay(w http.ResponseWriter, r *http.Request, req *run.Request) error {
	sink := &relaySink{w: w, control: http.NewResponseController(w)}
	if err := h.o.Runner.Run(r.Context(), req, sink); err != nil {
		return err
	}
	if sink.end.Reason == event.Complete {
		return nil
	}
	if !sink.begun {
		h.s.Errors.writeEnd(w, sink.end, false)
		return nil
	}
	panic(http.ErrAbortHandler) // the answer broke off: the client must see that it did
}

// relaySink writes an answer's bytes as they come.
type relaySink struct {
	w       http.ResponseWriter
	control *http.ResponseController
	begun   bool
	flush   bool // each piece: the length is unknown, so somebody may be waiting for it
	end     event.Finished
}

// Emit implements eventlog.Sink.
func (s *relaySink) Emit(_ event.Position, e event.Event) error {
	switch e := e.(type) {
	case event.RelayHead:
		s.head(e)
	case event.RelayBody:
		if _, err := s.w.Write(e.Data); err != nil {
			return err
		}
		if s.flush {
			return s.control.Flush()
		}
	case event.Finished:
		s.end = e
	case event.ApprovalDecided, event.CallDelta, event.Citation, event.ItemDone, event.Compacted, event.HookRan, event.LimitsRaised, event.ModelFallback, event.NativeItem,
		event.NativeProgress, event.Paused, event.ReasoningDelta, event.RefusalDelta, event.RoundDone, event.RoundStarted,
		event.Started, event.TextDelta, event.ToolDone, event.ToolStarted, event.ToolsListed, event.Waiting: // not part of a relay
	}
	return nil
}

func (s *relaySink) head(e event.RelayHead) {
	header := s.w.Header()
	const ours, usual = "Turnpike-Request-Id", "X-Request-Id"
	id, usualID := header[ours], header[usual]
	clear(header) // what the provider said, and nothing of ours but the request's id
	header[usual] = usualID
	maps.Copy(header, e.Header) // with the provider's own X-Request-Id, if it sent one
	header[ours] = id
	if e.Target != (event.Target{}) {
		header[servedHeader] = []string{listOf([]string{e.Target.String()})}
	}
	if e.Length >= 0 {
		setLength(header, e.Length)
	}
	s.flush = e.Length < 0
	s.begun = true
	s.w.WriteHeader(e.Status)
}

// setLength sets the Content-Length, which is nearly always set already.
func setLength(header http.Header, length int64) {
	const name = "Content-Length"
	var digits [20]byte
	text := strconv.AppendInt(digits[:0], length, 10)
	if has := header[name]; len(has) != 1 || has[0] != string(text) {
		header[name] = []string{string(text)}
	}
}

// forwarded returns the client's header without what concerns only the hop
// between it and us. What of the rest its provider gets is decided by the run.
func forwarded(sent http.Header) http.Header {
	out := make(http.Header, len(sent))
	for name, values := range sent {
		if !header.OwnHop(name) {
			out[name] = values
		}
	}
	for _, field := range sent["Connection"] {
		for name := range strings.SplitSeq(field, ",") {
			out.Del(strings.TrimSpace(name))
		}
	}
	return out
}

// routed returns the body with the model that the first target is called by. The
// account of the request is charged with a new body in place of the old one, which is
// returned to its pool.
func routed(req *run.Request, body []byte, members []Member) ([]byte, error) {
	out := withModel(body, members, req.Targets[0].Model)
	if &out[0] == &body[0] {
		return body, nil
	}
	if err := req.Account.Acquire(cap(out)); err != nil {
		return nil, err
	}
	req.Account.Release(cap(body))
	memlimit.Return(body)
	return out, nil
}
