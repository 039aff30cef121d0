package responses_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/route"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/sse"
	"github.com/turnpike-gateway/turnpike/internal/store/memory"
	"github.com/turnpike-gateway/turnpike/internal/surface"
	"github.com/turnpike-gateway/turnpike/internal/surface/responses"
	"github.com/turnpike-gateway/turnpike/internal/surface/spectest"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/tool"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// bench is a handler with its real runner, before a model that plays a story.
type bench struct {
	options responses.Options
	*responses.Handler
	script *turnpiketest.Script
	specs  *spectest.Documents // every answer must be valid; nil = they are not there
	kept   *watched
}

// specifications are read once.
var specifications struct {
	once sync.Once
	*spectest.Documents
}

// watched are the stored conversations. Like those in a database, they refuse a caller that
// has gone.
type watched struct {
	memory.Conversations
	finds    atomic.Int64
	onFind   func(orgID string)            // called before each read; nil = nothing is
	onChange func(journal.ConversationKey) // called before each change; nil = nothing is
	spoil    func(body []byte) []byte      // changes what is read of the stored form; nil = nothing does
}

func (w *watched) Find(ctx context.Context, orgID, principal string, key journal.ConversationKey) (*journal.Conversation, error) {
	if w.onFind != nil {
		w.onFind(orgID)
	} else {
		w.finds.Add(1)
	}
	c, err := w.Conversations.Find(ctx, orgID, principal, key)
	if err != nil || c == nil || w.spoil == nil {
		return c, err
	}
	body, err := c.Encode()
	if err != nil {
		return nil, err
	}
	return journal.DecodeConversation(key, w.spoil(body))
}

