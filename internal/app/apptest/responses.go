package apptest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/upstreamtest"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// ParitySite is a gateway between a scripted provider and two MCP servers: one that requests
// declare, and one of the org, which is hidden.
type ParitySite struct {
	*Gateway
	Up           *upstreamtest.Upstream
	Docs, Hidden *turnpiketest.MCPServer
	Model        string // a name of a model that reasons
}

// NewParitySite boots a gateway whose provider is of this kind and plays the story.
func NewParitySite(t *testing.T, kind, story, runtime string) *ParitySite {
	t.Helper()
	docs := turnpiketest.NewMCPServer(turnpiketest.MCPOptions{}, turnpiketest.Tool{Name: "search", Result: "found"}, turnpiketest.Tool{Name: "read", Result: "a page"})
	t.Cleanup(docs.Close)
	hidden := turnpiketest.NewMCPServer(turnpiketest.MCPOptions{}, turnpiketest.Tool{Name: "customer", Result: "Ada"})
	t.Cleanup(hidden.Close)
	up := StrictUpstream(t, story)
	yaml := Site{Upstream: strings.TrimSuffix(up.URL, "/v1"), Runtime: runtime, Servers: []string{Server("crm", hidden.URL)}}.Yaml()
	yaml, name := OfKind(yaml, kind)
	return &ParitySite{Gateway: MustRun(t, yaml), Up: up, Docs: docs, Hidden: hidden, Model: name}
}

// DocsTool is a tool of type mcp that declares the server docs, with more members.
func (p *ParitySite) DocsTool(more string) string {
	return fmt.Sprintf(`{"type":"mcp","server_label":"docs","server_url":%q%s}`, p.Docs.URL, more)
}

// without an approval, tools are called at once.
const Never = `,"require_approval":"never"`

// Respond sends a request to the Responses API. Members are those after the model.
func (p *ParitySite) Respond(members string, fields ...string) Answer {
	p.T.Helper()
	return p.Send("POST", "/v1/responses", strings.NewReader(`{"model":"`+p.Model+`",`+members+`}`), fields...)
}

// Got returns a stored response.
func (p *ParitySite) Got(id string) Answer {
	p.T.Helper()
	return p.Send("GET", "/v1/responses/"+id, strings.NewReader(""))
}

// Asked is the body of the latest request to the provider.
func (p *ParitySite) Asked() string {
	all := p.Up.Requests()
	return string(all[len(all)-1].Body)
}

// Refused fails the test unless the answer is a 400 for this member, before anything was asked
// or called.
func (p *ParitySite) Refused(a Answer, param string) {
	p.T.Helper()
	e := a.Fault(p.T).Error
	if a.Status != 400 || e.Param == nil || *e.Param != param || e.Type != "invalid_request_error" {
		p.T.Errorf("status %d: %s; want 400 for %s", a.Status, a.Body, param)
	}
	if len(p.Docs.Calls()) > 0 {
		p.T.Errorf("%d calls", len(p.Docs.Calls()))
	}
}

// TwoSteps is a call of the declared server, and an answer.
const TwoSteps = "text Looking.\ncall c1 search {\"q\":1}\nusage 20 9\n\ntext Done.\nusage 30 4\n\ntext Later."

// Asks sends a request whose response asks for approvals, and returns it with their ids.
func (p *ParitySite) Asks(members string, fields ...string) (RespObject, []string) {
	p.T.Helper()
	o := p.Respond(members, fields...).Responded(p.T)
	var ids []string
	for _, it := range o.Of("mcp_approval_request") {
		ids = append(ids, it.ID)
	}
	if len(ids) == 0 || o.Status != "completed" {
		p.T.Fatalf("no approval request: %+v", o)
	}
	return o, ids
}

func Approve(id string) string {
	return fmt.Sprintf(`{"type":"mcp_approval_response","approval_request_id":%q,"approve":true}`, id)
}

