package chat_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/app"
	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/internal/sandbox/sandboxtest"
)

// chatClient is a client of chat that resends what it saw, as the official ones do.
type chatClient struct {
	*Gateway
	key, session string
	messages     []map[string]any
}

// ask sends a message of the user with the ones before it, and adds the answer.
func (c *chatClient) ask(text string, stream bool) (Answer, string) {
	c.T.Helper()
	c.messages = append(c.messages, map[string]any{"role": "user", "content": text})
	body, err := json.Marshal(map[string]any{"model": "m", "messages": c.messages, "session_id": c.session, "stream": stream})
	if err != nil {
		c.T.Fatal(err)
	}
	a := c.Send("POST", "/v1/chat/completions", strings.NewReader(string(body)), "Authorization", "Bearer "+c.key)
	if a.Status != 200 {
		c.T.Fatalf("%d %s", a.Status, a.Body)
	}
	var said string
	if stream {
		said = a.Stream(c.T).Text
	} else {
		said, _ = a.Completion(c.T)
	}
	c.messages = append(c.messages, map[string]any{"role": "assistant", "content": said})
	return a, said
}

// looksUp answers each message with a call of a tool, and its result with a text.
func looksUp(w http.ResponseWriter, _ *http.Request, got Received) {
	if text := LastSaid(got.Body); !strings.HasPrefix(text, `{"q"`) {
		Asks(Use("look", fmt.Sprintf(`{"q":%q}`, text))).Saying("Looking.").Write(w)
		return
	}
	Says("Found it.").Write(w)
}

// A session of 5 turns: the client resends only what it saw, and the model sees the old results of tools, once. The id
// of the session is in the answer. // J01 J04 G20
func TestAChatSessionHasTheResultsThatItsClientDoesNotSend(t *testing.T) {
	NoLeaks(t)
	for _, stream := range []bool{false, true} {
		up := NewUpstream(t, looksUp)
		tools := NewMCP(t, map[string]Handler{"look": Echo})
		g := MustRun(t, Site{Upstream: up.URL, Servers: []string{Server("tools", tools.URL)}}.Yaml())
		c := &chatClient{Gateway: g, key: "owner-key", session: "s1"}
		var want []string
		for n := range 5 {
			text := fmt.Sprintf("question %d", n)
			want = append(want, fmt.Sprintf(`{"q":%q}`, text))
			a, _ := c.ask(text, stream)
			if got := strings.Count(string(a.Body), `"session_id":"s1"`); got != 1 {
				t.Errorf("stream %t: the id is in the answer %d times: %s", stream, got, a.Body)
			}
			if body := string(a.Body); stream && !strings.Contains(body[strings.LastIndex(body, `"finish_reason":"stop"`):], `"session_id":"s1"`) {
				t.Errorf("the last chunk has no id: %s", a.Body)
			}
			seen := up.Requests()
			if got := seen[len(seen)-1].Told(t); got != strings.Join(want, " ") {
				t.Fatalf("stream %t: the model was told %s\nwant %s", stream, got, strings.Join(want, " "))
			}
			if got, want := len(seen[len(seen)-1].Decode(t).Messages), 4*n+3; got != want {
				t.Errorf("stream %t: the model has %d messages, want %d: %s", stream, got, want, seen[len(seen)-1].Body)
			}
		}
		// After a difference the client's list counts.
		c.messages = append(c.messages[:2:2], map[string]any{"role": "user", "content": "edited"}, map[string]any{"role": "assistant", "content": "An answer that no model gave."})
		c.ask("last", stream)
		seen := up.Requests()
		if got, want := seen[len(seen)-1].Told(t), want[0]+` {"q":"last"}`; got != want {
			t.Errorf("the model was told %s\nwant %s", got, want)
		}
		if err := g.Stop(); err != nil {
			t.Error(err)
		}
	}
}

