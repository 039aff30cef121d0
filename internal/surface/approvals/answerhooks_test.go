package approvals_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

// Hooks before the answer decide what the client gets, the same on each surface, streamed or
// not. What the model has said does not reach the client before, and not the next turn either. // H14 H15 H16 H17 H21
func TestHooksDecideOnTheAnswer(t *testing.T) {
	const said, early = "the password is tiger", "let me look"
	httpHook := func(id, more string) string {
		return fmt.Sprintf(`{"id":%q,"event":"PreResponse","type":"http","config":{"url":"URL"%s}}`, id, more)
	}
	rule := `{"id":"r","event":"PreResponse","type":"rule","config":{"condition":"output CONTAINS password","message":"no secrets"}}`
	NoLeaks(t)
	mcp := NewMCP(t, map[string]Handler{"run": Echo})
	var mu sync.Mutex
	var last string // the body of the last request to the model
	up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, got Received) {
		mu.Lock()
		last = string(got.Body)
		mu.Unlock()
		if len(got.Results(t)) > 0 {
			Says(said).Write(w)
			return
		}
		Asks(Use("run", `{}`)).Saying(early).Write(w)
	})
	site := Site{Upstream: up.URL, Servers: []string{Server("tools", mcp.URL, "trust: true")}}
	gateway := MustRun(t, strings.Replace(site.Yaml(), "    runtime: {}\n", "", 1))
	for name, c := range map[string]struct {
		hooks, reply, want string
		asked              string // output of each question
	}{
		"http allows":              {hooks: httpHook("h", ""), reply: `{"action":"allow"}`, want: said, asked: said},
		"http denies":              {hooks: httpHook("h", ""), reply: `{"action":"deny","message":"why"}`, want: "[Response blocked: why]", asked: said},
		"http denies, no message":  {hooks: httpHook("h", ""), reply: `{"action":"deny"}`, want: "[Response blocked: h]", asked: said},
		"http modifies":            {hooks: httpHook("h", ""), reply: `{"action":"modify","modified_output":"redacted"}`, want: "redacted", asked: said},
		"http modifies to nothing": {hooks: httpHook("h", ""), reply: `{"action":"modify","modified_output":""}`, want: "", asked: said},
		"http fails":               {hooks: httpHook("h", ""), reply: "500", want: said, asked: said},
		"http fails, and denies":   {hooks: httpHook("h", `,"on_error":"deny"`), reply: "500", want: "[Response blocked: a check that is required has failed]", asked: said},
		"http modifies nothing":    {hooks: httpHook("h", `,"on_error":"deny"`), reply: `{"action":"modify","modified_input":{}}`, want: "[Response blocked: a check that is required has failed]", asked: said},
		"a rule denies":            {hooks: rule, want: "[Response blocked: no secrets]"},
		"a rule sees the change":   {hooks: httpHook("h", "") + ", " + rule, reply: `{"action":"modify","modified_output":"redacted"}`, want: "redacted", asked: said},
		"two change it":            {hooks: httpHook("h", "") + ", " + httpHook("i", ""), reply: `{"action":"modify","modified_output":"redacted"}`, want: "redacted", asked: said + " | redacted"},
		"none after a denial":      {hooks: rule + ", " + httpHook("h", ""), want: "[Response blocked: no secrets]"},
	} {
		t.Run(name, func(t *testing.T) {
			receiver := NewHookServer(t, Replies(map[string]string{"PreResponse": c.reply}))
			hooks := strings.ReplaceAll(c.hooks, "URL", receiver.URL)
			g := *gateway
			g.T = t
			Manage(&g).AsOwner("PATCH", "/api/org/runtime", `{"hooks":[`+hooks+`]}`, 200)
			durable := []string{"Idempotency-Key", strings.ReplaceAll(name, " ", "_")}
			for _, r := range []struct {
				path, body string
				header     []string
			}{
				{"/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"hello"}]}`, nil},
				{"/v1/chat/completions", `{"model":"m","stream":true,"messages":[{"role":"user","content":"hello"}]}`, nil},
				{"/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"durable"}]}`, durable},
				{"/v1/responses", `{"model":"m","input":"hello"}`, nil},
				{"/v1/responses", `{"model":"m","stream":true,"input":"hello"}`, nil},
				{"/v1/responses", `{"model":"m","background":true,"stream":true,"input":"hello"}`, nil},
			} {
				receiver.Forget()
				a := g.Send("POST", r.path, strings.NewReader(r.body), r.header...)
				body := string(a.Body)
				if events := g.Send("GET", "/v1/runs/"+a.Header.Get("Turnpike-Run-Id")+"/events", nil); events.Status != 200 || strings.Contains(string(events.Body), said) != (c.want == said) {
					t.Errorf("%s: the events of the run: %d %s", r.path, events.Status, events.Body)
				}
				if got := textOf(t, r.path, body); a.Status != 200 || got != c.want {
					t.Errorf("%s %s: %d with the text %q, want %q:\n%s", r.path, r.body, a.Status, got, c.want, body)
				}
				if strings.Contains(body, early) || c.want != said && (strings.Contains(body, "password") || strings.Contains(body, "tiger")) {
					t.Errorf("%s %s: the client got what no hook has left:\n%s", r.path, r.body, body)
				}
				if got := strings.Join(receiver.Outputs(), " | "); got != c.asked {
					t.Errorf("%s: the hooks were asked about %q, want %q", r.path, got, c.asked)
				}
				if r.path != "/v1/responses" {
					continue
				}
				id := firstID(t, body)
				again := g.Send("GET", "/v1/responses/"+id, nil, "Authorization", "Bearer owner-key")
				if got := textOf(t, r.path, string(again.Body)); got != c.want {
					t.Errorf("the stored response has %q, want %q:\n%s", got, c.want, again.Body)
				}
				g.Send("POST", r.path, strings.NewReader(`{"model":"m","input":"more","previous_response_id":"`+id+`"}`), "Authorization", "Bearer owner-key")
				mu.Lock()
				if sees := strings.Contains(last, said); sees != (c.want == said) || !strings.Contains(last, c.want) {
					t.Errorf("the model sees in the next turn: %s", last)
				}
				mu.Unlock()
			}
		})
	}
}

// textOf returns the text of an answer, which is JSON or a stream.
func textOf(t *testing.T, path, body string) string {
	t.Helper()
	var text strings.Builder
	add := func(object map[string]any) {
		for _, c := range list(object["choices"]) {
			for _, member := range []string{"message", "delta"} {
				if m, ok := c[member].(map[string]any); ok && m["content"] != nil {
					text.WriteString(m["content"].(string))
				}
			}
		}
		for _, out := range list(object["output"]) {
			for _, part := range list(out["content"]) {
				text.WriteString(part["text"].(string))
			}
		}
	}
	decode := func(data string) (object map[string]any) {
		if err := json.Unmarshal([]byte(data), &object); err != nil {
			t.Fatalf("%s: %v\n%s", path, err, data)
		}
		return object
	}
	if strings.HasPrefix(body, "{") {
		add(decode(body))
		return text.String()
	}
	for line := range strings.Lines(body) {
		data, ok := strings.CutPrefix(strings.TrimSpace(line), "data: ")
		if !ok || data == "[DONE]" {
			continue
		}
		object := decode(data)
		if object["type"] == "response.completed" {
			object = object["response"].(map[string]any)
		}
		add(object)
	}
	return text.String()
}

// list returns the objects of a list.
func list(v any) (out []map[string]any) {
	all, _ := v.([]any)
	for _, one := range all {
		if m, ok := one.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}

// responseID is the id of a response in an answer.
var responseID = regexp.MustCompile(`resp_[0-9A-Za-z]+`)

func firstID(t *testing.T, body string) string {
	t.Helper()
	id := responseID.FindString(body)
	if id == "" {
		t.Fatalf("no response: %s", body)
	}
	return id
}

// A hook at an address that the outbound policy refuses is never contacted. Its on_error says what takes effect,
// at each point. // H24
func TestHooksAtRefusedAddresses(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, Script(Says("done")))
	receiver := NewHookServer(t, Replies(map[string]string{"OnRunStart": `{"action":"deny"}`, "PreResponse": `{"action":"deny"}`}))
	for onError, want := range map[string]string{"allow": "done", "deny": "[Response blocked: a check that is required has failed]"} {
		hooks := fmt.Sprintf(`hooks: [{id: a, event: OnRunStart, type: http, config: {url: %q}}, {id: b, event: PreResponse, type: http, config: {url: %q, on_error: %s}}]`, receiver.URL, receiver.URL, onError)
		g := MustRun(t, Site{Upstream: up.URL, Allow: "10.9.9.0/24", Runtime: hooks}.Yaml())
		a := g.Post(`{"model":"m","messages":[{"role":"user","content":"hello"}]}`)
		if got := textOf(t, "", string(a.Body)); a.Status != 200 || got != want {
			t.Errorf("on_error %s: %d %s", onError, a.Status, a.Body)
		}
		if strings.Contains(string(a.Body), "127.0.0.1") {
			t.Errorf("the client got the address: %s", a.Body)
		}
	}
	if got := receiver.Outputs(); len(got) > 0 {
		t.Errorf("the hook was contacted: %v", got)
	}
}
