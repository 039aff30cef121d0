package responses_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

// pausedSite is a gateway whose model asks for two calls, then answers, and whose requests stay open for
// a second while their run is paused.
func pausedSite(t *testing.T, runtime string) *Gated {
	t.Helper()
	up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, got Received) {
		if !bytes.Contains(got.Body, []byte(`"role":"tool"`)) {
			Asks(Use("delete", `{"n":7}`), Use("look", `{"n":8}`)).Write(w)
			return
		}
		Says("done").Write(w)
	})
	tools := NewMCP(t, map[string]Handler{"delete": Echo, "look": Echo}, "look")
	g := &Gated{Data: NewData(t), Upstream: up, Tools: tools}
	g.Yaml = Site{Upstream: up.URL, Runtime: "on_limit: pause, approval_hold: 1s, " + runtime, Servers: []string{Server("tools", tools.URL)}}.Yaml()
	g.Documented = Manage(MustRunIn(t, g.Data, g.Yaml, Environment()))
	return g
}

func reasonIn(o map[string]any) any { return o["error"].(map[string]any)["code"] }

// A response that has used its max_tool_calls waits, is raised over the API, and is there in the end.
// Who may not see the run cannot raise it. // P23
func TestAPausedResponseIsRaised(t *testing.T) { // P23
	NoLeaks(t)
	for _, stream := range []bool{false, true} {
		g := pausedSite(t, "")
		body := fmt.Sprintf(`{"model":"m","input":"go","max_tool_calls":1,"stream":%t}`, stream)
		respond := func() Answer {
			return g.Send("POST", "/v1/responses", strings.NewReader(body), "Authorization", "Bearer owner-key", "Idempotency-Key", "k")
		}
		first := respond()
		if !stream && (first.Status != 409 || first.Header.Get("Retry-After") == "") || !bytes.Contains(first.Body, []byte("run_paused")) || !bytes.Contains(first.Body, []byte("max_calls")) {
			t.Errorf("stream %t: %d %v %s", stream, first.Status, first.Header, first.Body)
		}
		shown := pausedRun(g)
		id, paused := shown["id"].(string), shown["paused"].(map[string]any)
		if shown["state"] != "paused" || paused["reason"] != "max_calls" || paused["rounds"] != 1.0 || paused["tool_calls"] != 1.0 || paused["expires_at"] == nil || g.Executed() != 1 {
			t.Errorf("after %d calls the run is %v", g.Executed(), shown)
		}
		path := "/v1/runs/" + id + "/limits"
		for key, status := range map[string]int{"member-key": 404, "reader-key": 403, "approver-key": 403} {
			g.Do("POST", path, key, `{"calls":5}`, status)
		}
		for body, code := range map[string]string{
			`{}`: "not_a_raise", `{"calls":1}`: "not_a_raise", `{"calls":-1}`: "not_a_raise", `{"calls":"5"}`: "invalid_type", `{"calls":null}`: "invalid_type", `{"calls":1e99}`: "invalid_type",
			`{"call":5}`: "unknown_parameter", `{"usd":"NaN"}`: "invalid_value", `{"usd":-1}`: "not_a_raise", `{"usd":2}`: "not_a_raise", `{"rounds":20}`: "not_a_raise",
		} {
			if got := reasonIn(g.Do("POST", path, "owner-key", body, 400)); got != code {
				t.Errorf("%s: %v, want %s", body, got, code)
			}
		}
		if got := reasonIn(g.Do("POST", path, "owner-key", `{"rounds":51,"calls":5}`, 403)); got != "above_org_limit" {
			t.Errorf("%v", got)
		}
		for range 2 { // the same again
			raised := g.Do("POST", path, "owner-key", `{"calls":5}`, 200)
			if raised["id"] != id || raised["limits"].(map[string]any)["calls"] != 5.0 {
				t.Errorf("raised: %v", raised)
			}
		}
		g.WaitUntil(func() (bool, any) {
			s := g.Do("GET", "/v1/runs/"+id, "owner-key", "", 200)["state"]
			return s == "complete", s
		})
		if last := respond(); last.Status != 200 || !bytes.Contains(last.Body, []byte(`"text":"done"`)) || bytes.Contains(last.Body, []byte("run_paused")) {
			t.Errorf("stream %t: %d %s", stream, last.Status, last.Body)
		}
		if n, m := g.Executed(), len(g.Upstream.Requests()); n != 2 || m != 2 {
			t.Errorf("%d tool calls and %d model calls, want 2 and 2", n, m)
		}
		response := g.Send("GET", "/v1/responses/resp_"+strings.TrimPrefix(id, "run_"), nil, "Authorization", "Bearer owner-key")
		if response.Status != 200 || !bytes.Contains(response.Body, []byte(`"completed"`)) {
			t.Errorf("the stored response: %d %s", response.Status, response.Body)
		}
		events := string(g.Send("GET", "/v1/runs/"+id+"/events", nil, "Authorization", "Bearer owner-key").Body)
		at, then := strings.Index(events, "event: paused"), strings.Index(events, "event: limits_raised")
		if at < 0 || then < at || strings.Contains(events, "event: waiting") {
			t.Errorf("the events are %s", events)
		}
		if got := reasonIn(g.Do("POST", path, "owner-key", `{"calls":9}`, 409)); got != "run_finished" {
			t.Errorf("%v", got)
		}
	}
}

