package turnpiketest

import (
	"context"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/turnpike-gateway/turnpike/model"
)

// UpstreamOptions say how an Upstream sends its answers. The zero value is
// useful.
type UpstreamOptions struct {
	// Piece is how many bytes of a stream leave at a time; 0 = one event at a
	// time. A small odd number shows what a reader makes of cuts.
	Piece int

	// Gap is the pause between two pieces; 0 = none.
	Gap time.Duration
}

// UpstreamRequest is a request as it reached an Upstream.
type UpstreamRequest struct {
	Path   string
	Header http.Header
	Body   []byte // byte for byte
	At     time.Time
}

// Upstream is a provider on 127.0.0.1 that plays a [Script] in the
// chat-completions dialect: as one JSON object, or as a stream where the request
// says so, with a usage chunk where it asks for one. Whatever the path is, a
// POST to something that ends in /chat/completions is answered.
//
// It takes any credentials and keeps every request.
type Upstream struct {
	URL string // the base URL, such as http://127.0.0.1:1234/v1

	script  *Script
	o       UpstreamOptions
	server  *httptest.Server
	closing chan struct{} // ends what hangs
	once    sync.Once

	mu       sync.Mutex // guards what follows
	requests []UpstreamRequest
	arrived  chan struct{} // closed when a request comes; nil = nobody waits
}

// NewUpstream starts an Upstream. Close it.
func NewUpstream(script *Script, o UpstreamOptions) *Upstream {
	u := &Upstream{script: script, o: o, closing: make(chan struct{})}
	u.server = httptest.NewServer(http.HandlerFunc(u.serve))
	u.URL = u.server.URL + "/v1"
	return u
}

// Close ends every answer that is under way and waits until all have ended. It
// may be called more than once.
func (u *Upstream) Close() {
	u.once.Do(func() {
		u.server.CloseClientConnections() // first, so that what hangs is no answer
		close(u.closing)
		u.server.Close()
	})
}

// Requests returns what has come, in order. Bodies and headers are not to be
// changed.
func (u *Upstream) Requests() []UpstreamRequest {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.requests)
}

// Await waits until n requests have come in all. The error is the cause of
// ctx's end.
func (u *Upstream) Await(ctx context.Context, n int) error {
	for {
		u.mu.Lock()
		if len(u.requests) >= n {
			u.mu.Unlock()
			return nil
		}
		if u.arrived == nil {
			u.arrived = make(chan struct{})
		}
		arrived := u.arrived
		u.mu.Unlock()
		select {
		case <-arrived:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// record keeps a request.
func (u *Upstream) record(r *http.Request, body []byte) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.requests = append(u.requests, UpstreamRequest{r.URL.Path, r.Header.Clone(), body, time.Now()})
	if u.arrived != nil {
		close(u.arrived)
		u.arrived = nil
	}
}

// asked is what an Upstream reads of a request.
type asked struct {
	Model         string `json:"model"`
	Stream        bool   `json:"stream"`
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
}

func (u *Upstream) serve(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/chat/completions") {
		failure{status: http.StatusNotFound, message: "no " + r.Method + " " + r.URL.Path}.write(w)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the caller left
	}
	u.record(r, body)
	var a asked
	if err := json.Unmarshal(body, &a); err != nil {
		failure{status: http.StatusBadRequest, message: "not valid JSON: " + err.Error()}.write(w)
		return
	}
	number, t, err := u.script.next(nil)
	if err != nil {
		failure{status: http.StatusBadRequest, message: err.Error()}.write(w)
		return
	}
	say := speech{id: turnID(number), model: a.Model, created: time.Now().Unix()}
	stays := func(d time.Duration) bool { return u.stays(r.Context().Done(), d) }
	if a.Stream {
		out := &stream{w: w, control: http.NewResponseController(w), o: u.o, stays: stays}
		u.stream(out, say, t, a.StreamOptions.IncludeUsage)
		return
	}
	u.whole(w, stays, say, t)
}

// stays waits and reports whether the caller is still there afterwards.
func (u *Upstream) stays(gone <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-gone:
	case <-u.closing:
	}
	return false
}

// endless is longer than anybody stays.
const endless = time.Duration(math.MaxInt64)

// whole answers with one JSON object.
func (u *Upstream) whole(w http.ResponseWriter, stays func(time.Duration) bool, say speech, t turn) {
	for _, s := range t.steps {
		switch s.verb {
		case pause:
			if !stays(s.wait) {
				return
			}
		case hang:
			stays(endless)
			return
		case cut:
			panic(http.ErrAbortHandler) // closes the connection
		case fail:
			s.failure.write(w)
			return
		default:
			say.take(s)
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(say.completion()) // a caller that left is the caller's affair
}

// stream answers with chunks. Nothing is sent before the first step that says
// something, so that a failure before it still has its status.
func (u *Upstream) stream(out *stream, say speech, t turn, includeUsage bool) {
	for _, s := range t.steps {
		switch s.verb {
		case pause:
			if !out.stays(s.wait) {
				return
			}
		case hang:
			out.stays(endless)
			return
		case cut:
			out.begin()
			panic(http.ErrAbortHandler) // closes the connection
		case fail:
			if !out.begun {
				s.failure.write(out.w)
				return
			}
			out.event(s.failure.body())
			return
		default:
			for _, d := range say.take(s) {
				out.event(say.chunk(d, ""))
			}
		}
	}
	out.event(say.chunk("{}", string(say.end())))
	if includeUsage && say.usage != (model.Usage{}) {
		out.event(say.usageChunk())
	}
	out.event([]byte("[DONE]"))
}

func (f failure) write(w http.ResponseWriter) {
	for name, values := range f.header() {
		w.Header()[name] = values
	}
	w.WriteHeader(f.status)
	_, _ = w.Write(f.body()) // a caller that left is the caller's affair
}
