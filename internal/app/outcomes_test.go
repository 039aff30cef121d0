package app_test

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/cli"
)

// runShown returns what "turnpike runs show" says of a run.
func runShown(t *testing.T, data, id string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	args := []string{"runs", "show", id, "--org", "o", "--data", data}
	if status := cli.Main(t.Context(), cli.Process{Args: args, Env: noEnvironment, Stdout: &stdout, Stderr: &stderr}); status != 0 {
		t.Fatalf("runs show: status %d, %s", status, stderr.String())
	}
	return stdout.String()
}

// callStatus returns the status and the server of the only audit row of a call.
func callStatus(t *testing.T, g *gateway, runID string) (status, server string) {
	t.Helper()
	page := manage(g).do("GET", "/api/audit?kind=audit_log.agent.tool_call&run_id="+runID, "owner-key", "", 200)
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
	noLeaks(t)
	redirect := func(w http.ResponseWriter, r *http.Request, _ rpc) {
		http.Redirect(w, r, "http://127.0.0.1:1/elsewhere", http.StatusTemporaryRedirect)
	}
	for _, tt := range []struct {
		name   string
		call   method
		answer bool // the server answered, so that the call is an error whatever its class
		told   string
	}{
		{"hangs", hang, false, "did not answer within " + hangTimeout},
		{"breaks the connection", func(http.ResponseWriter, *http.Request, rpc) { panic(http.ErrAbortHandler) }, false, "closed the connection"},
		{"breaks off its answer", die, false, "closed the connection"},
		{"redirects", redirect, false, "redirected"},
		{"answers with what cannot be read", func(w http.ResponseWriter, _ *http.Request, _ rpc) { fmt.Fprint(w, "<html>") }, false, "JSON-RPC"},
		{"fails behind a proxy", func(w http.ResponseWriter, _ *http.Request, _ rpc) { http.Error(w, "late", http.StatusGatewayTimeout) }, false, "504"},
		{"refuses", func(w http.ResponseWriter, _ *http.Request, _ rpc) { http.Error(w, "no", http.StatusForbidden) }, true, "403"},
		{"answers with an error", func(w http.ResponseWriter, _ *http.Request, m rpc) {
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32000,"message":"timed out inside"}}`, m.ID)
		}, true, "timed out inside"},
	} {
		for class, setting := range map[string]string{"once": "polling: []", "keyed": "keyed: [echo]", "read": "reads: [echo]"} {
			t.Run(tt.name+"/"+class, func(t *testing.T) {
				data := t.TempDir()
				tools := newRawMCP(t, methods{"tools/list": gives(oneTool("echo")), "tools/call": tt.call})
				up := newUpstream(t, script(asks(call{"echo", `{}`}), says("Done.")))
				g := mustRunIn(t, data, site{upstream: up.URL, servers: []string{
					server("s", tools.URL, timeout(tt.name), "max_retries: 0", setting),
				}}.yaml(), environment())
				a := g.post(question)
				if text, reason := a.completion(t); text != "Done." || reason != "stop" {
					t.Fatalf("%q, %s", text, reason)
				}
				want := "unknown"
				if tt.answer || class == "read" {
					want = "error"
				}
				told := up.requests()[1].results(t)[0]
				if !strings.Contains(told, tt.told) || strings.Contains(told, "may have been carried out") != (want == "unknown") {
					t.Errorf("the model was told %q", told)
				}
				id := a.header.Get("Turnpike-Run-Id")
				if status, _ := callStatus(t, g, id); status != want {
					t.Errorf("the audit says %s, want %s", status, want)
				}
				if shown := runShown(t, data, id); !strings.Contains(shown, want+": ") {
					t.Errorf("runs show does not say %q:\n%s", want, shown)
				}
			})
		}
	}
}

// A server that is gone when it is called gets nothing: the call is not_run for
// every class, and nothing speaks against sending the request again.
func TestACallOfAServerThatCannotBeReachedIsNotRun(t *testing.T) { // D19
	alone(t)
	data := t.TempDir()
	var tools *rawMCP
	up := newUpstream(t, func(w http.ResponseWriter, _ *http.Request, got received) {
		if got.number == 0 {
			tools.Close()
			asks(call{"echo", `{}`}).write(w)
			return
		}
		http.Error(w, `{"error":{"message":"no"}}`, http.StatusBadRequest)
	})
	tools = newRawMCP(t, methods{"tools/list": gives(oneTool("echo"))})
	g := mustRunIn(t, data, site{upstream: up.URL, servers: []string{server("s", tools.URL, "max_retries: 0")}}.yaml(), environment())
	a := g.post(question)
	if a.status != http.StatusBadRequest || a.header.Get("X-Should-Retry") != "" {
		t.Errorf("status %d, X-Should-Retry %q: %s", a.status, a.header.Get("X-Should-Retry"), a.body)
	}
	if told := up.requests()[1].results(t)[0]; !strings.Contains(told, "not sent") || strings.Contains(told, "127.0.0.1") {
		t.Errorf("the model was told %q", told)
	}
	id := a.header.Get("Turnpike-Run-Id")
	if status, server := callStatus(t, g, id); status != "not_run" || server != "s" {
		t.Errorf("the audit says %s of %s", status, server)
	}
}

// A redirect to a forbidden address ends the run. The call had reached its server
// by then: it may have been carried out, and the client is told not to repeat it.
func TestACallThatIsRedirectedToAForbiddenAddressMayHaveHappened(t *testing.T) { // K05
	noLeaks(t)
	for class, want := range map[string]struct{ setting, status, retry string }{
		"once": {"polling: []", "unknown", "false"}, "keyed": {"keyed: [echo]", "unknown", "false"}, "read": {"reads: [echo]", "error", ""},
	} {
		t.Run(class, func(t *testing.T) {
			data := t.TempDir()
			tools := newRawMCP(t, methods{"tools/list": gives(oneTool("echo")), "tools/call": func(w http.ResponseWriter, r *http.Request, _ rpc) {
				http.Redirect(w, r, "http://169.254.169.254/latest/", http.StatusTemporaryRedirect)
			}})
			up := newUpstream(t, script(asks(call{"echo", `{}`})))
			g := mustRunIn(t, data, site{upstream: up.URL, servers: []string{server("s", tools.URL, "max_retries: 0", want.setting)}}.yaml(), environment())
			a := g.post(question)
			if a.status != http.StatusForbidden || a.header.Get("X-Should-Retry") != want.retry {
				t.Errorf("status %d, X-Should-Retry %q, want 403 and %q", a.status, a.header.Get("X-Should-Retry"), want.retry)
			}
			id := a.header.Get("Turnpike-Run-Id")
			if status, _ := callStatus(t, g, id); status != want.status {
				t.Errorf("the audit says %s, want %s", status, want.status)
			}
			shown := runShown(t, data, id)
			if !strings.Contains(shown, want.status+": ") || strings.Contains(shown, "Not sent") {
				t.Errorf("runs show:\n%s", shown)
			}
		})
	}
}

// A call that the end of its run cuts off was executed: the audit says for how long.
func TestACallThatTheEndOfItsRunCutsOffHasALatency(t *testing.T) { // L02
	noLeaks(t)
	tools := newRawMCP(t, methods{"tools/list": gives(oneTool("echo")), "tools/call": hang})
	up := newUpstream(t, script(asks(call{"echo", `{}`})))
	g := MustRun(t, site{upstream: up.URL, servers: []string{server("s", tools.URL)}, runtime: "deadline: 3s"}.yaml())
	a := g.post(question)
	page := manage(g).do("GET", "/api/audit?kind=audit_log.agent.tool_call&run_id="+a.header.Get("Turnpike-Run-Id"), "owner-key", "", 200)
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
	noLeaks(t)
	for name, tt := range map[string]struct{ setting, question string }{
		"of the server": {"tools: [other]", question},
		"of the request": {`tools: "*"`, `{"model":"m","messages":[{"role":"user","content":"hi"}],
			"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"function","function":{"name":"other"}}]}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			tools := newMCP(t, map[string]handler{"echo": echo, "other": echo})
			up := newUpstream(t, script(asks(call{"echo", `{}`}), says("Done.")))
			g := MustRun(t, site{upstream: up.URL, servers: []string{server("s", tools.URL, tt.setting)}}.yaml())
			a := g.post(tt.question)
			if status, server := callStatus(t, g, a.header.Get("Turnpike-Run-Id")); status != "error" || server != "s" {
				t.Errorf("the audit says %q of server %q: %s", status, server, a.body)
			}
		})
	}
}
