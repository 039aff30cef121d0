package catalog

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/turnpike-gateway/turnpike/tool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeTool is a tool that is only looked at.
type fakeTool struct {
	def   tool.Definition
	class tool.Class
}

func (f fakeTool) Definition() tool.Definition { return f.def }

func (f fakeTool) Class() tool.Class { return f.class }

func (f fakeTool) Call(context.Context, tool.Call) (tool.Result, error) { return tool.Text("ok"), nil }

func named(name string) tool.Tool { return schemed(name, `{"type":"object"}`) }

func schemed(name, schema string) tool.Tool {
	return fakeTool{def: tool.Definition{Name: name, InputSchema: json.RawMessage(schema)}}
}

// source lists what its function returns.
type source func(ctx context.Context) ([]tool.Tool, error)

func (s source) List(ctx context.Context) ([]tool.Tool, error) { return s(ctx) }

func has(tools ...tool.Tool) source {
	return func(context.Context) ([]tool.Tool, error) { return tools, nil }
}

func fails(text string) source {
	return func(context.Context) ([]tool.Tool, error) { return nil, errors.New(text) }
}

// logged returns a catalogue and what it logs.
func logged(t *testing.T) (*Catalog, func() string) {
	var mu sync.Mutex
	var b bytes.Buffer
	c := New(Options{Log: slog.New(slog.NewTextHandler(locked{&mu, &b}, nil))})
	t.Cleanup(c.Close)
	return c, func() string {
		mu.Lock()
		defer mu.Unlock()
		return b.String()
	}
}

type locked struct {
	mu *sync.Mutex
	b  *bytes.Buffer
}

