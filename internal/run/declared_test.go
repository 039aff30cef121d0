package run_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/secret"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

// exchange is a Dialer of servers by their URL, in one process.
type exchange struct {
	name    string
	servers map[string]*stand

	mu    sync.Mutex
	held  int
	given []run.RequestServer
}

func (x *exchange) Dial(_ string, d run.RequestServer) (tool.Source, string, func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.held++
	x.given = append(x.given, d)
	return x.servers[d.URL.Reveal()], x.name + d.Label, func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.held--
	}
}

const declaredURL, declaredToken = "https://tools.example/PATH-CANARY?key=QUERY-CANARY", "HEADER-CANARY"

func declares(req *run.Request) *run.Request {
	req = from(req)
	req.RequestServers = []run.RequestServer{{
		Label: "mine", URL: secret.NewValue(declaredURL), Headers: map[string]secret.Value{"Authorization": secret.NewValue(declaredToken)},
	}}
	return req
}

func testKeys(t *testing.T) *secret.Keyring {
	t.Helper()
	keys, err := secret.NewKeyring(secret.NewValue("q2pV0S0j5m7J4O0w1hYk3XrT9bZcUeNfGdLa8iQxRzs="))
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// stored returns everything that the store has of the town's runs.
func (w *town) stored(t *testing.T, id string) string {
	t.Helper()
	story, err := w.journal.Load(t.Context(), "o", id)
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, f := range story.Facts {
		body, err := loop.Encode(f.Body)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(body)
	}
	for _, ref := range slices.Sorted(maps.Keys(story.Rows)) {
		all.Write(story.Rows[ref])
	}
	return all.String()
}

// A run that another process takes over calls the server that its request declared,
// with the same credentials. They are stored only sealed. Without a master key they are not
// stored, and the run does not call another server. // D22 K06
func TestATakenOverRunDialsTheServerThatItsRequestDeclared(t *testing.T) {
	for name, tt := range map[string]struct {
		keys    bool
		listing bool // the first process goes while it lists the tools
		text    string
		reason  event.Reason
	}{
		"sealed":                       {true, false, "mine", event.Complete},
		"sealed, before discovery":     {true, true, "mine", event.Complete},
		"not stored":                   {false, false, "was removed or changed after the run started", event.Complete},
		"not stored, before discovery": {false, true, "", event.Lost},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mine, again := &stand{tool: "read_mine", credentials: "mine", work: untilItEnds}, &stand{tool: "read_mine", credentials: "mine"}
				if tt.listing {
					mine.listing = untilItEnds
				}
				w := &town{}
				a, b := &exchange{name: "a", servers: map[string]*stand{declaredURL: mine}}, &exchange{name: "b", servers: map[string]*stand{declaredURL: again}}
				with := func(x *exchange, change func(*run.Options)) *run.Runner {
					return w.gatewayWith(t, func(o *run.Options) {
						o.Dialer = x
						if tt.keys {
							o.Keys = testKeys(t)
						}
						change(o)
					})
				}
				first := with(a, func(*run.Options) {})
				second := with(b, func(o *run.Options) { o.Resources = others{} })
				var d diary
				leaving(t, first, declares(w.wants("p", "k", "h")), &d)
				time.Sleep(journal.LeaseTTL)
				if err := second.Open(t.Context()); err != nil {
					t.Fatal(err)
				}
				text, end := w.attached(t, second)
				synctest.Wait() // the servers are released after the end is told
				if !strings.Contains(text, tt.text) || end.Reason != tt.reason {
					t.Errorf("the run ended with %s and says %q", end.Reason, text)
				}
				if tt.keys {
					if len(b.given) != 1 || b.given[0].Headers["Authorization"].Reveal() != declaredToken {
						t.Errorf("the next owner dials %d servers", len(b.given))
					}
				} else if len(b.given) != 0 {
					t.Error("the next owner knows the server")
				}
				if b.held != 0 {
					t.Errorf("%d servers are in use after the run", b.held)
				}
				text = w.stored(t, d.events[0].(event.Started).RunID)
				for _, canary := range []string{"PATH-CANARY", "QUERY-CANARY", "HEADER-CANARY"} {
					if strings.Contains(text, canary) {
						t.Errorf("the store has %s", canary)
					}
				}
			})
		})
	}
}

