package responses_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/internal/surface/spectest"
)

// Over the API a type of hosted tools has one server, too, whether that is declared or stored.
func TestATypeOfHostedToolsHasOneServerOfAnOrg(t *testing.T) {
	NoLeaks(t)
	declared := Site{Upstream: "http://127.0.0.1:9", Servers: []string{Server("a", "http://127.0.0.1:9", "hosted: [web_search=find]")}}.Yaml()
	d := Manage(MustRun(t, declared))
	const b = `{"name":"b","url":"http://127.0.0.1:65009","hosted":[%q]}`
	refused := func(method, path, body, want string) {
		t.Helper()
		if got := fmt.Sprint(d.Do(method, path, "owner-key", body, 409)); !strings.Contains(got, want) || !strings.Contains(got, "param:hosted") {
			t.Errorf("%s %s: %s", method, body, got)
		}
	}
	refused("POST", "/api/mcp-servers", fmt.Sprintf(b, "web_search=search"), `hosted of the MCP server "a" already has web_search`)
	if made := d.Do("POST", "/api/mcp-servers", "owner-key", fmt.Sprintf(b, "file_search=search"), 201); fmt.Sprint(made["hosted"]) != "[file_search=search]" {
		t.Errorf("created %v", made)
	}
	refused("PATCH", "/api/mcp-servers/b", `{"hosted":["file_search=search","web_search=search"]}`, `"a" already has web_search`)
	refused("POST", "/api/mcp-servers", strings.Replace(fmt.Sprintf(b, "file_search=search"), `"b"`, `"c"`, 1), `"b" already has file_search`)
	if changed := d.Do("PATCH", "/api/mcp-servers/b", "owner-key", `{"hosted":["file_search=other"]}`, 200); fmt.Sprint(changed["hosted"]) != "[file_search=other]" {
		t.Errorf("changed %v", changed)
	}
}

// webAnswers is a model's use of a tool that answers a hosted tool, and of one that is hidden.
func webAnswers() []Turn {
	return []Turn{
		Asks(Use("find", `{"query":"turnpike"}`), Use("echo", `{"n":1}`), Use("run_code", `{"code":"1+1"}`)), Asks(Use("fails", `{"q":"notes"}`)), Says("Found."),
	}
}

