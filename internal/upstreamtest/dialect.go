package upstreamtest

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/script"
)

// dialect is a provider's wire format.
type dialect interface {
	// name is that of its rules.
	name() string
	// path is how the paths of requests end.
	path() string
	// check refuses what the real provider would of a request that the schema accepts.
	check(header http.Header, n node)
	// answer begins the answer to a request; number counts them, t is the whole turn.
	answer(number int, a asked, t script.Turn) answer
	// failed returns an error answer.
	failed(f script.Failure) (http.Header, []byte)
	// refuse returns the body that refuses a request.
	refuse(r refusal) []byte
}

// inPath is a dialect whose requests have the model, and whether they ask for a stream,
// in their path.
type inPath interface {
	// serves reports whether a path is one of the dialect.
	serves(path string) bool
	// at returns the dialect for a request to a path that it serves.
	at(path string) dialect
	// ask sets what the path says.
	ask(a *asked)
}

// answer turns the steps of a turn into the words of a dialect. What take, end
// and fail return is only for a stream.
type answer interface {
	take(s script.Step) []sseEvent
	end() []sseEvent
	fail(f script.Failure) []sseEvent // in the middle of a stream
	whole() []byte                    // after end
}

// serves reports whether a path is one of the dialect.
func serves(d dialect, path string) bool {
	if p, ok := d.(inPath); ok {
		return p.serves(path)
	}
	return strings.HasSuffix(path, d.path())
}

// guarded is a dialect that verifies credentials. deny returns nil for a request whose
// credentials are right.
type guarded interface {
	deny(r *http.Request, body []byte) *script.Failure
}

// framing is how a dialect writes the events of a stream.
type framing interface {
	contentType() string
	frame(e sseEvent) []byte
}

func framingOf(d dialect) framing {
	if f, ok := d.(framing); ok {
		return f
	}
	return sseFraming{}
}

// sseFraming writes server-sent events.
type sseFraming struct{}

func (sseFraming) contentType() string { return "text/event-stream" }

func (sseFraming) frame(e sseEvent) []byte { return e.frame() }

// asked is what an Upstream reads of a request.
type asked struct {
	Model         string `json:"model"`
	Stream        bool   `json:"stream"`
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`

	body []byte
}

// object is a JSON object.
type object = map[string]any

// encode writes what can always be written: strings, numbers and JSON that was
// read before.
func encode(v any) []byte {
	out, _ := json.Marshal(v)
	return out
}

func quote(s string) string { return string(encode(s)) }

// sendFailure answers with an error.
func sendFailure(w http.ResponseWriter, d dialect, f script.Failure) {
	header, body := d.failed(f)
	for name, values := range header {
		w.Header()[name] = values
	}
	w.WriteHeader(f.Status)
	_, _ = w.Write(body) // a caller that left is the caller's affair
}

// sseEvent is a server-sent event; its name may be empty.
type sseEvent struct {
	name string
	data []byte
}

func (e sseEvent) frame() []byte {
	var frame []byte
	if e.name != "" {
		frame = append(append(append(frame, "event: "...), e.name...), '\n')
	}
	return append(append(append(frame, "data: "...), e.data...), "\n\n"...)
}

// stream is an answer of server-sent events, in pieces.
type stream struct {
	w       http.ResponseWriter
	framing framing
	control *http.ResponseController
	o       Options
	stays   func(time.Duration) bool // waits, unless the caller leaves
	begun   bool
	failed  bool
}

func (s *stream) begin() {
	if s.begun {
		return
	}
	s.begun = true
	s.w.Header().Set("Content-Type", s.framing.contentType())
	s.w.WriteHeader(http.StatusOK)
	s.flush(nil)
}

// send sends events.
func (s *stream) send(events []sseEvent) {
	for _, e := range events {
		s.begin()
		s.pieces(s.framing.frame(e))
	}
}

// pieces sends a frame in pieces.
func (s *stream) pieces(frame []byte) {
	size := s.o.Piece
	if size <= 0 {
		size = len(frame)
	}
	for len(frame) > 0 && !s.failed {
		n := min(size, len(frame))
		s.flush(frame[:n])
		frame = frame[n:]
		if s.o.Gap > 0 {
			s.failed = s.failed || !s.stays(s.o.Gap)
		}
	}
}

// flush lets a piece leave. A caller that has gone gets nothing more.
func (s *stream) flush(piece []byte) {
	if _, err := s.w.Write(piece); err != nil {
		s.failed = true
		return
	}
	s.failed = s.control.Flush() != nil
}
