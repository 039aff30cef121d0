package app_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/app"
	"github.com/turnpike-gateway/turnpike/internal/cli"
	"github.com/turnpike-gateway/turnpike/internal/config"
)

// settled returns an approval once it does not wait any more.
func (g *gated) settled(id string) map[string]any {
	g.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; {
		a := g.do("GET", "/v1/approvals/"+id, "approver-key", "", 200)
		if a["status"] != "waiting" {
			return a
		}
		if time.Now().After(deadline) {
			g.t.Fatalf("%s still waits: %v", id, a)
		}
	}
}

// ended returns a run of the org once it has ended.
func (g *gated) ended(runID any) map[string]any {
	g.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; {
		r := g.do("GET", "/v1/runs/"+runID.(string), "owner-key", "", 200)
		if state := r["state"]; state != "waiting" && state != "running" {
			return r
		}
		if time.Now().After(deadline) {
			g.t.Fatalf("run %s goes on: %v", runID, r)
		}
	}
}

// checkVoid fails the test unless the approval is void for the reason, nobody can approve it,
// and nothing was executed.
func (g *gated) checkVoid(id, reason string) {
	g.t.Helper()
	a := g.settled(id)
	if a["status"] != "void" || a["reason"] != reason {
		g.t.Errorf("approval %s is %v, reason %v; want void, %s", id, a["status"], a["reason"], reason)
	}
	refused := g.decide(id, "approve", "", 409)["error"].(map[string]any)
	if refused["code"] != "approval_void" || !strings.Contains(refused["message"].(string), reason) {
		g.t.Errorf("approving it is refused with %v", refused)
	}
	if r := g.ended(a["run_id"]); g.executed() != 0 || g.upstream.requests() == nil {
		g.t.Errorf("run %v: %d calls were executed", r, g.executed())
	}
}

// Nobody can get the answer of a chat request without a key whose client has left: what
// it asks for is void, and nothing is executed, neither for it nor for the same request again. // H03
func TestWhatAClientAskedForThatHasLeftIsNotExecuted(t *testing.T) {
	noLeaks(t)
	for _, c := range []struct{ name, runtime, body string }{
		{"an answer as JSON", "", gatedQuestion},
		{"a stream", "", streamedGatedQuestion},
		{"every run is durable", "durable: always", gatedQuestion},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := runGated(t, c.runtime)
			for range 2 { // the client sends it again
				ctx, leave := context.WithCancel(t.Context())
				r := g.request(ctx, "POST", "/v1/chat/completions", strings.NewReader(c.body))
				left := make(chan struct{})
				go func() {
					defer close(left)
					if resp, err := g.client.Do(r); err == nil {
						_, _ = io.Copy(io.Discard, resp.Body)
						_ = resp.Body.Close()
					}
				}()
				id := g.only()
				leave()
				<-left
				g.checkVoid(id, "client_gone")
			}
		})
	}
}

// The process that held the request open is gone, and its client with it. // H03
func TestWhatAClientAskedForIsVoidAfterARestart(t *testing.T) {
	noLeaks(t)
	g := runGated(t, "")
	answered := g.ask(gatedQuestion)
	id := g.only()
	kept := g.ask(gatedQuestion, "Idempotency-Key", "k")
	g.waitingAll(2)
	if err := g.stop(); err != nil {
		t.Fatal(err)
	}
	<-answered
	<-kept
	g.documented = manage(mustRunIn(t, g.data, g.yaml, environment()))
	g.checkVoid(id, "client_gone")
	if still := g.only(); still == id {
		t.Errorf("%s waits", still)
	}
}

// opened is a stream that a client reads in the background.
type opened struct {
	status int
	body   <-chan string // all of it, when it has ended
}

// open sends a request and returns when the answer has begun.
func (g *gated) open(method, path, key, body string, fields ...string) opened {
	g.t.Helper()
	resp, err := g.client.Do(g.request(g.t.Context(), method, path, strings.NewReader(body), append(fields, "Authorization", "Bearer "+key)...))
	if err != nil {
		g.t.Fatal(err)
	}
	all := make(chan string, 1)
	go func() {
		defer resp.Body.Close()
		data, _ := io.ReadAll(resp.Body)
		all <- string(data)
	}()
	return opened{resp.StatusCode, all}
}

