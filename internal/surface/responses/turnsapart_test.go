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

// What a session has said belongs to the session: as a response, a conversation or an item it does not exist,
// for no key and in no state, and nobody continues or deletes it there. Its run is shown to those who may see
// the session. // J03 J21
func TestTurnsOfSessionsAreNoResponses(t *testing.T) {
	NoLeaks(t)
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	scripted := Script(Says("A response."), Says("Hello."), Asks(Use("mcp__tools__echo", `{"n":1}`)), Says("Done."), Says("Later."))
	asked, release := make(chan bool, 1), make(chan bool)
	up := NewUpstream(t, func(w http.ResponseWriter, r *http.Request, got Received) {
		if strings.Contains(string(got.Body), "slowly") {
			asked <- true
			<-release
		}
		scripted(w, r, got)
	})
	d := Manage(MustRun(t, Site{Upstream: up.URL}.Yaml()))
	var response struct {
		ID     string
		Output []struct{ ID string }
	}
	if a := d.Send("POST", "/v1/responses", strings.NewReader(`{"model":"m","input":"hi"}`), "Authorization", "Bearer owner-key"); a.Status != 200 {
		t.Fatalf("%d %s", a.Status, a.Body)
	} else if err := json.Unmarshal(a.Body, &response); err != nil {
		t.Fatal(err)
	}
	output := strings.ReplaceAll(response.Output[0].ID, strings.TrimPrefix(response.ID, "resp_"), "%s")
	id := d.NewAgent(fmt.Sprintf(`,"mcp_servers":[{"name":"tools","url":%q,"config":{"require_approval":"always"}}]`, tools.URL+"/mcp"))
	session := d.AsOwner("POST", "/api/agents/"+id+"/sessions", `{"initial_messages":[{"role":"user","content":"before"}]}`, 201)["id"].(string)
	body := fmt.Sprintf(`{"message":"go","session_id":%q,"detached":true}`, session)
	said := d.StreamAgent(id, body)
	first := AgentFrames(t, said.Body)[0]["run_id"].(string)
	streamed := make(chan Answer, 1)
	go func() {
		streamed <- d.Send("POST", "/api/agents/"+id+"/run/stream", strings.NewReader(body), "Authorization", "Bearer owner-key")
	}()
	second := d.WaitingRun(session)
	wait := d.AsOwner("GET", "/api/agents/runs/"+second, "", 200)["approvals"].([]any)[0].(string)

	for _, key := range []string{"owner-key", "admin-key", "member-key", "reader-key"} {
		for _, run := range []string{first, second} {
			for _, part := range []string{"", "p1"} {
				checkTurnIsApart(d, key, strings.TrimPrefix(run, "run_"), strings.TrimPrefix(session, "sess_"), part, output)
			}
		}
	}
	answered := fmt.Sprintf(`{"model":"m","input":[{"type":"mcp_approval_response","approval_request_id":%q,"approve":true}]}`, wait)
	if a := d.Send("POST", "/v1/responses", strings.NewReader(answered), "Authorization", "Bearer owner-key"); a.Status != 400 || !bytes.Contains(a.Body, []byte("approval_not_found")) {
		t.Errorf("the run of a session was continued as a response: %d %s", a.Status, a.Body)
	}
	for key, want := range map[string]int{"owner-key": 200, "reader-key": 200, "member-key": 404} {
		for _, path := range []string{"/v1/runs/" + first, "/api/agents/runs/" + first} {
			if a := d.Send("GET", path, nil, "Authorization", "Bearer "+key); a.Status != want {
				t.Errorf("%s of %s: %d %s", path, key, a.Status, a.Body)
			}
		}
	}
	d.AsOwner("POST", "/api/agents/runs/"+second+"/approve", `{"approved":true}`, 200)
	<-streamed
	if all := d.AsOwner("GET", "/api/sessions/"+session+"/messages", "", 200); all["total"].(float64) < 6 {
		t.Errorf("the session has lost messages: %v", all)
	}
	go func() {
		streamed <- d.Send("POST", "/api/agents/"+id+"/run/stream", strings.NewReader(strings.Replace(body, `"go"`, `"slowly"`, 1)), "Authorization", "Bearer owner-key")
	}()
	<-asked
	third := d.AsOwner("GET", "/api/sessions/"+session, "", 200)["last_run_id"].(string)
	checkTurnIsApart(d, "owner-key", strings.TrimPrefix(third, "run_"), strings.TrimPrefix(session, "sess_"), "", output)
	close(release)
	<-streamed
	d.AsOwner("DELETE", "/api/sessions/"+session, "", 200)
	for _, run := range []string{first, second, third} {
		d.AsOwner("GET", "/api/agents/runs/"+run, "", 404)
	}
}

// checkTurnIsApart asks for the turn of a session as a response, a conversation and an item, and expects the answers
// about ids that do not exist.
func checkTurnIsApart(d Documented, key, run, session, part, output string) {
	d.T.Helper()
	for _, request := range []string{
		"GET /v1/responses/resp_RUN", "GET /v1/responses/resp_RUN?stream=true", "GET /v1/responses/resp_RUN/input_items",
		"POST /v1/responses/resp_RUN/cancel", "DELETE /v1/responses/resp_RUN",
		`POST /v1/responses {"model":"m","input":"x","previous_response_id":"resp_RUN"}`,
		`POST /v1/responses {"model":"m","input":"x","background":true,"previous_response_id":"resp_RUN"}`,
		`POST /v1/responses/input_tokens {"model":"m","input":"x","previous_response_id":"resp_RUN"}`,
		`POST /v1/responses/compact {"model":"m","previous_response_id":"resp_RUN"}`,
		`POST /v1/responses {"model":"m","input":"x","conversation":"sess_SESSION"}`,
		`POST /v1/responses {"model":"m","input":[{"type":"item_reference","id":"ITEM"}]}`,
		"GET /v1/conversations/sess_SESSION", "GET /v1/conversations/sess_SESSION/items",
		"DELETE /v1/conversations/sess_SESSION", "GET /v1/conversations/items_SESSION",
		`POST /v1/conversations/sess_SESSION {"metadata":{}}`,
		`POST /v1/conversations/sess_SESSION/items {"items":[{"type":"message","role":"user","content":"x"}]}`,
		"GET /v1/conversations/sess_SESSION/items/ITEM", "DELETE /v1/conversations/sess_SESSION/items/ITEM",
		"GET /v1/runs/resp_RUN", "GET /v1/runs/sess_SESSION", "POST /v1/runs/resp_RUN/cancel",
	} {
		ask := func(run, session string) string {
			item := fmt.Sprintf(strings.ReplaceAll(output, "%s", "%[1]s"), run+part)
			filled := strings.NewReplacer("RUN", run+part, "SESSION", session, "ITEM", item).Replace(request)
			method, rest, _ := strings.Cut(filled, " ")
			path, body, _ := strings.Cut(rest, " ")
			a := d.Send(method, path, strings.NewReader(body), "Authorization", "Bearer "+key)
			return fmt.Sprint(a.Status, " ", strings.NewReplacer(run, "RUN", session, "SESSION").Replace(string(a.Body)))
		}
		changed := func(id string) string {
			if last := id[len(id)-1:]; last == "0" {
				return id[:len(id)-1] + "1"
			}
			return id[:len(id)-1] + "0"
		}
		if got, want := ask(run, session), ask(changed(run), changed(session)); got != want || strings.HasPrefix(got, "2") {
			d.T.Errorf("%s with %s: %s\nand of a missing id: %s", request, key, got, want)
		}
	}
}
