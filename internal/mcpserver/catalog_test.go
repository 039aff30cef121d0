package mcpserver_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

// D02
func TestASecondRequestAsksNoServerForItsTools(t *testing.T) {
	NoLeaks(t)
	for _, tt := range []struct {
		ttl   string
		lists int
	}{{"10m", 1}, {"0s", 3}} {
		t.Run(tt.ttl, func(t *testing.T) {
			tools := NewMCP(t, map[string]Handler{"echo": Echo})
			up := NewUpstream(t, Script(Says("hi")))
			g := MustRun(t, Site{Upstream: up.URL, Runtime: "catalog_ttl: " + tt.ttl, Servers: []string{Server("s", tools.URL)}}.Yaml())
			for range 3 {
				g.Post(Question).Completion(t)
			}
			if n := len(tools.Of("tools/list")); n != tt.lists {
				t.Errorf("%d tools/list calls", n)
			}
		})
	}
}

// A change of one server's settings asks that server again, and no other. // D02
func TestAChangeOfOneServerAsksOnlyThatServer(t *testing.T) {
	NoLeaks(t)
	still, changed := NewMCP(t, map[string]Handler{"echo": Echo}), NewMCP(t, map[string]Handler{"other": Echo})
	up := NewUpstream(t, Script(Says("hi")))
	d := Manage(MustRun(t, Site{Upstream: up.URL, Servers: []string{Server("still", still.URL)}}.Yaml()))
	d.Do("POST", "/api/mcp-servers", "owner-key", fmt.Sprintf(`{"name":"changed","url":%q}`, changed.URL), 201)
	for lists, change := range []string{"", `{"naming":"namespaced"}`, `{"timeout":"7s"}`} {
		if change != "" {
			d.Do("PATCH", "/api/mcp-servers/changed", "owner-key", change, 200)
		}
		for range 2 {
			d.Post(Question).Completion(t)
		}
		if a, b := len(still.Of("tools/list")), len(changed.Of("tools/list")); a != 1 || b != lists+1 {
			t.Errorf("after the change %s: %d tools/list calls of the server that did not change, %d of the other", change, a, b)
		}
	}
}

// Each of three servers answers only when all have been asked. // D01
func TestAllServersAreAskedAtTheSameTime(t *testing.T) {
	NoLeaks(t)
	var all sync.WaitGroup
	all.Add(3)
	var servers []string
	for i := range 3 {
		s := NewRawMCP(t, Methods{"tools/list": func(w http.ResponseWriter, _ *http.Request, m RPC) {
			all.Done()
			all.Wait()
			Reply(w, m, OneTool(fmt.Sprintf("tool%d", i)))
		}})
		servers = append(servers, Server(fmt.Sprintf("s%d", i), s.URL))
	}
	up := NewUpstream(t, Script(Says("hi")))
	g := MustRun(t, Site{Upstream: up.URL, Servers: servers}.Yaml())
	g.Post(Question).Completion(t)
	if offered := string(up.Requests()[0].Decode(t).Tools); strings.Count(offered, `"type":"function"`) != 3 {
		t.Errorf("the model was offered %s", offered)
	}
}

// D03 D04 D05
func TestTwoServersWithTheSameTool(t *testing.T) {
	NoLeaks(t)
	for _, tt := range []struct{ naming, name, called string }{
		{"naming: bare", "echo", "one"},
		{"naming: namespaced", "mcp__two__echo", "two"},
		{"naming: prefixed, prefix: mine", "mine_echo", "two"},
	} {
		t.Run(tt.naming, func(t *testing.T) {
			one := NewMCP(t, map[string]Handler{"echo": func(context.Context, string) (string, error) { return "one", nil }})
			two := NewMCP(t, map[string]Handler{"echo": func(context.Context, string) (string, error) { return "two", nil }})
			up := NewUpstream(t, Script(Asks(Use(tt.name, `{}`)), Says("Done.")))
			g := MustRun(t, Site{Upstream: up.URL, Servers: []string{Server("one", one.URL), Server("two", two.URL, tt.naming)}}.Yaml())
			g.Post(Question).Completion(t)
			if told := up.Requests()[1].Results(t); !slices.Equal(told, []string{tt.called}) {
				t.Errorf("the model was told %q", told)
			}
		})
	}
}

