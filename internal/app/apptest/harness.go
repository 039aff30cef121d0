// Package apptest is the harness of the tests that run the whole gateway between scripted neighbours. Only tests import it,
// with a dot: its names are the language that they are written in.
package apptest

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

// Patience is how long a test waits for something that must happen.
const Patience = time.Minute

// drainTimeout is how long a gateway that stops waits for runs that hang.
const drainTimeout = 5 * time.Second

// Gateway is a running gateway.
type Gateway struct {
	T      *testing.T
	URL    string
	Client *http.Client
	Log    *LogBuffer
	Stop   func() error // ends Serve and returns its error
}

// MustRun boots the whole gateway from a configuration.
func MustRun(t *testing.T, yaml string) *Gateway {
	t.Helper()
	return MustRunIn(t, NewData(t), yaml, Environment())
}

// NewData returns a data directory with a store that has no rows. To make its tables takes a
// quarter of a gateway's start, so they are copied.
func NewData(t *testing.T) string {
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

// MustRunIn boots it in a data directory and an environment of the test's own.
func MustRunIn(t *testing.T, data, yaml string, variables map[string]string) *Gateway {
	t.Helper()
	return MustRunWith(t, data, yaml, variables, app.Options{})
}

// MustRunWith boots it with options, of which Env is the harness's. Without Log, the test keeps all of it.
func MustRunWith(t *testing.T, data, yaml string, variables map[string]string, o app.Options) *Gateway {
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
	log := &LogBuffer{}
	o.SlowStore = cmp.Or(o.SlowStore, Patience) // a machine that runs many tests at once is slow
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
	g := &Gateway{T: t, URL: a.URL(), Client: &http.Client{Transport: transport}, Log: log}
	g.Stop = sync.OnceValue(func() error {
		transport.CloseIdleConnections()
		cancel()
		err := <-served
		a.Close()
		return err
	})
	t.Cleanup(func() {
		if err := g.Stop(); err != nil {
			t.Errorf("the gateway stopped with %v", err)
		}
		if t.Failed() && testing.Verbose() {
			t.Logf("log of the gateway:\n%s", log)
		}
	})
	return g
}

func Environment() map[string]string {
	return map[string]string{"TOKEN": "CANARY-token", "UPSTREAM_KEY": "CANARY-upstream-key"}
}

// LogBuffer is a log that tests read while it is written.
type LogBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (l *LogBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *LogBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Forget removes what was logged.
func (l *LogBuffer) Forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b = bytes.Buffer{}
}

// Site describes a gateway with one org, which has a key for every role: owner
// has the key "owner-key" and so on.
type Site struct {
	Upstream string   // base URL without /v1
	Feature  string   // "" = mcp_outbound, "none" = no feature
	Runtime  string   // YAML map without its braces
	Servers  []string // YAML maps without their braces
	Allow    string   // allowed network; "" = 127.0.0.0/8
}

func (s Site) Yaml() string {
	features := "[mcp_outbound]"
	switch s.Feature {
	case "":
	case "none":
		features = "[]"
	default:
		features = "[" + s.Feature + "]"
	}
	if s.Allow == "" {
		s.Allow = "127.0.0.0/8"
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
`, s.Upstream+"/v1", s.Allow, features, s.Runtime)
	for _, server := range s.Servers {
		fmt.Fprintf(&b, "      - {%s}\n", server)
	}
	if len(s.Servers) == 0 {
		return strings.TrimSuffix(b.String(), "    mcp_servers:\n")
	}
	return b.String()
}

// Server is an entry of site.servers.
func Server(name, url string, more ...string) string {
	return strings.Join(append([]string{fmt.Sprintf("name: %s, url: %q", name, url)}, more...), ", ")
}

// Answer is what a client got.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// Post sends a body with the owner's key and reads the whole answer. Header
// fields come in pairs.
func (g *Gateway) Post(body string, fields ...string) Answer {
	g.T.Helper()
	return g.Send("POST", "/v1/chat/completions", strings.NewReader(body), fields...)
}

func (g *Gateway) Send(method, path string, body io.Reader, fields ...string) Answer {
	g.T.Helper()
	resp, err := g.Client.Do(g.Request(g.T.Context(), method, path, body, fields...))
	if err != nil {
		g.T.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		g.T.Fatalf("%s %s: reading the answer: %v", method, path, err)
	}
	return Answer{Status: resp.StatusCode, Header: resp.Header, Body: data}
}

func (g *Gateway) Request(ctx context.Context, method, path string, body io.Reader, fields ...string) *http.Request {
	g.T.Helper()
	r, err := http.NewRequestWithContext(ctx, method, g.URL+path, body)
	if err != nil {
		g.T.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer owner-key")
	r.Header.Set("Content-Type", "application/json")
	for pair := range slices.Chunk(fields, 2) {
		r.Header.Set(pair[0], pair[1])
	}
	return r
}

// WireError is the error object of the dialect.
type WireError struct {
	Error struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    *string `json:"code"`
	} `json:"error"`
}

func (a Answer) Fault(t *testing.T) WireError {
	t.Helper()
	var e WireError
	if err := json.Unmarshal(a.Body, &e); err != nil || e.Error.Message == "" || e.Error.Type == "" {
		t.Fatalf("status %d with %q, which is no error of the dialect", a.Status, a.Body)
	}
	return e
}

// WireCompletion is the part of an answer that the tests look at.
type WireCompletion struct {
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

// Completion reads a JSON answer and returns its text and finish reason.
func (a Answer) Completion(t *testing.T) (text, reason string) {
	t.Helper()
	var c WireCompletion
	if err := json.Unmarshal(a.Body, &c); err != nil || a.Status != 200 || len(c.Choices) != 1 {
		t.Fatalf("status %d with %.2000s, want an answer", a.Status, a.Body)
	}
	return c.Choices[0].Message.Content, c.Choices[0].FinishReason
}

// stream is what a streamed answer said.
type stream struct {
	Text    string
	Reasons []string // finish reasons, one is right
	Errors  []string // data frames of the error form
	Done    int      // [DONE] marks, one is right
}

// Stream reads a streamed answer and fails the test if a frame is no JSON or
// something follows the end mark.
func (a Answer) Stream(t *testing.T) stream {
	t.Helper()
	if a.Status != 200 || a.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("status %d, %s: %.500s, want a stream", a.Status, a.Header.Get("Content-Type"), a.Body)
	}
	var s stream
	for frame := range strings.SplitSeq(string(a.Body), "\n\n") {
		data, ok := strings.CutPrefix(frame, "data: ")
		switch {
		case !ok:
			continue // a comment, or the end
		case s.Done > 0:
			t.Fatalf("after the end mark comes %q", frame)
		case data == "[DONE]":
			s.Done++
			continue
		case strings.HasPrefix(data, `{"error"`):
			s.Errors = append(s.Errors, data)
			continue
		}
		var c WireCompletion
		if err := json.Unmarshal([]byte(data), &c); err != nil {
			t.Fatalf("frame %q: %v", frame, err)
		}
		for _, choice := range c.Choices {
			s.Text += choice.Delta.Content
			if choice.FinishReason != "" {
				s.Reasons = append(s.Reasons, choice.FinishReason)
			}
		}
	}
	return s
}

// PollPause waits between two requests that ask whether something has become true. Without it, a
// test that waits takes a whole processor.
func PollPause() { time.Sleep(5 * time.Millisecond) }

// Wait fails the test when nothing comes from c in time.
func Wait[T any](t *testing.T, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(Patience):
		t.Fatalf("waited in vain for %s", what)
		panic("unreachable")
	}
}

const Question = `{"model":"m","messages":[{"role":"user","content":"go"}]}`

const StreamedQuestion = `{"model":"m","stream":true,"messages":[{"role":"user","content":"go"}]}`
