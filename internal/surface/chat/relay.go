package chat

import (
	"encoding/json"
	"maps"
	"net/http"
	"strconv"
	"strings"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/model"
)

// relay passes the body on as it is and the answer back as it is.
func (h *Handler) relay(w http.ResponseWriter, r *http.Request, requestID string, req *run.Request, body []byte, members []member) error {
	body, err := routed(req, body, members)
	if err != nil {
		return err
	}
	req.Grade = loop.Relay
	req.ID = requestID
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
	ids := http.Header{"Turnpike-Request-Id": header["Turnpike-Request-Id"], "X-Request-Id": header["X-Request-Id"]}
	clear(header) // what the provider said, and nothing of ours but the request's id
	maps.Copy(header, ids)
	maps.Copy(header, e.Header) // with the provider's own X-Request-Id, if it sent one
	header["Turnpike-Request-Id"] = ids["Turnpike-Request-Id"]
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

// routed returns the body with the model that the first target is called by. The
// account of the request is charged with a new body in place of the old one.
func routed(req *run.Request, body []byte, members []member) ([]byte, error) {
	out := spliceModel(body, members, req.Targets[0].Name)
	if &out[0] == &body[0] {
		return body, nil
	}
	if err := req.Account.Charge(cap(out)); err != nil {
		return nil, err
	}
	req.Account.Release(cap(body))
	return out, nil
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
