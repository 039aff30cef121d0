package mcpserver_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/internal/mcppool"
)

// An org that changes a server again and again holds a bounded number of
// connections to it, however many runs have used each version. // P40
func TestAServerThatIsChangedAgainAndAgainHoldsFewConnections(t *testing.T) {
	NoLeaks(t)
	sdk := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	mcp.AddTool(sdk, &mcp.Tool{Name: "echo"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{}, nil, nil
	})
	inner := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return sdk }, nil)
	var mu sync.Mutex
	streams, most, sessions := 0, 0, 0
	tools := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Method {
		case http.MethodGet:
			mu.Lock()
			streams++
			most = max(most, streams)
			mu.Unlock()
			defer func() {
				mu.Lock()
				streams--
				mu.Unlock()
			}()
		case http.MethodDelete:
			mu.Lock()
			sessions++
			mu.Unlock()
		}
		inner.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		for s := range sdk.Sessions() {
			_ = s.Close()
		}
		tools.Close()
	})
	const changes = 100
	up := NewUpstream(t, Script(Says("done")))
	d := Manage(MustRun(t, Site{Upstream: up.URL}.Yaml()))
	d.Do("POST", "/api/mcp-servers", "owner-key", fmt.Sprintf(`{"name":"tools","url":%q}`, tools.URL), 201)
	for i := range changes {
		d.Do("PATCH", "/api/mcp-servers/tools", "owner-key", fmt.Sprintf(`{"timeout":"%ds"}`, 20+i%2), 200)
		if a := d.Post(Question); a.Status != 200 {
			t.Fatalf("%d: %s", a.Status, a.Body)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	t.Logf("%d changes: at most %d streams of notifications at a time, %d sessions ended", changes, most, sessions)
	if most > mcppool.MaxRetired+1 || sessions < changes-mcppool.MaxRetired-1 {
		t.Errorf("%d streams at a time, %d of %d sessions ended", most, sessions, changes)
	}
}

// Servers that are slow to end a session, or programs that are slow to end, are
// ended at the same time: a stop takes as long as the slowest, not as all together.
func TestAStopEndsAllServersAtTheSameTime(t *testing.T) {
	NoLeaks(t)
	const count = 3
	var ending sync.WaitGroup
	ending.Add(count)
	var alone atomic.Int32
	var servers []string
	for i := range count {
		sdk := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, nil)
		mcp.AddTool(sdk, &mcp.Tool{Name: fmt.Sprint("tool", i)}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{}, nil, nil
		})
		inner := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return sdk }, nil)
		tools := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodDelete {
				all := make(chan struct{})
				ending.Done()
				go func() { ending.Wait(); close(all) }()
				select {
				case <-all:
				case <-r.Context().Done():
					alone.Add(1)
				}
			}
			inner.ServeHTTP(w, r)
		}))
		t.Cleanup(func() {
			for s := range sdk.Sessions() {
				_ = s.Close()
			}
			tools.Close()
		})
		servers = append(servers, Server(fmt.Sprint("s", i), tools.URL))
	}
	g := MustRun(t, Site{Upstream: NewUpstream(t, Script(Says("done"))).URL, Servers: servers}.Yaml())
	if a := g.Post(Question); a.Status != 200 {
		t.Fatalf("%s", a.Body)
	}
	if err := g.Stop(); err != nil {
		t.Fatal(err)
	}
	if n := alone.Load(); n > 0 {
		t.Errorf("%d of %d servers were ended while the others waited", n, count)
	}
}
