package mcppool

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/egress"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/secret"
	"github.com/turnpike-gateway/turnpike/tool"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// dialing returns a pool that connects to addresses of this machine.
func dialing(t *testing.T, log io.Writer) *Pool {
	t.Helper()
	out := egress.New(egress.Policy{Allowlist: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}, egress.Options{})
	p := New(Options{Out: out, Log: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	t.Cleanup(func() {
		p.Close()
		out.CloseIdleConnections()
	})
	return p
}

func declaring(url, token string) run.RequestServer {
	return run.RequestServer{Label: "mine", URL: secret.NewValue(url), Headers: map[string]secret.Value{"authorization": secret.NewValue(token)}}
}

// Runs that declare the same server share its session, which ends with the last of
// them. What was listed can be called by a later run, which has a session of its own. // D22
func TestTheSessionOfADeclaredServerEndsWithItsRuns(t *testing.T) {
	m := turnpiketest.NewMCPServer(turnpiketest.MCPOptions{}, turnpiketest.Tool{Name: "look", Result: "seen"})
	defer m.Close()
	p := dialing(t, io.Discard)
	source, origin, release := p.Dial("o", declaring(m.URL, "Bearer one"))
	_, same, also := p.Dial("o", declaring(m.URL, "Bearer one"))
	tools, err := source.List(t.Context())
	if err != nil || len(tools) != 1 || tools[0].Definition().Name != "look" || tool.ClassOf(tools[0]) != tool.Once {
		t.Fatalf("%v %v", tools, err)
	}
	call := func() error {
		_, err := tools[0].Call(t.Context(), tool.Call{RunID: "r", Key: "0.0", Attempt: 1, Arguments: []byte(`{}`)})
		return err
	}
	if err := call(); err != nil || origin != same {
		t.Fatal(err, origin, same)
	}
	release()
	if err := call(); err != nil {
		t.Errorf("the second run: %v", err)
	}
	also()
	p.closing.Wait()
	if n := len(m.Headers("DELETE")); len(p.declared) != 0 || n != 1 {
		t.Errorf("%d clients are left, %d sessions ended", len(p.declared), n)
	}
	if err := call(); !errors.Is(err, tool.ErrNotSent) {
		t.Errorf("after the runs: %v", err)
	}
	_, again, last := p.Dial("o", declaring(m.URL, "Bearer one"))
	defer last()
	if err := call(); err != nil || again != origin || m.Count("initialize") != 2 || m.Count("tools/list") != 1 {
		t.Errorf("a later run: %v, %d sessions, %d lists", err, m.Count("initialize"), m.Count("tools/list"))
	}
	for _, h := range m.Headers("tools/call") {
		if h.Get("Authorization") != "Bearer one" {
			t.Errorf("called with %q", h.Get("Authorization"))
		}
	}
}

// A server that a request declares can announce that its tools have changed, as others can. // P19
func TestADeclaredServerAnnouncesChanges(t *testing.T) {
	look := turnpiketest.Tool{Name: "look", Result: "seen"}
	m := turnpiketest.NewMCPServer(turnpiketest.MCPOptions{}, look)
	defer m.Close()
	p := dialing(t, io.Discard)
	told := make(chan string, 10)
	p.options.Changed = func(orgID, server string) { told <- orgID + " " + server }
	source, _, release := p.Dial("o", declaring(m.URL, "Bearer one"))
	defer release()
	if _, err := source.List(t.Context()); err != nil {
		t.Fatal(err)
	}
	for end := time.After(30 * time.Second); ; { // the client listens soon after its first request
		m.SetTools(look, turnpiketest.Tool{Name: "other"})
		select {
		case got := <-told:
			if n := source.(tool.Announcer).Changes(); got != "o request:mine" || n == 0 {
				t.Errorf("%q, %d changes", got, n)
			}
			return
		case <-time.After(100 * time.Millisecond):
		case <-end:
			t.Fatal("the announcement does not arrive")
		}
	}
}

// Servers with other credentials, of other orgs, or with other labels are other servers. // K06
func TestDeclaredServersAreToldApart(t *testing.T) {
	p, q := dialing(t, io.Discard), dialing(t, io.Discard)
	seen := map[string]string{}
	for name, origin := range map[string]string{
		"one":           p.digest("o", declaring("https://a.example/x", "one")),
		"token":         p.digest("o", declaring("https://a.example/x", "two")),
		"url":           p.digest("o", declaring("https://a.example/y", "one")),
		"org":           p.digest("p", declaring("https://a.example/x", "one")),
		"other process": q.digest("o", declaring("https://a.example/x", "one")),
	} {
		if other, taken := seen[origin]; taken || len(origin) != 64 {
			t.Errorf("%s and %s have the origin %q", name, other, origin)
		}
		seen[origin] = name
	}
}

// The outbound policy applies to declared servers, at discovery already. // D22
func TestADeclaredServerAtAForbiddenAddress(t *testing.T) {
	p := New(Options{Out: egress.New(egress.DefaultPolicy(), egress.Options{}), Log: slog.New(slog.DiscardHandler)})
	defer p.Close()
	for _, url := range []string{"http://127.0.0.1:9/mcp", "http://169.254.169.254/mcp", "http://localhost:8080/", "http://[::1]/"} {
		source, _, release := p.Dial("o", declaring(url, "x"))
		_, err := source.List(t.Context())
		if fatal := tool.Blocked(nil); !errors.As(err, &fatal) {
			t.Errorf("%s: %v", url, err)
		}
		release()
	}
}

// A hostile server repeats the credentials in its errors. They appear in no error and in
// no log of the gateway. // K06
func TestTheErrorsOfADeclaredServerHaveNoCredentials(t *testing.T) {
	says := map[string]func(w http.ResponseWriter, secret string){
		"json-rpc": func(w http.ResponseWriter, secret string) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"bad token `+secret+`"}}`)
		},
		"401": func(w http.ResponseWriter, secret string) {
			http.Error(w, "bad token "+secret, http.StatusUnauthorized)
		},
		"500": func(w http.ResponseWriter, secret string) { http.Error(w, secret, http.StatusInternalServerError) },
		"web": func(w http.ResponseWriter, secret string) { _, _ = io.WriteString(w, "<p>"+secret) },
		"away": func(w http.ResponseWriter, secret string) {
			w.Header().Set("Location", "http://127.0.0.1:1/"+secret)
			w.WriteHeader(http.StatusFound)
		},
	}
	for name, say := range says {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { say(w, r.Header.Get("Authorization")+r.URL.String()) }))
			defer server.Close()
			var log strings.Builder
			p := dialing(t, &log)
			source, origin, release := p.Dial("o", declaring(server.URL+"/PATH-CANARY?k=QUERY-CANARY", "HEADER-CANARY"))
			_, err := source.List(context.Background())
			release()
			p.closing.Wait()
			if err == nil || strings.Contains(err.Error()+log.String()+origin, "CANARY") {
				t.Errorf("the error is %v, the log has:\n%s", err, log.String())
			}
		})
	}
}
