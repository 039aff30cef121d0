package agents_test

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/agent"
	"github.com/turnpike-gateway/turnpike/internal/app"
	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

// timeline is a conversation of one of the three kinds: a named conversation, a chat session, or a session of an agent.
type timeline struct {
	Documented
	up   *Upstream
	path string // of the object

	say  func(h *timeline, message string, header ...string) Answer
	id   string
	chat []map[string]any // what the client of a chat session resends
}

// turn sends a message, and returns the answer and the id of its run.
func (h *timeline) turn(message string, header ...string) (Answer, string) {
	a := h.say(h, message, header...)
	return a, a.Header.Get("Turnpike-Run-Id")
}

func (h *timeline) owner(method, path, body string, header ...string) Answer {
	return h.Send(method, path, strings.NewReader(body), append([]string{"Authorization", "Bearer owner-key"}, header...)...)
}

// change rewinds or forks, and returns the object.
func (h *timeline) change(what, body string, status int) map[string]any {
	h.T.Helper()
	a := h.owner("POST", h.path+"/"+what, body)
	var object map[string]any
	if err := json.Unmarshal(a.Body, &object); err != nil || a.Status != status {
		h.T.Fatalf("%s %s: %d %s", h.path, what, a.Status, a.Body)
	}
	if strings.HasPrefix(h.path, "/api/") || strings.HasPrefix(h.path, "/v1/sessions/") {
		h.Conforms("POST", h.path+"/"+what, a)
	}
	return object
}

// refused fails the test unless a rewind or fork is refused with a code.
func (h *timeline) refused(what, body string, status int, code string) {
	h.T.Helper()
	a := h.owner("POST", h.path+"/"+what, body)
	again := a.Header.Get("Retry-After") == "1"
	if a.Status != status || !strings.Contains(string(a.Body), `"`+code+`"`) || again != (code == "session_busy") {
		h.T.Errorf("%s %s %s: %d %v %s", h.path, what, body, a.Status, a.Header, a.Body)
	}
}

// sees sends a message and fails the test unless the model sees these texts.
func (h *timeline) sees(message string, want ...string) (run string) {
	h.T.Helper()
	a, run := h.turn(message)
	if a.Status != 200 {
		h.T.Fatalf("%s: %d %s", h.path, a.Status, a.Body)
	}
	seen := h.up.Requests()
	if got, want := strings.Join(Prompt(h.T, seen[len(seen)-1]), "|"), strings.Join(want, "|"); got != want {
		h.T.Errorf("%s: the model saw %s\nwant %s", h.path, got, want)
	}
	return run
}

// at returns a conversation of the same kind.
func (h *timeline) at(id string) *timeline {
	other := *h
	other.path, other.id = strings.TrimSuffix(h.path, h.id)+id, id
	return &other
}

// timelines makes an empty conversation of each kind, in which somebody has said "before".
func timelines(d Documented, up *Upstream) map[string]*timeline {
	made := func(path, body string) string {
		a := d.Send("POST", path, strings.NewReader(body), "Authorization", "Bearer owner-key")
		var object struct{ ID string }
		if err := json.Unmarshal(a.Body, &object); err != nil || a.Status >= 300 {
			d.T.Fatalf("%s: %d %s", path, a.Status, a.Body)
		}
		return object.ID
	}
	const before = `[{"role":"user","content":"before"}]`
	named := made("/v1/conversations", `{"items":`+before+`,"metadata":{"a":"b"}}`)
	agent := made("/api/agents", `{"name":"helper","model":"m"}`)
	session := made("/api/agents/"+agent+"/sessions", `{"title":"t","initial_messages":`+before+`}`)
	responds := func(h *timeline, message string, header ...string) Answer {
		return h.owner("POST", "/v1/responses", fmt.Sprintf(`{"model":"m","conversation":%q,"input":%q}`, h.id, message), header...)
	}
	runs := func(h *timeline, message string, header ...string) Answer {
		body := fmt.Sprintf(`{"message":%q,"session_id":%q}`, message, h.id)
		return h.owner("POST", "/api/agents/"+agent+"/run/stream", body, header...)
	}
	chats := func(h *timeline, message string, header ...string) Answer {
		h.chat = append(h.chat[:len(h.chat):len(h.chat)], map[string]any{"role": "user", "content": message})
		body, _ := json.Marshal(map[string]any{"model": "m", "messages": h.chat, "session_id": h.id})
		h.chat = append(h.chat, map[string]any{"role": "assistant", "content": "re: " + message})
		return h.owner("POST", "/v1/chat/completions", string(body), header...)
	}
	return map[string]*timeline{
		"conversation":    {d, up, "/v1/conversations/" + named, responds, named, nil},
		"agent's session": {d, up, "/api/sessions/" + session, runs, session, nil},
		"chat session":    {d, up, "/v1/sessions/chat", chats, "chat", []map[string]any{{"role": "user", "content": "before"}}},
	}
}

