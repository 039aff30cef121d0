package app_test

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
)

// D02
func TestASecondRequestAsksNoServerForItsTools(t *testing.T) {
	noLeaks(t)
	for _, tt := range []struct {
		ttl   string
		lists int
	}{{"10m", 1}, {"0s", 3}} {
		t.Run(tt.ttl, func(t *testing.T) {
			tools := newMCP(t, map[string]handler{"echo": echo})
			up := newUpstream(t, script(says("hi")))
			g := MustRun(t, site{upstream: up.URL, runtime: "catalog_ttl: " + tt.ttl, servers: []string{server("s", tools.URL)}}.yaml())
			for range 3 {
				g.post(question).completion(t)
			}
			if n := len(tools.of("tools/list")); n != tt.lists {
				t.Errorf("%d tools/list calls", n)
			}
		})
	}
}

// A change of one server's settings asks that server again, and no other. // D02
func TestAChangeOfOneServerAsksOnlyThatServer(t *testing.T) {
	noLeaks(t)
	still, changed := newMCP(t, map[string]handler{"echo": echo}), newMCP(t, map[string]handler{"other": echo})
	up := newUpstream(t, script(says("hi")))
	d := manage(MustRun(t, site{upstream: up.URL, servers: []string{server("still", still.URL)}}.yaml()))
	d.do("POST", "/api/mcp-servers", "owner-key", fmt.Sprintf(`{"name":"changed","url":%q}`, changed.URL), 201)
	for lists, change := range []string{"", `{"naming":"namespaced"}`, `{"timeout":"7s"}`} {
		if change != "" {
			d.do("PATCH", "/api/mcp-servers/changed", "owner-key", change, 200)
		}
		for range 2 {
			d.post(question).completion(t)
		}
		if a, b := len(still.of("tools/list")), len(changed.of("tools/list")); a != 1 || b != lists+1 {
			t.Errorf("after the change %s: %d tools/list calls of the server that did not change, %d of the other", change, a, b)
		}
	}
}

// Each of three servers answers only when all have been asked. // D01
func TestAllServersAreAskedAtTheSameTime(t *testing.T) {
	noLeaks(t)
	var all sync.WaitGroup
	all.Add(3)
	var servers []string
	for i := range 3 {
		s := newRawMCP(t, methods{"tools/list": func(w http.ResponseWriter, _ *http.Request, m rpc) {
			all.Done()
			all.Wait()
			reply(w, m, oneTool(fmt.Sprintf("tool%d", i)))
		}})
		servers = append(servers, server(fmt.Sprintf("s%d", i), s.URL))
	}
	up := newUpstream(t, script(says("hi")))
	g := MustRun(t, site{upstream: up.URL, servers: servers}.yaml())
	g.post(question).completion(t)
	if offered := string(up.requests()[0].decode(t).Tools); strings.Count(offered, `"type":"function"`) != 3 {
		t.Errorf("the model was offered %s", offered)
	}
}

// D03 D04 D05
func TestTwoServersWithTheSameTool(t *testing.T) {
	noLeaks(t)
	for _, tt := range []struct{ naming, name, called string }{
		{"naming: bare", "echo", "one"},
		{"naming: namespaced", "mcp__two__echo", "two"},
		{"naming: prefixed, prefix: mine", "mine_echo", "two"},
	} {
		t.Run(tt.naming, func(t *testing.T) {
			one := newMCP(t, map[string]handler{"echo": func(context.Context, string) (string, error) { return "one", nil }})
			two := newMCP(t, map[string]handler{"echo": func(context.Context, string) (string, error) { return "two", nil }})
			up := newUpstream(t, script(asks(call{tt.name, `{}`}), says("Done.")))
			g := MustRun(t, site{upstream: up.URL, servers: []string{server("one", one.URL), server("two", two.URL, tt.naming)}}.yaml())
			g.post(question).completion(t)
			if told := up.requests()[1].results(t); !slices.Equal(told, []string{tt.called}) {
				t.Errorf("the model was told %q", told)
			}
		})
	}
}