// D12 D18
func TestTheHeadersOfAServerAreSentWithEverything(t *testing.T) {
	NoLeaks(t)
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	up := NewUpstream(t, Script(Asks(Use("echo", `{}`)), Says("Done.")))
	g := MustRun(t, Site{Upstream: up.URL, Servers: []string{Server("s", tools.URL, `headers: {Authorization: "Bearer env:TOKEN", X-Team: blue}`)}}.Yaml())
	g.Post(Question, "Cookie", "mine=1", "X-Mine", "1").Completion(t)
	if len(tools.Of("tools/list")) != 1 || len(tools.Of("tools/call")) != 1 {
		t.Fatalf("%d lists, %d calls", len(tools.Of("tools/list")), len(tools.Of("tools/call")))
	}
	for _, m := range tools.Of("") {
		if m.Header.Get("Authorization") != "Bearer CANARY-token" || m.Header.Get("X-Team") != "blue" {
			t.Errorf("%s came with %v", m.Method, m.Header)
		}
		if m.Header.Get("Cookie") != "" || m.Header.Get("X-Mine") != "" {
			t.Errorf("%s carries the caller's header", m.Method)
		}
	}
	if strings.Contains(g.Log.String(), "CANARY") {
		t.Error("the log holds the token")
	}
}

// D19
func TestWhatIsTriedAgain(t *testing.T) {
	NoLeaks(t)
	const readOnly = `{"tools":[{"name":"echo","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}]}`
	for _, tt := range []struct {
		name         string
		more         string
		failLists    int
		failCalls    int
		lists, calls int
		told         string
	}{
		{"discovery", "trust: false", 2, 0, 3, 1, "ok"},
		{"a call that only reads, of a trusted server", "trust: true", 0, 2, 1, 3, "ok"},
		{"not a call of a server that nobody trusts", "trust: false", 0, 2, 1, 1, "503"},
		{"not more often than configured", "trust: true, max_retries: 1", 0, 2, 1, 2, "503"},
		{"nothing, where retries are off", "trust: true, max_retries: 0", 0, 1, 1, 1, "503"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			failing := func(n int, result string) Method {
				return func(w http.ResponseWriter, _ *http.Request, m RPC) {
					if n--; n >= 0 {
						http.Error(w, "busy", http.StatusServiceUnavailable)
						return
					}
					Reply(w, m, result)
				}
			}
			tools := NewRawMCP(t, Methods{
				"tools/list": failing(tt.failLists, readOnly),
				"tools/call": failing(tt.failCalls, `{"content":[{"type":"text","text":"ok"}]}`),
			})
			up := NewUpstream(t, Script(Asks(Use("echo", `{}`)), Says("Done.")))
			g := MustRun(t, Site{Upstream: up.URL, Servers: []string{Server("s", tools.URL, tt.more)}}.Yaml())
			g.Post(Question).Completion(t)
			if told := up.Requests()[1].Results(t); len(told) != 1 || !strings.Contains(told[0], tt.told) {
				t.Errorf("the model was told %q", told)
			}
			if l, c := len(tools.Of("tools/list")), len(tools.Of("tools/call")); l != tt.lists || c != tt.calls {
				t.Errorf("%d lists and %d calls", l, c)
			}
		})
	}
}

// After every restart the model is offered the same bytes, in whatever
// order and however fast the servers answer. (A thousand times: package catalog.) // C24 P07
func TestTheModelIsOfferedTheSameBytesAfterEveryRestart(t *testing.T) {
	NoLeaks(t)
	random := rand.New(rand.NewPCG(3, 4))
	var first string
	for i := range 20 {
		var servers []string
		for s := range 3 {
			names := random.Perm(12)
			delay := time.Duration(random.IntN(5)) * time.Millisecond
			mcp := NewRawMCP(t, Methods{"tools/list": func(w http.ResponseWriter, r *http.Request, m RPC) {
				_ = Pause(r.Context(), delay)
				var list []string
				for _, n := range names {
					list = append(list, fmt.Sprintf(`{"name":"t%d","description":"of %d","inputSchema":{"type":"object","properties":{"b":{},"a":{}}}}`, n+6*s, s))
				}
				Reply(w, m, `{"tools":[`+strings.Join(list, ",")+`]}`)
			}})
			servers = append(servers, Server(fmt.Sprintf("s%d", s), mcp.URL))
		}
		up := NewUpstream(t, Script(Says("hi")))
		g := MustRun(t, Site{Upstream: up.URL, Servers: servers}.Yaml())
		g.Post(Question).Completion(t)
		offered := string(up.Requests()[0].Decode(t).Tools)
		if i == 0 {
			first = offered
		}
		if offered != first || strings.Count(offered, `"type":"function"`) != 24 {
			t.Fatalf("restart %d:\n%s\nbefore:\n%s", i, offered, first)
		}
		_ = g.Stop()
	}
}