// repeats answers each message with itself.
func repeats(w http.ResponseWriter, _ *http.Request, got Received) {
	Says("re: " + LastSaid(got.Body)).Write(w)
}

// A rewind takes a run and all that follows out of the history; a fork goes on from it on its own. Neither calls the model,
// both survive a restart, and deleting one of two leaves the other whole.
func TestAHistoryIsRewoundAndForked(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, repeats)
	data, yaml := NewData(t), Site{Upstream: up.URL}.Yaml()
	d := Manage(MustRunIn(t, data, yaml, Environment()))
	all := timelines(d, up)
	type fork struct {
		original, copy *timeline
		four           string // a run that both have
	}
	forks := map[string]fork{}
	other := all["conversation"].change("fork", "", 200)["id"].(string)
	foreign := all["conversation"].at(other).sees("foreign", "user before", "user foreign")
	for kind, h := range all {
		h.sees("one", "user before", "user one")
		second := h.sees("two", "user before", "user one", "assistant re: one", "user two")
		stored, third := h.turn("three", "Idempotency-Key", "k "+kind)
		calls := len(up.Requests())

		h.refused("rewind", `{}`, 400, "missing_required_parameter")
		h.refused("rewind", fmt.Sprintf(`{"before_run":%q}`, foreign), 404, "run_not_found")
		response := "resp_" + strings.TrimPrefix(second, "run_")
		object := h.change("rewind", fmt.Sprintf(`{"before_run":%q}`, response), 200)
		if object["id"] != h.id {
			t.Errorf("%s: the rewind answered %v", kind, object)
		}
		for _, run := range []string{second, third, response} {
			h.refused("rewind", fmt.Sprintf(`{"before_run":%q}`, run), 404, "run_not_found")
		}
		// Repeated requests get their answers.
		if kind == "chat session" {
			h.chat = h.chat[:5]
		}
		again, run := h.turn("three", "Idempotency-Key", "k "+kind)
		if again.Status != 200 || run != third || kind != "agent's session" && string(again.Body) != string(stored.Body) {
			t.Errorf("%s: the repeated request got %d of %s, want that of %s: %s", kind, again.Status, run, third, again.Body)
		}
		if len(up.Requests()) != calls {
			t.Errorf("%s: the model was called", kind)
		}
		if kind == "chat session" {
			h.chat = h.chat[:3]
		}
		if kind == "agent's session" {
			if all := d.AsOwner("GET", h.path+"/messages", "", 200); all["total"] != 3.0 {
				t.Errorf("after the rewind the messages are %v", all)
			}
		}
		four := h.sees("four", "user before", "user one", "assistant re: one", "user four")

		body := `{}`
		switch kind {
		case "chat session":
			body = `{"session_id":"copy"}`
		case "agent's session":
			h.refused("fork", `{"turns":3}`, 400, "invalid_value")
			short := h.at(h.change("fork", `{"turns":1}`, 201)["id"].(string))
			short.sees("short", "user before", "user one", "assistant re: one", "user short")
			h.owner("DELETE", short.path, "")
		}
		status := map[string]int{"agent's session": 201}[kind]
		object = h.change("fork", body, max(status, 200))
		id := object["id"].(string)
		if kind == "conversation" {
			keyed := func() Answer { return h.owner("POST", h.path+"/fork", body, "Idempotency-Key", "f") }
			once, again := keyed(), keyed()
			if once.Status != 200 || string(once.Body) != string(again.Body) || strings.Contains(string(once.Body), id) {
				t.Errorf("forks with one key: %d %s and %d %s", once.Status, once.Body, again.Status, again.Body)
			}
		}
		metadata, _ := object["metadata"].(map[string]any)
		lost := kind == "conversation" && metadata["a"] != "b"
		if kind == "agent's session" {
			lost = object["title"] != "t" || object["run_count"] != 0.0
		}
		if lost || id == h.id {
			t.Errorf("%s: the fork is %v", kind, object)
		}
		forks[kind] = fork{h, h.at(id), four}
		if kind == "conversation" {
			checkRewoundResponse(d, response, up)
		}
	}
	if err := d.Stop(); err != nil {
		t.Fatal(err)
	}
	d.Gateway = MustRunIn(t, data, yaml, Environment())
	common := []string{"user before", "user one", "assistant re: one", "user four", "assistant re: four"}
	for kind, f := range forks {
		f.original.Gateway, f.copy.Gateway = d.Gateway, d.Gateway
		f.copy.sees("copy", append(common[:5:5], "user copy")...)
		f.original.sees("five", append(common[:5:5], "user five")...)
		if a := f.original.owner("DELETE", f.original.path, ""); a.Status != 200 {
			t.Errorf("%s: %d %s", kind, a.Status, a.Body)
		}
		f.copy.sees("last", append(common[:5:5], "user copy", "assistant re: copy", "user last")...)
		f.copy.change("rewind", fmt.Sprintf(`{"before_run":%q}`, f.four), 200)
		f.copy.chat = f.copy.chat[:min(len(f.copy.chat), 3)]
		f.copy.sees("end", append(common[:3:3], "user end")...)
		if a := f.copy.owner("DELETE", f.copy.path, ""); a.Status != 200 {
			t.Errorf("%s: %d %s", kind, a.Status, a.Body)
		}
	}
	if left := remembered(t, data, agent.Surface); len(left) > 0 {
		t.Errorf("of deleted sessions stay the runs %v", left)
	}
}