// read returns what a stream has sent, when it has ended.
func (g *gated) read(o opened) string {
	g.t.Helper()
	select {
	case text := <-o.body:
		return text
	case <-time.After(30 * time.Second):
		g.t.Fatal("the stream has not ended")
		return ""
	}
}

// A revoked key has nothing that waits, and nothing open. // K08
func TestARevokedKeyHasNothingOpen(t *testing.T) {
	noLeaks(t)
	g := runGated(t, "")
	made := g.do("POST", "/api/keys", "owner-key", `{"name":"app","role":"owner"}`, 201)
	key, id := made["key"].(string), made["id"].(string)
	held := g.ask(gatedQuestion, "Authorization", "Bearer "+key, "Idempotency-Key", "k")
	approval := g.only()
	other := g.ask(gatedQuestion, "Idempotency-Key", "of another key")
	var runID any
	for _, a := range g.waitingAll(2) {
		if a["id"] == approval {
			runID = a["run_id"]
		}
	}
	events := g.open("GET", "/v1/runs/"+runID.(string)+"/events", key, "")
	patient := g.open("GET", "/v1/runs/"+runID.(string)+"/events", "owner-key", "")
	polled := make(chan answer, 1)
	poll := g.request(t.Context(), "GET", "/v1/approvals?status=expired&wait=60", nil, "Authorization", "Bearer "+key)
	go func() {
		resp, err := g.client.Do(poll)
		if err != nil {
			polled <- answer{status: -1, body: []byte(err.Error())}
			return
		}
		defer resp.Body.Close()
		data, _ := io.ReadAll(resp.Body)
		polled <- answer{resp.StatusCode, resp.Header, data}
	}()
	g.do("DELETE", "/api/keys/"+id, key, "", 200) // its own answer arrives
	if text := g.read(events); !strings.Contains(text, "key_revoked") {
		t.Errorf("the events of the run end with %s", text)
	}
	if a := <-polled; a.status != 401 {
		t.Errorf("who waits for approvals got %d %s", a.status, a.body)
	}
	if a := <-held; a.status < 400 || !strings.Contains(string(a.body), "key_revoked") {
		t.Errorf("the client got %d %s", a.status, a.body)
	}
	if text := g.read(patient); !strings.Contains(text, `"reason":"cancelled"`) {
		t.Errorf("the events of another reader end with %s", text)
	}
	g.checkVoid(approval, "key_revoked")
	if r := g.ended(runID); r["state"] != "cancelled" {
		t.Errorf("the run is %v", r)
	}
	left := g.only() // of the other key
	g.decide(left, "approve", "", 200)
	if a := <-other; a.status != 200 || g.executed() != 1 {
		t.Errorf("the other key got %d %s", a.status, a.body)
	}
}

// waitingAll returns the approvals that wait, when there are n.
func (g *gated) waitingAll(n int) []map[string]any {
	g.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; {
		if all := g.waiting(); len(all) == n {
			return all
		} else if time.Now().After(deadline) {
			g.t.Fatalf("%d wait, want %d", len(all), n)
		}
	}
}

// A response that waits and is deleted asks for nothing any more. // H02
func TestADeletedResponseAsksForNothing(t *testing.T) {
	noLeaks(t)
	p := newParitySite(t, "openai", twoSteps, "")
	first, ids := p.asks(`"input":"go","tools":[` + p.docsTool("") + `]`)
	if a := p.send("DELETE", "/v1/responses/"+first.ID, nil); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	approval := "appr_" + strings.TrimPrefix(ids[0], "mcpr_")
	for deadline := time.Now().Add(30 * time.Second); ; {
		a := string(p.send("GET", "/v1/approvals/"+approval, nil).body)
		if strings.Contains(a, `"status":"void"`) && strings.Contains(a, `"reason":"deleted"`) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(a)
		}
	}
	p.called(0)
}

