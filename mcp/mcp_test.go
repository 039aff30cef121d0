package mcp_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/turnpike-gateway/turnpike/mcp"
	"github.com/turnpike-gateway/turnpike/tool"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestASource(t *testing.T) {
	server := turnpiketest.NewMCPServer(turnpiketest.MCPOptions{}, turnpiketest.Tool{Name: "now", Result: "noon"})
	defer server.Close()
	s := mcp.Server(server.URL).Header("X-Token", "secret").Reads("now").Keyed("pay").Trusted()
	var fatal tool.Fatal
	if _, err := s.List(t.Context()); !errors.As(err, &fatal) { // K04
		t.Errorf("an address of this machine: %v", err)
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	tools, err := s.Connect(&http.Client{Transport: transport}, nil, nil).List(t.Context())
	if err != nil || len(tools) != 1 || tool.ClassOf(tools[0]) != tool.Read || server.Headers("tools/list")[0].Get("X-Token") != "secret" {
		t.Fatalf("%v, %v", tools, err)
	}
	r, err := tools[0].Call(t.Context(), tool.Call{Key: "0.0", Arguments: []byte("{}")})
	if err != nil || r.Parts[0].Text != "noon" || s.Name() != "127.0.0.1" || s.IsRequired() {
		t.Errorf("%+v, %v", r, err)
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := tools[0].Call(t.Context(), tool.Call{Key: "0.1", Arguments: []byte("{}")}); err == nil {
		t.Error("a call after Close")
	}
	if _, err := s.Connect(&http.Client{Transport: transport}, nil, nil).List(t.Context()); err == nil {
		t.Error("a list after Close")
	}
}

func TestWrongSources(t *testing.T) {
	for _, s := range []*mcp.Source{mcp.Command("true").Header("A", "b"), mcp.Server("https://example.com/mcp").Env("A", "b")} {
		if _, err := s.Connect(&http.Client{Transport: &http.Transport{}}, nil, nil).List(t.Context()); err == nil || !strings.Contains(err.Error(), "has no") {
			t.Error(err)
		}
		_ = s.Close()
	}
	gone := mcp.Command("/does/not/exist").Named("gone").Required()
	defer func() { _ = gone.Close() }()
	if _, err := gone.List(t.Context()); err == nil || !gone.IsRequired() || gone.Name() != "gone" {
		t.Error(err)
	}
}
