package responses_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// storedItems are items as a client reads them on one path: their JSON by their ids.
type storedItems struct {
	ids   []string // in order
	items map[string]string
}

func newStoredItems(t *testing.T, list []json.RawMessage) *storedItems {
	t.Helper()
	out := &storedItems{items: map[string]string{}}
	for _, raw := range list {
		var it map[string]any
		if err := json.Unmarshal(raw, &it); err != nil {
			t.Fatalf("%v: %s", err, raw)
		}
		id, _ := it["id"].(string)
		canonical, _ := json.Marshal(it) // members in the order of their names
		if out.items[id] != "" || id == "" {
			t.Errorf("the id %q twice", id)
		}
		out.ids, out.items[id] = append(out.ids, id), string(canonical)
	}
	return out
}

// types are the types of the items, in order.
func (s *storedItems) types() (list []string) {
	for _, id := range s.ids {
		var it struct{ Type string }
		_ = json.Unmarshal([]byte(s.items[id]), &it) // it was marshaled above
		list = append(list, it.Type)
	}
	return list
}

// pathSite is a gateway whose conversations have an item of each type that it stores.
type pathSite struct {
	*ParitySite
	by map[string]*storedItems // by the path on which they were read
}

const pathStory = `
text SUMMARY of before.

reasoning THINKING about it.
call c1 search {"q":"ALPHA"}
call c2 find {"query":"BRAVO"}

text LOOKING at it.
call c3 lookup {"n":"CHARLIE"}
call c4 patch {"input":"DELTA"}

text ASKING you.
call c5 search {"q":"ECHO"}

text DONE with it.

text Bye.

text Again.`

func newPathSite(t *testing.T, kind string) *pathSite {
	t.Helper()
	docs := turnpiketest.NewMCPServer(turnpiketest.MCPOptions{}, turnpiketest.Tool{Name: "search", Result: "FOUND {args}"})
	t.Cleanup(docs.Close)
	web := turnpiketest.NewMCPServer(turnpiketest.MCPOptions{}, turnpiketest.Tool{Name: "find", Result: "PAGES"})
	t.Cleanup(web.Close)
	up := StrictUpstream(t, pathStory)
	yaml := Site{Upstream: strings.TrimSuffix(up.URL, "/v1"), Servers: []string{Server("web", web.URL, "hosted: [web_search=find]")}}.Yaml()
	yaml, name := OfKind(yaml, kind)
	return &pathSite{&ParitySite{Gateway: MustRun(t, "master_key: "+MasterKey+"\n"+yaml), Up: up, Docs: docs, Hidden: web, Model: name}, map[string]*storedItems{}}
}

// read notes the items that an answer lists.
func (p *pathSite) read(path string, a Answer) *storedItems {
	p.T.Helper()
	var w struct{ Data, Output []json.RawMessage }
	if err := json.Unmarshal(a.Body, &w); err != nil || a.Status != 200 {
		p.T.Fatalf("%s: %d %s", path, a.Status, a.Body)
	}
	p.by[path] = newStoredItems(p.T, append(w.Data, w.Output...))
	return p.by[path]
}

// streamed notes the items that end in a stream, and those of its last event.
func (p *pathSite) streamed(path string, a Answer) (id string) {
	p.T.Helper()
	if a.Status != 200 {
		p.T.Fatalf("%s: %d %s", path, a.Status, a.Body)
	}
	var done []json.RawMessage
	for frame := range strings.SplitSeq(string(a.Body), "\n\n") {
		_, data, _ := strings.Cut(frame, "\ndata: ")
		var ev struct {
			Type     string
			Item     json.RawMessage
			Response *struct {
				ID     string
				Output []json.RawMessage
			}
		}
		_ = json.Unmarshal([]byte(data), &ev) // [DONE] is none
		switch {
		case ev.Type == "response.output_item.done":
			done = append(done, ev.Item)
		case ev.Response != nil:
			id = ev.Response.ID
			p.by[path+", last event"] = newStoredItems(p.T, ev.Response.Output)
		}
	}
	p.by[path] = newStoredItems(p.T, done)
	return id
}

func (p *pathSite) get(path string) Answer {
	p.T.Helper()
	return p.Send("GET", path, strings.NewReader(""))
}

