package agents

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/tool"
)

// lists are MCP servers that list answers for.
type lists struct {
	Servers
	list func(context.Context, org.MCPServer) ([]tool.Tool, string, error)
}

// List implements Servers.
func (l lists) List(ctx context.Context, s org.MCPServer) ([]tool.Tool, string, error) {
	return l.list(ctx, s)
}

// An MCP server has 10 s for a live list of its tools, whatever its settings say. // C13
func TestASilentServerIsAskedForItsToolsForTenSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &definitions{servers: lists{list: func(ctx context.Context, m org.MCPServer) ([]tool.Tool, string, error) {
			if m.Timeout != 10*time.Second || m.MaxRetries != 0 {
				t.Errorf("asked with a timeout of %s and %d retries", m.Timeout, m.MaxRetries)
			}
			<-ctx.Done()
			return nil, "", ctx.Err()
		}}}
		begin := time.Now()
		_, err := h.discover(t.Context(), org.MCPServer{Name: "slow", Timeout: time.Hour, MaxRetries: 5})
		if took := time.Since(begin); took != 10*time.Second {
			t.Errorf("it took %s", took)
		}
		checkDiscoveryError(t, err, "it did not answer within 10s")
	})
}

// The answer has at most 500 characters of what the server has said. // C13
func TestTheErrorOfALiveListIsCut(t *testing.T) {
	h := &definitions{servers: lists{list: func(context.Context, org.MCPServer) ([]tool.Tool, string, error) {
		return nil, strings.Repeat("ü", 2000), errors.New("failed")
	}}}
	_, err := h.discover(t.Context(), org.MCPServer{Name: "loud"})
	if text := checkDiscoveryError(t, err, "üüü"); len([]rune(text)) != 500 {
		t.Errorf("%d characters", len([]rune(text)))
	}
}

// checkDiscoveryError wants the error that is answered with 502 mcp_server_failed, and returns its text.
func checkDiscoveryError(t *testing.T, err error, has string) string {
	t.Helper()
	var f *fault.Error
	if !errors.As(err, &f) || f.Reason != "mcp_server_failed" || f.Code != fault.Upstream || !strings.Contains(f.Message, has) {
		t.Fatalf("error %v", err)
	}
	return f.Message
}