// The label of a declared server is that of a hidden server of the org. Both are called,
// each is told from the other, and the next owner of the run keeps them apart. // D19 K06
func TestATakenOverRunKeepsServersWithOneLabelApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, mineAgain := &stand{tool: "read_mine", credentials: "mine", work: untilItEnds}, &stand{tool: "read_mine", credentials: "mine"}
		org, orgAgain := &stand{tool: "read_org", credentials: "org", work: untilItEnds}, &stand{tool: "read_org", credentials: "org"}
		w := &town{}
		with := func(name string, mine, org *stand) *run.Runner {
			return w.gatewayWith(t, func(o *run.Options) {
				o.Dialer, o.Keys = &exchange{name: name, servers: map[string]*stand{declaredURL: mine}}, testKeys(t)
				o.Resources = others{{Name: "mine", Source: org}}
			})
		}
		first, second := with("a", mine, org), with("b", mineAgain, orgAgain)
		req := declares(w.wants("p", "k", "h"))
		req.Servers = []catalog.Server{{Name: "mine", Source: org}}
		var d diary
		leaving(t, first, req, &d)
		if listed, shown, hidden := d.listings(); !slices.Equal(listed, []string{"mine: read_mine"}) || !slices.Equal(shown, []string{"mine/read_mine"}) || !slices.Equal(hidden, []string{"mine/"}) {
			t.Errorf("listed %q, shown %q, hidden %q", listed, shown, hidden)
		}
		time.Sleep(journal.LeaseTTL)
		if err := second.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		text, end := w.attached(t, second)
		if !sameWords(strings.Fields(text), []string{"mine", "org"}) || end.Reason != event.Complete || mineAgain.calls.Load() != 1 || orgAgain.calls.Load() != 1 {
			t.Errorf("the run ended with %s and says %q", end.Reason, text)
		}
	})
}

// The servers that a request declares are used while its run lasts. The caller sees an org's
// server that it declares without a URL, with the tools that it allows.
func TestARequestDeclaresServers(t *testing.T) {
	mine := &stand{tool: "read_mine", credentials: "mine"}
	org, other := &stand{tool: "read_org", credentials: "org"}, &stand{tool: "read_other", credentials: "other"}
	x := &exchange{servers: map[string]*stand{declaredURL: mine}}
	w := &town{}
	req := declares(w.wants("p", "k", "h"))
	req.Key, req.Policy.Grade = nil, loop.Light
	req.Servers = []catalog.Server{{Name: "org", Source: org, Tools: []string{"read_org", "x"}}, {Name: "other", Source: other}}
	req.RequestServers = append(req.RequestServers, run.RequestServer{Label: "org", Tools: []string{"read_org", "y"}}, run.RequestServer{Label: "other", ReadOnly: new(true)})
	var d diary
	if err := w.gatewayWith(t, func(o *run.Options) { o.Dialer = x }).Run(t.Context(), req, &d); err != nil {
		t.Fatal(err)
	}
	listed, shown, hidden := d.listings()
	if want := []string{"org: read_org", "other:", "mine: read_mine"}; !slices.Equal(listed, want) {
		t.Errorf("listed %q, want %q", listed, want)
	}
	slices.Sort(shown)
	if !slices.Equal(shown, []string{"mine/read_mine", "org/read_org"}) || hidden != nil || x.held != 0 {
		t.Errorf("shown %q, hidden %q, %d in use", shown, hidden, x.held)
	}
	if len(req.Servers) != 2 || req.Servers[0].Shown {
		t.Error("the request of the caller was changed")
	}
}

