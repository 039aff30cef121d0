package httpd

import (
	"context"
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/eventlog"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/surface"
	"github.com/turnpike-gateway/turnpike/model"
)

// requestLog collects the fields of a request's log line, which is written when the
// response is complete. Only the request's goroutine uses it.
type requestLog struct {
	http.ResponseWriter
	began    time.Time
	status   int // 0 = no response has started
	bytes    int64
	complete bool // false if the response was cut off

	id       string // byOrg the request
	code     string // byOrg an error response, or of the failure that ended a stream
	org, key string // byOrg the caller, if known

	// Of a run or relay.
	run, model    string
	reason        event.Reason
	rounds, calls int
	usage         model.Usage
	ttft          time.Duration // time to the first token; 0 = none
}

// requestLogKey is the key of a request's *record in its context.
type requestLogKey struct{}

// Unwrap implements the interface that [http.ResponseController] uses.
func (r *requestLog) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (r *requestLog) WriteHeader(status int) {
	if r.status == 0 && status >= 200 {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (r *requestLog) Write(p []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	n, err := r.ResponseWriter.Write(p)
	r.bytes += int64(n)
	return n, err
}

// NoteError implements fault.Noter.
func (r *requestLog) NoteError(reason string) { r.code = reason }

// withLog calls next with a copy of r that has the context ctx, and writes the request's
// log line, for health checks at level debug. It also reports a refused request to
// [Options.OnRefused].
func (a *API) withLog(ctx context.Context, w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
	level := slog.LevelInfo
	if isProbe(r) {
		level = slog.LevelDebug
	}
	written := a.o.Log != nil && a.o.Log.Enabled(ctx, level)
	if !written && a.o.OnRefused == nil {
		next(w, r.WithContext(ctx))
		return
	}
	rec := &requestLog{ResponseWriter: w, began: time.Now(), id: w.Header().Get(requestIDHeader)}
	r = r.WithContext(context.WithValue(ctx, requestLogKey{}, rec))
	defer func() { // runs also if next panics with http.ErrAbortHandler
		if written {
			rec.write(r, a.o.Log, level, a.logSource)
		}
		if a.o.OnRefused != nil && rec.code != "" && rec.run == "" {
			a.o.OnRefused(rec.org, rec.code)
		}
	}()
	next(rec, r)
	rec.complete = true
	if rec.status == 0 {
		rec.status = http.StatusOK // net/http sends 200 if a handler writes nothing
	}
}

// write writes the log line. It logs the route's pattern and not the path, because
// a path can contain a secret.
func (r *requestLog) write(req *http.Request, log *slog.Logger, level slog.Level, source uintptr) {
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
	if r.ttft > 0 {
		all = append(all, slog.Int64("ttft_ms", r.ttft.Milliseconds()))
	}
	all = append(all, slog.Int64("ms", took.Milliseconds()), slog.Int64("bytes", r.bytes))
	if !r.complete {
		all = append(all, slog.Bool("cut_off", true))
	}
	line := slog.NewRecord(time.Now(), level, "request", source)
	line.AddAttrs(all...)
	_ = log.Handler().Handle(req.Context(), line) // as in slog: nothing can be done about an error
}

// logSource returns the place in the code that a request's log line names if the log has
// sources. To look for the caller of each line would cost a tenth of the line.
func logSource() uintptr {
	var pc [1]uintptr
	runtime.Callers(1, pc[:])
	return pc[0]
}

// noteCaller records the caller; c.Org is nil for the operator and for an unknown caller.
func noteCaller(w http.ResponseWriter, c caller.Caller) {
	r, ok := w.(*requestLog)
	if !ok {
		return
	}
	r.key = c.Principal.ID
	if c.Org != nil {
		r.org = c.Org.ID
	}
}

// Logged returns runner, with the results of runs added to their request's log line.
func Logged(runner surface.Runner) surface.Runner { return loggedRunner{runner} }

type loggedRunner struct{ surface.Runner }

// Run implements surface.Runner.
func (l loggedRunner) Run(ctx context.Context, req *run.Request, sink eventlog.Sink) error {
	if r, ok := ctx.Value(requestLogKey{}).(*requestLog); ok {
		sink = &loggedSink{sink, r}
	}
	return l.Runner.Run(ctx, req, sink)
}

// Start implements surface.Runner.
func (l loggedRunner) Start(ctx context.Context, req *run.Request) (string, error) {
	runID, err := l.Runner.Start(ctx, req)
	if r, ok := ctx.Value(requestLogKey{}).(*requestLog); ok && err == nil {
		r.run, r.model = runID, strings.ToValidUTF8(req.Model[:min(len(req.Model), maxModel)], "")
	}
	return runID, err
}

type loggedSink struct {
	eventlog.Sink
	r *requestLog
}

// maxModel is how much of a model's name is logged, in bytes. Clients choose the
// name.
const maxModel = 128

// Emit implements eventlog.Sink.
func (s *loggedSink) Emit(at event.Position, e event.Event) error {
	switch e := e.(type) {
	case event.RelayBody, event.TextDelta, event.ReasoningDelta:
		if s.r.ttft == 0 {
			s.r.ttft = time.Since(s.r.began)
		}
	case event.Started:
		s.r.run, s.r.model = e.RunID, strings.ToValidUTF8(e.Model[:min(len(e.Model), maxModel)], "")
	case event.Waiting:
		s.r.reason, s.r.rounds, s.r.calls, s.r.usage = event.Reason(journal.Waiting), e.Rounds, e.ToolCalls, e.Usage
	case event.Paused:
		s.r.reason, s.r.rounds, s.r.calls, s.r.usage = event.Reason(journal.Paused), e.Rounds, e.ToolCalls, e.Usage
	case event.Finished:
		s.r.reason, s.r.rounds, s.r.calls, s.r.usage = e.Reason, e.Rounds, e.ToolCalls, e.Usage
		if e.Failure != nil {
			s.r.code = e.Failure.Code
		}
	case event.ApprovalDecided, event.CallDelta, event.Citation, event.ItemDone, event.Compacted, event.HookRan, event.LimitsRaised, event.NativeItem,
		event.ModelFallback, event.NativeProgress, event.RefusalDelta, event.RelayHead, event.RoundDone, event.RoundStarted,
		event.ToolDone, event.ToolStarted, event.ToolsListed: // not logged
	}
	return s.Sink.Emit(at, e)
}
