package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/turnpike-gateway/turnpike/gateway"
	"github.com/turnpike-gateway/turnpike/tool"
)

// withKey adds the key of the org to requests.
type withKey struct{}

func (withKey) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer tp_0123456789abcdef0123456789")
	return http.DefaultTransport.RoundTrip(r)
}

// verbs are tools that depend on the caller, such as those of a resource.
type verbs []tool.Tool

func (v verbs) List(context.Context) ([]tool.Tool, error) { return v, nil }

func (v verbs) Tools(c tool.Caller) (out []tool.Tool) {
	for _, t := range v {
		if c.May(t.Definition().Name) {
			out = append(out, t)
		}
	}
	return out
}

// Go functions of the program are called by MCP clients, on behalf of their key. A call that the
// function wants to be approved is refused.
func TestMCPClientsCallGoFunctions(t *testing.T) {
	type refund struct {
		Cents int `json:"cents"`
	}
	called, idempotencyKeys := 0, map[string]bool{}
	f := tool.Func("refund", "Refunds.", func(ctx context.Context, in refund) (string, error) {
		called++
		if c := tool.From(ctx).Caller; c.ID != "app" || !c.May("refund") || c.May("other") {
			return "", fmt.Errorf("the caller is %+v", c)
		}
		idempotencyKeys[tool.From(ctx).IdempotencyKey] = true
		return fmt.Sprint(in.Cents, " cents"), nil
	}).ApproveIf(func(in refund) bool { return in.Cents > 100 }).Key(func(in refund) string { return fmt.Sprint("refund ", in.Cents) })
	config, err := gateway.Parse(fmt.Sprintf(yaml, t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	config.Tools = verbs{f}
	gw, err := gateway.New(config)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(gw)
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	defer server.Close()
	defer func() { _ = gw.Close() }()
	client := mcp.NewClient(&mcp.Implementation{Name: "t", Version: "1"}, nil)
	session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: server.URL + "/mcp", HTTPClient: &http.Client{Transport: withKey{}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = session.Close() }()
	list, err := session.ListTools(t.Context(), nil)
	if err != nil || len(list.Tools) != 1 || list.Tools[0].Name != "refund" {
		t.Fatal(list, err)
	}
	for _, c := range []struct{ arguments, want string }{
		{`{"cents":7}`, "7 cents"}, {`{"cents":700}`, "approval_required"}, {`{"cents":700}`, "only an agent of that program"},
		{`{"cents":"x"}`, "invalid_arguments"},
	} {
		result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "refund", Arguments: json.RawMessage(c.arguments)})
		if err != nil || len(result.Content) != 1 || !strings.Contains(result.Content[0].(*mcp.TextContent).Text, c.want) {
			t.Errorf("%s: %v %v, want %s", c.arguments, result, err, c.want)
		}
	}
	if _, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "refund", Arguments: json.RawMessage(`{"cents":7}`)}); err != nil {
		t.Error(err)
	}
	if called != 2 || len(idempotencyKeys) != 1 || idempotencyKeys[""] {
		t.Errorf("the function was called %d times with the keys %v, want twice with one", called, idempotencyKeys)
	}
}