// A choice of a server's tools is enforced, whatever the model does. // B09 D23
func TestAChoiceOfTheToolsOfAServer(t *testing.T) {
	for name, tt := range map[string]struct {
		choice model.ToolChoice
		of     []run.ServerTool
		calls  map[string]int32 // by server
		reason event.Reason
	}{
		"all of a server":          {model.ToolChoice{Mode: model.ChooseRequired}, []run.ServerTool{{Server: "b"}}, map[string]int32{"b": 1}, event.Complete},
		"a tool":                   {model.ToolChoice{Mode: model.ChooseNamed}, []run.ServerTool{{Server: "a", Tool: "read_a"}}, map[string]int32{"a": 1}, event.Complete},
		"some of them":             {model.ToolChoice{Mode: model.ChooseAuto}, []run.ServerTool{{Server: "a"}, {Server: "b", Tool: "read_b"}}, map[string]int32{"a": 1, "b": 1}, event.Complete},
		"a tool that it has not":   {model.ToolChoice{Mode: model.ChooseNamed}, []run.ServerTool{{Server: "a", Tool: "read_b"}}, nil, event.Invalid},
		"a server that has none":   {model.ToolChoice{Mode: model.ChooseRequired}, []run.ServerTool{{Server: "c"}}, nil, event.Invalid},
		"none of those that exist": {model.ToolChoice{Mode: model.ChooseAuto}, []run.ServerTool{{Server: "c"}}, nil, event.Complete},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := &stand{tool: "read_a", credentials: "a"}, &stand{tool: "read_b", credentials: "b"}
			w := &town{}
			req := from(w.wants("p", "k", "h"), catalog.Server{Name: "a", Source: a}, catalog.Server{Name: "b", Source: b})
			req.ToolChoice, req.OnlyOf = tt.choice, tt.of
			var d diary
			if err := w.gateway(t).Run(t.Context(), req, &d); err != nil {
				t.Fatal(err)
			}
			_, end := d.said()
			if a.calls.Load() != tt.calls["a"] || b.calls.Load() != tt.calls["b"] || end.Reason != tt.reason {
				t.Errorf("%d calls of a, %d of b, ended with %s %+v", a.calls.Load(), b.calls.Load(), end.Reason, end.Failure)
			}
		})
	}
}

// A tool of a declared server with the name of an org's tool is offered beside it,
// under another name. One with the name of a client's tool ends the run. // D03 A16
func TestNamesOfDeclaredToolsThatAreTaken(t *testing.T) {
	mine, org := &stand{tool: "read_same", credentials: "mine"}, &stand{tool: "read_same", credentials: "org"}
	w := &town{}
	runner := w.gatewayWith(t, func(o *run.Options) { o.Dialer = &exchange{servers: map[string]*stand{declaredURL: mine}} })
	req := declares(w.wants("p", "k", "h"))
	req.Servers = []catalog.Server{{Name: "org", Source: org}}
	var d diary
	if err := runner.Run(t.Context(), req, &d); err != nil {
		t.Fatal(err)
	}
	listed, shown, hidden := d.listings()
	if !slices.Equal(listed, []string{"mine: read_same"}) || !slices.Equal(shown, []string{"mine/read_same"}) || len(hidden) != 1 || mine.calls.Load() != 1 || org.calls.Load() != 1 {
		t.Errorf("listed %q, shown %q, hidden %q", listed, shown, hidden)
	}

	req = declares(w.wants("p", "k2", "h"))
	req.ClientTools = []model.Tool{{Definition: tool.Definition{Name: "read_same", InputSchema: json.RawMessage(`{"type":"object"}`)}}}
	d = diary{}
	if err := runner.Run(t.Context(), req, &d); err != nil {
		t.Fatal(err)
	}
	if _, end := d.said(); end.Reason != event.Invalid || end.Failure == nil || end.Failure.Code != "tool_name_conflict" {
		t.Errorf("%+v", end)
	}
}

// The choice of a function of the client holds for the calls of the first turn. // B09
func TestAChoiceOfAFunctionExcludesTheToolsOfServers(t *testing.T) {
	a := &stand{tool: "read_a", credentials: "a"}
	w := &town{}
	req := from(w.wants("p", "k", "h"), catalog.Server{Name: "a", Source: a})
	req.ClientTools = []model.Tool{{Definition: tool.Definition{Name: "theirs", InputSchema: json.RawMessage(`{"type":"object"}`)}}}
	req.ToolChoice = model.ToolChoice{Mode: model.ChooseNamed, Name: "theirs"}
	var d diary
	if err := w.gateway(t).Run(t.Context(), req, &d); err != nil {
		t.Fatal(err)
	}
	if _, end := d.said(); a.calls.Load() != 0 || end.Reason != event.ClientCalls || len(end.Calls) != 1 {
		t.Errorf("%d calls, %+v", a.calls.Load(), end)
	}
}

// What is printed of a declared server has no secrets.
func TestADeclaredServerPrintsNoSecrets(t *testing.T) {
	text, err := json.Marshal(declares(&run.Request{}).RequestServers)
	if err != nil || strings.Contains(string(text), "CANARY") {
		t.Errorf("%s %v", text, err)
	}
}
