package agents

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/agent"
	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/surface"
	"github.com/turnpike-gateway/turnpike/tool"
)

// Limits of a request for the tools of a server.
const (
	discoveryTimeout  = 10 * time.Second
	maxDiscoveryError = 500 // characters
)

// ServerTools answers GET /api/agents/{id}/mcp-servers/{sid}/tools: it asks the server.
func (h *definitions) ServerTools() surface.Endpoint {
	return h.ofAgent(func(r *http.Request, caller caller.Caller, a agent.Agent) (int, any, error) {
		i, err := findServer(r, a.Definition)
		if err != nil {
			return 0, nil, err
		}
		if !caller.Org.MCPOutbound {
			return 0, nil, fault.New(fault.Forbidden, "mcp_not_enabled", "MCP servers are not enabled for the org; ask the operator to enable the org's feature mcp_outbound")
		}
		m := a.Servers[i].Settings
		m.Org, m.Name, m.FromFile = caller.Org.ID, a.Servers[i].Name, a.Declared
		out, err := h.discover(r.Context(), m)
		return http.StatusOK, struct {
			Tools []tool.Definition `json:"tools"`
		}{out}, err
	})
}

// discover asks the server for its tools, once.
func (h *definitions) discover(ctx context.Context, m org.MCPServer) ([]tool.Definition, error) {
	m.Timeout, m.MaxRetries = discoveryTimeout, 0
	limited, cancel := context.WithTimeout(ctx, discoveryTimeout)
	defer cancel()
	found, reason, err := h.servers.List(limited, m)
	if err != nil {
		return nil, discoveryError(limited, reason, err)
	}
	out := []tool.Definition{}
	for _, t := range found {
		out = append(out, t.Definition())
	}
	return out, nil
}

// discoveryError returns the error of a server that has not listed its tools. The reason contains no address.
func discoveryError(ctx context.Context, reason string, err error) error {
	var fatal tool.Blocked
	switch {
	case errors.As(err, &fatal):
		reason, _ = fatal.Blocked()
		reason = "refused by the outbound policy: " + reason
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		reason = "it did not answer within " + discoveryTimeout.String()
	case reason == "":
		reason = "the connection failed"
	}
	text := []rune("the MCP server did not list its tools: " + reason)
	return &fault.Error{Code: fault.Upstream, Reason: "mcp_server_failed", Message: string(text[:min(len(text), maxDiscoveryError)]), Err: err}
}
