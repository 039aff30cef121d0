package turnpiketest_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/internal/mcptool"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/tool"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// connect returns a client of the server; both end with the test.
func connect(t *testing.T, m *turnpiketest.MCPServer, change ...func(*mcptool.Server)) *mcptool.Client {
	s := mcptool.Server{Name: "scripted", URL: m.URL, Timeout: time.Minute, Trust: true, MaxRetries: -1}
	for _, c := range change {
		c(&s)
	}
	transport := &http.Transport{}
	c := mcptool.New(s, &http.Client{Transport: transport}, nil)
	t.Cleanup(func() {
		_ = c.Close()
		transport.CloseIdleConnections()
		m.Close()
	})
	return c
}

// named lists the tools and returns the one of that name.
func named(t *testing.T, c tool.Source, name string) tool.Tool {
	t.Helper()
	tools, err := c.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range tools {
		if x.Definition().Name == name {
			return x
		}
	}
	t.Fatalf("no tool %s among %d", name, len(tools))
	return nil
}

func textOf(r tool.Result) string {
	text := ""
	for _, p := range r.Parts {
		text += p.Text
	}
	return text
}

func TestAServerOfEveryKindServesItsTools(t *testing.T) { // D15
	yes := true
	echo := turnpiketest.Tool{
		Name: "echo", Title: "Echo", Description: "Says it again.", Schema: `{"type":"object","properties":{"n":{"type":"integer"}}}`,
		Annotations: tool.Annotations{ReadOnly: &yes},
		Answer: func(_ context.Context, arguments json.RawMessage) (tool.Result, error) {
			return tool.Text(string(arguments)), nil
		},
	}
	sad := turnpiketest.Tool{Name: "sad", Result: "no luck", IsError: true}
	broken := turnpiketest.Tool{Name: "broken", Err: errors.New("out of order")}
	for name, o := range map[string]turnpiketest.MCPOptions{
		"with sessions and streams":     {},
		"with notifications first":      {Notify: 3},
		"with sessions, JSON answers":   {JSON: true},
		"stateless":                     {Stateless: true},
		"stateless, JSON answers":       {Stateless: true, JSON: true},
		"one that refuses initialize":   {Bare: true},
		"stateless, with notifications": {Stateless: true, Notify: 2},
	} {
		t.Run(name, func(t *testing.T) {
			m := turnpiketest.NewMCPServer(o, echo, sad, broken)
			c := connect(t, m)
			d := named(t, c, "echo").Definition()
			want := tool.Definition{
				Name: "echo", Title: "Echo", Description: "Says it again.",
				InputSchema: json.RawMessage(echo.Schema), Annotations: tool.Annotations{ReadOnly: &yes},
			}
			if diff := cmp.Diff(want, d); diff != "" {
				t.Error(diff)
			}
			r, err := named(t, c, "echo").Call(t.Context(), tool.Call{Arguments: json.RawMessage(`{"n":12345678901234567890}`), IdempotencyKey: "k0"})
			if err != nil || r.IsError || textOf(r) != `{"n":12345678901234567890}` {
				t.Error(r, err)
			}
			r, err = named(t, c, "sad").Call(t.Context(), tool.Call{IdempotencyKey: "k1"})
			if err != nil || !r.IsError || textOf(r) != "no luck" {
				t.Error(r, err)
			}
			r, err = named(t, c, "broken").Call(t.Context(), tool.Call{})
			if err != nil || !r.IsError || !strings.Contains(textOf(r), "out of order") {
				t.Error(r, err)
			}
			calls := m.Calls()
			if len(calls) != 3 || calls[0].Tool != "echo" || calls[0].Key != "" || calls[1].Key != "k1" || calls[0].End.Before(calls[0].Start) || calls[2].Err == nil {
				t.Errorf("%+v", calls)
			}
			if m.Count("tools/list") != 4 || m.Count("tools/call") != 3 {
				t.Errorf("%d lists, %d calls", m.Count("tools/list"), m.Count("tools/call"))
			}
		})
	}
}