// Two requests at once: the second one gets 409. The key of somebody else has a session of its own under the same id. // J01 J04
func TestAChatSessionHasOneRunAtATime(t *testing.T) {
	NoLeaks(t)
	begun, release := make(chan struct{}), make(chan struct{})
	up := NewUpstream(t, func(w http.ResponseWriter, r *http.Request, got Received) {
		if LastSaid(got.Body) == "HOLD" {
			close(begun)
			select {
			case <-release:
			case <-r.Context().Done():
			}
		}
		looksUp(w, r, got)
	})
	tools := NewMCP(t, map[string]Handler{"look": Echo})
	g := MustRun(t, Site{Upstream: up.URL, Servers: []string{Server("tools", tools.URL)}}.Yaml())
	mine, theirs := &chatClient{Gateway: g, key: "owner-key", session: "s"}, &chatClient{Gateway: g, key: "member-key", session: "s"}
	done := make(chan Answer)
	go func() {
		a, _ := mine.ask("HOLD", false)
		done <- a
	}()
	<-begun
	const again = `{"model":"m","session_id":"s","messages":[{"role":"user","content":"x"}]}`
	busy := g.Post(again)
	if !refusesWith(t, busy, 409, "session_busy", "session_id") || busy.Header.Get("Retry-After") == "" {
		t.Errorf("%d %s", busy.Status, busy.Body)
	}
	if a := g.Send("PUT", "/v1/sessions/s", strings.NewReader(`{"messages":[{"role":"user","content":"x"}]}`), "Authorization", "Bearer owner-key"); a.Status != 409 {
		t.Errorf("import into a busy session: %d %s", a.Status, a.Body)
	}
	theirs.ask("theirs", false)
	close(release)
	<-done
	mine.ask("mine", false)
	theirs.ask("again", false)
	seen := up.Requests()
	if got, want := seen[len(seen)-1].Told(t), `{"q":"theirs"} {"q":"again"}`; got != want {
		t.Errorf("the other key was told %s, want %s", got, want)
	}
	for name, body := range map[string]string{
		"a number": `1`, "with a space": `"a b"`, "a dot in front": `"."`, "too long": `"` + strings.Repeat("x", 129) + `"`,
	} {
		a := g.Post(`{"model":"m","session_id":` + body + `,"messages":[{"role":"user","content":"x"}]}`)
		if !refusesWith(t, a, 400, "", "session_id") {
			t.Errorf("%s: %d %s", name, a.Status, a.Body)
		}
	}
	if a := g.Post(again, "Turnpike-Mcp-Disabled", "true"); !refusesWith(t, a, 400, "unsupported_parameter", "session_id") {
		t.Errorf("without the loop: %d %s", a.Status, a.Body)
	}
	if a := g.Post(`{"model":"m","session_id":null,"messages":[{"role":"user","content":"x"}]}`); a.Status != 200 || strings.Contains(string(a.Body), "session_id") {
		t.Errorf("null is no session: %d %s", a.Status, a.Body)
	}
}

// A session exists after a restart, also in an org without MCP servers. A run that has failed adds nothing to it. // J04
func TestAChatSessionOutlivesTheGateway(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, func(w http.ResponseWriter, r *http.Request, got Received) {
		if LastSaid(got.Body) == "FAIL" {
			http.Error(w, `{"error":{"message":"no"}}`, 400)
			return
		}
		Says("Yes.").Write(w)
	})
	data, yaml := NewData(t), Site{Upstream: up.URL, Feature: "none"}.Yaml()
	g := MustRunIn(t, data, yaml, Environment())
	c := &chatClient{Gateway: g, key: "owner-key", session: "s"}
	c.ask("one", false)
	if a := g.Post(`{"model":"m","session_id":"s","messages":[{"role":"user","content":"one"},{"role":"assistant","content":"Yes."},{"role":"user","content":"FAIL"}]}`); a.Status == 200 {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	if err := g.Stop(); err != nil {
		t.Fatal(err)
	}
	c.Gateway = MustRunIn(t, data, yaml, Environment())
	if got := c.exported("s"); got.Turns != 1 || len(got.Messages) != 2 || got.ExpiresAt == nil || *got.ExpiresAt != got.UpdatedAt+1800 {
		t.Errorf("%+v", got)
	}
	c.ask("two", true)
	if got := c.exported("s"); got.Turns != 2 || len(got.Messages) != 4 {
		t.Errorf("%+v", got)
	}
}

// exportedSession is a session as GET returns it.
type exportedSession struct {
	ID        string           `json:"id"`
	Object    string           `json:"object"`
	Turns     int              `json:"turns"`
	CreatedAt int64            `json:"created_at"`
	UpdatedAt int64            `json:"updated_at"`
	ExpiresAt *int64           `json:"expires_at"`
	Messages  []map[string]any `json:"messages"`
	raw       string
}