// A chat stream says that its run is paused, and ends with an error when it was open long enough. Sent again, it
// waits on.
func TestAPausedChat(t *testing.T) { // P23
	NoLeaks(t)
	g := pausedSite(t, "max_rounds: 1")
	for range 2 {
		a := g.Post(`{"model":"m","stream":true,"messages":[{"role":"user","content":"go"}]}`, "Idempotency-Key", "k", "turnpike-extensions", "progress")
		var told map[string]any
		for line := range strings.SplitSeq(string(a.Body), "\n") {
			if data, ok := strings.CutPrefix(line, "data: "); ok && strings.Contains(data, "agentic_run_paused") {
				if err := json.Unmarshal([]byte(data), &told); err != nil {
					t.Fatal(err)
				}
			}
		}
		if told["limit"] != "max_rounds" || told["run_id"] == "" || told["expires_at"] == nil || !bytes.Contains(a.Body, []byte(`"run_paused"`)) {
			t.Errorf("%d %s", a.Status, a.Body)
		}
	}
	if a := g.Post(`{"model":"m","messages":[{"role":"user","content":"go on"}]}`); a.Status != 200 || !bytes.Contains(a.Body, []byte(`"length"`)) {
		t.Errorf("a light run: %d %s", a.Status, a.Body)
	}
	id := pausedRun(g)["id"].(string)
	if got := reasonIn(g.Do("POST", "/v1/runs/"+id+"/limits", "owner-key", `{"rounds":2}`, 403)); got != "above_org_limit" {
		t.Errorf("%v", got)
	}
	if status, out := g.Local(map[string]string{"TURNPIKE_KEY": "owner-key"}, "runs", "raise", id, "--rounds", "2", "--url", g.URL, "--data", g.Data); status != 1 || !strings.Contains(out, "max_rounds") {
		t.Errorf("%d %s", status, out)
	}
	g.Do("POST", "/v1/runs/"+id+"/cancel", "owner-key", "", 202)
	g.WaitUntil(func() (bool, any) {
		s := g.Do("GET", "/v1/runs/"+id, "owner-key", "", 200)["state"]
		return s == "cancelled", s
	})
}

// pausedRun returns the one run that is paused, as GET /v1/runs/{id} shows it.
func pausedRun(g *Gated) map[string]any {
	g.T.Helper()
	found := Objects(g.Do("GET", "/v1/runs?state=paused", "owner-key", "", 200))
	if len(found) != 1 {
		g.T.Fatalf("paused are %v", found)
	}
	return g.Do("GET", "/v1/runs/"+found[0]["id"].(string), "owner-key", "", 200)
}
