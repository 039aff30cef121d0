package agents_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

// The model of the table: words in the prompt say what happens. It refuses every prompt that has BAD, LONG or FILTER.
func endsBadly(t *testing.T) func(http.ResponseWriter, *http.Request, Received) {
	refuse := func(w http.ResponseWriter, status int, code, message string) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Retry-After", "3600") // no retry: the table is about ends
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"error":{"message":%q,"type":"invalid_request_error","code":%q}}`, message, code)
	}
	stay := func(w http.ResponseWriter, r *http.Request, text string) {
		w.Header().Set("Content-Type", "text/event-stream")
		Frame(w, `{"choices":[{"index":0,"delta":{"role":"assistant","content":`+Quote(text)+`}}]}`)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
	return func(w http.ResponseWriter, r *http.Request, got Received) {
		lines := Prompt(t, got)
		all, last := strings.Join(lines, "\n"), lines[len(lines)-1]
		asked := last
		for _, line := range lines {
			if strings.HasPrefix(line, "user ") {
				asked = line
			}
		}
		tool := regexp.MustCompile(`"name":"(\w*add)"`).FindSubmatch(got.Body)
		switch called := strings.HasPrefix(last, "tool "); {
		case strings.Contains(all, "BAD"):
			refuse(w, 400, "invalid_image", "Could not process image")
		case strings.Contains(all, "FILTER"):
			refuse(w, 400, "content_filter", "The prompt was filtered")
		case strings.Contains(all, "LONG"):
			refuse(w, 400, "context_length_exceeded", "This model's maximum context length is 10 tokens.")
		case strings.Contains(asked, "TOOL") && !called:
			n := 0
			if strings.Contains(asked, "REFUSED") {
				n = 1
			}
			Asks(Use(string(tool[1]), fmt.Sprintf(`{"n":%d}`, n))).Write(w)
		case strings.Contains(asked, "BOOM"):
			refuse(w, 500, "", "internal")
		case strings.Contains(asked, "SILENT"):
			stay(w, r, "")
		case strings.Contains(asked, "TALK"):
			stay(w, r, "PART")
		case strings.Contains(asked, "STOPPED"):
			w.Header().Set("Content-Type", "text/event-stream")
			text := `"content":"PART"`
			if strings.Contains(asked, "EMPTY") {
				text = `"role":"assistant"`
			}
			Frame(w, `{"choices":[{"index":0,"delta":{`+text+`},"finish_reason":"content_filter"}]}`)
			Frame(w, "[DONE]")
		case strings.Contains(asked, "BREAK"):
			BreaksAfter("data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"PART\"}}]}\n\n")(w, r, got)
		case strings.Contains(all, "BREAK") && asked != "user two": // the rest is asked for
			refuse(w, 500, "", "internal")
		case strings.Contains(asked, "CUT"):
			CutAfter("PART").Write(w)
		default:
			Says("A:" + strings.TrimPrefix(asked, "user ")).Write(w)
		}
	}
}

// endedTurn is a way in which a turn ends.
type endedTurn struct {
	name    string
	message string
	leaves  bool // its client leaves it when the model does not go on
	cancels bool // it is cancelled then
}

var endedTurns = []endedTurn{
	{name: "complete", message: "hello"},
	{name: "the provider refuses the prompt", message: "BAD"},
	{name: "the provider's filter refuses the prompt", message: "FILTER"},
	{name: "the prompt is too long", message: "LONG"},
	{name: "OnRunStart denies it", message: "FORBIDDEN"},
	{name: "the provider fails", message: "BOOM"},
	{name: "a tool ran, then the prompt is refused", message: "TOOL REFUSED"},
	{name: "a tool ran, then the provider fails", message: "TOOL BOOM"},
	{name: "the filter ends the answer", message: "STOPPED"},
	{name: "the filter ends an empty answer", message: "STOPPED EMPTY"},
	{name: "the answer is cut for its length", message: "CUT"},
	{name: "the stream breaks after text", message: "BREAK"},
	{name: "the client leaves before text", message: "SILENT", leaves: true},
	{name: "the client leaves after text", message: "TALK", leaves: true},
	{name: "the client leaves after a tool ran", message: "TOOL SILENT", leaves: true},
	{name: "cancelled before text", message: "SILENT", cancels: true},
	{name: "cancelled after text", message: "TALK", cancels: true},
	{name: "cancelled after a tool ran", message: "TOOL SILENT", cancels: true},
}

// historyOf is a kind of history, with one that was begun.
type historyOf struct {
	Documented
	up     *Upstream
	kind   string
	name   string // unique
	id     string
	agent  string
	last   string // the latest response of a chain
	before []map[string]any
}

var historyKinds = []string{"conversation", "chain", "agent's session", "chat's session_id"}

func (h *historyOf) begin() {
	switch h.kind {
	case "conversation":
		h.id = h.ask("POST", "/v1/conversations", `{}`)["id"].(string)
	case "agent's session":
		h.agent = h.ask("POST", "/api/agents", fmt.Sprintf(`{"name":%q,"model":"m"}`, h.name))["id"].(string)
		h.id = h.ask("POST", "/api/agents/"+h.agent+"/sessions", `{}`)["id"].(string)
	case "chat's session_id":
		h.id = h.name
	}
}

// request returns the path and body of a message.
func (h *historyOf) request(message string) (path, body string) {
	switch h.kind {
	case "conversation":
		return "/v1/responses", fmt.Sprintf(`{"model":"m","stream":true,"conversation":%q,"input":%q}`, h.id, message)
	case "chain":
		previous := ""
		if h.last != "" {
			previous = fmt.Sprintf(`,"previous_response_id":%q`, h.last)
		}
		return "/v1/responses", fmt.Sprintf(`{"model":"m","stream":true,"input":%q%s}`, message, previous)
	case "agent's session":
		return "/api/agents/" + h.agent + "/run/stream", fmt.Sprintf(`{"message":%q,"session_id":%q}`, message, h.id)
	}
	h.before = append(h.before, map[string]any{"role": "user", "content": message})
	data, _ := json.Marshal(map[string]any{"model": "m", "stream": true, "session_id": h.id, "messages": h.before})
	return "/v1/chat/completions", string(data)
}

var anyResponseID = regexp.MustCompile(`resp_[0-9a-z]+`)

// say sends a message and returns what its client was told. It returns when the run has ended.
func (h *historyOf) say(t *testing.T, e endedTurn) string {
	t.Helper()
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	path, body := h.request(e.message)
	shown := make(chan bool) // closed when the client has text
	if e.leaves || e.cancels {
		go func() {
			h.asked(t, e)
			if e.text() {
				<-shown
			}
			if e.leaves {
				leave()
				return
			}
			running := Elements(h.ask("GET", "/v1/runs?state=running", "")["data"])
			h.ask("POST", "/v1/runs/"+running[0].(map[string]any)["id"].(string)+"/cancel", "")
		}()
	}
	var got strings.Builder
	told := false
	resp, err := h.Client.Do(h.Gateway.Request(ctx, "POST", path, strings.NewReader(body)))
	if err == nil {
		defer resp.Body.Close()
		for lines := bufio.NewReader(resp.Body); ; {
			line, err := lines.ReadString('\n')
			got.WriteString(line)
			if err != nil {
				break
			}
			if e.text() && !told && strings.Contains(line, "PART") {
				close(shown)
				told = true
			}
		}
	} else if !e.leaves {
		t.Fatal(err)
	}
	if id := anyResponseID.FindString(got.String()); id != "" {
		h.last = id
	}
	h.settle(t)
	if e.leaves {
		return "–"
	}
	return toldBy(h.kind, Answer{Status: resp.StatusCode, Header: resp.Header, Body: []byte(got.String())})
}

func (e endedTurn) text() bool { return strings.Contains(e.message, "TALK") }

// asked waits until the model is asked what it does not answer: after a call of a tool, the second time.
func (h *historyOf) asked(t *testing.T, e endedTurn) {
	for ; ; PollPause() {
		all := h.up.Requests()
		if len(all) == 0 {
			continue
		}
		lines := Prompt(t, all[len(all)-1])
		want := "user " + e.message
		if strings.Contains(e.message, "TOOL") {
			want = "tool sum"
		}
		if lines[len(lines)-1] == want {
			return
		}
	}
}

// ask sends a request of the owner, and returns the object that answers it.
func (h *historyOf) ask(method, path, body string) (object map[string]any) {
	h.T.Helper()
	a := h.Send(method, path, strings.NewReader(body))
	if err := json.Unmarshal(a.Body, &object); err != nil || a.Status >= 300 {
		h.T.Fatalf("%s %s answered %d: %s", method, path, a.Status, a.Body)
	}
	return object
}

// settle waits until no run is under way.
func (h *historyOf) settle(t *testing.T) {
	t.Helper()
	for len(Elements(h.ask("GET", "/v1/runs?state=running", "")["data"])) > 0 {
		PollPause()
	}
}

// toldBy returns what an answer says about the end of its turn.
func toldBy(kind string, a Answer) string {
	if a.Status != 200 {
		return fmt.Sprintf("%d %s", a.Status, codeIn(string(a.Body)))
	}
	text := string(a.Body)
	switch kind {
	case "conversation", "chain":
		end := regexp.MustCompile(`event: response\.(completed|incomplete|failed|cancelled)\n`).FindStringSubmatch(text)
		if end == nil {
			return "no end"
		}
		switch reason := regexp.MustCompile(`"incomplete_details":\{"reason":"(\w+)"`).FindStringSubmatch(text); {
		case end[1] == "incomplete" && reason != nil:
			return "incomplete " + reason[1]
		case end[1] == "failed":
			return "failed " + codeIn(text)
		}
		return end[1]
	case "agent's session":
		all := regexp.MustCompile(`"status":"(\w+)"`).FindAllStringSubmatch(text, -1)
		if len(all) == 0 {
			return "no end"
		}
		return strings.TrimSpace(all[len(all)-1][1] + " " + codeIn(text))
	}
	if reasons := regexp.MustCompile(`"finish_reason":"(\w+)"`).FindAllStringSubmatch(text, -1); reasons != nil {
		return reasons[len(reasons)-1][1]
	}
	return "error " + codeIn(text)
}

func codeIn(text string) string {
	code := regexp.MustCompile(`"code":"([\w-]+)"`).FindStringSubmatch(text)
	if code == nil {
		return ""
	}
	return code[1]
}

// list returns what clients see of the history, in lines.
func (h *historyOf) list(t *testing.T) (out []string) {
	t.Helper()
	switch h.kind {
	case "conversation":
		for _, v := range Elements(h.ask("GET", "/v1/conversations/"+h.id+"/items?order=asc&limit=100", "")["data"]) {
			out = append(out, asLine(v.(map[string]any)))
		}
	case "agent's session":
		for _, v := range Elements(h.ask("GET", "/api/sessions/"+h.id+"/messages", "")["messages"]) {
			out = append(out, asLine(v.(map[string]any)))
		}
	case "chat's session_id":
		for _, v := range Elements(h.ask("GET", "/v1/sessions/"+h.id, "")["messages"]) {
			out = append(out, asLine(v.(map[string]any)))
		}
	}
	return out
}

func asLine(m map[string]any) string {
	if m["type"] != nil && m["type"] != "message" {
		return m["type"].(string)
	}
	content, _ := m["content"].(string)
	for _, part := range Elements(m["content"]) {
		content += fmt.Sprint(part.(map[string]any)["text"])
	}
	if _, calls := m["tool_calls"]; calls && content == "" {
		content = "(call)"
	}
	return fmt.Sprint(m["role"], " ", content)
}

// linesBetween returns the lines of a turn: without those of the good turns around it.
func linesBetween(lines []string) string {
	var out []string
	for _, line := range lines {
		if slices.Contains([]string{"user one", "assistant A:one", "user two"}, line) || strings.HasPrefix(line, "system You are") {
			continue
		}
		if who, said, _ := strings.Cut(line, " "); strings.Contains(said, "remains: ") {
			_, calls, _ := strings.Cut(said, "remains: ")
			line = who + " (line: " + calls + ")"
		} else if said == "" {
			line = who + " (call)"
		}
		out = append(out, line)
	}
	if len(out) == 0 {
		return "–"
	}
	return strings.Join(out, ", ")
}

// TestEndedTurns compares the table of testdata/endedturns.md: for each kind of history, and each way in which a turn
// ends, what the client was told, what the list shows, and what the next prompt has of the turn. -update writes it.
func TestEndedTurns(t *testing.T) {
	NoLeaks(t)
	tools := NewMCP(t, map[string]Handler{"add": func(_ context.Context, arguments string) (string, error) {
		if strings.Contains(arguments, "1") {
			return "BADPNG sum", nil
		}
		return "sum", nil
	}})
	up := NewUpstream(t, endsBadly(t))
	hooks := `hooks: [{id: h, event: OnRunStart, type: rule, config: {condition: "input CONTAINS FORBIDDEN", message: "no"}}]`
	g := MustRun(t, Site{Upstream: up.URL, Runtime: hooks, Servers: []string{Server("tools", tools.URL, "trust: true")}}.Yaml())
	var table strings.Builder
	table.WriteString("| history | the turn | told | the list shows | the next prompt has |\n|---|---|---|---|---|\n")
	for _, kind := range historyKinds {
		for i, e := range endedTurns {
			if e.cancels && kind == "chat's session_id" {
				continue // its client leaves
			}
			h := &historyOf{Documented: Manage(g), up: up, kind: kind, name: fmt.Sprintf("h%d", i)}
			h.begin()
			if told := h.say(t, endedTurn{message: "one"}); strings.HasPrefix(told, "4") {
				t.Fatalf("%s: the first turn: %s", kind, told)
			}
			h.before = append(h.before, map[string]any{"role": "assistant", "content": "A:one"})
			told := h.say(t, e)
			if kind == "chat's session_id" { // the client sends what it was answered again
				h.before = h.before[:2]
			}
			list := h.list(t)
			up.Forget()
			next := h.say(t, endedTurn{message: "two"})
			sent := next
			if prompts := up.Requests(); len(prompts) > 0 {
				sent = linesBetween(Prompt(t, prompts[0]))
			}
			shown := linesBetween(list)
			if kind == "chain" {
				shown = "no list"
			}
			fmt.Fprintf(&table, "| %s | %s | %s | %s | %s |\n", kind, e.name, told, shown, sent)
		}
	}
	file := filepath.Join("testdata", "endedturns.md")
	if *Update {
		if err := os.WriteFile(file, []byte(table.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if table.String() != string(want) {
		t.Errorf("the table differs from %s:\n%s", file, table.String())
	}
}
