package httpd

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/eventlog"
	"github.com/turnpike-gateway/turnpike/internal/run"
)

// logOf sends a GET that h answers, and returns the log.
func logOf(t *testing.T, level slog.Level, path string, h http.HandlerFunc) string {
	t.Helper()
	var log bytes.Buffer
	a := newTestAPI(h, Limits{})
	a.o.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: level}))
	func() {
		defer func() { _ = recover() }() // modelRoute net/http does
		a.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", path, nil))
	}()
	return log.String()
}

func TestTheLogLineOfARequest(t *testing.T) {
	says := func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }
	breaks := func(w http.ResponseWriter, r *http.Request) { says(w, r); panic(http.ErrAbortHandler) }
	early := func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusTeapot)
	}
	for _, c := range []struct {
		name    string
		level   slog.Level
		path    string
		answers http.HandlerFunc
		want    string
	}{
		{"an answer", slog.LevelInfo, "/x", says, "method=GET path=- status=200 ms=0 bytes=5\n"},
		{"no answer", slog.LevelInfo, "/x", func(http.ResponseWriter, *http.Request) {}, "method=GET path=- status=200 ms=0 bytes=0\n"},
		{"an answer that breaks off", slog.LevelInfo, "/x", breaks, "method=GET path=- status=200 ms=0 bytes=5 cut_off=true\n"},
		{"a status after hints", slog.LevelInfo, "/x", early, "method=GET path=- status=418 ms=0 bytes=0\n"},
		{"a health check", slog.LevelInfo, "/readyz", says, ""},
		{"a quiet log", slog.LevelWarn, "/x", says, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, got, _ := strings.Cut(logOf(t, c.level, c.path, c.answers), "msg=request ")
			if !strings.Contains(got, " ms=0 ") && c.want != "" { // the machine was slow
				c.want = strings.Replace(c.want, "ms=0", got[strings.Index(got, "ms="):strings.Index(got, " bytes")], 1)
			}
			if before, after, found := strings.Cut(got, " request=req_"); found {
				_, after, _ = strings.Cut(after, " ")
				got = before + " " + after
			} else if c.want != "" {
				t.Errorf("%q has no request id", got)
			}
			if got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// streamRunner is a runner that relays a stream of 200 chunks.
type streamRunner struct{}

// Run implements surface.Runner.
func (streamRunner) Start(context.Context, *run.Request) (string, error) { return "run_1", nil }

func (streamRunner) Run(_ context.Context, _ *run.Request, sink eventlog.Sink) error {
	_ = sink.Emit(event.Position{}, event.Started{RunID: "req_1", Model: "m"})
	piece := event.RelayBody{Data: []byte("data: x\n\n")}
	for range 200 {
		if err := sink.Emit(event.Position{}, piece); err != nil {
			return err
		}
	}
	return sink.Emit(event.Position{}, event.Finished{Reason: event.Complete})
}

// Dropped implements surface.Runner.
func (streamRunner) Dropped(context.Context, *run.Request) ([]run.Dropped, error) { return nil, nil }

// CountInput implements surface.Runner.
func (streamRunner) CountInput(context.Context, *run.Request) (int64, bool, error) {
	return 0, false, nil
}

type writerSink struct{ w http.ResponseWriter }

// Emit implements eventlog.Sink.
func (s writerSink) Emit(_ event.Position, e event.Event) error {
	if b, ok := e.(event.RelayBody); ok {
		_, err := s.w.Write(b.Data)
		return err
	}
	return nil
}

// countingRunner is a run with two tool calls, one of which was answered without being
// executed.
type countingRunner struct{ streamRunner }

func (countingRunner) Start(context.Context, *run.Request) (string, error) { return "run_1", nil }

func (countingRunner) Run(_ context.Context, _ *run.Request, sink eventlog.Sink) error {
	for i, e := range []event.Event{event.ToolDone{Outcome: "not_run"}, event.ToolDone{Outcome: "ok"}, event.Finished{Reason: event.Complete, Rounds: 2, ToolCalls: 1}} {
		if err := sink.Emit(event.Position{Seq: int64(i) + 1}, e); err != nil {
			return err
		}
	}
	return nil
}

// The log line has the count of the run, which the list of runs and the span have too.
func TestLogLineCountsExecutedToolCalls(t *testing.T) {
	var log bytes.Buffer
	runner := Logged(countingRunner{})
	a := newTestAPI(func(w http.ResponseWriter, r *http.Request) { _ = runner.Run(r.Context(), nil, writerSink{w}) }, Limits{})
	a.o.Log = slog.New(slog.NewTextHandler(&log, nil))
	a.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/x", nil))
	if !strings.Contains(log.String(), "rounds=2 tool_calls=1 ") {
		t.Errorf("log: %s", log.String())
	}
}

// The cost of the log line for a relay of 200 chunks is the difference of the two.
func BenchmarkRelayLogLine(b *testing.B) {
	for name, level := range map[string]slog.Level{"off": slog.LevelWarn, "on": slog.LevelInfo} {
		b.Run(name, func(b *testing.B) {
			runner := Logged(streamRunner{})
			a := newTestAPI(func(w http.ResponseWriter, r *http.Request) { _ = runner.Run(r.Context(), nil, writerSink{w}) }, Limits{})
			a.o.Log = slog.New(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: level}))
			w, r := &recorder{header: http.Header{}}, httptest.NewRequest("GET", "/x", nil)
			b.ReportAllocs()
			for b.Loop() {
				a.ServeHTTP(w, r)
			}
		})
	}
}