func (l locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func mustFind(t *testing.T, c *Catalog, servers ...Server) *Set {
	t.Helper()
	set, err := c.For(t.Context(), "o", servers, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func TestWhatIsAToolAndWhatIsNone(t *testing.T) {
	const object = `{"type":"object"}`
	for _, tt := range []struct {
		name    string
		servers []Server
		names   []string
		log     []string // each stands in the log
		never   []string // none of these does
	}{
		{"no server", nil, nil, nil, []string{"level=WARN"}},
		{"a tool without a schema is dropped", []Server{{Name: "s", Source: has(named("a"), fakeTool{def: tool.Definition{Name: "b"}})}}, // D07
			[]string{"a"}, []string{"mcp_tool_invalid_schema", "tool=b"}, []string{"mcp_server_no_valid_tools"}},
		{"a null schema is none", []Server{{Name: "s", Source: has(schemed("b", "null"))}}, nil, []string{"mcp_tool_invalid_schema", "mcp_server_no_valid_tools"}, nil}, // D07 D08
		{"a list is no schema", []Server{{Name: "s", Source: has(schemed("b", "[]"))}}, nil, []string{"mcp_tool_invalid_schema"}, nil},
		{"true is no schema", []Server{{Name: "s", Source: has(schemed("b", "true"))}}, nil, []string{"mcp_tool_invalid_schema"}, nil},
		{"a schema of something else than objects is none", []Server{{Name: "s", Source: has(schemed("b", `{"type":"string"}`))}}, nil, []string{"mcp_tool_invalid_schema"}, nil},
		{"broken JSON is no schema", []Server{{Name: "s", Source: has(schemed("b", `{"type":`))}}, nil, []string{"mcp_tool_invalid_schema"}, nil},
		{"a schema that is elsewhere is not fetched", []Server{{Name: "s", Source: has(schemed("b", `{"$ref":"http://127.0.0.1/x"}`))}}, nil, []string{"mcp_tool_invalid_schema"}, nil},
		{"a server without tools says so", []Server{{Name: "s", Source: has()}}, nil, []string{"mcp_server_no_valid_tools", "server=s"}, nil}, // D08
		{"a server whose tools are all left out has valid ones", []Server{{Name: "s", Source: has(named("a")), Tools: []string{"b"}}}, nil, nil, []string{"mcp_server_no_valid_tools"}},
		{"the first server wins", []Server{{Name: "one", Source: has(named("a"))}, {Name: "two", Source: has(named("a"), named("b"))}}, // D03
			[]string{"a", "b"}, []string{"mcp_tool_name_collision", "server=two", "kept_from=one"}, nil},
		{"a shown server keeps a tool whose name is taken", []Server{{Name: "one", Source: has(named("a"))}, {Name: "two", Source: has(named("a"), named("b")), Shown: true}, {Name: "three", Source: has(named("a")), Shown: true}}, // D03 G15
			[]string{"a", "b", "mcp__three__a", "mcp__two__a"}, nil, []string{"mcp_tool_name_collision"}},
		{"the first of one server's equal names wins", []Server{{Name: "one", Source: has(named("a"), schemed("a", `{"type":"object","x":1}`))}}, []string{"a"}, []string{"mcp_tool_name_collision"}, nil},
		{"an invalid tool takes no name", []Server{{Name: "one", Source: has(schemed("a", "7"))}, {Name: "two", Source: has(named("a"))}}, []string{"a"}, nil, []string{"mcp_tool_name_collision"}},
		{"a tool that is not offered takes no name", []Server{{Name: "one", Source: has(named("a"), named("b")), Tools: []string{"b"}}, {Name: "two", Source: has(named("a"))}}, // C06
			[]string{"a", "b"}, nil, []string{"mcp_tool_name_collision"}},
		{"an empty list of names offers nothing", []Server{{Name: "s", Source: has(named("a")), Tools: []string{}}}, nil, nil, nil},
		{"a server that is down is left out", []Server{{Name: "one", Source: fails("boom")}, {Name: "two", Source: has(named("a"))}}, // D09
			[]string{"a"}, []string{"mcp_server_unavailable", "server=one", "boom"}, []string{"mcp_server_no_valid_tools"}},
		{"namespaced", []Server{{Name: "s.1", Source: has(named("a.b")), Naming: Namespaced}}, []string{"mcp__s_1__a_b_" + suffixOf("mcp__s_1__a.b")}, nil, nil}, // D04
		{"prefixed by the server", []Server{{Name: "s", Source: has(named("a")), Naming: Prefixed}}, []string{"s_a"}, nil, nil},                                  // D05
		{"prefixed by something else", []Server{{Name: "s", Source: has(named("a")), Naming: Prefixed, Prefix: "my"}}, []string{"my_a"}, nil, nil},
		{"names meet after they were made", []Server{{Name: "s", Source: has(named("a")), Naming: Prefixed}, {Name: "two", Source: has(named("s_a"))}}, []string{"s_a"}, []string{"mcp_tool_name_collision"}, nil},
		{"an allow-list has the tool's own names", []Server{{Name: "s", Source: has(named("a"), named("b")), Naming: Namespaced, Tools: []string{"a"}}}, []string{"mcp__s__a"}, nil, nil},
		{"sorted by name", []Server{{Name: "s", Source: has(named("b"), named("C"), named("a"))}}, []string{"C", "a", "b"}, nil, nil}, // C24
		{"deep but within bounds", []Server{{Name: "s", Source: has(schemed("a", object))}}, []string{"a"}, nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, log := logged(t)
			set := mustFind(t, c, tt.servers...)
			if got := set.Names(); !slices.Equal(got, tt.names) {
				t.Errorf("names %q, want %q", got, tt.names)
			}
			if len(set.Offered()) != len(tt.names) || len(set.Servers) != len(tt.servers) {
				t.Errorf("%d offered, %d servers", len(set.Offered()), len(set.Servers))
			}
			for _, want := range tt.log {
				if !strings.Contains(log(), want) {
					t.Errorf("the log lacks %s:\n%s", want, log())
				}
			}
			for _, not := range tt.never {
				if strings.Contains(log(), not) {
					t.Errorf("the log holds %s:\n%s", not, log())
				}
			}
		})
	}
}

func TestAnEntryKnowsWhereItIsFrom(t *testing.T) {
	c, _ := logged(t)
	set := mustFind(t, c,
		Server{Name: "s", Source: has(fakeTool{tool.Definition{Name: "a", InputSchema: json.RawMessage(`{}`)}, tool.Read}, named("b"), named("c")), Naming: Namespaced, Polling: []string{"b"}, Tools: []string{"a", "b"}, Required: true})
	a, b := set.Lookup("mcp__s__a"), set.Lookup("mcp__s__b")
	if a == nil || b == nil || set.Lookup("a") != nil || set.Lookup("") != nil {
		t.Fatal(set.Names())
	}
	if a.Server != "s" || a.Class != tool.Read || a.Polling || a.Tool.Definition().Name != "a" {
		t.Errorf("%+v", a)
	}
	if b.Class != tool.Once || !b.Polling || a.Digest == b.Digest || a.Digest == "" { // a class that is not said is the careful one
		t.Errorf("%+v", b)
	}
	if set.Withheld("mcp__s__c") != "s" || set.Withheld("mcp__s__a") != "" || set.Withheld("x") != "" { // C06
		t.Error("withheld names are wrong")
	}
	if s := set.Servers[0]; s.Label != "s" || s.Tools != 2 || !s.Required || s.Error != "" {
		t.Errorf("%+v", s)
	}
}

func TestTheDigestChangesWithTheDefinition(t *testing.T) {
	base := tool.Definition{Name: "a", InputSchema: json.RawMessage(`{"type":"object"}`)}
	digest := func(d tool.Definition) string {
		c, _ := logged(t)
		return mustFind(t, c, Server{Name: "s", Source: has(fakeTool{def: d})}).Lookup("a").Digest
	}
	described, schemed, hinted := base, base, base
	described.Description = "x"
	schemed.InputSchema = json.RawMessage(`{"type":"object","properties":{}}`)
	hinted.Annotations.ReadOnly = new(true)
	seen := map[string]bool{digest(base): true}
	for _, d := range []tool.Definition{described, schemed, hinted} {
		if seen[digest(d)] {
			t.Errorf("%+v has a digest that was seen before", d)
		}
		seen[digest(d)] = true
	}
	if !seen[digest(base)] {
		t.Error("the same definition has another digest")
	}
}

// C24 P07
func TestAThousandShuffledRestartsGiveTheSameBytes(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	var first []byte
	for i := range 1000 {
		var servers []Server
		for s := range 3 {
			var tools []tool.Tool
			for _, n := range random.Perm(4) {
				tools = append(tools, schemed(fmt.Sprintf("t/%d", n+2*s), fmt.Sprintf(`{"type":"object","properties":{"z%d":{},"a":{}}}`, s)))
			}
			servers = append(servers, Server{Name: fmt.Sprint("s", s), Source: has(tools...)})
		}
		c := New(Options{})
		offered, err := json.Marshal(mustFind(t, c, servers...).Offered())
		c.Close()
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			first = offered
		}
		if !bytes.Equal(offered, first) {
			t.Fatalf("restart %d:\n%s\nbefore:\n%s", i, offered, first)
		}
	}
}

// D01
func TestServersAreAskedAtTheSameTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(Options{})
		defer c.Close()
		slow := source(func(context.Context) ([]tool.Tool, error) {
			time.Sleep(time.Second) // of the bubble's clock
			return []tool.Tool{named("a")}, nil
		})
		begin := time.Now()
		mustFind(t, c, Server{Name: "one", Source: slow}, Server{Name: "two", Source: slow}, Server{Name: "three", Source: slow})
		if took := time.Since(begin); took != time.Second {
			t.Errorf("took %v", took)
		}
	})
}