func (c *chatClient) exported(id string) (s exportedSession) {
	c.T.Helper()
	a := c.sessions("GET", id, "")
	if err := json.Unmarshal(a.Body, &s); err != nil || a.Status != 200 {
		c.T.Fatalf("%d %s %v", a.Status, a.Body, err)
	}
	s.raw = string(a.Body)
	return s
}

func (c *chatClient) sessions(method, path, body string) Answer {
	c.T.Helper()
	return c.Send(method, "/v1/sessions/"+path, strings.NewReader(body), "Authorization", "Bearer "+c.key)
}

// A session goes to a second gateway, which continues it. // J07
func TestAChatSessionIsExportedAndImported(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, looksUp)
	tools := NewMCP(t, map[string]Handler{"look": Echo})
	yaml := Site{Upstream: up.URL, Servers: []string{Server("tools", tools.URL)}}.Yaml()
	first := &chatClient{Gateway: MustRun(t, yaml), key: "owner-key", session: "s"}
	second := &chatClient{Gateway: MustRun(t, yaml), key: "owner-key", session: "s"}
	first.ask("one", false)
	first.ask("two", false)
	out := first.exported("s")
	if out.ID != "s" || out.Object != "session" || out.Turns != 2 || len(out.Messages) != 8 {
		t.Errorf("%s", out.raw)
	}
	if a := second.sessions("GET", "s", ""); !refusesWith(t, a, 404, "session_not_found", "id") {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	for range 2 { // it may be sent again
		if a := second.sessions("PUT", "s", out.raw); a.Status != 200 || string(a.Body) != `{"id":"s","object":"session","turns":2}`+"\n" {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
	}
	if in, want := second.exported("s"), out.Messages; fmt.Sprint(in.Messages) != fmt.Sprint(want) {
		t.Errorf("got  %v\nwant %v", in.Messages, want)
	}
	second.messages = first.messages
	second.ask("three", true)
	seen := up.Requests()
	if got, want := seen[len(seen)-1].Told(t), `{"q":"one"} {"q":"two"} {"q":"three"}`; got != want {
		t.Errorf("the model was told %s, want %s", got, want)
	}
	for name, body := range map[string]string{
		"no JSON":            `{`,
		"no messages":        `{}`,
		"empty":              `{"messages":[]}`,
		"no list":            `{"messages":"x"}`,
		"no role":            `{"messages":[{"content":"x"}]}`,
		"a result alone":     `{"messages":[{"role":"tool","tool_call_id":"c","content":"x"}]}`,
		"a call alone":       `{"messages":[{"role":"user","content":"x"},{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"user","content":"y"}]}`,
		"an unknown part":    `{"messages":[{"role":"user","content":[{"type":"smell"}]}]}`,
		"an unknown member":  `{"messages":[{"role":"user","content":"x"}],"images":[]}`,
		"wrong call_ids":     `{"messages":[{"role":"user","content":"x"}],"call_ids":[]}`,
		"too many":           `{"messages":[` + strings.Repeat(`{"role":"user","content":"x"},`, 10_000) + `{"role":"user","content":"x"}]}`,
		"a file of a bucket": `{"messages":[{"role":"user","content":[{"type":"file","file":{"file_id":"file-0123456789abcdef0123456789"}}]}]}`,
	} {
		if a := second.sessions("PUT", "other", body); a.Status != 400 {
			t.Errorf("%s: %d %.300s", name, a.Status, a.Body)
		}
	}
	for range 2 { // idempotent
		if a := second.sessions("DELETE", "s", ""); a.Status != 200 || string(a.Body) != `{"id":"s","object":"session","deleted":true}`+"\n" {
			t.Errorf("%d %s", a.Status, a.Body)
		}
	}
	if a := second.sessions("GET", "s", ""); a.Status != 404 {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	if a := (&chatClient{Gateway: first.Gateway, key: "admin-key"}).sessions("GET", "s", ""); a.Status != 404 {
		t.Errorf("another key: %d %s", a.Status, a.Body)
	}
}

// A fork has the first turns of a session, and then a life of its own. // J08
func TestAChatSessionIsForked(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, looksUp)
	tools := NewMCP(t, map[string]Handler{"look": Echo})
	c := &chatClient{Gateway: MustRun(t, Site{Upstream: up.URL, Servers: []string{Server("tools", tools.URL)}}.Yaml()), key: "member-key", session: "s"}
	c.messages = append(c.messages, map[string]any{"role": "system", "content": "Be brief."})
	for _, text := range []string{"one", "two", "three"} {
		c.ask(text, false)
	}
	if a := c.sessions("POST", "s/fork", `{"session_id":"f","turns":1}`); a.Status != 200 || string(a.Body) != `{"id":"f","object":"session","turns":1}`+"\n" {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	fork := &chatClient{Gateway: c.Gateway, key: c.key, session: "f", messages: c.messages[:3:3]}
	fork.ask("other", false)
	seen := up.Requests()
	if got, want := seen[len(seen)-1].Told(t), `{"q":"one"} {"q":"other"}`; got != want {
		t.Errorf("the fork was told %s, want %s", got, want)
	}
	c.ask("four", false)
	seen = up.Requests()
	if got, want := seen[len(seen)-1].Told(t), `{"q":"one"} {"q":"two"} {"q":"three"} {"q":"four"}`; got != want {
		t.Errorf("the session was told %s, want %s", got, want)
	}
	c.sessions("DELETE", "s", "")
	if got := c.exported("f"); got.Turns != 2 {
		t.Errorf("%s", got.raw)
	}
	for body, status := range map[string]int{
		`{"session_id":"f","turns":1}`: 409, `{"session_id":"g","turns":3}`: 400, `{"session_id":"g","turns":0}`: 400, `{"turns":1}`: 400, `{"session_id":"a b"}`: 400, `{"session_id":"g","turn":1}`: 400, `{"session_id":"g"}`: 200,
	} {
		if a := c.sessions("POST", "f/fork", body); a.Status != status {
			t.Errorf("%s: %d %s", body, a.Status, a.Body)
		}
	}
	if a := c.sessions("POST", "s/fork", `{"session_id":"h"}`); a.Status != 404 {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}

// The variables of code live from call to call of a session, and not in another one. // J04
func TestCodeOfAChatSessionSharesVariables(t *testing.T) {
	up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, got Received) {
		code := LastSaid(got.Body)
		if !strings.HasPrefix(code, "JS ") {
			Says("Done.").Write(w)
			return
		}
		arguments, _ := json.Marshal(map[string]string{"language": "javascript", "code": strings.TrimPrefix(code, "JS ")})
		Asks(Use("code_execute", string(arguments))).Write(w)
	})
	yaml := "sandbox: {drivers: [quickjs]}" + Site{Upstream: up.URL, Runtime: "builtin_tools: [{name: code_execute}]"}.Yaml()
	data := NewData(t)
	g := MustRunWith(t, data, yaml, Environment(), app.Options{Program: sandboxtest.Program(t)})
	const read = "JS typeof n === 'undefined' ? 'none' : 'n is ' + n"
	one, other := &chatClient{Gateway: g, key: "owner-key", session: "s"}, &chatClient{Gateway: g, key: "owner-key", session: "t"}
	theirs := &chatClient{Gateway: g, key: "member-key", session: "s"}
	one.ask("JS var n = 42; n", false)
	for c, want := range map[*chatClient]string{one: "n is 42", other: "none", theirs: "none"} {
		c.ask(read, false)
		seen := up.Requests()
		results := seen[len(seen)-1].Results(t)
		if got := results[len(results)-1]; !strings.Contains(got, want) {
			t.Errorf("session %s of %s: %s, want %s", c.session, c.key, got, want)
		}
	}
	if n := len(codeDirectories(t, data)); n != 3 {
		t.Errorf("%d sessions have directories", n)
	}
	if a := g.Send("DELETE", "/v1/sessions/s", nil, "Authorization", "Bearer owner-key"); a.Status != 200 {
		t.Fatalf("deleted with %d: %s", a.Status, a.Body)
	}
	if n := len(codeDirectories(t, data)); n != 2 {
		t.Errorf("of a session that was deleted there is a directory: %d", n)
	}
	again := &chatClient{Gateway: g, key: "owner-key", session: "s"}
	again.ask(read, false)
	seen := up.Requests()
	if results := seen[len(seen)-1].Results(t); !strings.Contains(results[len(results)-1], "none") {
		t.Errorf("a new session with the id of a deleted one: %s", results)
	}
}

// codeDirectories returns the working directories of all sessions of code.
func codeDirectories(t *testing.T, data string) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(data, app.SandboxDirectory, "sessions", "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// What code has left is removed with the session of an agent.
func TestWhatCodeHasLeftIsDeletedWithItsSession(t *testing.T) {
	up := NewUpstream(t, Script(Asks(Use("code_execute", `{"language":"javascript","code":"1"}`)), Says("Done.")))
	data := NewData(t)
	d := Manage(MustRunWith(t, data, "sandbox: {drivers: [quickjs]}\n"+Site{Upstream: up.URL}.Yaml(), Environment(), app.Options{Program: sandboxtest.Program(t)}))
	id := d.NewAgent("")
	d.AsOwner("POST", "/api/agents/"+id+"/tools", `{"tool_type":"builtin","tool_name":"code_execute"}`, 201)
	d.StreamAgent(id, `{"message":"x"}`)
	if n := len(codeDirectories(t, data)); n != 1 {
		t.Fatalf("%d sessions have directories", n)
	}
	session := Elements(d.AsOwner("GET", "/api/agents/"+id+"/sessions", "", 200)["sessions"])[0].(map[string]any)["id"].(string)
	d.AsOwner("DELETE", "/api/sessions/"+session, "", 200)
	if left := codeDirectories(t, data); len(left) != 0 {
		t.Errorf("of a session that was deleted there is %q", left)
	}
}

// The client's own tools: their calls are in the session under the ids of the provider, and each is there once. // J04
func TestAChatSessionHasCallsOfTheClient(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, got Received) {
		switch said := LastSaid(got.Body); {
		case said == `{"q":1}`:
			Asks(Use("mine", `{}`)).Saying("Now yours.").Write(w)
		case said == "my result":
			Says("Both.").Write(w)
		case said == "next":
			Says("Again.").Write(w)
		default:
			Asks(Use("look", `{"q":1}`)).Write(w)
		}
	})
	tools := NewMCP(t, map[string]Handler{"look": Echo})
	g := MustRun(t, Site{Upstream: up.URL, Servers: []string{Server("tools", tools.URL)}}.Yaml())
	messages := []any{map[string]any{"role": "user", "content": "x"}}
	ask := func() map[string]any {
		t.Helper()
		body, _ := json.Marshal(map[string]any{"model": "m", "session_id": "s", "messages": messages,
			"tools": []any{map[string]any{"type": "function", "function": map[string]any{"name": "mine", "parameters": map[string]any{"type": "object"}}}}})
		a := g.Post(string(body))
		var got struct {
			Choices []struct{ Message map[string]any }
		}
		if err := json.Unmarshal(a.Body, &got); err != nil || a.Status != 200 {
			t.Fatalf("%d %s %v", a.Status, a.Body, err)
		}
		messages = append(messages, got.Choices[0].Message)
		return got.Choices[0].Message
	}
	calls, _ := ask()["tool_calls"].([]any)
	if len(calls) != 1 {
		t.Fatalf("%v", messages)
	}
	messages = append(messages, map[string]any{"role": "tool", "tool_call_id": calls[0].(map[string]any)["id"], "content": "my result"})
	ask()
	messages = append(messages, map[string]any{"role": "user", "content": "next"})
	ask()
	seen := up.Requests()
	for i, want := range map[int]string{len(seen) - 2: `{"q":1} my result`, len(seen) - 1: `{"q":1} my result`} {
		if got := seen[i].Told(t); got != want {
			t.Errorf("request %d: the model was told %s, want %s: %s", i, got, want, seen[i].Body)
		}
	}
}

// refusesWith reports whether an answer is an error with a code ("" = any) about a member.
func refusesWith(t *testing.T, a Answer, status int, code, param string) bool {
	t.Helper()
	e := a.Fault(t).Error
	return a.Status == status && e.Code != nil && (code == "" || *e.Code == code) && e.Param != nil && *e.Param == param
}
