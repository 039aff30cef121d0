package catalog

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/tool"
)

// asked is a source that counts how often it is asked.
type asked struct {
	n    atomic.Int32
	list source
}

func asks(tools ...tool.Tool) *asked { return &asked{list: has(tools...)} }

func (a *asked) server(s Server) Server {
	s.Source = counted(&a.n, func(ctx context.Context) ([]tool.Tool, error) { return a.list(ctx) })
	return s
}

// counts returns how often each source was asked.
func counts(sources ...*asked) (out []int32) {
	for _, s := range sources {
		out = append(out, s.n.Load())
	}
	return out
}

func collisionsOf(s *Set) (out []string) {
	for _, c := range s.NewCollisions() {
		out = append(out, c.Server+"/"+c.Tool)
	}
	return out
}

// What changes, expires or fails of one server, does not ask the others again. // D02
func TestOneServerIsAskedAgain(t *testing.T) {
	now := time.Unix(0, 0)
	c := New(Options{Now: func() time.Time { return now }})
	defer c.Close()
	a, b, d := asks(named("a")), asks(named("b")), asks(named("d"))
	servers := []Server{a.server(Server{Name: "a", Revision: 1}), b.server(Server{Name: "b", Revision: 2}), d.server(Server{Name: "d", Revision: 3})}
	for _, step := range []struct {
		what string
		do   func()
		want []int32
	}{
		{"the first run asks all", func() {}, []int32{1, 1, 1}},
		{"the second asks none", func() {}, []int32{1, 1, 1}},
		{"the settings of one changed", func() { servers[1].Revision = 4 }, []int32{1, 2, 1}},
		{"one says that its tools changed", func() { c.Invalidate("o", "d") }, []int32{1, 2, 2}},
		{"a server that no run has, or that another org has, changed", func() { c.Invalidate("o", "x"); c.Invalidate("p", "a") }, []int32{1, 2, 2}},
		{"the order changed", func() { slices.Reverse(servers) }, []int32{1, 2, 2}},
		{"a server is gone", func() { servers = slices.DeleteFunc(servers, func(s Server) bool { return s.Name == "b" }) }, []int32{1, 2, 2}},
		{"the list of one changed and it is down", func() { a.list = fails("boom"); c.Invalidate("o", "a") }, []int32{2, 2, 2}},
		{"it is asked again before the others", func() { now = now.Add(retryAfter) }, []int32{3, 2, 2}},
		{"all have expired", func() { now = now.Add(time.Minute) }, []int32{4, 2, 3}},
	} {
		step.do()
		set, err := c.For(t.Context(), "o", servers, time.Minute)
		if err != nil || len(set.Servers) != len(servers) {
			t.Fatal(step.what, set, err)
		}
		if got := counts(a, b, d); !slices.Equal(got, step.want) {
			t.Fatalf("%s: the servers were asked %d times, want %d", step.what, got, step.want)
		}
	}
}

// A listing is of one org, one address and one set of credentials. // K07
func TestRequestsWithDifferentServersGetDifferentTools(t *testing.T) {
	c, _ := logged(t)
	own := asks(named("own"))
	org := own.server(Server{Name: "s", Revision: 1})
	brought := func(url, origin, name string) (*asked, Server) {
		a := asks(named(name))
		s := a.server(Server{Name: "s", FromRequest: true, URL: url, Origin: origin})
		return a, s
	}
	red, redServer := brought("https://x", "red", "of_red")
	blue, blueServer := brought("https://x", "blue", "of_blue")
	far, farServer := brought("https://y", "red", "of_y")
	for range 2 {
		for _, tt := range []struct {
			org    string
			server Server
			want   string
		}{{"o", org, "own"}, {"o", redServer, "of_red"}, {"o", blueServer, "of_blue"}, {"o", farServer, "of_y"}, {"p", redServer, "of_red"}} {
			set, err := c.For(t.Context(), tt.org, []Server{tt.server}, time.Minute)
			if err != nil || !slices.Equal(set.Names(), []string{tt.want}) {
				t.Errorf("%s gets %q, %v, want %s", tt.org, set.Names(), err, tt.want)
			}
		}
	}
	if got := counts(own, red, blue, far); !slices.Equal(got, []int32{1, 2, 1, 1}) { // red: once for each org
		t.Errorf("the servers were asked %d times", got)
	}
	both := mustFind(t, c, org, farServer)
	if !slices.Equal(both.Names(), []string{"of_y", "own"}) || !slices.Equal(counts(own, far), []int32{1, 1}) {
		t.Errorf("both servers together give %q", both.Names())
	}
	allowed := redServer
	allowed.Tools = []string{}
	if set := mustFind(t, c, allowed); len(set.Names()) != 0 || red.n.Load() != 2 {
		t.Errorf("one list, two allow-lists: got %q", set.Names())
	}
}

