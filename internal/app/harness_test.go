package app_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/app"
	"github.com/turnpike-gateway/turnpike/internal/config"
	"github.com/turnpike-gateway/turnpike/internal/ramdir"
	"github.com/turnpike-gateway/turnpike/internal/store/database"
)

// The harness boots the whole program between scripted neighbours:
//
//	client() ──HTTP──► gateway (New + Serve) ──HTTP──► upstream   scripted model
//	                                         └─HTTP──► mcpServer  official SDK, or rawMCP for what no SDK would do
//
// Everything listens on 127.0.0.1 and ends with its test. Tests run in parallel; see noLeaks and alone.

// patience is how long a test waits for something that must happen.
const patience = time.Minute

// drainTimeout is how long a gateway that stops waits for runs that hang.
const drainTimeout = 5 * time.Second

// gateway is a running gateway.
type gateway struct {
	t      *testing.T
	URL    string
	client *http.Client
	log    *logBuffer
	stop   func() error // ends Serve and returns its error
}

// MustRun boots the whole gateway from a configuration.
func MustRun(t *testing.T, yaml string) *gateway {
	t.Helper()
	return mustRunIn(t, newData(t), yaml, environment())
}

// newData returns a data directory with a store that has no rows. To make its tables takes a
// quarter of a gateway's start, so they are copied.
func newData(t *testing.T) string {
	t.Helper()
	dir := ramdir.New(t)
	store, err := emptyStore()
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, app.DatabaseFile), store, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// emptyStore returns the file of a store without rows.
var emptyStore = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "turnpike-app-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, app.DatabaseFile)
	store, err := database.Open(context.Background(), database.Options{Path: path, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	if err := store.Close(); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
})

// mustRunIn boots it in a data directory and an environment of the test's own.
func mustRunIn(t *testing.T, data, yaml string, variables map[string]string) *gateway {
	t.Helper()
	return mustRunWith(t, data, yaml, variables, app.Options{})
}

// mustRunWith boots it with options, of which Env is the harness's. Without Log, the test keeps all of it.
func mustRunWith(t *testing.T, data, yaml string, variables map[string]string, o app.Options) *gateway {
	t.Helper()
	parallel(t)
	env := func(name string) (string, bool) {
		if name == "TURNPIKE_DATA" {
			return data, true
		}
		v, ok := variables[name]
		return v, ok
	}
	c, err := config.Parse("test.yaml", []byte(yaml), env)
	if err == nil {
		err = c.LoadRates()
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, yaml)
	}
	log := &logBuffer{}
	o.SlowStore = cmp.Or(o.SlowStore, patience) // a machine that runs many tests at once is slow
	o.Limits.DrainTimeout = cmp.Or(o.Limits.DrainTimeout, drainTimeout)
	if o.Env = env; o.Log == nil {
		o.Log = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	a, err := app.New(t.Context(), c, o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- a.Serve(ctx) }()
	transport := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64}
	g := &gateway{t: t, URL: a.URL(), client: &http.Client{Transport: transport}, log: log}
	g.stop = sync.OnceValue(func() error {
		transport.CloseIdleConnections()
		cancel()
		err := <-served
		a.Close()
		return err
	})
	t.Cleanup(func() {
		if err := g.stop(); err != nil {
			t.Errorf("the gateway stopped with %v", err)
		}
		if t.Failed() && testing.Verbose() {
			t.Logf("log of the gateway:\n%s", log)
		}
	})
	return g
}

func environment() map[string]string {
	return map[string]string{"TOKEN": "CANARY-token", "UPSTREAM_KEY": "CANARY-upstream-key"}
}

// logBuffer is a log that tests read while it is written.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// forget removes what was logged.
func (l *logBuffer) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b = bytes.Buffer{}
}

// site describes a gateway with one org, which has a key for every role: owner
// has the key "owner-key" and so on.
type site struct {
	upstream string   // base URL without /v1
	feature  string   // "" = mcp_outbound, "none" = no feature
	runtime  string   // YAML map without its braces
	servers  []string // YAML maps without their braces
	allow    string   // allowed network; "" = 127.0.0.0/8
}

func (s site) yaml() string {
	features := "[mcp_outbound]"
	switch s.feature {
	case "":
	case "none":
		features = "[]"
	default:
		features = "[" + s.feature + "]"
	}
	if s.allow == "" {
		s.allow = "127.0.0.0/8"
	}
	var b strings.Builder
	fmt.Fprintf(&b, `
listen: 127.0.0.1:0
providers:
  - {name: up, base_url: %q, api_key: env:UPSTREAM_KEY, models: [m, "g-*"]}
outbound: {ssrf: {allowlist_cidrs: [%s]}}
orgs:
  - id: o
    features: %s
    keys:
      - {name: a, key: owner-key, role: owner}
      - {name: b, key: admin-key, role: admin}
      - {name: c, key: member-key, role: member}
      - {name: d, key: approver-key, role: approver}
      - {name: e, key: reader-key, role: reader}
    runtime: {%s}
    mcp_servers:
`, s.upstream+"/v1", s.allow, features, s.runtime)
	for _, server := range s.servers {
		fmt.Fprintf(&b, "      - {%s}\n", server)
	}
	if len(s.servers) == 0 {
		return strings.TrimSuffix(b.String(), "    mcp_servers:\n")
	}
	return b.String()
}

