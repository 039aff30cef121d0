package mcppool

import (
	"log/slog"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/org"
)

// However long the calls of an agent's server may take, its list is waited for 30 s. See
// TestSeveralServersHaveOneBoundForTheirLists of package catalog. // C13
func TestTheListOfAnOwnServerHasABound(t *testing.T) {
	p := New(Options{Refused: func(org.MCPServer) error { return nil }, Log: slog.New(slog.DiscardHandler)})
	defer p.Close()
	server, release := p.Own(org.MCPServer{Org: "o", Name: "slow", URL: "http://127.0.0.1:1/mcp", Timeout: time.Hour})
	defer release()
	if server.ListWithin != 30*time.Second {
		t.Errorf("the list is waited for %s", server.ListWithin)
	}
}