func TestABroughtServerWithoutAnOriginIsNotCached(t *testing.T) {
	c, _ := logged(t)
	a := asks(named("a"))
	for range 2 {
		mustFind(t, c, a.server(Server{Name: "s", FromRequest: true, URL: "https://x"}))
	}
	if k := c.orgs["o"]; a.n.Load() != 2 || len(k.entries)+len(k.sets) != 0 {
		t.Errorf("asked %d times, %d entries, %d sets", a.n.Load(), len(k.entries), len(k.sets))
	}
}

func TestServersThatRequestsBringAreBounded(t *testing.T) {
	for _, tt := range []struct {
		name string
		ttl  time.Duration
		size int // of each server's tool
	}{
		{"by their number", time.Hour, 0},
		{"by their number, if nothing is cached", 0, 0},
		{"by their size", time.Hour, 3 * MaxFromRequestBytes / MaxFromRequest},
	} {
		t.Run(tt.name, func(t *testing.T) {
			now := time.Unix(0, 0)
			c := New(Options{Now: func() time.Time { return now }})
			defer c.Close()
			own, often := asks(named("own")), asks(named("often"))
			large := fakeTool{def: tool.Definition{Name: "a", Title: strings.Repeat("x", tt.size), InputSchema: json.RawMessage(`{}`)}}
			for i := range 3 * MaxFromRequest {
				now = now.Add(time.Millisecond)
				servers := []Server{often.server(Server{Name: "often", FromRequest: true, Origin: "often"}), {Name: "b", FromRequest: true, Origin: fmt.Sprint(i), Source: has(large)}}
				if i%MaxFromRequest == 0 {
					servers = append(servers, own.server(Server{Name: "own", Revision: 1}))
				}
				if _, err := c.For(t.Context(), "o", servers, tt.ttl); err != nil {
					t.Fatal(err)
				}
				n, bytes := 0, 0
				for id, e := range c.orgs["o"].entries {
					if id.brought {
						n++
					}
					if id.brought && e.list != nil {
						bytes += e.list.bytes
					}
				}
				if n > MaxFromRequest || bytes > MaxFromRequestBytes || len(c.orgs["o"].sets) > maxSets {
					t.Fatalf("after %d requests: %d servers with %d bytes, %d sets", i+1, n, bytes, len(c.orgs["o"].sets))
				}
			}
			if tt.ttl > 0 && (own.n.Load() != 1 || often.n.Load() != 1) {
				t.Errorf("the org's server was asked %d times, the one that all bring %d times", own.n.Load(), often.n.Load())
			}
		})
	}
}

