package chat_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

// An answer that is whole JSON, or a stream that ends with [DONE], is whole without a known finish reason: the model is
// called once, and the text is there once.
func TestAnAnswerWithoutAKnownFinishReasonIsWhole(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, nil)
	d := Manage(MustRun(t, Site{Upstream: up.URL, Servers: []string{Server("s", NewMCP(t, map[string]Handler{"echo": Echo}).URL)}}.Yaml()))
	agent := d.NewAgent("")
	for name, reason := range map[string]string{"empty": `,"finish_reason":""`, "null": `,"finish_reason":null`, "unknown": `,"finish_reason":"eos"`, "none": ""} {
		for _, stream := range []bool{false, true} {
			up.Forget()
			up.Answer = func(w http.ResponseWriter, _ *http.Request, _ Received) {
				if !stream {
					w.Header().Set("Content-Type", "application/json")
					_, _ = io.WriteString(w, `{"id":"c","object":"chat.completion","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"Once."}`+reason+`}]}`)
					return
				}
				w.Header().Set("Content-Type", "text/event-stream")
				for _, text := range []string{"On", "ce."} {
					_, _ = fmt.Fprintf(w, `data: {"id":"c","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{"content":%q}%s}]}`+"\n\n", text, reason)
				}
				_, _ = io.WriteString(w, "data: [DONE]\n\n")
			}
			if a := d.Post(Question); a.Status != 200 || strings.Count(string(a.Body), "Once.") != 1 || !strings.Contains(string(a.Body), `"finish_reason":"stop"`) || len(up.Requests()) != 1 {
				t.Errorf("%s, stream %t: %d model calls: %d %s", name, stream, len(up.Requests()), a.Status, a.Body)
			}
			all := AgentFrames(t, d.StreamAgent(agent, `{"message":"go"}`).Body)
			if end := all[len(all)-1]; end["status"] != "completed" || end["content"] != "Once." || len(up.Requests()) != 2 {
				t.Errorf("%s, stream %t: %d model calls, and the end is %v", name, stream, len(up.Requests())-1, end)
			}
		}
	}
}

// For a model that takes no tools those of the gateway are left out, and the answer names their servers. Tools of
// the client are refused. // M07
func TestAModelThatTakesNoTools(t *testing.T) {
	NoLeaks(t)
	up := StrictUpstream(t, "text Hi.\nagain")
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	yaml, _ := OfKind(Site{Upstream: strings.TrimSuffix(up.URL, "/v1"), Servers: []string{Server("docs", tools.URL)}}.Yaml(), "bedrock")
	d := Manage(MustRun(t, yaml))
	const asked = `{"model":"g-amazon.titan-text-express-v1","messages":[{"role":"user","content":"go"}]%s}`
	a := d.Post(fmt.Sprintf(asked, ""))
	if a.Status != 200 || !strings.Contains(string(a.Body), "Hi.") || a.Header.Get(missingServers) != "docs" || strings.Contains(string(up.Requests()[0].Body), "toolConfig") {
		t.Errorf("%d %v %s: %s", a.Status, a.Header, a.Body, up.Requests()[0].Body)
	}
	if !strings.Contains(d.Log.String(), `level=WARN msg="the model takes no tools: those of the gateway are left out"`) {
		t.Error("the log does not say that tools are left out")
	}
	if a := d.Send("POST", "/v1/responses", strings.NewReader(`{"model":"g-amazon.titan-text-express-v1","input":"go"}`)); a.Status != 200 || a.Header.Get(missingServers) != "docs" {
		t.Errorf("%d %v %s", a.Status, a.Header, a.Body)
	}
	id := d.AsOwner("POST", "/api/agents", `{"name":"helper","model":"g-amazon.titan-text-express-v1"`+WithTools(tools)+`}`, 201)["id"].(string)
	all := AgentFrames(t, d.StreamAgent(id, `{"message":"go"}`).Body)
	if end := all[len(all)-1]; end["status"] != "completed" || !strings.Contains(fmt.Sprint(all[0]["missing_servers"]), "tools") {
		t.Errorf("%v, and the end is %v", all[0], end)
	}
	before := len(up.Requests())
	if a := d.Post(fmt.Sprintf(asked, `,"tools":[{"type":"function","function":{"name":"f"}}]`)); a.Status != 400 || !strings.Contains(string(a.Body), "takes no tools") || len(up.Requests()) != before {
		t.Errorf("with tools of the client: %d %s", a.Status, a.Body)
	}
}