// An MCP server of the org answers the hosted tools of a request to a provider that has none:
// the client gets their items, in the answer, in the stream and in what is stored. A request
// that does not declare them gets none.
func TestAnMCPServerAnswersHostedTools(t *testing.T) {
	NoLeaks(t)
	turns := slices.Concat(webAnswers(), webAnswers(), webAnswers())
	up := NewUpstream(t, Script(turns...))
	tools := NewMCP(t, map[string]Handler{
		"find": func(context.Context, string) (string, error) { return "a result", nil }, "echo": Echo,
		"run_code": func(context.Context, string) (string, error) { return "2", nil },
		"fails":    func(context.Context, string) (string, error) { return "", errors.New("down") },
	})
	data := NewData(t)
	yaml := func(more ...string) string {
		return Site{Upstream: up.URL, Servers: []string{Server("tools", tools.URL, more...)}}.Yaml()
	}
	g := MustRunIn(t, data, yaml("hosted: [web_search=find, file_search=fails, code_interpreter=run_code]"), Environment())
	ask := func(g *Gateway, method, path, body string) []byte {
		t.Helper()
		a := g.Send(method, path, strings.NewReader(body), "Authorization", "Bearer owner-key")
		if a.Status != 200 || a.Header.Get("Turnpike-Dropped-Params") != "" {
			t.Fatalf("%d %q %s", a.Status, a.Header.Get("Turnpike-Dropped-Params"), a.Body)
		}
		return a.Body
	}
	const request = `{"model":"m","input":"x","include":["code_interpreter_call.outputs"],"tools":[{"type":"web_search_preview"},{"type":"file_search","vector_store_ids":["v"]},{"type":"code_interpreter","container":{"type":"auto"}}]`
	answered := ask(g, "POST", "/v1/responses", request+"}")
	id, items := outputOf(t, answered)
	suffix := strings.TrimPrefix(id, "resp_")
	want := []string{
		`{"id":"ws_` + suffix + `_0_0","type":"web_search_call","status":"completed","action":{"type":"search","query":"turnpike"}}`,
		`{"id":"ci_` + suffix + `_0_2","type":"code_interpreter_call","status":"completed","container_id":"cntr_` + suffix + `","code":"1+1","outputs":[{"type":"logs","logs":"2"}]}`,
		`{"id":"fs_` + suffix + `_1_0","type":"file_search_call","status":"failed","queries":["notes"],"results":null}`,
	}
	if len(items) != 4 || !slices.Equal(items[:3], want) || !strings.Contains(items[3], `"Found."`) {
		t.Errorf("the output is\n%s", strings.Join(items, "\n"))
	}
	if got := ask(g, "GET", "/v1/responses/"+id, ""); string(got) != string(answered) {
		t.Errorf("stored is\n%s\nnot\n%s", got, answered)
	}
	streamed := ask(g, "POST", "/v1/responses", request+`,"stream":true}`)
	whole := checkHostedStream(t, streamed)
	streamID, streamItems := outputOf(t, whole)
	for i, it := range items {
		if got := strings.ReplaceAll(streamItems[i], strings.TrimPrefix(streamID, "resp_"), suffix); got != it {
			t.Errorf("streamed is\n%s\nnot\n%s", got, it)
		}
	}
	if got, items := outputOf(t, ask(g, "GET", "/v1/responses/"+streamID, "")); got != streamID || !slices.Equal(items, streamItems) {
		t.Errorf("of the stream %q is stored, not %q", items, streamItems)
	}
	if _, items := outputOf(t, ask(g, "POST", "/v1/responses", `{"model":"m","input":"x"}`)); len(items) != 1 {
		t.Errorf("a request without hosted tools has the output %q", items)
	}
	if n := len(tools.Of("tools/call")); n != 12 {
		t.Errorf("the server got %d calls, want 4 of each response", n)
	}
	// What a response shows does not change with the settings of the server.
	if err := g.Stop(); err != nil {
		t.Fatal(err)
	}
	g = MustRunIn(t, data, yaml(), Environment())
	if got := ask(g, "GET", "/v1/responses/"+id, ""); string(got) != string(answered) {
		t.Errorf("after a restart without hosted tools, stored is\n%s\nnot\n%s", got, answered)
	}
}

// outputOf returns the id of a response and its items.
func outputOf(t *testing.T, body []byte) (id string, items []string) {
	t.Helper()
	var r struct {
		ID     string
		Output []json.RawMessage
	}
	if err := json.Unmarshal(body, &r); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	for _, it := range r.Output {
		items = append(items, string(it))
	}
	return r.ID, items
}

// checkHostedStream fails the test unless the events of the items of a stream come in the order
// of the API. It returns the response of its last event.
func checkHostedStream(t *testing.T, body []byte) (whole []byte) {
	t.Helper()
	got := map[string][]string{}
	for frame := range strings.SplitSeq(string(body), "\n\n") {
		_, data, _ := strings.Cut(frame, "data: ")
		var ev struct {
			Type     string
			ItemID   string          `json:"item_id"`
			Response json.RawMessage `json:"response"`
			Item     struct{ ID, Status string }
		}
		if json.Unmarshal([]byte(data), &ev) != nil {
			continue // a comment, or the end
		}
		if ev.Response != nil {
			whole = ev.Response
		}
		step := strings.TrimPrefix(ev.Type, "response.")
		if ev.Item.ID != "" {
			step += " " + ev.Item.Status
		}
		kind, _, _ := strings.Cut(ev.ItemID+ev.Item.ID, "_")
		got[kind] = append(got[kind], step)
	}
	for kind, want := range map[string]string{
		"ws": "output_item.added in_progress, web_search_call.in_progress, web_search_call.searching, web_search_call.completed, output_item.done completed",
		"fs": "output_item.added in_progress, file_search_call.in_progress, file_search_call.searching, output_item.done failed",
		"ci": "output_item.added in_progress, code_interpreter_call.in_progress, code_interpreter_call_code.delta, code_interpreter_call_code.done, " +
			"code_interpreter_call.interpreting, code_interpreter_call.completed, output_item.done completed",
	} {
		if steps := strings.Join(got[kind], ", "); steps != want {
			t.Errorf("%s: %s\nwant %s", kind, steps, want)
		}
	}
	return whole
}

