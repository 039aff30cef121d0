package approvals_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/app"
	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/internal/cli"
	"github.com/turnpike-gateway/turnpike/internal/config"
)

// Nobody can get the answer of a chat request without a key whose client has left: what
// it asks for is void, and nothing is executed, neither for it nor for the same request again. // H03
func TestWhatAClientAskedForThatHasLeftIsNotExecuted(t *testing.T) {
	NoLeaks(t)
	for _, c := range []struct{ name, runtime, body string }{
		{"an answer as JSON", "", GatedQuestion},
		{"a stream", "", StreamedGatedQuestion},
		{"every run is durable", "durable: always", GatedQuestion},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := RunGated(t, c.runtime)
			for range 2 { // the client sends it again
				ctx, leave := context.WithCancel(t.Context())
				r := g.Request(ctx, "POST", "/v1/chat/completions", strings.NewReader(c.body))
				left := make(chan struct{})
				go func() {
					defer close(left)
					if resp, err := g.Client.Do(r); err == nil {
						_, _ = io.Copy(io.Discard, resp.Body)
						_ = resp.Body.Close()
					}
				}()
				id := g.Only()
				leave()
				<-left
				g.CheckVoid(id, "client_gone")
			}
		})
	}
}

// The process that held the request open is gone, and its client with it. // H03
func TestWhatAClientAskedForIsVoidAfterARestart(t *testing.T) {
	NoLeaks(t)
	g := RunGated(t, "")
	answered := g.Ask(GatedQuestion)
	id := g.Only()
	kept := g.Ask(GatedQuestion, "Idempotency-Key", "k")
	g.WaitingAll(2)
	if err := g.Stop(); err != nil {
		t.Fatal(err)
	}
	<-answered
	<-kept
	g.Documented = Manage(MustRunIn(t, g.Data, g.Yaml, Environment()))
	g.CheckVoid(id, "client_gone")
	if still := g.Only(); still == id {
		t.Errorf("%s waits", still)
	}
}

// A revoked key has nothing that waits, and nothing open. // K08
func TestARevokedKeyHasNothingOpen(t *testing.T) {
	NoLeaks(t)
	g := RunGated(t, "")
	made := g.Do("POST", "/api/keys", "owner-key", `{"name":"app","role":"owner"}`, 201)
	key, id := made["key"].(string), made["id"].(string)
	held := g.Ask(GatedQuestion, "Authorization", "Bearer "+key, "Idempotency-Key", "k")
	approval := g.Only()
	other := g.Ask(GatedQuestion, "Idempotency-Key", "of another key")
	var runID any
	for _, a := range g.WaitingAll(2) {
		if a["id"] == approval {
			runID = a["run_id"]
		}
	}
	events := g.Open("GET", "/v1/runs/"+runID.(string)+"/events", key, "")
	patient := g.Open("GET", "/v1/runs/"+runID.(string)+"/events", "owner-key", "")
	polled := make(chan Answer, 1)
	poll := g.Request(t.Context(), "GET", "/v1/approvals?status=expired&wait=60", nil, "Authorization", "Bearer "+key)
	go func() {
		resp, err := g.Client.Do(poll)
		if err != nil {
			polled <- Answer{Status: -1, Body: []byte(err.Error())}
			return
		}
		defer resp.Body.Close()
		data, _ := io.ReadAll(resp.Body)
		polled <- Answer{Status: resp.StatusCode, Header: resp.Header, Body: data}
	}()
	g.Do("DELETE", "/api/keys/"+id, key, "", 200) // its own answer arrives
	if text := g.Read(events); !strings.Contains(text, "key_revoked") {
		t.Errorf("the events of the run end with %s", text)
	}
	if a := <-polled; a.Status != 401 {
		t.Errorf("who waits for approvals got %d %s", a.Status, a.Body)
	}
	if a := <-held; a.Status < 400 || !strings.Contains(string(a.Body), "key_revoked") {
		t.Errorf("the client got %d %s", a.Status, a.Body)
	}
	if text := g.Read(patient); !strings.Contains(text, `"reason":"cancelled"`) {
		t.Errorf("the events of another reader end with %s", text)
	}
	g.CheckVoid(approval, "key_revoked")
	if r := g.Ended(runID); r["state"] != "cancelled" {
		t.Errorf("the run is %v", r)
	}
	left := g.Only() // of the other key
	g.Decide(left, "approve", "", 200)
	if a := <-other; a.Status != 200 || g.Executed() != 1 {
		t.Errorf("the other key got %d %s", a.Status, a.Body)
	}
}

