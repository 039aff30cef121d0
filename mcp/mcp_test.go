package mcp_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/turnpike-gateway/turnpike/internal/connect"
	"github.com/turnpike-gateway/turnpike/mcp"
	"github.com/turnpike-gateway/turnpike/tool"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestASource(t *testing.T) {
	server := turnpiketest.NewMCPServer(turnpiketest.MCPOptions{}, turnpiketest.Tool{Name: "now", Result: "noon"})
	defer server.Close()
	s := mcp.Server(server.URL).Header("X-Token", "secret").Reads("now").Keyed("pay").Trusted()
	var fatal tool.Blocked
	if _, err := s.List(t.Context()); !errors.As(err, &fatal) { // K04
		t.Errorf("an address of this machine: %v", err)
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	connected, err := s.Connect(connect.Agent{Client: &http.Client{Transport: transport}})
	if err != nil || connected.Required {
		t.Fatalf("%+v, %v", connected, err)
	}
	tools, err := connected.List(t.Context())
	if err != nil || len(tools) != 1 || tool.ClassOf(tools[0]) != tool.Read || server.Headers("tools/list")[0].Get("X-Token") != "secret" {
		t.Fatalf("%v, %v", tools, err)
	}
	r, err := tools[0].Call(t.Context(), tool.Call{Key: "0.0", Arguments: []byte("{}")})
	if err != nil || r.Parts[0].Text != "noon" || s.Name() != "127.0.0.1" {
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
	if _, err := s.Connect(connect.Agent{Client: &http.Client{Transport: transport}}); err == nil {
		t.Error("an agent after Close")
	}
}

func TestWrongSources(t *testing.T) {
	for want, s := range map[string]*mcp.Source{
		"the MCP server true is a program, and has no headers":              mcp.Command("true").Header("A", "b"),
		"the MCP server example.com is no program, and has no environment":  mcp.Server("https://example.com/mcp").Env("A", "b"),
		`the MCP server gone cannot be started: exec: "does-not-exist":`:    mcp.Command("does-not-exist").Named("gone"),
		`the MCP server exist cannot be started: exec: "/does/not/exist": `: mcp.Command("/does/not/exist"),
	} {
		if _, err := s.Connect(connect.Agent{Client: &http.Client{}}); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
		if _, err := s.List(t.Context()); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
		_ = s.Close()
	}
	required := mcp.Command("true").Required()
	defer func() { _ = required.Close() }()
	if server, err := required.Connect(connect.Agent{Client: &http.Client{}}); err != nil || !server.Required || required.Name() != "true" {
		t.Errorf("%+v, %v", server, err)
	}
}