// one fails the test unless all paths have the same items, in the same order, with the same JSON.
func (p *pathSite) one(what string, want []string, paths ...string) *storedItems {
	p.T.Helper()
	first := p.by[paths[0]]
	if diff := cmp.Diff(want, first.types()); diff != "" {
		p.T.Errorf("%s: %s", what, diff)
	}
	for _, path := range paths[1:] {
		if diff := cmp.Diff(first.ids, p.by[path].ids); diff != "" {
			p.T.Errorf("%s: the ids of %q and %q: %s", what, paths[0], path, diff)
		}
		if diff := cmp.Diff(first.items, p.by[path].items); diff != "" {
			p.T.Errorf("%s: %q and %q: %s", what, paths[0], path, diff)
		}
	}
	return first
}

// respondAndRead sends a request with a stream, and reads its items on every path.
func (p *pathSite) respondAndRead(members string, input, output []string) (id string, in, out *storedItems) {
	p.T.Helper()
	id = p.streamed("stream", p.Respond(members+`,"stream":true`, "Idempotency-Key", fmt.Sprint(len(p.Up.Requests()), members[:40])))
	if a := p.get("/v1/responses/" + id); !strings.Contains(string(a.Body), `"status":"completed","background"`) {
		p.T.Fatalf("%d %s\nto the last prompt\n%s", a.Status, a.Body, p.Asked())
	}
	p.read("retrieved", p.get("/v1/responses/"+id))
	p.streamed("replay", p.get("/v1/responses/"+id+"?stream=true"))
	out = p.one("output", output, "stream", "stream, last event", "retrieved", "replay", "replay, last event")
	in = p.read("input_items", p.get("/v1/responses/"+id+"/input_items?order=asc&limit=100"))
	p.one("input", input, "input_items")
	return id, in, out
}

// contains fails the test unless the latest prompt has the words, in their order and each once.
func (p *pathSite) contains(words ...string) {
	p.T.Helper()
	rest := p.Asked()
	for _, word := range words {
		before, after, is := strings.Cut(rest, word)
		if !is {
			p.T.Errorf("the prompt has no %q after the words before it: %s", word, p.Asked())
			return
		}
		if n := strings.Count(before, word); n != 0 {
			p.T.Errorf("%q is %d times too often in the prompt", word, n)
		}
		rest = after
	}
}

// An item is one stored item on every path: in the stream that made it, in a stream that follows
// later, in a retrieved response, in input_items, in a conversation and its items, where a request
// refers to it, and in the prompt of the next request. This walks all of them with an item of each
// type that the gateway stores. // G14 P05
func TestAnItemIsTheSameOnEveryPath(t *testing.T) {
	for _, kind := range []string{"openai", "anthropic", "openai-responses", "gemini"} {
		for _, how := range []string{"previous_response_id", "conversation"} {
			t.Run(kind+", "+how, func(t *testing.T) { walkPaths(t, kind, how == "conversation") })
		}
	}
}