// A tool over the wire answers with content of every kind.
func TestContentOfEveryKindReachesTheClient(t *testing.T) { // D15
	want := tool.Result{
		Parts: []item.Part{
			{Kind: item.Text, Text: "a"},
			{Kind: item.Image, MIMEType: "image/png", Data: "iVBORw=="},
			{Kind: item.Audio, MIMEType: "audio/wav", Data: "UklGRg=="},
			{Kind: item.Resource, URL: "file:///a", MIMEType: "text/plain", Text: "body"},
			{Kind: item.Resource, URL: "file:///b", MIMEType: "application/pdf", Data: "JVBERi0="},
			{Kind: item.Resource, URL: "file:///c", MIMEType: "text/plain", Name: "c", Title: "C", Description: "a link"},
		},
		Structured: json.RawMessage(`{"n":5}`),
	}
	for name, o := range map[string]turnpiketest.MCPOptions{"stream": {}, "JSON": {JSON: true}, "stateless": {Stateless: true}, "bare": {Bare: true}} {
		t.Run(name, func(t *testing.T) {
			c := connect(t, turnpiketest.NewMCPServer(o, turnpiketest.Tool{
				Name: "show", Answer: func(context.Context, json.RawMessage) (tool.Result, error) { return want, nil },
			}))
			got, err := named(t, c, "show").Call(t.Context(), tool.Call{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestToolsWithoutAUsableSchemaStandInTheListAsTheyAre(t *testing.T) { // D07
	m := turnpiketest.NewMCPServer(turnpiketest.MCPOptions{},
		turnpiketest.Tool{Name: "missing", Schema: turnpiketest.NoSchema}, turnpiketest.Tool{Name: "null", Schema: "null"},
		turnpiketest.Tool{Name: "list", Schema: "[1]"}, turnpiketest.Tool{Name: "good"})
	c := connect(t, m)
	for name, want := range map[string]string{"missing": "", "null": "null", "list": "[1]", "good": `{"type":"object"}`} {
		if got := string(named(t, c, name).Definition().InputSchema); got != want {
			t.Errorf("%s: schema %q, want %q", name, got, want)
		}
	}
}

func TestAServerDiesAndHangsWhereItIsToldTo(t *testing.T) { // D10
	trouble := func(kind turnpiketest.Trouble, methods ...string) turnpiketest.MCPOptions {
		o := turnpiketest.MCPOptions{Trouble: map[string]turnpiketest.Trouble{}}
		for _, m := range methods {
			o.Trouble[m] = kind
		}
		return o
	}
	for name, row := range map[string]struct {
		o       turnpiketest.MCPOptions
		timeout time.Duration
	}{
		"a list that hangs":        {trouble(turnpiketest.Hang, "tools/list"), 300 * time.Millisecond},
		"a handshake that hangs":   {trouble(turnpiketest.Hang, "initialize", "server/discover"), 300 * time.Millisecond},
		"a list that is shut":      {trouble(turnpiketest.Die, "tools/list"), time.Minute},
		"a handshake that is shut": {trouble(turnpiketest.Die, "initialize", "server/discover"), time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			m := turnpiketest.NewMCPServer(row.o, turnpiketest.Tool{Name: "x"})
			c := connect(t, m, func(s *mcptool.Server) { s.Timeout = row.timeout })
			if tools, err := c.List(t.Context()); err == nil {
				t.Errorf("listed %d tools", len(tools))
			}
		})
	}
}

func TestAToolThatDiesHasBeenCalled(t *testing.T) {
	for _, bare := range []bool{false, true} {
		m := turnpiketest.NewMCPServer(turnpiketest.MCPOptions{Bare: bare}, turnpiketest.Tool{Name: "x", Trouble: turnpiketest.Die})
		_, err := named(t, connect(t, m), "x").Call(t.Context(), tool.Call{})
		if err == nil || errors.Is(err, tool.ErrNotSent) || !strings.Contains(err.Error(), "closed the connection") {
			t.Error(err)
		}
		if calls := m.Calls(); len(calls) != 1 || !errors.Is(calls[0].Err, io.ErrUnexpectedEOF) {
			t.Errorf("ledger %+v", calls)
		}
	}
}

func TestAToolThatHangsEndsWithItsCaller(t *testing.T) { // O01
	for _, bare := range []bool{false, true} {
		m := turnpiketest.NewMCPServer(turnpiketest.MCPOptions{Bare: bare}, turnpiketest.Tool{Name: "x", Trouble: turnpiketest.Hang})
		x := named(t, connect(t, m), "x")
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			_, err := x.Call(ctx, tool.Call{})
			done <- err
		}()
		if err := m.Await(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}

func TestAGateHoldsCallsAndTheLedgerSeesThemTogether(t *testing.T) { // C01
	gate := make(chan struct{})
	m := turnpiketest.NewMCPServer(turnpiketest.MCPOptions{}, turnpiketest.Tool{Name: "x", Gate: gate, Result: "done"})
	x := named(t, connect(t, m), "x")
	done := make(chan string)
	for range 3 {
		go func() {
			r, err := x.Call(t.Context(), tool.Call{})
			if err != nil {
				r = tool.Text(err.Error())
			}
			done <- textOf(r)
		}()
	}
	if err := m.Await(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	close(gate)
	for range 3 {
		if got := <-done; got != "done" {
			t.Error(got)
		}
	}
	if m.Peak() != 3 {
		t.Errorf("peak %d", m.Peak())
	}
}

func TestHeadersAndCountsAreKeptByMethod(t *testing.T) { // D12
	m := turnpiketest.NewMCPServer(turnpiketest.MCPOptions{}, turnpiketest.Tool{Name: "x"})
	c := connect(t, m, func(s *mcptool.Server) {
		s.Headers = func(context.Context) (http.Header, error) { return http.Header{"X-Mark": {"7"}}, nil }
	})
	if _, err := named(t, c, "x").Call(t.Context(), tool.Call{}); err != nil {
		t.Fatal(err)
	}
	for _, method := range []string{"initialize", "tools/list", "tools/call"} {
		h := m.Headers(method)
		if len(h) != 1 || h[0].Get("X-Mark") != "7" || m.Count(method) != 1 {
			t.Errorf("%s: %v, %d", method, h, m.Count(method))
		}
	}
	if m.Requests() < 4 { // initialized is a request, too
		t.Errorf("%d requests", m.Requests())
	}
	m.SetTools(turnpiketest.Tool{Name: "y", Result: "new"})
	if r, err := named(t, c, "y").Call(t.Context(), tool.Call{}); err != nil || textOf(r) != "new" {
		t.Error(r, err)
	}
}

func TestClosingAServerEndsWhatHangs(t *testing.T) {
	m := turnpiketest.NewMCPServer(turnpiketest.MCPOptions{}, turnpiketest.Tool{Name: "x", Gate: make(chan struct{})})
	x := named(t, connect(t, m), "x")
	done := make(chan bool)
	go func() {
		r, err := x.Call(t.Context(), tool.Call{})
		done <- err != nil || r.IsError
	}()
	if err := m.Await(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	m.Close()
	if !<-done {
		t.Error("the call succeeded")
	}
}