// remembered returns the runs of a surface that are not to be deleted when they have ended.
func remembered(t *testing.T, data, surface string) []string {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(data, app.DatabaseFile)+"?mode=ro&_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var left string
	if err := db.QueryRow(`SELECT coalesce(group_concat(run_id), '') FROM runs r WHERE surface = ?
		AND NOT EXISTS (SELECT 1 FROM forgotten_runs f WHERE f.org = r.org AND f.run_id = r.run_id)`, surface).Scan(&left); err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(strings.Split(left, ","), func(run string) bool { return run == "" })
}

// While a run of a conversation is in progress, queued or waits for a person, it is neither rewound nor forked.
func TestABusyHistoryIsNeitherRewoundNorForked(t *testing.T) {
	NoLeaks(t)
	begun, release := make(chan bool), make(chan bool)
	up := NewUpstream(t, func(w http.ResponseWriter, r *http.Request, got Received) {
		if LastSaid(got.Body) == "HOLD" {
			begun <- true
			<-release
		}
		repeats(w, r, got)
	})
	d := Manage(MustRun(t, Site{Upstream: up.URL}.Yaml()))
	for kind, h := range timelines(d, up) {
		first := h.sees("one", "user before", "user one")
		busy := func() {
			t.Helper()
			h.refused("rewind", fmt.Sprintf(`{"before_run":%q}`, first), 409, "session_busy")
			h.refused("rewind", `{"before_run":"run_that_is_not_there"}`, 409, "session_busy")
			h.refused("fork", map[string]string{"chat session": `{"session_id":"copy"}`}[kind], 409, "session_busy")
		}
		done := make(chan Answer, 1)
		go func() {
			a, _ := h.turn("HOLD")
			done <- a
		}()
		<-begun
		busy()
		var queued chan Answer
		if kind == "agent's session" {
			agent := d.AsOwner("GET", h.path, "", 200)["agent_id"].(string)
			queued = d.SendLater(agent, h.id, "queued", `,"when_busy":"enqueue"`)
			d.Inputs(h.id, 3)
			busy()
		}
		release <- true
		<-done
		if queued != nil {
			<-queued
		}
		if a := h.owner("POST", h.path+"/rewind", fmt.Sprintf(`{"before_run":%q}`, first)); a.Status != 200 {
			t.Errorf("%s: %d %s", kind, a.Status, a.Body)
		}
		h.chat = h.chat[:min(len(h.chat), 1)] // whose first message is of the first request
		h.sees("new", "user before", "user new")
	}
}

// checkRewoundResponse fails the test unless a response that was rewound is stored, and goes on as a branch.
func checkRewoundResponse(d Documented, id string, up *Upstream) {
	d.T.Helper()
	send := func(method, path, body string) Answer {
		return d.Send(method, path, strings.NewReader(body), "Authorization", "Bearer owner-key")
	}
	if a := send("GET", "/v1/responses/"+id, ""); a.Status != 200 {
		d.T.Errorf("a response that was rewound: %d %s", a.Status, a.Body)
	}
	send("POST", "/v1/responses", fmt.Sprintf(`{"model":"m","previous_response_id":%q,"input":"branch"}`, id))
	seen := up.Requests()
	const want = "user before|user one|assistant re: one|user two|assistant re: two|user branch"
	if got := strings.Join(Prompt(d.T, seen[len(seen)-1]), "|"); got != want {
		d.T.Errorf("the branch saw %s", got)
	}
}