func walkPaths(t *testing.T, kind string, conversation bool) {
	NoLeaks(t)
	p := newPathSite(t, kind)
	var cmp struct{ Output []json.RawMessage }
	compacted := p.Send("POST", "/v1/responses/compact", strings.NewReader(`{"model":"`+p.Model+`","input":"Before."}`))
	if err := json.Unmarshal(compacted.Body, &cmp); err != nil || len(cmp.Output) != 1 {
		t.Fatalf("%d %s", compacted.Status, compacted.Body)
	}
	after := func(string) string { return "" }
	session := ""
	if conversation {
		var made struct{ ID string }
		a := p.Send("POST", "/v1/conversations", strings.NewReader(`{"items":[{"role":"developer","content":"ADDED first."}]}`))
		if err := json.Unmarshal(a.Body, &made); err != nil || made.ID == "" {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
		session = made.ID
		after = func(string) string { return `"conversation":"` + session + `",` }
	}
	const functions = `{"type":"function","name":"lookup","strict":false,"parameters":{"type":"object","properties":{"n":{"type":"string"}}}},{"type":"custom","name":"patch"},{"type":"web_search"}`
	tools := func(approval string) string {
		return `"tools":[` + p.DocsTool(`,"require_approval":"`+approval+`"`) + `,` + functions + `]`
	}
	// All items of the conversation, in order.
	var ids []string
	all := map[string]string{}
	note := func(lists ...*storedItems) {
		for _, l := range lists {
			ids = append(ids, l.ids...)
			maps.Copy(all, l.items)
		}
	}
	id, in, out := p.respondAndRead(after("")+`"input":[`+string(cmp.Output[0])+`,{"role":"user","content":"HELLO there."},`+
		`{"role":"user","content":[{"type":"input_text","text":"SECOND one."}]}],"reasoning":{"effort":"low","summary":"auto"},"max_output_tokens":8000,`+tools("never"),
		[]string{"compaction", "message", "message"}, []string{"mcp_list_tools", "reasoning", "mcp_call", "web_search_call", "message", "function_call", "custom_tool_call"})
	note(in, out)
	if !conversation {
		after = func(id string) string { return `"previous_response_id":"` + id + `",` }
	}
	const answers = `{"type":"function_call_output","call_id":"%s","output":"RESULT three"},{"type":"custom_tool_call_output","call_id":"%s","output":"RESULT four"}`
	calls := out.callIDs()
	id, in, out = p.respondAndRead(after(id)+`"input":[`+fmt.Sprintf(answers, calls[0], calls[1])+`],"reasoning":{"effort":"low","summary":"auto"},"max_output_tokens":8000,`+tools("always"),
		[]string{"function_call_output", "custom_tool_call_output"}, []string{"message", "mcp_approval_request"})
	note(in, out)
	id, in, out = p.respondAndRead(after(id)+`"input":[`+Approve(out.ids[1])+`],"max_output_tokens":8000,`+tools("always"),
		[]string{"mcp_approval_response"}, []string{"mcp_call", "message"})
	note(in, out)
	said := []string{"SUMMARY of before", "HELLO there", "SECOND one", "ALPHA", "BRAVO", "LOOKING at it", "CHARLIE", "DELTA", "RESULT three", "RESULT four", "ASKING you", "ECHO"}
	p.contains(said...)
	id, in, out = p.respondAndRead(after(id)+`"input":"FAREWELL now.","max_output_tokens":8000`, []string{"message"}, []string{"message"})
	note(in, out)
	p.contains(append(said, "DONE with it", "FAREWELL now")...)
	_ = id
	if conversation {
		list := p.read("conversation", p.get("/v1/conversations/"+session+"/items?order=asc&limit=100"))
		if list.ids[0] == ids[0] || !strings.Contains(list.items[list.ids[0]], "ADDED first.") {
			t.Errorf("the first item is %s", list.items[list.ids[0]])
		}
		p.contains(append([]string{"ADDED first"}, said...)...)
		if diff := diffOf(list.ids[1:], ids); diff != "" {
			t.Error(diff)
		}
		all[list.ids[0]] = list.items[list.ids[0]]
		if diff := diffOf(list.items, all); diff != "" {
			t.Error(diff)
		}
		for _, id := range list.ids {
			if a := p.get("/v1/conversations/" + session + "/items/" + id); newStoredItems(t, []json.RawMessage{a.Body}).items[id] != all[id] {
				t.Errorf("%d %s, want %s", a.Status, a.Body, all[id])
			}
		}
	}
	p.refersTo(ids, all)
}

// refersTo sends references to the stored items. The new response has the same items as its input,
// and the model gets the same content.
func (p *pathSite) refersTo(ids []string, all map[string]string) {
	p.T.Helper()
	var refs, want []string
	for _, id := range ids {
		switch prefix, _, _ := strings.Cut(id, "_"); prefix {
		case "mcpr", "mcpa", "ws": // an answered approval, and a search without its results, say nothing to the model
			continue
		case "cmp": // of a compaction, which is not stored by itself: its id is not one of the response that has it
			continue
		}
		refs, want = append(refs, `{"type":"item_reference","id":"`+id+`"}`), append(want, all[id])
	}
	var made struct{ ID string }
	a := p.Respond(`"input":[` + strings.Join(refs, ",") + `,{"role":"user","content":"AGAIN please."}],"max_output_tokens":8000`)
	if err := json.Unmarshal(a.Body, &made); err != nil || a.Status != 200 {
		p.T.Fatalf("%d %s", a.Status, a.Body)
	}
	in := p.read("references", p.get("/v1/responses/"+made.ID+"/input_items?order=asc&limit=100"))
	var got []string
	for _, id := range in.ids[:len(in.ids)-1] {
		got = append(got, in.items[id])
	}
	if diff := diffOf(want, got); diff != "" {
		p.T.Errorf("references: %s", diff)
	}
	p.contains("HELLO there", "SECOND one", "ALPHA", "LOOKING at it", "CHARLIE", "DELTA", "RESULT three", "RESULT four", "ASKING you", "ECHO", "DONE with it",
		"FAREWELL now", "AGAIN please")
}

func diffOf(a, b any) string { return cmp.Diff(a, b) }

// callIDs are the call_ids of the calls that the client executes.
func (s *storedItems) callIDs() (list []string) {
	for _, id := range s.ids {
		var it struct {
			CallID string `json:"call_id"`
		}
		_ = json.Unmarshal([]byte(s.items[id]), &it) // it was marshaled by newStoredItems
		list = append(list, it.CallID)
	}
	return slices.DeleteFunc(list, func(id string) bool { return id == "" })
}

// The same for the items of a tool that the provider executes, and for reasoning that only it can
// read. // G14 P05
func TestAnItemOfAProviderIsTheSameOnEveryPath(t *testing.T) {
	NoLeaks(t)
	up := new(nativeProvider)
	provider := httptest.NewServer(up)
	t.Cleanup(provider.Close)
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	yaml := Site{Upstream: provider.URL, Servers: []string{Server("tools", tools.URL)}}.Yaml()
	g := MustRun(t, strings.Replace(yaml, "{name: up,", "{name: up, kind: openai-responses,", 1))
	for _, how := range []string{"previous_response_id", "conversation"} {
		t.Run(how, func(t *testing.T) {
			p := &pathSite{&ParitySite{Gateway: g, Model: "m"}, map[string]*storedItems{}}
			p.Gateway = &Gateway{T: t, URL: g.URL, Client: g.Client, Log: g.Log}
			after, session := "", ""
			if how == "conversation" {
				var made struct{ ID string }
				if err := json.Unmarshal(p.Send("POST", "/v1/conversations", strings.NewReader("{}")).Body, &made); err != nil {
					t.Fatal(err)
				}
				session, after = made.ID, `"conversation":"`+made.ID+`",`
			}
			const more = `"include":["reasoning.encrypted_content","web_search_call.action.sources"],"tools":[{"type":"web_search"}],`
			id := p.streamed("stream", p.Respond(after+more+`"input":"x","stream":true`, "Idempotency-Key", how))
			p.read("retrieved", p.get("/v1/responses/"+id+"?include[]=reasoning.encrypted_content"))
			p.streamed("replay", p.get("/v1/responses/"+id+"?stream=true"))
			out := p.one("output", []string{"reasoning", "web_search_call", "message"}, "stream", "stream, last event", "retrieved", "replay", "replay, last event")
			if session != "" {
				list := p.read("conversation", p.get("/v1/conversations/"+session+"/items?order=asc"))
				if diff := diffOf(list.ids[1:], out.ids); diff != "" {
					t.Error(diff)
				}
				for _, id := range out.ids {
					a := p.get("/v1/conversations/" + session + "/items/" + id)
					if got := newStoredItems(t, []json.RawMessage{a.Body}).items[id]; got != out.items[id] || list.items[id] != got {
						t.Errorf("%d %s and %s, want %s", a.Status, a.Body, list.items[id], out.items[id])
					}
				}
			} else {
				after = `"previous_response_id":"` + id + `",`
			}
			if a := p.Respond(after + more + `"input":"y"`); a.Status != 200 {
				t.Fatalf("%d %s", a.Status, a.Body)
			}
			up.mu.Lock()
			prompt := string(up.bodies[len(up.bodies)-2]["input"]) // of the first of two model calls
			up.mu.Unlock()
			for _, word := range []string{`"SEALED"`, `"ws_7"`, `"Done."`} {
				if strings.Count(prompt, word) != 1 {
					t.Errorf("%s is not once in the prompt %s", word, prompt)
				}
			}
		})
	}
}