// tool_choice with a hosted tool is a choice of the tool that answers it.
func TestAChoiceOfAHostedToolReachesTheProvider(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, Script(Asks(Use("find", `{}`)), Says("Done.")))
	tools := NewMCP(t, map[string]Handler{"find": Echo, "echo": Echo})
	g := MustRun(t, Site{Upstream: up.URL, Servers: []string{Server("tools", tools.URL, "naming: namespaced, hosted: [web_search=find]")}}.Yaml())
	a := g.Send("POST", "/v1/responses", strings.NewReader(`{"model":"m","input":"x","tools":[{"type":"web_search"}],"tool_choice":{"type":"web_search"}}`), "Authorization", "Bearer owner-key")
	if a.Status != 200 {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	if asked := up.Requests(); !strings.Contains(string(asked[0].Body), `"tool_choice":{"type":"function","function":{"name":"mcp__tools__find"}}`) {
		t.Errorf("the provider got %s", asked[0].Body)
	}
}

// The image of a tool that answers image_generation is the result of the call's item, in JSON, in
// the stream, in what is stored, and in the stream of that. A tool that gives no image has failed.
func TestAnMCPServerAnswersImageGeneration(t *testing.T) { // G15 G16
	NoLeaks(t)
	specs := spectest.Find(t)
	up := NewUpstream(t, Script(slices.Repeat([]Turn{Asks(Use("draw", `{"prompt":"a pixel"}`), Use("draw", `{"prompt":"nothing"}`)), Says("Done.")}, 3)...))
	tools := NewMCP(t, nil)
	tools.Sdk.AddTool(&mcp.Tool{Name: "draw", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if strings.Contains(string(r.Params.Arguments), "nothing") {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "no idea"}}}, nil
		}
		pixel, err := base64.StdEncoding.DecodeString(onePixel)
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "Here it is."}, &mcp.ImageContent{Data: pixel, MIMEType: "image/png"}}}, err
	})
	g := MustRun(t, Site{Upstream: up.URL, Servers: []string{Server("tools", tools.URL, "hosted: [image_generation=draw]")}}.Yaml())
	item := func(name, result string) string {
		return `"type":"image_generation_call","status":"` + name + `","result":` + result + `}`
	}
	done, none := item("completed", `"`+onePixel+`"`), item("failed", "null")
	for _, header := range [][]string{{}, {"Idempotency-Key", "k"}} {
		for _, stream := range []string{"false", "true"} {
			if len(header) > 0 && stream == "false" {
				continue
			}
			a := g.Send("POST", "/v1/responses", strings.NewReader(`{"model":"m","input":"x","tools":[{"type":"image_generation"}],"stream":`+stream+`}`), append(header, "Authorization", "Bearer owner-key")...)
			specs.Check(t, "POST /v1/responses", string(a.Body))
			body, times := string(a.Body), 1
			var id string
			if stream == "true" {
				times = 2 // the end of the item, and the response
				all := a.Events(t)
				WantNumbered(t, all)
				wantEnded(t, all)
				id = last(all).ID
				for kind, n := range map[string]int{"in_progress": 2, "generating": 2, "completed": 1} {
					if got := len(typed(all, "response.image_generation_call."+kind, "")); got != n {
						t.Errorf("%d events %s", got, kind)
					}
				}
			} else {
				id = a.Responded(t).ID
			}
			if a.Status != 200 || strings.Count(body, done) != times || strings.Count(body, none) != times {
				t.Errorf("%d %s", a.Status, body)
			}
			stored := g.Send("GET", "/v1/responses/"+id, nil, "Authorization", "Bearer owner-key")
			specs.Check(t, "GET /v1/responses", string(stored.Body))
			if strings.Count(string(stored.Body), done) != 1 || strings.Count(string(stored.Body), none) != 1 {
				t.Errorf("stored: %s", stored.Body)
			}
			if again := replayed(g, id, ""); len(header) > 0 && string(again.Body) != body {
				t.Errorf("streamed again:\n%s\nnot\n%s", again.Body, body)
			}
		}
	}
}
