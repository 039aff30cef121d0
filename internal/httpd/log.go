package httpd

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/surface/chat"
	"github.com/turnpike-gateway/turnpike/model"
)

// record is what the log says about a request, in one line when it is answered.
// Only the goroutine of the request touches it.
type record struct {
	http.ResponseWriter
	began  time.Time
	status int // 0 = no answer has begun
	bytes  int64
	whole  bool // the answer was not cut off

	id       string // of the request
	code     string // of an error answer, or of the failure that ended a stream
	org, key string // who asks, where that is known

	// Of a run or relay.
	run, model    string
	reason        event.Reason
	rounds, calls int
	usage         model.Usage
	first         time.Duration // until the model said something
}

// recordKey is the key of a request's *record in its context.
type recordKey struct{}

// Unwrap lets [http.ResponseController] through.
func (r *record) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (r *record) WriteHeader(status int) {
	if r.status == 0 && status >= 200 {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (r *record) Write(p []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	n, err := r.ResponseWriter.Write(p)
	r.bytes += int64(n)
	return n, err
}

// NoteError implements fault.Noter.
func (r *record) NoteError(reason string) { r.code = reason }

// logged lets next answer, and writes the request's line. Health checks are
// worth none unless somebody debugs.
func (a *API) logged(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
	level := slog.LevelInfo
	if isProbe(r) {
		level = slog.LevelDebug
	}
	written := a.o.Log != nil && a.o.Log.Enabled(r.Context(), level)
	if !written && a.o.Refused == nil {
		next(w, r)
		return
	}
	rec := &record{ResponseWriter: w, began: time.Now(), id: w.Header().Get(requestIDHeader)}
	r = r.WithContext(context.WithValue(r.Context(), recordKey{}, rec))
	defer func() { // also when next panics, to cut the answer off
		if written {
			rec.tell(r, a.o.Log, level)
		}
		if a.o.Refused != nil && rec.code != "" && rec.run == "" {
			a.o.Refused(rec.org, rec.code)
		}
	}()
	next(rec, r)
	rec.whole = true
	if rec.status == 0 {
		rec.status = http.StatusOK // as the server says for a handler that says nothing
	}
}

// tell writes the line. Of the path it has the pattern: what a client writes into
// a path may be a secret.
func (r *record) tell(req *http.Request, log *slog.Logger, level slog.Level) {
	_, path, found := strings.Cut(req.Pattern, " ")
	if !found {
		path = "-"
	}
	took := time.Since(r.began)
	var room [19]slog.Attr
	all := room[:0]
	all = append(all, slog.String("method", req.Method), slog.String("path", path), slog.Int("status", r.status))
	text := func(key, value string) {
		if value != "" {
			all = append(all, slog.String(key, value))
		}
	}
	text("code", r.code)
	text("request", r.id)
	text("org", r.org)
	text("key", r.key)
	text("model", r.model)
	text("run", r.run)
	text("reason", string(r.reason))
	if r.rounds > 0 {
		all = append(all, slog.Int("rounds", r.rounds), slog.Int("tool_calls", r.calls),
			slog.Int64("input_tokens", r.usage.Input), slog.Int64("output_tokens", r.usage.Output))
	}
	if r.first > 0 {
		all = append(all, slog.Int64("ttft_ms", r.first.Milliseconds()))
	}
	all = append(all, slog.Int64("ms", took.Milliseconds()), slog.Int64("bytes", r.bytes))
	if !r.whole {
		all = append(all, slog.Bool("cut_off", true))
	}
	log.LogAttrs(req.Context(), level, "request", all...)
}

// by notes who asks; org is nil for the operator, and for nobody.
func by(w http.ResponseWriter, c run.Caller) {
	r, ok := w.(*record)
	if !ok {
		return
	}
	r.key = c.Principal.ID
	if c.Org != nil {
		r.org = c.Org.ID
	}
}

// Logged returns runner, with what runs do told to the log line of their request.
func Logged(runner chat.Runner) chat.Runner { return loggedRunner{runner} }

type loggedRunner struct{ chat.Runner }

// Run implements chat.Runner.
func (l loggedRunner) Run(ctx context.Context, req *run.Request, sink run.Sink) error {
	if r, ok := ctx.Value(recordKey{}).(*record); ok {
		sink = &loggedSink{sink, r}
	}
	return l.Runner.Run(ctx, req, sink)
}

type loggedSink struct {
	run.Sink
	r *record
}

// maxModel is how much of a model's name the log shows, in bytes: clients make
// them up.
const maxModel = 128

// Emit implements run.Sink.
func (s *loggedSink) Emit(e event.Event) error {
	switch e := e.(type) {
	case event.RelayBody, event.TextDelta, event.ReasoningDelta:
		if s.r.first == 0 {
			s.r.first = time.Since(s.r.began)
		}
	case event.Started:
		s.r.run, s.r.model = e.RunID, strings.ToValidUTF8(e.Model[:min(len(e.Model), maxModel)], "")
	case event.ToolDone:
		s.r.calls++
	case event.Finished:
		s.r.reason, s.r.rounds, s.r.usage = e.Reason, e.Rounds, e.Usage
		if e.Failure != nil {
			s.r.code = e.Failure.Code
		}
	}
	return s.Sink.Emit(e)
}
