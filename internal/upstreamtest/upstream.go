package upstreamtest

import (
	"context"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/script"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// Options say how an Upstream sends its answers and which requests it
// accepts. The zero value is useful.
type Options struct {
	// Piece is how many bytes of a stream are sent at a time; 0 = one event at a
	// time. A small odd number shows whether a reader copes with any split.
	Piece int

	// Gap is the pause between two pieces; 0 = none.
	Gap time.Duration

	// Strict refuses what the real provider would refuse: status 400, in the
	// dialect's form, with a message that says what is wrong. A request that is
	// refused uses no turn of the story. Without Strict everything that is JSON is
	// accepted.
	//
	// The rules are those of the official API descriptions of OpenAI,
	// Anthropic and Google, and of the errors that they are known to send. Rules that differ
	// between models are left out. Anthropic: a thinking block must come back
	// exactly as this Upstream sent it. Responses: so must a reasoning item. Gemini: so
	// must thoughts, and every part with a signature. Bedrock: so must a block of
	// reasoning, and the request must be signed with [AWSSecretAccessKey].
	Strict bool
}

// Request is a request as it reached an Upstream.
type Request struct {
	Path   string
	Header http.Header
	Body   []byte // byte for byte
	At     time.Time

	// Refused is why a strict Upstream refused the request; "" = it did not.
	Refused string
}

// Upstream is a provider on 127.0.0.1 that plays a [Script] over HTTP. The end of
// a request's path selects the dialect:
//
//	POST …/chat/completions   OpenAI Chat Completions
//	POST …/messages           Anthropic Messages
//	POST …/responses          OpenAI Responses
//	POST …/models/MODEL:generateContent and …:streamGenerateContent   Gemini
//	POST …/model/ID/converse-stream, …/converse   Amazon Bedrock Converse
//
// It answers with one JSON object, or with a stream where the request asks for
// one. It takes any credentials, except on Bedrock if it is strict, and keeps every
// request.
type Upstream struct {
	URL string // the base URL, such as http://127.0.0.1:1234/v1

	script   *turnpiketest.Script
	o        Options
	dialects []dialect
	server   *httptest.Server
	closing  chan struct{} // ends what hangs
	once     sync.Once

	mu       sync.Mutex // guards what follows
	requests []Request
	arrived  chan struct{} // closed when a request comes; nil = nobody waits
}

// New starts an Upstream. Close it.
func New(script *turnpiketest.Script, o Options) *Upstream {
	u := &Upstream{script: script, o: o, closing: make(chan struct{})}
	u.dialects = []dialect{chatDialect{}, newAnthropic(), newResponses(), newGemini(), newBedrock()}
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

// Transport returns a transport for clients of the Upstream. Close closes its
// connections.
func (u *Upstream) Transport() http.RoundTripper { return u.server.Client().Transport }

// Requests returns what has come, in order. Bodies and headers are not to be
// changed.
func (u *Upstream) Requests() []Request {
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
func (u *Upstream) record(r *http.Request, body []byte, refused *refusal) {
	kept := Request{Path: r.URL.Path, Header: r.Header.Clone(), Body: body, At: time.Now()}
	if refused != nil {
		kept.Refused = refused.message
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.requests = append(u.requests, kept)
	if u.arrived != nil {
		close(u.arrived)
		u.arrived = nil
	}
}

func (u *Upstream) serve(w http.ResponseWriter, r *http.Request) {
	at := slices.IndexFunc(u.dialects, func(d dialect) bool { return serves(d, r.URL.Path) })
	if r.Method != http.MethodPost || at < 0 {
		sendFailure(w, chatDialect{}, script.Failure{Status: http.StatusNotFound, Message: "no " + r.Method + " " + r.URL.Path})
		return
	}
	d := u.dialects[at]
	if p, ok := d.(inPath); ok {
		d = p.at(r.URL.Path)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the caller left
	}
	if g, ok := d.(guarded); ok && u.o.Strict {
		if why := g.deny(r, body); why != nil {
			u.record(r, body, &refusal{message: why.Message})
			sendFailure(w, d, *why)
			return
		}
	}
	asked, refused := u.read(d, r.Header, body)
	u.record(r, body, refused)
	if refused != nil {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write(d.refuse(*refused)) // a caller that left is the caller's affair
		return
	}
	number, t, err := u.script.Next(nil)
	if err != nil {
		sendFailure(w, d, script.Failure{Status: http.StatusBadRequest, Message: err.Error()})
		return
	}
	stays := func(d time.Duration) bool { return u.stays(r.Context().Done(), d) }
	say := d.answer(number, asked, t)
	if asked.Stream {
		u.stream(&stream{w: w, framing: framingOf(d), control: http.NewResponseController(w), o: u.o, stays: stays}, d, say, t)
		return
	}
	u.whole(w, stays, d, say, t)
}

// read reads a request. A strict Upstream refuses what the provider would.
func (u *Upstream) read(d dialect, header http.Header, body []byte) (asked, *refusal) {
	if u.o.Strict && json.Valid(body) {
		if why := inspect(d, header, body); why != nil {
			return asked{}, why
		}
	}
	a := asked{body: body}
	if err := json.Unmarshal(body, &a); err != nil {
		return a, &refusal{message: "not valid JSON: " + err.Error(), code: strconv.Itoa(http.StatusBadRequest)}
	}
	if p, ok := d.(inPath); ok {
		p.ask(&a)
	}
	return a, nil
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

// endless is longer than any caller waits.
const endless = time.Duration(math.MaxInt64)

// whole answers with one JSON object.
func (u *Upstream) whole(w http.ResponseWriter, stays func(time.Duration) bool, d dialect, say answer, t script.Turn) {
	for _, s := range t.Steps {
		switch s.Verb {
		case script.Pause:
			if !stays(s.Wait) {
				return
			}
		case script.Hang:
			stays(endless)
			return
		case script.Cut:
			panic(http.ErrAbortHandler) // closes the connection
		case script.Fail:
			sendFailure(w, d, s.Failure)
			return
		default:
			say.take(s)
		}
	}
	say.end()
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(say.whole()) // a caller that left is the caller's affair
}

// stream answers with events. Nothing is sent before the first step that says
// something, so that a failure before it still has its status.
func (u *Upstream) stream(out *stream, d dialect, say answer, t script.Turn) {
	for _, s := range t.Steps {
		switch s.Verb {
		case script.Pause:
			if !out.stays(s.Wait) {
				return
			}
		case script.Hang:
			out.stays(endless)
			return
		case script.Cut:
			out.begin()
			panic(http.ErrAbortHandler) // closes the connection
		case script.Fail:
			if !out.begun {
				sendFailure(out.w, d, s.Failure)
				return
			}
			out.send(say.fail(s.Failure))
			return
		default:
			out.send(say.take(s))
		}
	}
	out.send(say.end())
}