// wants fails the test unless so many calls of the declared server were made.
func (p *ParitySite) Called(n int) {
	p.T.Helper()
	if got := len(p.Docs.Calls()); got != n {
		p.T.Errorf("%d tool calls, want %d", got, n)
	}
}

// RespEvent is an event of a stream of the Responses API.
type RespEvent struct {
	Type         string
	Sequence     *int   `json:"sequence_number"`
	OutputIndex  int    `json:"output_index"`
	ItemID       string `json:"item_id"`
	ContentIndex int    `json:"content_index"`
	SummaryIndex int    `json:"summary_index"`
	Delta        string
	Text         *string
	Part         struct{ Type string }
	Item         RespItem
	Response     RespObject
}

// RespItem is an output item, as far as the tests look at it.
type RespItem struct {
	ID, Type, Status, Name, Namespace, Arguments, Input string

	CallID  string `json:"call_id"`
	Request string `json:"approval_request_id"`
	Label   string `json:"server_label"`
	Output  *string
	Error   any
	Tools   []struct{ Name string }

	Content []struct{ Type, Text, Refusal string }
	Summary []struct{ Text string }
}

// RespObject is a response.
type RespObject struct {
	ID, Status string
	Output     []RespItem
	Error      *struct{ Code, Message string }
	Incomplete *struct{ Reason string } `json:"incomplete_details"`
	Tools      []map[string]any
	Usage      json.RawMessage
}

// Types are the types of the items.
func (o RespObject) Types() (all []string) {
	for _, it := range o.Output {
		all = append(all, it.Type)
	}
	return all
}

// Of returns the items of a type.
func (o RespObject) Of(kind string) []RespItem {
	return slices.DeleteFunc(slices.Clone(o.Output), func(it RespItem) bool { return it.Type != kind })
}

// Text is what the messages of the response say.
func (o RespObject) Text() (all string) {
	for _, it := range o.Of("message") {
		for _, p := range it.Content {
			all += p.Text
		}
	}
	return all
}

// Responded reads an answer that is one response.
func (a Answer) Responded(t *testing.T) (o RespObject) {
	t.Helper()
	if err := json.Unmarshal(a.Body, &o); err != nil || a.Status != 200 || !strings.HasPrefix(o.ID, "resp_") {
		t.Fatalf("status %d, no response: %v: %.2000s", a.Status, err, a.Body)
	}
	return o
}

// Events reads an answer that is a stream: each event has a line event with its type, and
// the end mark comes once, at the end.
func (a Answer) Events(t *testing.T) (all []RespEvent) {
	t.Helper()
	if a.Status != 200 || a.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("status %d, %s: %.2000s, want a stream", a.Status, a.Header.Get("Content-Type"), a.Body)
	}
	body, whole := strings.CutSuffix(string(a.Body), "data: [DONE]\n\n")
	if !whole || strings.Contains(body, "[DONE]") {
		t.Errorf("the stream does not end with one end mark: %s", a.Body)
	}
	for text := range strings.SplitSeq(strings.TrimSuffix(body, "\n\n"), "\n\n") {
		if strings.HasPrefix(text, ": ") {
			continue
		}
		name, data, _ := strings.Cut(text, "\ndata: ")
		var e RespEvent
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			t.Fatalf("event %q: %v", text, err)
		}
		if name != "event: "+e.Type {
			t.Errorf("%s has the line %q", e.Type, name)
		}
		all = append(all, e)
	}
	return all
}

// Place names the part that an event is of.
func (e RespEvent) Place() string {
	return fmt.Sprint(e.ItemID, " ", e.OutputIndex, " ", e.ContentIndex, " ", e.SummaryIndex)
}

// WantNumbered fails the test unless the events are numbered from 0, without gaps.
func WantNumbered(t *testing.T, all []RespEvent) {
	t.Helper()
	for i, e := range all {
		if e.Sequence == nil || *e.Sequence != i {
			t.Errorf("event %d, %s, has no number or another one", i, e.Type)
		}
	}
}