// What only the client's own request asks for is the client's own to decide, also where others
// must decide about the rest. // P02
func TestTheClientDecidesWhatOnlyItsOwnRequestAsksFor(t *testing.T) {
	noLeaks(t)
	p := newParitySite(t, "openai", twoSteps, "approvers: others")
	first, ids := p.asks(`"input":"go","tools":[` + p.docsTool("") + `]`)
	o := p.respond(`"previous_response_id":"` + first.ID + `","input":[` + approve(ids[0]) + `],"tools":[` + p.docsTool("") + `]`).responded(t)
	if o.Status != "completed" || o.text() != "Done." {
		t.Errorf("%+v", o)
	}
	p.called(1)
}

// A deleted org has nothing that waits and nothing open, and its id cannot be used again:
// a new org would read what the former one has stored. // K07
func TestADeletedOrgHasNothingOpenAndNoSuccessor(t *testing.T) {
	noLeaks(t)
	g := runGated(t, "")
	if err := g.stop(); err != nil {
		t.Fatal(err)
	}
	g.yaml = "operator_key: operator-key" + g.yaml
	g.documented = manage(mustRunIn(t, g.data, g.yaml, environment()))
	g.do("POST", "/api/orgs", "operator-key", `{"id":"acme","features":["mcp_outbound"]}`, 201)
	key := g.do("POST", "/api/orgs/acme/keys", "operator-key", `{"name":"first","role":"owner"}`, 201)["key"].(string)
	g.do("POST", "/api/mcp-servers", key, `{"name":"tools","url":"`+g.tools.URL+`","require_approval":"always"}`, 201)
	held := g.ask(gatedQuestion, "Authorization", "Bearer "+key, "Idempotency-Key", "k")
	waiting := objects(g.do("GET", "/v1/approvals?status=waiting&wait=20", key, "", 200))
	if len(waiting) != 1 {
		t.Fatalf("waiting: %v", waiting)
	}
	runID := waiting[0]["run_id"].(string)
	events := g.open("GET", "/v1/runs/"+runID+"/events", key, "")
	g.do("DELETE", "/api/orgs/acme", "operator-key", "", 200)
	if text := g.read(events); !strings.Contains(text, "deleted") {
		t.Errorf("the events of the run end with %s", text)
	}
	if a := <-held; a.status < 400 {
		t.Errorf("the client got %d %s", a.status, a.body)
	}
	refused := g.do("POST", "/api/orgs", "operator-key", `{"id":"acme"}`, 409)["error"].(map[string]any)
	if text := refused["message"].(string); refused["code"] != "org_id_used" || !strings.Contains(text, "runs") || !strings.Contains(text, "Choose another id") {
		t.Errorf("the id is refused with %v", refused)
	}
	g.do("POST", "/api/orgs", "operator-key", `{"id":"acme2"}`, 201)
	if n := g.executed(); n != 0 {
		t.Errorf("%d calls were executed", n)
	}
	none := func(string) (string, bool) { return "", false }
	for deadline := time.Now().Add(30 * time.Second); ; { // nobody can ask the gateway for a run of a deleted org
		var out bytes.Buffer
		cli.Main(t.Context(), cli.Process{Args: []string{"runs", "show", runID, "--org", "acme", "--data", g.data}, Env: none, Stdout: &out, Stderr: &out})
		if strings.Contains(out.String(), "deleted") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the run ended as\n%s", out.String())
		}
	}
	if err := g.stop(); err != nil {
		t.Fatal(err)
	}
	env := func(name string) (string, bool) {
		v, ok := environment()[name]
		if name == "TURNPIKE_DATA" {
			return g.data, true
		}
		return v, ok
	}
	c, err := config.Parse("test.yaml", []byte(g.yaml+"  - id: acme\n"), env)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := app.New(t.Context(), c, app.Options{Env: env, Log: slog.New(slog.DiscardHandler)}); err == nil || !strings.Contains(err.Error(), `"acme" belonged to an org that was deleted`) {
		t.Errorf("a gateway with the org in its file started: %v", err)
	}
	g.documented = manage(mustRunIn(t, g.data, g.yaml, environment()))
}