// One bound for the lists of several servers together. What listed in time is there. // C13
func TestSeveralServersHaveOneBoundForTheirLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(Options{})
		defer c.Close()
		silent := source(func(ctx context.Context) ([]tool.Tool, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		own := func(name string, s source) Server {
			return Server{Name: name, Source: s, FromRequest: true, ListWithin: 30 * time.Second}
		}
		begin := time.Now()
		set := mustFind(t, c, own("one", silent), own("two", has(named("a"))), own("three", silent), Server{Name: "org", Source: has(named("b"))})
		if took := time.Since(begin); took != 30*time.Second {
			t.Errorf("took %v", took)
		}
		if set.Lookup("a") == nil || set.Lookup("b") == nil {
			t.Error("the tools of the others are missing")
		}
		for i, missing := range []bool{true, false, true, false} {
			if s := set.Servers[i]; (s.Error != "") != missing || missing && !strings.Contains(s.Error, "within 30s") {
				t.Errorf("server %s: %q", s.Label, s.Error)
			}
		}
	})
}

// counted counts how often it is asked.
func counted(n *atomic.Int32, s source) source {
	return func(ctx context.Context) ([]tool.Tool, error) {
		n.Add(1)
		return s(ctx)
	}
}

// D02
func TestASetIsKeptForItsTime(t *testing.T) {
	now := time.Unix(0, 0)
	var asked atomic.Int32
	c := New(Options{Now: func() time.Time { return now }})
	defer c.Close()
	servers := []Server{{Name: "s", Source: counted(&asked, has(named("a")))}}
	for _, step := range []struct {
		org    string
		after  time.Duration
		ttl    time.Duration
		forget bool
		asked  int32
	}{
		{"o", 0, time.Minute, false, 1},
		{"o", 59 * time.Second, time.Minute, false, 1},
		{"other", 0, time.Minute, false, 2}, // every org has its own
		{"o", time.Second, time.Minute, false, 3},
		{"o", 0, time.Minute, true, 4},
		{"o", 0, time.Minute, false, 4},
		{"other", 0, time.Minute, false, 4}, // which nobody forgot
		{"none", 0, 0, false, 5},
		{"none", 0, 0, false, 6}, // 0 asks every time
	} {
		now = now.Add(step.after)
		if step.forget {
			c.Invalidate(step.org, "s")
		}
		if _, err := c.For(t.Context(), step.org, servers, step.ttl); err != nil {
			t.Fatal(err)
		}
		if asked.Load() != step.asked {
			t.Fatalf("%+v: asked %d times", step, asked.Load())
		}
	}
}

