package chat

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/model"
)

// relay passes the body on as it is and the answer back as it is.
func (h *Handler) relay(w http.ResponseWriter, r *http.Request, req *run.Request, body []byte) error {
	req.Grade = loop.Relay
	req.Targets = req.Targets[:1]
	req.Raw = &model.RelayRequest{Path: "/chat/completions", Header: forwarded(r.Header), Body: body}
	sink := &relaySink{w: w, control: http.NewResponseController(w)}
	if err := h.o.Runner.Run(r.Context(), req, sink); err != nil {
		return err
	}
	if sink.end.Reason == event.Complete {
		return nil
	}
	if !sink.begun {
		writeEnd(w, sink.end, false)
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

// Emit implements run.Sink.
func (s *relaySink) Emit(e event.Event) error {
	switch e := e.(type) {
	case event.Started:
		s.w.Header().Set("Turnpike-Request-Id", e.RunID)
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
	}
	return nil
}

func (s *relaySink) head(e event.RelayHead) {
	header := s.w.Header()
	id := header["Turnpike-Request-Id"]
	clear(header) // what the provider said, and nothing of ours but the request's id
	for name, values := range e.Header {
		header[name] = values
	}
	header["Turnpike-Request-Id"] = id
	if e.Length >= 0 {
		header.Set("Content-Length", strconv.FormatInt(e.Length, 10))
	}
	s.flush = e.Length < 0
	s.begun = true
	s.w.WriteHeader(e.Status)
}

// forwarded returns the client's header without what concerns only the hop
// between it and us.
func forwarded(header http.Header) http.Header {
	out := make(http.Header, len(header))
	for name, values := range header {
		if !ours(name) {
			out[name] = values
		}
	}
	for _, field := range header["Connection"] {
		for name := range strings.SplitSeq(field, ",") {
			out.Del(strings.TrimSpace(name))
		}
	}
	return out
}

// ours reports whether a header field must not reach the provider: credentials
// for us, switches for us, what describes this connection, and what would tell
// the provider about our network.
func ours(name string) bool {
	switch name {
	case "Authorization", "Proxy-Authorization", "Cookie", "X-Api-Key", "Api-Key",
		"Connection", "Proxy-Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
		"Content-Length", "Host", "Expect", "Forwarded", "Via", "X-Real-Ip":
		return true
	}
	return strings.HasPrefix(name, "Turnpike-") || strings.HasPrefix(name, "Floopy-") ||
		strings.HasPrefix(name, "X-Forwarded-") || strings.HasPrefix(name, "Proxy-")
}

// spliceModel returns the body with the provider's name for the model in every
// top-level "model" that says something else: whichever of several a provider
// reads, it is the one that was routed. Otherwise it is the body itself.
func spliceModel(body []byte, members []member, theirs string) []byte {
	value, _ := json.Marshal(theirs) // a string: cannot fail
	var out []byte
	done := 0
	for _, m := range members {
		if m.name != "model" || m.value[0] == '"' && unquote(m.value) == theirs {
			continue
		}
		out = append(append(out, body[done:m.at]...), value...)
		done = m.at + len(m.value)
	}
	if done == 0 {
		return body
	}
	return append(out, body[done:]...)
}
