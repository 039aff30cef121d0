package mcppool

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/egress"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/route"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/secret"
	"github.com/turnpike-gateway/turnpike/internal/store/memory"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// events is a sink that remembers.
type events []event.Event

func (e *events) Emit(_ event.Position, ev event.Event) error {
	*e = append(*e, ev)
	return nil
}

// lockedLog is what was logged.
type lockedLog struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// shop is a gateway with a store in memory, whose runs dial with the pool.
type shop struct {
	runner  *run.Runner
	journal memory.Journal
}

func newShop(t *testing.T, p *Pool, log io.Writer) *shop {
	t.Helper()
	keys, err := secret.NewKeyring(secret.NewValue(masterKey))
	if err != nil {
		t.Fatal(err)
	}
	logger := slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	c := catalog.New(catalog.Options{Log: logger})
	s := &shop{}
	s.runner = run.New(run.Options{
		Catalog: c, Journal: &s.journal, Conversations: &memory.Conversations{}, Leases: &s.journal, Archive: &s.journal, Dialer: p, Keys: keys, Log: logger,
	})
	t.Cleanup(func() {
		s.runner.Close(t.Context(), 0)
		c.Close()
	})
	return s
}

func (s *shop) request(script *turnpiketest.Script, grade loop.Grade, servers ...run.RequestServer) *run.Request {
	req := &run.Request{
		Who:    run.Who{Org: "o", Principal: "p", Surface: "test"},
		Input:  run.Input{Conversation: run.Conversation{Items: []item.Item{item.NewText(item.User, "go")}}, Model: "m", Targets: []route.Target{{Target: loop.Target{Provider: "up", Model: "m"}, Client: script}}, RequestServers: servers},
		Policy: loop.Policy{Grade: grade, Limits: budget.Limits{}.Clamp(budget.MaxRounds), Parallelism: loop.Safe, CatalogTTLNS: int64(time.Minute)},
	}
	if grade == loop.Durable {
		req.Key = &journal.SubmitKey{Principal: "p", Key: "k", Hash: "h"}
	}
	return req
}

