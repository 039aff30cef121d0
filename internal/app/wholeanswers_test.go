package app_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// An answer that is whole JSON, or a stream that ends with [DONE], is whole without a known finish reason: the model is
// called once, and the text is there once.
func TestAnAnswerWithoutAKnownFinishReasonIsWhole(t *testing.T) {
	noLeaks(t)
	for name, reason := range map[string]string{"empty": `,"finish_reason":""`, "null": `,"finish_reason":null`, "unknown": `,"finish_reason":"eos"`, "none": ""} {
		for _, stream := range []bool{false, true} {
			up := newUpstream(t, func(w http.ResponseWriter, _ *http.Request, _ received) {
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
			})
			d := manage(MustRun(t, site{upstream: up.URL, servers: []string{server("s", newMCP(t, map[string]handler{"echo": echo}).URL)}}.yaml()))
			if a := d.post(question); a.status != 200 || strings.Count(string(a.body), "Once.") != 1 || !strings.Contains(string(a.body), `"finish_reason":"stop"`) || len(up.requests()) != 1 {
				t.Errorf("%s, stream %t: %d model calls: %d %s", name, stream, len(up.requests()), a.status, a.body)
			}
			all := agentFrames(t, d.streamAgent(d.newAgent(""), `{"message":"go"}`).body)
			if end := all[len(all)-1]; end["status"] != "completed" || end["content"] != "Once." || len(up.requests()) != 2 {
				t.Errorf("%s, stream %t: %d model calls, and the end is %v", name, stream, len(up.requests())-1, end)
			}
		}
	}
}

// For a model that takes no tools those of the gateway are left out, and the answer names their servers. Tools of
// the client are refused. // M07
func TestAModelThatTakesNoTools(t *testing.T) {
	noLeaks(t)
	up := strictUpstream(t, "text Hi.\nagain")
	tools := newMCP(t, map[string]handler{"echo": echo})
	yaml, _ := ofKind(site{upstream: strings.TrimSuffix(up.URL, "/v1"), servers: []string{server("docs", tools.URL)}}.yaml(), "bedrock")
	d := manage(MustRun(t, yaml))
	const asked = `{"model":"g-amazon.titan-text-express-v1","messages":[{"role":"user","content":"go"}]%s}`
	a := d.post(fmt.Sprintf(asked, ""))
	if a.status != 200 || !strings.Contains(string(a.body), "Hi.") || a.header.Get(missingServers) != "docs" || strings.Contains(string(up.Requests()[0].Body), "toolConfig") {
		t.Errorf("%d %v %s: %s", a.status, a.header, a.body, up.Requests()[0].Body)
	}
	if !strings.Contains(d.log.String(), `level=WARN msg="the model takes no tools: those of the gateway are left out"`) {
		t.Error("the log does not say that tools are left out")
	}
	if a := d.send("POST", "/v1/responses", strings.NewReader(`{"model":"g-amazon.titan-text-express-v1","input":"go"}`)); a.status != 200 || a.header.Get(missingServers) != "docs" {
		t.Errorf("%d %v %s", a.status, a.header, a.body)
	}
	id := d.asOwner("POST", "/api/agents", `{"name":"helper","model":"g-amazon.titan-text-express-v1"`+withTools(tools)+`}`, 201)["id"].(string)
	all := agentFrames(t, d.streamAgent(id, `{"message":"go"}`).body)
	if end := all[len(all)-1]; end["status"] != "completed" || !strings.Contains(fmt.Sprint(all[0]["missing_servers"]), "tools") {
		t.Errorf("%v, and the end is %v", all[0], end)
	}
	before := len(up.Requests())
	if a := d.post(fmt.Sprintf(asked, `,"tools":[{"type":"function","function":{"name":"f"}}]`)); a.status != 400 || !strings.Contains(string(a.body), "takes no tools") || len(up.Requests()) != before {
		t.Errorf("with tools of the client: %d %s", a.status, a.body)
	}
}