// D12 D18
func TestTheHeadersOfAServerAreSentWithEverything(t *testing.T) {
	noLeaks(t)
	tools := newMCP(t, map[string]handler{"echo": echo})
	up := newUpstream(t, script(asks(call{"echo", `{}`}), says("Done.")))
	g := MustRun(t, site{upstream: up.URL, servers: []string{server("s", tools.URL, `headers: {Authorization: "Bearer env:TOKEN", X-Team: blue}`)}}.yaml())
	g.post(question, "Cookie", "mine=1", "X-Mine", "1").completion(t)
	if len(tools.of("tools/list")) != 1 || len(tools.of("tools/call")) != 1 {
		t.Fatalf("%d lists, %d calls", len(tools.of("tools/list")), len(tools.of("tools/call")))
	}
	for _, m := range tools.of("") {
		if m.header.Get("Authorization") != "Bearer CANARY-token" || m.header.Get("X-Team") != "blue" {
			t.Errorf("%s came with %v", m.Method, m.header)
		}
		if m.header.Get("Cookie") != "" || m.header.Get("X-Mine") != "" {
			t.Errorf("%s carries the caller's header", m.Method)
		}
	}
	if strings.Contains(g.log.String(), "CANARY") {
		t.Error("the log holds the token")
	}
}

// D19
func TestWhatIsTriedAgain(t *testing.T) {
	noLeaks(t)
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
			failing := func(n int, result string) method {
				return func(w http.ResponseWriter, _ *http.Request, m rpc) {
					if n--; n >= 0 {
						http.Error(w, "busy", http.StatusServiceUnavailable)
						return
					}
					reply(w, m, result)
				}
			}
			tools := newRawMCP(t, methods{
				"tools/list": failing(tt.failLists, readOnly),
				"tools/call": failing(tt.failCalls, `{"content":[{"type":"text","text":"ok"}]}`),
			})
			up := newUpstream(t, script(asks(call{"echo", `{}`}), says("Done.")))
			g := MustRun(t, site{upstream: up.URL, servers: []string{server("s", tools.URL, tt.more)}}.yaml())
			g.post(question).completion(t)
			if told := up.requests()[1].results(t); len(told) != 1 || !strings.Contains(told[0], tt.told) {
				t.Errorf("the model was told %q", told)
			}
			if l, c := len(tools.of("tools/list")), len(tools.of("tools/call")); l != tt.lists || c != tt.calls {
				t.Errorf("%d lists and %d calls", l, c)
			}
		})
	}
}

// After every restart the model is offered the same bytes, in whatever
// order and however fast the servers answer. (A thousand times: package catalog.) // C24 P07
func TestTheModelIsOfferedTheSameBytesAfterEveryRestart(t *testing.T) {
	noLeaks(t)
	random := rand.New(rand.NewPCG(3, 4))
	var first string
	for i := range 20 {
		var servers []string
		for s := range 3 {
			names := random.Perm(12)
			delay := time.Duration(random.IntN(5)) * time.Millisecond
			mcp := newRawMCP(t, methods{"tools/list": func(w http.ResponseWriter, r *http.Request, m rpc) {
				_ = pause(r.Context(), delay)
				var list []string
				for _, n := range names {
					list = append(list, fmt.Sprintf(`{"name":"t%d","description":"of %d","inputSchema":{"type":"object","properties":{"b":{},"a":{}}}}`, n+6*s, s))
				}
				reply(w, m, `{"tools":[`+strings.Join(list, ",")+`]}`)
			}})
			servers = append(servers, server(fmt.Sprintf("s%d", s), mcp.URL))
		}
		up := newUpstream(t, script(says("hi")))
		g := MustRun(t, site{upstream: up.URL, servers: servers}.yaml())
		g.post(question).completion(t)
		offered := string(up.requests()[0].decode(t).Tools)
		if i == 0 {
			first = offered
		}
		if offered != first || strings.Count(offered, `"type":"function"`) != 24 {
			t.Fatalf("restart %d:\n%s\nbefore:\n%s", i, offered, first)
		}
		_ = g.stop()
	}
}