func TestAFailureIsRememberedOnlyBriefly(t *testing.T) {
	now := time.Unix(0, 0)
	var asked atomic.Int32
	down := true
	var b bytes.Buffer
	c := New(Options{Now: func() time.Time { return now }, Log: slog.New(slog.NewTextHandler(&b, nil))})
	defer c.Close()
	servers := []Server{{Name: "s", Source: counted(&asked, func(context.Context) ([]tool.Tool, error) {
		if down {
			return nil, errors.New("boom")
		}
		return []tool.Tool{named("a")}, nil
	})}}
	find := func() *Set {
		set, err := c.For(t.Context(), "o", servers, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		return set
	}
	if set := find(); set.Servers[0].Error != "boom" || len(set.Names()) != 0 {
		t.Errorf("%+v", set.Servers)
	}
	find()
	now = now.Add(retryAfter - 1)
	find()
	if asked.Load() != 1 {
		t.Errorf("asked %d times within %v", asked.Load(), retryAfter)
	}
	now = now.Add(1)
	find()
	if n := strings.Count(b.String(), "mcp_server_unavailable"); asked.Load() != 2 || n != 1 { // logged once
		t.Errorf("asked %d times, logged %d times", asked.Load(), n)
	}
	down = false
	now = now.Add(retryAfter)
	if set := find(); set.Servers[0].Error != "" || !strings.Contains(b.String(), "mcp_server_available") {
		t.Errorf("%+v\n%s", set.Servers, b.String())
	}
	now = now.Add(time.Hour - 1)
	find()
	if asked.Load() != 3 {
		t.Errorf("asked %d times", asked.Load())
	}
}

// gate is a source that answers when it is opened.
type gate struct {
	entered chan struct{}
	open    chan struct{}
	asked   atomic.Int32
}

func newGate() *gate { return &gate{entered: make(chan struct{}, 100), open: make(chan struct{})} }

func (g *gate) List(ctx context.Context) ([]tool.Tool, error) {
	n := g.asked.Add(1)
	g.entered <- struct{}{}
	select {
	case <-g.open:
		return []tool.Tool{named(fmt.Sprint("t", n))}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func TestConcurrentCallersShareOneDiscovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := New(Options{}), newGate()
		defer c.Close()
		var callers sync.WaitGroup
		sets := make([]*Set, 50)
		for i := range sets {
			callers.Go(func() { sets[i] = mustFind(t, c, Server{Name: "s", Source: g}) })
		}
		synctest.Wait()
		close(g.open)
		callers.Wait()
		for _, s := range sets {
			if s != sets[0] {
				t.Fatal("two callers got two sets")
			}
		}
		if g.asked.Load() != 1 {
			t.Errorf("asked %d times", g.asked.Load())
		}
	})
}

func TestACallerThatLeavesReturnsAndTheOthersGetTheirTools(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := New(Options{}), newGate()
		defer c.Close()
		ctx, leave := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() {
			_, err := c.For(ctx, "o", []Server{{Name: "s", Source: g}}, time.Minute)
			left <- err
		}()
		synctest.Wait()
		stayed := make(chan *Set, 1)
		go func() { stayed <- mustFind(t, c, Server{Name: "s", Source: g}) }()
		synctest.Wait()
		leave()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Errorf("the one who left got %v", err)
		}
		close(g.open)
		if set := <-stayed; !slices.Equal(set.Names(), []string{"t1"}) {
			t.Errorf("the one who stayed got %q", set.Names())
		}
	})
}

// A change of a server while it is asked: whoever asks afterwards does not get
// what was found before.
func TestForgetDuringADiscoveryIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := New(Options{}), newGate()
		defer c.Close()
		before, after := make(chan *Set, 1), make(chan *Set, 1)
		go func() { before <- mustFind(t, c, Server{Name: "s", Source: g}) }()
		synctest.Wait()
		c.Invalidate("o", "s")
		go func() { after <- mustFind(t, c, Server{Name: "s", Source: g}) }()
		synctest.Wait()
		if g.asked.Load() != 2 {
			t.Fatalf("asked %d times: the second caller joined the first's discovery", g.asked.Load())
		}
		close(g.open)
		<-before
		found := <-after
		if kept := mustFind(t, c, Server{Name: "s", Source: g}); kept != found || g.asked.Load() != 2 {
			t.Errorf("kept %q, found after the change %q, asked %d times", kept.Names(), found.Names(), g.asked.Load())
		}
	})
}