// stored is all that the store has of the runs.
func (s *shop) stored(t *testing.T) string {
	t.Helper()
	runs, err := s.journal.Runs(t.Context(), "o", journal.Query{Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, summary := range runs {
		story, err := s.journal.Load(t.Context(), "o", summary.RunID)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range story.Facts {
			body, err := loop.Encode(f.Body)
			if err != nil {
				t.Fatal(err)
			}
			all.Write(body)
		}
		for _, row := range story.Rows {
			all.Write(row)
		}
	}
	return all.String()
}

// D20 D22 K06, rows 8, 9, 11 and 17 of the parity bugs: a declared server, a server of the org
// and a function of the client in one run. The declared one is shown and called with its
// credentials, which are nowhere else. A later run of the conversation lists nothing again,
// neither to its caller nor at the server.
func TestADeclaredServerAServerOfTheOrgAndAFunctionInOneRun(t *testing.T) {
	for _, grade := range []loop.Grade{loop.Light, loop.Durable} {
		t.Run(string(grade), func(t *testing.T) {
			docs := turnpiketest.NewMCPServer(turnpiketest.MCPOptions{}, turnpiketest.Tool{Name: "look", Result: "found"}, turnpiketest.Tool{Name: "unlisted"})
			defer docs.Close()
			org := turnpiketest.NewSource(turnpiketest.Tool{Name: "crm", Result: "customer"})
			var log lockedLog
			p := dialing(t, &log)
			s := newShop(t, p, &log)
			declared := declaring(docs.URL+"?k=QUERY-CANARY", "HEADER-CANARY")
			declared.Tools = []string{"look", "absent"}
			script := turnpiketest.NewScript(t, `call c1 look {}
call c2 crm {}
call c3 theirs {}
call c4 unlisted {}
`)
			req := s.request(script, grade, declared)
			req.Servers = []catalog.Server{{Name: "org", Source: org}}
			req.ClientTools = []model.Tool{{Definition: tool.Definition{Name: "theirs", InputSchema: json.RawMessage(`{"type":"object"}`)}}}
			var got events
			if err := s.runner.Run(t.Context(), req, &got); err != nil {
				t.Fatal(err)
			}
			end := got[len(got)-1].(event.Finished)
			if end.Reason != event.ClientCalls || len(end.Calls) != 1 || end.Calls[0].Name != "theirs" || len(docs.Calls()) != 1 {
				t.Errorf("%+v, %d calls", end, len(docs.Calls()))
			}
			listed, isList := got[1].(event.ToolsListed)
			if !isList || len(listed.Servers) != 1 || len(listed.Servers[0].Tools) != 1 || listed.Servers[0].Tools[0].Name != "look" {
				t.Errorf("the second event is %+v", got[1])
			}
			for _, e := range got {
				if done, ok := e.(event.ToolDone); ok && done.Shown != (done.Server == "mine") {
					t.Errorf("%+v", done)
				}
			}

			var later events
			req = s.request(turnpiketest.NewScript(t, "call c1 look {}\n\ntext Done.\n"), loop.Light, declared)
			req.Listed = []string{"mine"}
			if err := s.runner.Run(t.Context(), req, &later); err != nil {
				t.Fatal(err)
			}
			for _, e := range later {
				if _, again := e.(event.ToolsListed); again {
					t.Error("the later run lists the tools again")
				}
			}
			if docs.Count("tools/list") != 1 || len(docs.Calls()) != 2 {
				t.Errorf("tools were listed %d times, called %d times", docs.Count("tools/list"), len(docs.Calls()))
			}
			for _, h := range docs.Headers("tools/call") {
				if h.Get("Authorization") != "HEADER-CANARY" {
					t.Errorf("called with %q", h.Get("Authorization"))
				}
			}
			for what, text := range map[string]string{"log": log.String(), "store": s.stored(t), "events": asText(t, got, later)} {
				if strings.Contains(text, "CANARY") || !strings.Contains(text, "o") {
					t.Errorf("the %s has credentials:\n%s", what, text)
				}
			}
		})
	}
}

func asText(t *testing.T, all ...events) string {
	t.Helper()
	var out strings.Builder
	for _, list := range all {
		for _, e := range list {
			data, err := event.Encode(e)
			if err != nil {
				t.Fatal(err)
			}
			out.Write(data)
		}
	}
	return out.String()
}

// A declared server at a forbidden address ends the run before the model is called.
// The refusal does not have the path of the URL. // D22 F01
func TestARunThatDeclaresAServerAtAForbiddenAddress(t *testing.T) {
	p := New(Options{Out: egress.New(egress.DefaultPolicy(), egress.Options{}), Log: slog.New(slog.DiscardHandler)})
	defer p.Close()
	var log lockedLog
	s := newShop(t, p, &log)
	script := turnpiketest.NewScript(t, "text never\n")
	var got events
	if err := s.runner.Run(t.Context(), s.request(script, loop.Light, declaring("http://169.254.169.254/PATH-CANARY?k=QUERY-CANARY", "HEADER-CANARY")), &got); err != nil {
		t.Fatal(err)
	}
	end := got[len(got)-1].(event.Finished)
	if end.Reason != event.Blocked || end.Failure == nil || end.Failure.Code != "outbound_ssrf_blocked" || end.Failure.Server != "mine" || script.Played() != 0 {
		t.Errorf("%+v", end)
	}
	if all := log.String() + s.stored(t) + asText(t, got); strings.Contains(all, "CANARY") {
		t.Error(all)
	}
}

// The calls beyond the limit are answered without being made, and the run ends for it. // B08 B10
func TestTheCallsOfADeclaredServerAreLimited(t *testing.T) {
	docs := turnpiketest.NewMCPServer(turnpiketest.MCPOptions{}, turnpiketest.Tool{Name: "look", Result: "found"})
	defer docs.Close()
	p := dialing(t, io.Discard)
	s := newShop(t, p, io.Discard)
	req := s.request(turnpiketest.NewScript(t, "call c1 look {}\ncall c2 look {\"n\":2}\n"), loop.Light, declaring(docs.URL, "x"))
	req.Policy.Limits.Calls = 1
	var got events
	if err := s.runner.Run(t.Context(), req, &got); err != nil {
		t.Fatal(err)
	}
	skipped := 0
	for _, e := range got {
		if done, ok := e.(event.ToolDone); ok && done.Outcome == event.CallSkipped && done.Shown && done.Arguments == `{"n":2}` {
			skipped++
		}
	}
	if end := got[len(got)-1].(event.Finished); end.Reason != event.MaxCalls || len(docs.Calls()) != 1 || skipped != 1 {
		t.Errorf("%+v, %d calls, %d skipped", end, len(docs.Calls()), skipped)
	}
}
