package responses_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/internal/surface/spectest"
)

// searcher is a provider that speaks the Responses API as OpenAI does: it searches, runs code,
// and cites what it has found.
type searcher struct {
	cut bool // the stream breaks off in the search

	mu     sync.Mutex
	inputs []string
}

// The citations of the answer.
const (
	citesURL  = `{"type":"url_citation","url":"https://go.dev/","start_index":0,"end_index":2,"title":"Go"}`
	citesFile = `{"type":"container_file_citation","container_id":"cntr_9","file_id":"cfile_9","start_index":3,"end_index":9,"filename":"plot.png"}`
)

// said are the events of the answer, without their numbers.
func (p *searcher) said() []string {
	const (
		ran    = `{"id":"ci_9","type":"code_interpreter_call","status":"completed","container_id":"cntr_9","code":"1+1","outputs":[{"type":"logs","logs":"2"}]}`
		answer = `{"id":"msg_9","type":"message","role":"assistant","status":"completed","content":[{"type":"output_text","text":"Go is fine.","logprobs":[],"annotations":[` + citesURL + `,` + citesFile + `]}]}`
	)
	step := func(kind, id string, index int, more string) string {
		return fmt.Sprintf(`{"type":"response.%s","output_index":%d,"item_id":%q%s}`, kind, index, id, more)
	}
	list := []string{
		`{"type":"response.created","response":{"id":"resp_9","object":"response","status":"in_progress","model":"m","output":[]}}`,
		`{"type":"response.output_item.added","output_index":0,"item":{"id":"ws_7","type":"web_search_call","status":"in_progress"}}`,
		step("web_search_call.in_progress", "ws_7", 0, ""), step("web_search_call.searching", "ws_7", 0, ""),
	}
	if p.cut {
		return list
	}
	return append(list,
		step("web_search_call.completed", "ws_7", 0, ""),
		`{"type":"response.output_item.done","output_index":0,"item":`+searched+`}`,
		`{"type":"response.output_item.added","output_index":1,"item":{"id":"ci_9","type":"code_interpreter_call","status":"in_progress","container_id":"cntr_9","code":"","outputs":null}}`,
		step("code_interpreter_call.in_progress", "ci_9", 1, ""),
		step("code_interpreter_call_code.delta", "ci_9", 1, `,"delta":"1+","obfuscation":"xyz"`), step("code_interpreter_call_code.delta", "ci_9", 1, `,"delta":"1"`),
		step("code_interpreter_call_code.done", "ci_9", 1, `,"code":"1+1"`),
		step("code_interpreter_call.interpreting", "ci_9", 1, ""), step("code_interpreter_call.completed", "ci_9", 1, ""),
		`{"type":"response.output_item.done","output_index":1,"item":`+ran+`}`,
		`{"type":"response.output_item.added","output_index":2,"item":{"id":"msg_9","type":"message","role":"assistant","status":"in_progress","content":[]}}`,
		step("output_text.delta", "msg_9", 2, `,"content_index":0,"delta":"Go "`),
		step("output_text.annotation.added", "msg_9", 2, `,"content_index":0,"annotation_index":0,"annotation":`+citesURL),
		step("output_text.delta", "msg_9", 2, `,"content_index":0,"delta":"is fine."`),
		`{"type":"response.output_item.done","output_index":2,"item":`+answer+`}`, // with the citation that has no event
		`{"type":"response.completed","response":{"id":"resp_9","object":"response","status":"completed","model":"m","output":[`+searched+`,`+ran+`,`+answer+`],"usage":{"input_tokens":1,"output_tokens":1,"total_tokens":2}}}`,
	)
}

func (p *searcher) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body struct{ Input json.RawMessage }
	_ = json.NewDecoder(r.Body).Decode(&body)
	p.mu.Lock()
	p.inputs = append(p.inputs, string(body.Input))
	p.mu.Unlock()
	w.Header().Set("Content-Type", "text/event-stream")
	for _, data := range p.said() {
		_, _ = io.WriteString(w, "data: "+data+"\n\n")
	}
}

// input is what the latest request had.
func (p *searcher) input() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.inputs[len(p.inputs)-1]
}

// newSearchSite is a gateway in front of the provider.
func newSearchSite(t *testing.T, up *searcher) *Gateway {
	t.Helper()
	NoLeaks(t)
	provider := httptest.NewServer(up)
	t.Cleanup(provider.Close)
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	yaml := Site{Upstream: provider.URL, Servers: []string{Server("tools", tools.URL)}}.Yaml()
	return MustRun(t, strings.Replace(yaml, "{name: up,", "{name: up, kind: openai-responses,", 1))
}

