package mcptool

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/tool"
)

// official starts a server of the official SDK.
func official(t *testing.T, o *mcp.StreamableHTTPOptions, header string) (*httptest.Server, *Client) {
	server := mcp.NewServer(&mcp.Implementation{Name: "official", Version: "1"}, nil)
	readOnly := &mcp.ToolAnnotations{ReadOnlyHint: true, Title: "Echo"}
	schema := json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"` + header + `}},"additionalProperties":true}`)
	server.AddTool(&mcp.Tool{Name: "echo", Annotations: readOnly, InputSchema: schema},
		func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{
				&mcp.TextContent{Text: string(r.Params.Arguments)},
				&mcp.ImageContent{Data: []byte("png"), MIMEType: "image/png"},
			}}, nil
		})
	srv := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, o))
	base := &http.Transport{}
	c := New(Server{Name: "official", URL: srv.URL, Trust: true, Timeout: time.Minute}, &http.Client{Transport: base}, nil)
	t.Cleanup(func() {
		_ = c.Close()
		base.CloseIdleConnections()
		srv.Close()
		for s := range server.Sessions() {
			_ = s.Close()
		}
	})
	return srv, c
}

func TestTheOfficialServers(t *testing.T) { // D15
	for name, o := range map[string]*mcp.StreamableHTTPOptions{
		"stateful": nil, "stateful, JSON answers": {JSONResponse: true},
		"stateless": {Stateless: true}, "stateless, JSON answers": {Stateless: true, JSONResponse: true},
	} {
		t.Run(name, func(t *testing.T) {
			_, c := official(t, o, "")
			tools, err := c.List(t.Context())
			if err != nil || len(tools) != 1 {
				t.Fatal(tools, err)
			}
			d := tools[0].Definition()
			if d.Title != "Echo" || d.Annotations.ReadOnly == nil || tools[0].(*remote).Class() != tool.Read {
				t.Errorf("%+v", d)
			}
			if want := `{"type":"object","properties":{"n":{"type":"integer"}},"additionalProperties":true}`; string(d.InputSchema) != want {
				t.Errorf("schema %s, want %s", d.InputSchema, want)
			}
			const arguments = `{"z":12345678901234567890,"a":"<é>"}`
			r, err := tools[0].Call(t.Context(), tool.Call{Arguments: json.RawMessage(arguments)})
			if err != nil || textOf(r) != arguments || len(r.Parts) != 2 || r.Parts[1] != (item.Part{Kind: item.Image, Data: "cG5n", MIMEType: "image/png"}) {
				t.Error(r, err)
			}
			r, err = named(c, "nosuch").Call(t.Context(), tool.Call{})
			if err != nil || !r.IsError || !strings.Contains(textOf(r), "nosuch") {
				t.Error(r, err)
			}
			version := c.lastTerms().version
			if want := map[bool]string{true: statelessVersion, false: "2025-11-25"}[strings.HasPrefix(name, "stateless")]; version != want {
				t.Errorf("revision %s, want %s", version, want)
			}
		})
	}
}

func TestArgumentsThatBelongInHeadersAreRepeatedThereAlsoInANewSession(t *testing.T) {
	_, c := official(t, &mcp.StreamableHTTPOptions{Stateless: true}, `,"x-mcp-header":"Number"`)
	tools, err := c.List(t.Context())
	if err != nil || len(tools) != 1 {
		t.Fatal(tools, err)
	}
	for round := range 2 {
		r, err := tools[0].Call(t.Context(), tool.Call{Arguments: json.RawMessage(`{"n":7}`)})
		if err != nil || r.IsError {
			t.Fatalf("round %d: %v %v", round, r, err)
		}
		c.replace(c.current) // the new session has not listed the tools
	}
}