func TestServersThatNoRunUsesAreDropped(t *testing.T) {
	now := time.Unix(0, 0)
	c := New(Options{Now: func() time.Time { return now }})
	defer c.Close()
	const ttl = 2 * keepUnused
	find := func(org, name string) {
		t.Helper()
		if _, err := c.For(t.Context(), org, []Server{{Name: name, Source: has(named("a"))}}, ttl); err != nil {
			t.Fatal(err)
		}
	}
	find("idle", "s")
	find("busy", "old")
	find("busy", "s")
	now = now.Add(ttl)
	find("busy", "s")
	if len(c.orgs) != 2 || len(c.orgs["busy"].entries) != 2 {
		t.Errorf("%d orgs, %d servers; nothing is unused for longer than %v", len(c.orgs), len(c.orgs["busy"].entries), ttl)
	}
	now = now.Add(sweepEvery)
	find("busy", "new") // another one is asked
	if busy := c.orgs["busy"]; len(c.orgs) != 1 || len(busy.entries) != 2 || len(busy.sets) != 2 {
		t.Errorf("%d orgs, %d servers, %d sets", len(c.orgs), len(busy.entries), len(busy.sets))
	}
}

func TestTheToolsOfAListOfServersAreAssembledOnce(t *testing.T) {
	c, _ := logged(t)
	one, two := Server{Name: "one", Source: has(named("a"))}, Server{Name: "two", Source: has(named("b"))}
	first, both := mustFind(t, c, one), mustFind(t, c, one, two)
	for range 3 {
		if mustFind(t, c, one) != first || mustFind(t, c, one, two) != both {
			t.Fatal("the same servers were assembled again")
		}
	}
	prefixed := one
	prefixed.Naming = Prefixed
	if set := mustFind(t, c, prefixed); !slices.Equal(set.Names(), []string{"one_a"}) {
		t.Errorf("with another naming: %q", set.Names())
	}
	c.Invalidate("o", "two")
	if n := len(c.orgs["o"].sets); n != 2 || mustFind(t, c, one) != first || mustFind(t, c, one, two) == both {
		t.Errorf("%d sets after one server changed, want the two without it", n)
	}
}

// A collision is told when one of its servers was asked again, and not otherwise.
func TestACollisionIsToldOnce(t *testing.T) {
	c, log := logged(t)
	one, two, three := Server{Name: "one", Source: has(named("a"))}, Server{Name: "two", Source: has(named("a"))}, Server{Name: "three", Source: has(named("b"))}
	told := func(what string, want []string, servers ...Server) {
		t.Helper()
		if got := collisionsOf(mustFind(t, c, servers...)); !slices.Equal(got, want) {
			t.Errorf("%s: told %q, want %q", what, got, want)
		}
	}
	told("the first run", []string{"two/a"}, one, two)
	told("the second run", nil, one, two)
	told("with one more server", nil, one, two, three)
	told("the other way round", []string{"one/a"}, two, one)
	c.Invalidate("o", "three")
	told("a server without a collision was asked again", nil, one, two, three)
	c.Invalidate("o", "one")
	told("the first of the two was asked again", []string{"two/a"}, one, two, three)
	c.Invalidate("o", "two")
	told("the second of the two was asked again", []string{"two/a"}, one, two)
	if n := strings.Count(log(), "mcp_tool_name_collision"); n != 4 {
		t.Errorf("the log tells it %d times:\n%s", n, log())
	}
}

func TestAServerThatWorksAfterAChangeIsLogged(t *testing.T) {
	c, log := logged(t)
	mustFind(t, c, Server{Name: "s", Revision: 1, Source: fails("boom")}, Server{Name: "other", Source: has(named("a"))})
	mustFind(t, c, Server{Name: "s", Revision: 2, Source: fails("boom")}) // the change did not help
	mustFind(t, c, Server{Name: "s", Revision: 3, Source: has(named("a"))})
	if strings.Count(log(), "mcp_server_unavailable") != 1 || strings.Count(log(), "mcp_server_available") != 1 || strings.Contains(log(), "server=other") {
		t.Error(log())
	}
}