// FindAll implements journal.Conversations. Each conversation is a read.
func (w *watched) FindAll(ctx context.Context, orgID, principal string, keys []journal.ConversationKey, each func(int, *journal.Conversation) error) error {
	for i, key := range keys {
		c, err := w.Find(ctx, orgID, principal, key)
		if err == nil && c != nil {
			err = each(i, c.History(false))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// FindChain implements journal.Conversations. Each segment is a read.
func (w *watched) FindChain(ctx context.Context, orgID, principal, id string, each func(*journal.Conversation) error) error {
	for id != "" {
		c, err := w.Find(ctx, orgID, principal, journal.ConversationKey{Kind: journal.ResponseID, ID: id})
		if err != nil || c == nil {
			return err
		}
		if err := each(c.History(true)); err != nil {
			return err
		}
		id = c.Previous
	}
	return nil
}

func (w *watched) changes(ctx context.Context, key journal.ConversationKey) error {
	if w.onChange != nil {
		w.onChange(key)
	}
	return ctx.Err()
}

func (w *watched) Save(ctx context.Context, orgID, principal string, c journal.Conversation, ttl time.Duration, keys ...journal.ConversationKey) error {
	if err := w.changes(ctx, keys[0]); err != nil {
		return err
	}
	return w.Conversations.Save(ctx, orgID, principal, c, ttl, keys...)
}

func (w *watched) Delete(ctx context.Context, orgID, principal string, key journal.ConversationKey) (bool, error) {
	if err := w.changes(ctx, key); err != nil {
		return false, err
	}
	return w.Conversations.Delete(ctx, orgID, principal, key)
}

func (w *watched) DropParts(
	ctx context.Context, orgID, id string, c journal.Conversation, ttl time.Duration, dropped []journal.ConversationKey, idle bool,
) error {
	if err := w.changes(ctx, journal.ConversationKey{Kind: journal.SessionID, ID: id}); err != nil {
		return err
	}
	return w.Conversations.DropParts(ctx, orgID, id, c, ttl, dropped, idle)
}

func (w *watched) DeleteWith(ctx context.Context, orgID, id string, version int64, parts []journal.ConversationKey) (bool, error) {
	if err := w.changes(ctx, journal.ConversationKey{Kind: journal.SessionID, ID: id}); err != nil {
		return false, err
	}
	return w.Conversations.DeleteWith(ctx, orgID, id, version, parts)
}

func newBench(t *testing.T, story string) *bench {
	t.Helper()
	specifications.once.Do(func() { specifications.Documents = spectest.Find(t) })
	b := &bench{script: turnpiketest.NewScript(t, story), specs: specifications.Documents}
	offered := catalog.New(catalog.Options{})
	t.Cleanup(offered.Close)
	kept, journal := &watched{}, &memory.Journal{}
	b.kept = kept
	runner := run.New(run.Options{Catalog: offered, Journal: journal, Archive: journal, LaterDeleter: journal, Conversations: kept})
	b.options = responses.Options{
		Options: surface.Options{
			MaxRoundsCap: func() int { return 10 }, KeepFor: func() time.Duration { return time.Hour }, Heartbeats: sse.NewHeartbeats(0), Log: slog.New(slog.DiscardHandler),
			Router: route.New([]route.Provider{{Name: "up", Models: []string{"m"}, Model: b.script}}), Runner: runner,
		},
		Conversations: kept, Runs: runner, Segments: runner.Segments(), Seals: testKeys(t),
	}
	b.Handler = responses.New(b.options)
	return b
}

// caller has one server with the tool search.
func (b *bench) caller(orgID, principal string) caller.Caller {
	source := turnpiketest.NewSource(turnpiketest.Tool{Name: "search", Class: tool.Read, Result: "found"})
	return caller.Caller{
		Org: &org.Org{ID: orgID, MCPOutbound: true}, Principal: org.Principal{ID: principal, Role: org.Member},
		Servers: []catalog.Server{{Name: "tools", Source: source}},
	}
}

// answer is what a client gets.
type answer struct {
	status int
	body   string
	object struct {
		ID, Status string
		Store      bool
		Previous   *string `json:"previous_response_id"`
		Output     []struct {
			ID, Type, Name string
			CallID         string `json:"call_id"`
		}
		Data []map[string]any
		More bool   `json:"has_more"`
		Last string `json:"last_id"`

		Metadata     map[string]string
		Conversation *struct{ ID string }
	}
}

func (b *bench) do(t *testing.T, caller caller.Caller, serve surface.Endpoint, method, id, query, body string) answer {
	t.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequest(method, "/x?"+query, strings.NewReader(body))
	r.SetPathValue("id", id)
	if err := serve(w, r, caller); err != nil {
		responses.Errors().Write(w, err)
	}
	a := answer{status: w.Code, body: w.Body.String()}
	d := json.NewDecoder(bytes.NewReader(w.Body.Bytes()))
	d.UseNumber()
	if err := d.Decode(&a.object); err != nil {
		t.Fatalf("%v: %s", err, a.body)
	}
	where := method + " " + query
	if strings.HasPrefix(id, "resp_") {
		where += " input_items"
	}
	b.specs.Check(t, where, a.body)
	return a
}

func (b *bench) post(t *testing.T, body string) answer {
	t.Helper()
	return b.do(t, b.caller("acme", "alice"), b.Serve, http.MethodPost, "", "", body)
}

// prompt is the transcript of the latest model call.
func (b *bench) prompt() string {
	requests := b.script.Requests()
	var lines []string
	for _, it := range requests[len(requests)-1].Items {
		line := fmt.Sprint(it.Kind, " ", it.Role, it.Name, " ", it.Text())
		if it.Kind == item.ToolCall || it.Kind == item.ToolResult {
			line = fmt.Sprint(it.Kind, " ", it.CallID, " ", it.Text())
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

// A chain of three responses: the model sees all that was said and done, hidden calls
// too, and nothing is executed again. Instructions are those of their own request. // J09 D21
func TestAChainOfResponses(t *testing.T) {
	b := newBench(t, "call c1 search {}\n\ntext It is a language.\n\ntext From 2009.\n\ntext By three people.")
	first := b.post(t, `{"model":"m","input":"What is Go?","instructions":"Be brief."}`)
	second := b.post(t, `{"model":"m","input":"Since when?","previous_response_id":"`+first.object.ID+`"}`)
	third := b.post(t, `{"model":"m","input":[{"role":"user","content":"By whom?"}],"instructions":"Be exact.","previous_response_id":"`+second.object.ID+`"}`)
	if third.status != 200 || *third.object.Previous != second.object.ID || !third.object.Store {
		t.Fatalf("%+v", third)
	}
	want := "message system Be exact.\nmessage user What is Go?\ntool_call c1 \ntool_result c1 found\nmessage assistant It is a language.\n" +
		"message user Since when?\nmessage assistant From 2009.\nmessage user By whom?"
	if got := b.prompt(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if n := len(b.script.Requests()); n != 4 {
		t.Errorf("%d model calls", n)
	}
	branch := b.post(t, `{"model":"m","input":"x","previous_response_id":"resp_unknown"}`)
	if branch.status != 400 || !strings.Contains(branch.body, "previous_response_not_found") {
		t.Errorf("an unknown response: %+v", branch)
	}
}

// A client function in a chain: the result alone is sent, with the id that the client got.
func TestAResultOfAClientContinuesAResponse(t *testing.T) {
	b := newBench(t, "call c1 search {}\ncall c2 clock {}\n\ntext It is noon.")
	tools := `,"tools":[{"type":"function","name":"clock","parameters":{"type":"object"}}]`
	first := b.post(t, `{"model":"m","input":"Time?"`+tools+`}`)
	if len(first.object.Output) != 1 || first.object.Output[0].Type != "function_call" || !strings.HasPrefix(first.object.Output[0].CallID, "call_tp_") {
		t.Fatalf("%+v", first)
	}
	second := b.post(t, `{"model":"m","previous_response_id":"`+first.object.ID+`","input":[{"type":"function_call_output","call_id":"`+first.object.Output[0].CallID+`","output":"12:00"}]`+tools+`}`)
	if second.object.Status != "completed" {
		t.Fatalf("%+v", second)
	}
	want := "message user Time?\ntool_call c1 \ntool_call c2 \ntool_result c1 found\ntool_result c2 12:00"
	if got := b.prompt(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// Stored responses belong to their org: another key of it may use them, and for other orgs
// they do not exist. Deleting one ends all of that. // parity 30
func TestStoredResponses(t *testing.T) {
	b := newBench(t, "text Yes.\n\ntext No.\n\ntext Maybe.")
	made := b.post(t, `{"model":"m","input":[{"role":"user","content":"Well?"},{"role":"assistant","content":"Hm."},{"type":"message","role":"user","content":[{"type":"input_text","text":"Well!"}]}]}`)
	id := made.object.ID
	other, mate := b.caller("evil", "alice"), b.caller("acme", "bob")
	if a := b.do(t, mate, b.Get, "GET", id, "", ""); a.status != 200 || a.body != made.body {
		t.Errorf("another key of the org gets %s, want %s", a.body, made.body)
	}
	for name, a := range map[string]answer{
		"get":      b.do(t, other, b.Get, "GET", id, "", ""),
		"items":    b.do(t, other, b.InputItems, "GET", id, "", ""),
		"delete":   b.do(t, other, b.Delete, "DELETE", id, "", ""),
		"no id":    b.do(t, mate, b.Get, "GET", "resp_0", "", ""),
		"a run id": b.do(t, mate, b.Get, "GET", strings.Replace(id, "resp_", "run_", 1), "", ""),
	} {
		if a.status != 404 || !strings.Contains(a.body, `"response_not_found"`) {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	if a := b.do(t, other, b.Serve, "POST", "", "", `{"model":"m","input":"x","previous_response_id":"`+id+`"}`); a.status != 400 || !strings.Contains(a.body, "previous_response_not_found") {
		t.Errorf("another org continues it: %+v", a)
	}
	items := b.do(t, mate, b.InputItems, "GET", id, "limit=2&order=asc", "")
	if len(items.object.Data) != 2 || !items.object.More || items.object.Data[1]["role"] != "assistant" || items.object.Data[1]["status"] != "completed" {
		t.Fatalf("%+v", items)
	}
	items = b.do(t, mate, b.InputItems, "GET", id, "order=asc&after="+items.object.Last, "")
	if len(items.object.Data) != 1 || items.object.More {
		t.Errorf("%+v", items)
	}
	for _, query := range []string{"limit=0", "limit=101", "limit=x", "order=up"} {
		if a := b.do(t, mate, b.InputItems, "GET", id, query, ""); a.status != 400 {
			t.Errorf("%s: %+v", query, a)
		}
	}
	if a := b.do(t, mate, b.Delete, "DELETE", id, "", ""); a.status != 200 || a.body != `{"id":"`+id+`","object":"response","deleted":true}`+"\n" {
		t.Errorf("%+v", a)
	}
	if a := b.do(t, mate, b.Get, "GET", id, "", ""); a.status != 404 {
		t.Errorf("a deleted response: %+v", a)
	}
	if a := b.post(t, `{"model":"m","input":"x","previous_response_id":"`+id+`"}`); a.status != 400 {
		t.Errorf("a deleted response is continued: %+v", a)
	}
	hidden := b.post(t, `{"model":"m","input":"x","store":false}`)
	if a := b.do(t, mate, b.Get, "GET", hidden.object.ID, "", ""); a.status != 404 || hidden.object.Store {
		t.Errorf("a response that is not stored: %+v", a)
	}
}

// A response whose conversation has lost an earlier part is not continued without it.
func TestAConversationWithAHoleIsNotContinued(t *testing.T) {
	b := newBench(t, "text 1\n\ntext 2")
	first := b.post(t, `{"model":"m","input":"a"}`)
	second := b.post(t, `{"model":"m","input":"b","previous_response_id":"`+first.object.ID+`"}`)
	b.do(t, b.caller("acme", "alice"), b.Delete, "DELETE", first.object.ID, "", "")
	a := b.post(t, `{"model":"m","input":"c","previous_response_id":"`+second.object.ID+`"}`)
	if a.status != 400 || !strings.Contains(a.body, first.object.ID) {
		t.Errorf("%+v", a)
	}
}

// Clients send a call again with its output, although the response that they continue has it, also
// behind a question. It is the call that is there. // D22
func TestACallThatIsSentAgain(t *testing.T) {
	const tools = `,"tools":[{"type":"function","name":"clock","parameters":{"type":"object"}}]`
	for name, story := range map[string]string{
		"of a run that hides calls": "call c1 search {}\ntext Hm.\ncall c2 clock {\"a\":1,\"b\":2}\n\ntext It is noon.\n\ntext Later.",
		"of the provider":           "text Hm.\ncall c2 clock {\"a\":1,\"b\":2}\n\ntext It is noon.\n\ntext Later.",
	} {
		for input, want := range map[string]string{
			`CALL,OUTPUT`:               "tool_result c2 12:00",
			`MESSAGE,CALL,OUTPUT`:       "tool_result c2 12:00",
			`OUTPUT,CALL`:               "tool_result c2 12:00",
			`QUESTION,CALL,OUTPUT`:      "tool_result c2 12:00\nmessage user And?",
			`CALL,OUTPUT,QUESTION`:      "tool_result c2 12:00\nmessage user And?",
			`OUTPUT,QUESTION,OUTPUT`:    "tool_result c2 12:00\nmessage user And?",
			`CALL,OUTPUT,NEW,NEWOUTPUT`: "tool_result c2 12:00\ntool_call c9 \ntool_result c9 13:00",
		} {
			t.Run(name+", "+input, func(t *testing.T) {
				b := newBench(t, story)
				first := b.post(t, `{"model":"m","input":"Time?"`+tools+`}`)
				var id string
				for _, it := range first.object.Output {
					if it.Type == "function_call" {
						id = it.CallID
					}
				}
				items := strings.NewReplacer(
					"MESSAGE", `{"type":"message","role":"assistant","content":[{"type":"output_text","text":"Hm."}]}`,
					"NEWOUTPUT", `{"type":"function_call_output","call_id":"c9","output":"13:00"}`, "NEW", `{"type":"function_call","call_id":"c9","name":"clock","arguments":"{}"}`,
					"CALL", `{"type":"function_call","id":"fc_1","call_id":"`+id+`","name":"clock","arguments":"{\"b\": 2, \"a\": 1}"}`,
					"OUTPUT", `{"type":"function_call_output","call_id":"`+id+`","output":"12:00"}`, "QUESTION", `{"role":"user","content":"And?"}`).Replace(input)
				second := b.post(t, `{"model":"m","previous_response_id":"`+first.object.ID+`","input":[`+items+`]`+tools+`}`)
				if second.object.Status != "completed" {
					t.Fatalf("%+v", second)
				}
				got := b.prompt()
				if _, own, _ := strings.Cut(got, "tool_call c2 \n"); strings.TrimPrefix(own, "tool_result c1 found\n") != want {
					t.Errorf("got\n%s\nwant at the end\n%s", got, want)
				}
				third := b.post(t, `{"model":"m","previous_response_id":"`+second.object.ID+`","input":[`+items+`,{"role":"user","content":"So?"}]`+tools+`}`)
				if third.object.Status != "completed" || strings.Count(b.prompt(), "tool_call c2") != 1 || strings.Count(b.prompt(), "tool_result c2") != 1 {
					t.Errorf("%+v\n%s", third, b.prompt())
				}
			})
		}
	}
}

// An output that answers nothing, and another output for a call that was answered. // D22
func TestOutputsThatDoNotFitAConversation(t *testing.T) {
	const tools = `,"tools":[{"type":"function","name":"clock","parameters":{"type":"object"}}]`
	b := newBench(t, "call c2 clock {}\n\ntext It is noon.\n\ntext Later.")
	output := func(id, text string) string {
		return `{"type":"function_call_output","call_id":"` + id + `","output":"` + text + `"}`
	}
	first := b.post(t, `{"model":"m","input":"Time?"`+tools+`}`)
	second := b.post(t, `{"model":"m","previous_response_id":"`+first.object.ID+`","input":[`+output(first.object.Output[0].CallID, "12:00")+`]`+tools+`}`)
	for name, tt := range map[string]struct{ members, param string }{
		"no call":          {`"input":[{"role":"user","content":"x"},` + output("c7", "1") + `]`, "input[1].call_id"},
		"not in the chain": {`"previous_response_id":"` + first.object.ID + `","input":[{"role":"user","content":"x"},` + output("c7", "1") + `]`, "input[1].call_id"},
		"another output":   {`"previous_response_id":"` + second.object.ID + `","input":[{"role":"user","content":"x"},` + output(first.object.Output[0].CallID, "13:00") + `]`, "input[1].call_id"},
	} {
		if a := b.post(t, `{"model":"m",`+tt.members+tools+`}`); a.status != 400 || !strings.Contains(a.body, `"param":"`+tt.param+`"`) {
			t.Errorf("%s: %+v", name, a)
		}
	}
}