// The tools that a provider executes report their steps, and the text has its sources, in the
// stream, in the response, in what is stored, and in what the provider gets back.
func TestStepsAndCitationsOfAProvidersTools(t *testing.T) { // G15 G16 P38
	specs := spectest.Find(t)
	up := &searcher{}
	g := newSearchSite(t, up)
	const request = `{"model":"m","input":"x","tools":[{"type":"web_search"},{"type":"code_interpreter","container":{"type":"auto"}}]`
	for name, header := range map[string][]string{"light": {}, "durable": {"Idempotency-Key", "k"}} {
		t.Run(name, func(t *testing.T) {
			a := g.Send("POST", "/v1/responses", strings.NewReader(request+`,"stream":true}`), append(header, "Authorization", "Bearer owner-key")...)
			specs.Check(t, "POST /v1/responses", string(a.Body))
			all := a.Events(t)
			WantNumbered(t, all)
			wantOpened(t, all)
			wantWhole(t, all)
			wantEnded(t, all)
			var got []string
			for _, e := range all {
				id := e.ItemID
				if id == "" {
					id = e.Item.ID
				}
				if strings.HasPrefix(id, "msg_") {
					id = "msg"
				}
				got = append(got, fmt.Sprintf("%s %d %s %s", strings.TrimPrefix(e.Type, "response."), e.OutputIndex, id, e.Delta))
			}
			want := []string{
				"created 0  ", "in_progress 0  ",
				"output_item.added 0 ws_7 ", "web_search_call.in_progress 0 ws_7 ", "web_search_call.searching 0 ws_7 ", "web_search_call.completed 0 ws_7 ", "output_item.done 0 ws_7 ",
				"output_item.added 1 ci_9 ", "code_interpreter_call.in_progress 1 ci_9 ", "code_interpreter_call_code.delta 1 ci_9 1+", "code_interpreter_call_code.delta 1 ci_9 1",
				"code_interpreter_call_code.done 1 ci_9 ", "code_interpreter_call.interpreting 1 ci_9 ", "code_interpreter_call.completed 1 ci_9 ", "output_item.done 1 ci_9 ",
				"output_item.added 2 msg ", "content_part.added 2 msg ", "output_text.delta 2 msg Go ", "output_text.annotation.added 2 msg ", "output_text.delta 2 msg is fine.", "output_text.annotation.added 2 msg ",
				"output_text.done 2 msg ", "content_part.done 2 msg ", "output_item.done 2 msg ", "completed 0  ",
			}
			if !slices.Equal(got, want) {
				t.Errorf("the stream is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			annotations := `"annotations":[` + citesURL + `,` + citesFile + `]`
			if n := strings.Count(string(a.Body), annotations); n != 3 || strings.Contains(string(a.Body), `"xyz"`) {
				t.Errorf("the text has its sources %d times: %s", n, a.Body)
			}
			id := last(all).ID
			stored := g.Send("GET", "/v1/responses/"+id, nil, "Authorization", "Bearer owner-key")
			specs.Check(t, "GET /v1/responses", string(stored.Body))
			if !strings.Contains(string(a.Body), `"response":`+strings.TrimSpace(string(stored.Body))) {
				t.Errorf("stored is %s", stored.Body)
			}
			next := g.Send("POST", "/v1/responses", strings.NewReader(`{"model":"m","input":"y","previous_response_id":"`+id+`"}`), "Authorization", "Bearer owner-key")
			if next.Status != 200 || !strings.Contains(up.input(), annotations) || !strings.Contains(up.input(), searched) {
				t.Errorf("%d, the provider gets %s", next.Status, up.input())
			}
			var object struct{ Output json.RawMessage }
			if err := json.Unmarshal(stored.Body, &object); err != nil {
				t.Fatal(err)
			}
			next = g.Send("POST", "/v1/responses", strings.NewReader(`{"model":"m","store":false,"input":[{"role":"user","content":"x"},`+strings.Trim(string(object.Output), "[]")+`]}`), "Authorization", "Bearer owner-key")
			// The id of what a client sends is not that of the provider, which all orgs share.
			if next.Status != 200 || !strings.Contains(up.input(), annotations) || !strings.Contains(up.input(), `"action":{"type":"search","query":"go"}`) ||
				strings.Contains(up.input(), `"ws_7"`) {
				t.Errorf("%d, of a stateless client the provider gets %s", next.Status, up.input())
			}
		})
	}
}

// A chat client gets the sources that its API has: those with a URL. Their places are in the
// content that it gets.
func TestCitationsOnChat(t *testing.T) {
	g := newSearchSite(t, &searcher{})
	const annotations = `"annotations":[{"type":"url_citation","url_citation":{"start_index":0,"end_index":2,"url":"https://go.dev/","title":"Go"}}]`
	for _, more := range []string{"", `,"stream":true`} {
		for _, header := range []string{"false", "true"} { // a loop, and a relay that is translated
			a := g.Send("POST", "/v1/chat/completions", strings.NewReader(`{"model":"m","messages":[{"role":"user","content":"x"}]`+more+`}`), "Authorization", "Bearer owner-key", "turnpike-mcp-disabled", header)
			if a.Status != 200 || strings.Count(string(a.Body), annotations) != 1 || strings.Count(string(a.Body), "citation") != 2 {
				t.Errorf("%s, loop off %s: %d %s", more, header, a.Status, a.Body)
			}
		}
	}
}

// A search whose end does not come has an item that has ended.
func TestASearchThatBreaksOff(t *testing.T) {
	g := newSearchSite(t, &searcher{cut: true})
	a := g.Send("POST", "/v1/responses", strings.NewReader(`{"model":"m","input":"x","stream":true,"tools":[{"type":"web_search"}]}`), "Authorization", "Bearer owner-key")
	spectest.Find(t).Check(t, "POST /v1/responses", string(a.Body))
	all := a.Events(t)
	wantEnded(t, all)
	if o := last(all); o.Status != "failed" || len(o.Output) != 1 || o.Output[0].Status != "failed" || o.Output[0].ID != "ws_7" {
		t.Errorf("%+v", o)
	}
}