// A request that began before a change asks for itself alone.
func TestARequestOfBeforeAChangeDoesNotDisturbLaterOnes(t *testing.T) {
	c, _ := logged(t)
	before, after := asks(named("old")), asks(named("new"))
	for range 3 {
		if set := mustFind(t, c, after.server(Server{Name: "s", Revision: 2})); set.Lookup("new") == nil {
			t.Errorf("after the change: %q", set.Names())
		}
		if set := mustFind(t, c, before.server(Server{Name: "s", Revision: 1})); set.Lookup("old") == nil {
			t.Errorf("before the change: %q", set.Names())
		}
	}
	if after.n.Load() != 1 || before.n.Load() != 3 {
		t.Errorf("asked %d times before and %d times after the change", before.n.Load(), after.n.Load())
	}
}

// A run that brought a server is continued with that server or without it, never with
// the org's server of the same name.
func TestASealedToolIsThatOfItsServer(t *testing.T) {
	server := func(brought bool, origin string) Server {
		return Server{Name: "s", FromRequest: brought, Origin: origin, Source: has(named("a"))}
	}
	for _, tt := range []struct {
		name      string
		then, now Server
		works     bool
	}{
		{"the same brought server", server(true, "x"), server(true, "x"), true},
		{"a brought server with other credentials", server(true, "x"), server(true, "y"), false},
		{"the org has a server of that name", server(true, "x"), server(false, "x"), false},
		{"the request brought a server with the name of the org's", server(false, "x"), server(true, "x"), false},
		{"the org's server with other credentials", server(false, "x"), server(false, "y"), true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before, _ := logged(t)
			text, err := json.Marshal(mustFind(t, before, tt.then).Seal())
			if err != nil {
				t.Fatal(err)
			}
			var sealed []Sealed
			if err := json.Unmarshal(text, &sealed); err != nil {
				t.Fatal(err)
			}
			after, _ := logged(t)
			set, err := mustFind(t, after, tt.now).Recall(sealed, nil)
			if err != nil {
				t.Fatal(err)
			}
			_, err = set.Lookup("a").Tool.Call(t.Context(), tool.Call{})
			if (err == nil) != tt.works {
				t.Errorf("a call of the tool gives %v", err)
			}
			if again := set.Seal(); !sameText(t, again, sealed) {
				t.Errorf("sealed again: %v, before %v", again, sealed)
			}
		})
	}
}

func TestManyRunsAndChangesAtOnce(t *testing.T) {
	c, _ := logged(t)
	var running sync.WaitGroup
	for worker := range 8 {
		running.Go(func() {
			for i := range 200 {
				o, n := fmt.Sprint("o", i%2), fmt.Sprint("s", (i+worker)%5)
				servers := []Server{{Name: n, Source: has(named("a")), Revision: uint64(i % 3)}, {Name: "b", FromRequest: true, Origin: n, Source: has(named("a"), named(n))}}
				set, err := c.For(t.Context(), o, servers, time.Duration(i%2)*time.Minute)
				if err != nil || !slices.Equal(set.Names(), []string{"a", n}) {
					t.Errorf("%v, %v", set, err)
				}
				set.NewCollisions()
				switch i % 10 {
				case 3:
					c.Invalidate(o, n)
				case 7:
					c.Remove(o)
				}
			}
		})
	}
	running.Wait()
}

// BenchmarkFor is the cost of the tools of a run: with lists and set cached, and with a
// list of servers that was not assembled yet.
func BenchmarkFor(b *testing.B) {
	c := New(Options{})
	defer c.Close()
	var servers []Server
	for s := range 4 {
		var tools []tool.Tool
		for i := range 32 {
			tools = append(tools, schemed(fmt.Sprintf("t%d_%d", s, i), `{"type":"object","properties":{"query":{"type":"string","description":"what to look for"},"limit":{"type":"integer"}}}`))
		}
		servers = append(servers, Server{Name: fmt.Sprint("s", s), Source: has(tools...), Revision: uint64(s) + 1})
	}
	for name, fresh := range map[string]bool{"same servers": false, "other servers": true} {
		b.Run(name, func(b *testing.B) {
			for i := range b.N {
				if fresh {
					servers[0].Prefix = fmt.Sprint(i) // without meaning for bare names
				}
				if _, err := c.For(b.Context(), "o", servers, time.Hour); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