// A response that waits and is deleted asks for nothing any more. // H02
func TestADeletedResponseAsksForNothing(t *testing.T) {
	NoLeaks(t)
	p := NewParitySite(t, "openai", TwoSteps, "")
	first, ids := p.Asks(`"input":"go","tools":[` + p.DocsTool("") + `]`)
	if a := p.Send("DELETE", "/v1/responses/"+first.ID, nil); a.Status != 200 {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	approval := "appr_" + strings.TrimPrefix(ids[0], "mcpr_")
	for deadline := time.Now().Add(30 * time.Second); ; {
		a := string(p.Send("GET", "/v1/approvals/"+approval, nil).Body)
		if strings.Contains(a, `"status":"void"`) && strings.Contains(a, `"reason":"deleted"`) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(a)
		}
	}
	p.Called(0)
}

// What only the client's own request asks for is the client's own to decide, also where others
// must decide about the rest. // P02
func TestTheClientDecidesWhatOnlyItsOwnRequestAsksFor(t *testing.T) {
	NoLeaks(t)
	p := NewParitySite(t, "openai", TwoSteps, "approvers: others")
	first, ids := p.Asks(`"input":"go","tools":[` + p.DocsTool("") + `]`)
	o := p.Respond(`"previous_response_id":"` + first.ID + `","input":[` + Approve(ids[0]) + `],"tools":[` + p.DocsTool("") + `]`).Responded(t)
	if o.Status != "completed" || o.Text() != "Done." {
		t.Errorf("%+v", o)
	}
	p.Called(1)
}

// A deleted org has nothing that waits and nothing open, and its id cannot be used again:
// a new org would read what the former one has stored. // K07
func TestADeletedOrgHasNothingOpenAndNoSuccessor(t *testing.T) {
	NoLeaks(t)
	g := RunGated(t, "")
	if err := g.Stop(); err != nil {
		t.Fatal(err)
	}
	g.Yaml = "operator_key: operator-key" + g.Yaml
	g.Documented = Manage(MustRunIn(t, g.Data, g.Yaml, Environment()))
	g.Do("POST", "/api/orgs", "operator-key", `{"id":"acme","features":["mcp_outbound"]}`, 201)
	key := g.Do("POST", "/api/orgs/acme/keys", "operator-key", `{"name":"first","role":"owner"}`, 201)["key"].(string)
	g.Do("POST", "/api/mcp-servers", key, `{"name":"tools","url":"`+g.Tools.URL+`","require_approval":"always"}`, 201)
	held := g.Ask(GatedQuestion, "Authorization", "Bearer "+key, "Idempotency-Key", "k")
	waiting := Objects(g.Do("GET", "/v1/approvals?status=waiting&wait=20", key, "", 200))
	if len(waiting) != 1 {
		t.Fatalf("waiting: %v", waiting)
	}
	runID := waiting[0]["run_id"].(string)
	events := g.Open("GET", "/v1/runs/"+runID+"/events", key, "")
	g.Do("DELETE", "/api/orgs/acme", "operator-key", "", 200)
	if text := g.Read(events); !strings.Contains(text, "deleted") {
		t.Errorf("the events of the run end with %s", text)
	}
	if a := <-held; a.Status < 400 {
		t.Errorf("the client got %d %s", a.Status, a.Body)
	}
	refused := g.Do("POST", "/api/orgs", "operator-key", `{"id":"acme"}`, 409)["error"].(map[string]any)
	if text := refused["message"].(string); refused["code"] != "org_id_used" || !strings.Contains(text, "runs") || !strings.Contains(text, "Choose another id") {
		t.Errorf("the id is refused with %v", refused)
	}
	g.Do("POST", "/api/orgs", "operator-key", `{"id":"acme2"}`, 201)
	if n := g.Executed(); n != 0 {
		t.Errorf("%d calls were executed", n)
	}
	none := func(string) (string, bool) { return "", false }
	for deadline := time.Now().Add(30 * time.Second); ; { // nobody can ask the gateway for a run of a deleted org
		var out bytes.Buffer
		cli.Main(t.Context(), cli.Process{Args: []string{"runs", "show", runID, "--org", "acme", "--data", g.Data}, Env: none, Stdout: &out, Stderr: &out})
		if strings.Contains(out.String(), "deleted") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the run ended as\n%s", out.String())
		}
	}
	if err := g.Stop(); err != nil {
		t.Fatal(err)
	}
	env := func(name string) (string, bool) {
		v, ok := Environment()[name]
		if name == "TURNPIKE_DATA" {
			return g.Data, true
		}
		return v, ok
	}
	c, err := config.Parse("test.yaml", []byte(g.Yaml+"  - id: acme\n"), env)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := app.New(t.Context(), c, app.Options{Env: env, Log: slog.New(slog.DiscardHandler)}); err == nil || !strings.Contains(err.Error(), `"acme" belonged to an org that was deleted`) {
		t.Errorf("a gateway with the org in its file started: %v", err)
	}
	g.Documented = Manage(MustRunIn(t, g.Data, g.Yaml, Environment()))
}
