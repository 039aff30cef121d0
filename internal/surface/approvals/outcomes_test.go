package approvals_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

// callStatus returns the status and the server of the only audit row of a call.
func callStatus(t *testing.T, g *Gateway, runID string) (status, server string) {
	t.Helper()
	page := Manage(g).Do("GET", "/api/audit?kind=audit_log.agent.tool_call&run_id="+runID, "owner-key", "", 200)
	rows := page["data"].([]any)
	if len(rows) != 1 {
		t.Fatalf("the audit has %d rows of calls, want 1: %v", len(rows), page)
	}
	body := rows[0].(map[string]any)["body"].(map[string]any)
	return fmt.Sprint(body["status"]), fmt.Sprint(body["server_id"])
}

// A call that got no answer is not_run only if it provably never left. Otherwise
// it is unknown, unless the tool only reads. The model, the journal and the audit
// say the same. L02 C23 D16 D19
func TestACallWithoutAnAnswerIsRecordedAsWhatIsKnownOfIt(t *testing.T) {
	NoLeaks(t)
	redirect := func(w http.ResponseWriter, r *http.Request, _ RPC) {
		http.Redirect(w, r, "http://127.0.0.1:1/elsewhere", http.StatusTemporaryRedirect)
	}
	for _, tt := range []struct {
		name   string
		call   Method
		answer bool // the server answered, so that the call is an error whatever its class
		told   string
	}{
		{"hangs", Hang, false, "did not answer within " + HangTimeout},
		{"breaks the connection", func(http.ResponseWriter, *http.Request, RPC) { panic(http.ErrAbortHandler) }, false, "closed the connection"},
		{"breaks off its answer", Die, false, "closed the connection"},
		{"redirects", redirect, false, "redirected"},
		{"answers with what cannot be read", func(w http.ResponseWriter, _ *http.Request, _ RPC) { fmt.Fprint(w, "<html>") }, false, "JSON-RPC"},
		{"fails behind a proxy", func(w http.ResponseWriter, _ *http.Request, _ RPC) { http.Error(w, "late", http.StatusGatewayTimeout) }, false, "504"},
		{"refuses", func(w http.ResponseWriter, _ *http.Request, _ RPC) { http.Error(w, "no", http.StatusForbidden) }, true, "403"},
		{"answers with an error", func(w http.ResponseWriter, _ *http.Request, m RPC) {
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32000,"message":"timed out inside"}}`, m.ID)
		}, true, "timed out inside"},
	} {
		for class, setting := range map[string]string{"once": "polling: []", "keyed": "keyed: [echo]", "read": "reads: [echo]"} {
			t.Run(tt.name+"/"+class, func(t *testing.T) {
				t.Parallel() // those that hang wait at the same time
				data := NewData(t)
				tools := NewRawMCP(t, Methods{"tools/list": Gives(OneTool("echo")), "tools/call": tt.call})
				up := NewUpstream(t, Script(Asks(Use("echo", `{}`)), Says("Done.")))
				g := MustRunIn(t, data, Site{Upstream: up.URL, Servers: []string{
					Server("s", tools.URL, Timeout(tt.name), "max_retries: 0", setting),
				}}.Yaml(), Environment())
				a := g.Post(Question)
				if text, reason := a.Completion(t); text != "Done." || reason != "stop" {
					t.Fatalf("%q, %s", text, reason)
				}
				want := "unknown"
				if tt.answer || class == "read" {
					want = "error"
				}
				told := up.Requests()[1].Results(t)[0]
				if !strings.Contains(told, tt.told) || strings.Contains(told, "may have been carried out") != (want == "unknown") {
					t.Errorf("the model was told %q", told)
				}
				id := a.Header.Get("Turnpike-Run-Id")
				if status, _ := callStatus(t, g, id); status != want {
					t.Errorf("the audit says %s, want %s", status, want)
				}
				if shown := RunShown(t, data, id); !strings.Contains(shown, want+": ") {
					t.Errorf("runs show does not say %q:\n%s", want, shown)
				}
			})
		}
	}
}

// A server that is gone when it is called gets nothing: the call is not_run for
// every class, and nothing speaks against sending the request again.
func TestACallOfAServerThatCannotBeReachedIsNotRun(t *testing.T) { // D19
	Alone(t)
	data := NewData(t)
	var tools *RawMCP
	up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, got Received) {
		if got.Number == 0 {
			tools.Close()
			Asks(Use("echo", `{}`)).Write(w)
			return
		}
		http.Error(w, `{"error":{"message":"no"}}`, http.StatusBadRequest)
	})
	tools = NewRawMCP(t, Methods{"tools/list": Gives(OneTool("echo"))})
	g := MustRunIn(t, data, Site{Upstream: up.URL, Servers: []string{Server("s", tools.URL, "max_retries: 0")}}.Yaml(), Environment())
	a := g.Post(Question)
	if a.Status != http.StatusBadRequest || a.Header.Get("X-Should-Retry") != "" {
		t.Errorf("status %d, X-Should-Retry %q: %s", a.Status, a.Header.Get("X-Should-Retry"), a.Body)
	}
	if told := up.Requests()[1].Results(t)[0]; !strings.Contains(told, "not sent") || strings.Contains(told, "127.0.0.1") {
		t.Errorf("the model was told %q", told)
	}
	id := a.Header.Get("Turnpike-Run-Id")
	if status, server := callStatus(t, g, id); status != "not_run" || server != "s" {
		t.Errorf("the audit says %s of %s", status, server)
	}
}

// A redirect to a forbidden address ends the run. The call had reached its server
// by then: it may have been carried out, and the client is told not to repeat it.
func TestACallThatIsRedirectedToAForbiddenAddressMayHaveHappened(t *testing.T) { // K05
	NoLeaks(t)
	for class, want := range map[string]struct{ setting, status, retry string }{
		"once": {"polling: []", "unknown", "false"}, "keyed": {"keyed: [echo]", "unknown", "false"}, "read": {"reads: [echo]", "error", ""},
	} {
		t.Run(class, func(t *testing.T) {
			data := NewData(t)
			tools := NewRawMCP(t, Methods{"tools/list": Gives(OneTool("echo")), "tools/call": func(w http.ResponseWriter, r *http.Request, _ RPC) {
				http.Redirect(w, r, "http://169.254.169.254/latest/", http.StatusTemporaryRedirect)
			}})
			up := NewUpstream(t, Script(Asks(Use("echo", `{}`))))
			g := MustRunIn(t, data, Site{Upstream: up.URL, Servers: []string{Server("s", tools.URL, "max_retries: 0", want.setting)}}.Yaml(), Environment())
			a := g.Post(Question)
			if a.Status != http.StatusForbidden || a.Header.Get("X-Should-Retry") != want.retry {
				t.Errorf("status %d, X-Should-Retry %q, want 403 and %q", a.Status, a.Header.Get("X-Should-Retry"), want.retry)
			}
			id := a.Header.Get("Turnpike-Run-Id")
			if status, _ := callStatus(t, g, id); status != want.status {
				t.Errorf("the audit says %s, want %s", status, want.status)
			}
			shown := RunShown(t, data, id)
			if !strings.Contains(shown, want.status+": ") || strings.Contains(shown, "Not sent") {
				t.Errorf("runs show:\n%s", shown)
			}
		})
	}
}

// A call that the end of its run cuts off was executed: the audit says for how long.
func TestACallThatTheEndOfItsRunCutsOffHasALatency(t *testing.T) { // L02
	NoLeaks(t)
	tools := NewRawMCP(t, Methods{"tools/list": Gives(OneTool("echo")), "tools/call": Hang})
	up := NewUpstream(t, Script(Asks(Use("echo", `{}`))))
	g := MustRun(t, Site{Upstream: up.URL, Servers: []string{Server("s", tools.URL)}, Runtime: "deadline: 3s"}.Yaml())
	a := g.Post(Question)
	page := Manage(g).Do("GET", "/api/audit?kind=audit_log.agent.tool_call&run_id="+a.Header.Get("Turnpike-Run-Id"), "owner-key", "", 200)
	for _, row := range page["data"].([]any) {
		body := row.(map[string]any)["body"].(map[string]any)
		if ms := body["latency_ms"].(float64); body["status"] != "unknown" || ms <= 0 || ms > 30_000 {
			t.Errorf("the audit says %v after %v ms", body["status"], ms)
		}
	}
	if n := len(page["data"].([]any)); n != 1 {
		t.Errorf("the audit has %d rows of calls, want 1", n)
	}
}

// The audit names the server of a call that an allow-list refuses.
func TestTheAuditNamesTheServerOfARefusedCall(t *testing.T) { // L02 C06 C25
	NoLeaks(t)
	for name, tt := range map[string]struct{ setting, question string }{
		"of the server": {"tools: [other]", Question},
		"of the request": {`tools: "*"`, `{"model":"m","messages":[{"role":"user","content":"hi"}],
			"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"function","function":{"name":"other"}}]}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			tools := NewMCP(t, map[string]Handler{"echo": Echo, "other": Echo})
			up := NewUpstream(t, Script(Asks(Use("echo", `{}`)), Says("Done.")))
			g := MustRun(t, Site{Upstream: up.URL, Servers: []string{Server("s", tools.URL, tt.setting)}}.Yaml())
			a := g.Post(tt.question)
			if status, server := callStatus(t, g, a.Header.Get("Turnpike-Run-Id")); status != "error" || server != "s" {
				t.Errorf("the audit says %q of server %q: %s", status, server, a.Body)
			}
		})
	}
}