// server is an entry of site.servers.
func server(name, url string, more ...string) string {
	return strings.Join(append([]string{fmt.Sprintf("name: %s, url: %q", name, url)}, more...), ", ")
}

// answer is what a client got.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// post sends a body with the owner's key and reads the whole answer. Header
// fields come in pairs.
func (g *gateway) post(body string, fields ...string) answer {
	g.t.Helper()
	return g.send("POST", "/v1/chat/completions", strings.NewReader(body), fields...)
}

func (g *gateway) send(method, path string, body io.Reader, fields ...string) answer {
	g.t.Helper()
	resp, err := g.client.Do(g.request(g.t.Context(), method, path, body, fields...))
	if err != nil {
		g.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		g.t.Fatalf("%s %s: reading the answer: %v", method, path, err)
	}
	return answer{resp.StatusCode, resp.Header, data}
}

func (g *gateway) request(ctx context.Context, method, path string, body io.Reader, fields ...string) *http.Request {
	g.t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, g.URL+path, body)
	if err != nil {
		g.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer owner-key")
	r.Header.Set("Content-Type", "application/json")
	for pair := range slices.Chunk(fields, 2) {
		r.Header.Set(pair[0], pair[1])
	}
	return r
}

// wireError is the error object of the dialect.
type wireError struct {
	Error struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    *string `json:"code"`
	} `json:"error"`
}

func (a answer) fault(t *testing.T) wireError {
	t.Helper()
	var e wireError
	if err := json.Unmarshal(a.body, &e); err != nil || e.Error.Message == "" || e.Error.Type == "" {
		t.Fatalf("status %d with %q, which is no error of the dialect", a.status, a.body)
	}
	return e
}

// wireCompletion is the part of an answer that the tests look at.
type wireCompletion struct {
	Choices []struct {
		Message struct {
			Content   string
			ToolCalls []struct {
				ID       string
				Function struct{ Name, Arguments string }
			} `json:"tool_calls"`
		}
		Delta struct {
			Content string
		}
		FinishReason string `json:"finish_reason"`
	}
	Usage struct {
		Prompt int `json:"prompt_tokens"`
		Total  int `json:"total_tokens"`
	}
}

// completion reads a JSON answer and returns its text and finish reason.
func (a answer) completion(t *testing.T) (text, reason string) {
	t.Helper()
	var c wireCompletion
	if err := json.Unmarshal(a.body, &c); err != nil || a.status != 200 || len(c.Choices) != 1 {
		t.Fatalf("status %d with %.2000s, want an answer", a.status, a.body)
	}
	return c.Choices[0].Message.Content, c.Choices[0].FinishReason
}

// stream is what a streamed answer said.
type stream struct {
	text    string
	reasons []string // finish reasons, one is right
	errors  []string // data frames of the error form
	done    int      // [DONE] marks, one is right
}

// stream reads a streamed answer and fails the test if a frame is no JSON or
// something follows the end mark.
func (a answer) stream(t *testing.T) stream {
	t.Helper()
	if a.status != 200 || a.header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("status %d, %s: %.500s, want a stream", a.status, a.header.Get("Content-Type"), a.body)
	}
	var s stream
	for frame := range strings.SplitSeq(string(a.body), "\n\n") {
		data, ok := strings.CutPrefix(frame, "data: ")
		switch {
		case !ok:
			continue // a comment, or the end
		case s.done > 0:
			t.Fatalf("after the end mark comes %q", frame)
		case data == "[DONE]":
			s.done++
			continue
		case strings.HasPrefix(data, `{"error"`):
			s.errors = append(s.errors, data)
			continue
		}
		var c wireCompletion
		if err := json.Unmarshal([]byte(data), &c); err != nil {
			t.Fatalf("frame %q: %v", frame, err)
		}
		for _, choice := range c.Choices {
			s.text += choice.Delta.Content
			if choice.FinishReason != "" {
				s.reasons = append(s.reasons, choice.FinishReason)
			}
		}
	}
	return s
}

// pollPause waits between two requests that ask whether something has become true. Without it, a
// test that waits takes a whole processor.
func pollPause() { time.Sleep(5 * time.Millisecond) }

// wait fails the test when nothing comes from c in time.
func wait[T any](t *testing.T, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("waited in vain for %s", what)
		panic("unreachable")
	}
}

const question = `{"model":"m","messages":[{"role":"user","content":"go"}]}`

const streamedQuestion = `{"model":"m","stream":true,"messages":[{"role":"user","content":"go"}]}`