func TestCloseEndsADiscoveryAndWaitsForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := New(Options{}), newGate()
		ended := make(chan error, 1)
		go func() {
			_, err := c.For(t.Context(), "o", []Server{{Name: "s", Source: g}}, time.Minute)
			ended <- err
		}()
		synctest.Wait()
		c.Close()
		if err := <-ended; err == nil {
			t.Error("a discovery that was cut off found something")
		}
	})
}

// blocked is a refusal of the outbound policy.
type blocked struct{}

func (blocked) Error() string             { return "blocked" }
func (blocked) Blocked() (string, string) { return "private", "10.0.0.1" }

// K04
func TestARefusalOfTheOutboundPolicyIsAnErrorAndIsNotKept(t *testing.T) {
	var asked atomic.Int32
	c := New(Options{})
	defer c.Close()
	servers := []Server{
		{Name: "good", Source: has(named("a"))},
		{Name: "bad", Source: counted(&asked, func(context.Context) ([]tool.Tool, error) {
			return nil, fmt.Errorf("list tools: %w", blocked{})
		})},
	}
	for range 2 {
		set, err := c.For(t.Context(), "o", servers, time.Minute)
		var fatal tool.Blocked
		if set != nil || !errors.As(err, &fatal) || !strings.Contains(err.Error(), "bad") {
			t.Errorf("%v, %v", set, err)
		}
	}
	if asked.Load() != 2 {
		t.Errorf("asked %d times", asked.Load())
	}
}

// One server's panic-free silence is bounded by its own timeout, not here; but a
// server that is refused must not wait for one that is silent.
func TestARefusalIsToldWithoutWaitingForTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(Options{})
		defer c.Close()
		slow := source(func(ctx context.Context) ([]tool.Tool, error) {
			select {
			case <-time.After(30 * time.Second):
				return nil, errors.New("did not answer")
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		})
		refused := source(func(context.Context) ([]tool.Tool, error) { return nil, blocked{} })
		begin := time.Now()
		_, err := c.For(t.Context(), "o", []Server{{Name: "slow", Source: slow}, {Name: "bad", Source: refused}}, time.Minute)
		var fatal tool.Blocked
		if took := time.Since(begin); !errors.As(err, &fatal) || took > time.Second {
			t.Errorf("%v after %v", err, took)
		}
	})
}

func TestWhatWasFoundWithServersOfBeforeIsNotForRequestsAfterAChange(t *testing.T) {
	c := New(Options{})
	defer c.Close()
	before := Server{Name: "s", Source: has(named("old")), Revision: 1}
	after := Server{Name: "s", Source: has(named("new")), Revision: 2}
	c.Invalidate("o", "s") // the change
	mustFind(t, c, before) // began before the change, and comes late
	if set := mustFind(t, c, after); set.Lookup("new") == nil || set.Lookup("old") != nil {
		t.Error("a request after the change gets the tools of before")
	}
}

func TestAShorterTimeToKeepHoldsAtOnce(t *testing.T) {
	var asked atomic.Int32
	c := New(Options{})
	defer c.Close()
	servers := []Server{{Name: "s", Source: counted(&asked, has(named("a")))}}
	for _, ttl := range []time.Duration{time.Hour, time.Hour, 0, time.Hour} {
		if _, err := c.For(t.Context(), "o", servers, ttl); err != nil {
			t.Fatal(err)
		}
	}
	if asked.Load() != 2 {
		t.Errorf("the server was asked %d times, want 2", asked.Load())
	}
}

func TestServersThatWereDownAndAreGoneAreForgotten(t *testing.T) {
	now := time.Unix(0, 0)
	c := New(Options{Now: func() time.Time { return now }})
	defer c.Close()
	for i := range 100 {
		now = now.Add(time.Minute)
		if _, err := c.For(t.Context(), "o", []Server{{Name: fmt.Sprint("s", i), Source: fails("boom")}}, 0); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(c.orgs["o"].entries); n > 1+int((keepUnused+sweepEvery)/time.Minute) {
		t.Errorf("%d servers are remembered as down, want those of the last %v", n, keepUnused)
	}
	c.Remove("o")
	if len(c.orgs) != 0 {
		t.Error("something is kept of an org that is gone")
	}
}
