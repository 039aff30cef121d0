package responses_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/app"
	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/internal/sandbox/sandboxtest"
)

// coder is a model that runs the code that it was told to run last, and otherwise answers.
func coder(w http.ResponseWriter, _ *http.Request, got Received) {
	code, is := strings.CutPrefix(LastSaid(got.Body), "JS ")
	if !is {
		Says("Done.").Write(w)
		return
	}
	arguments, _ := json.Marshal(map[string]string{"language": "javascript", "code": code})
	Asks(Use("code_execute", string(arguments))).Write(w)
}

// codeItem is an item of a call that ran code.
type codeItem struct {
	ID, Type, Status, Code string
	ContainerID            string `json:"container_id"`
	Outputs                []struct{ Type, Logs string }
}

// coding is a gateway whose org may run code on the Responses API.
type coding struct {
	*Gateway
	t  *testing.T
	up *Upstream
}

func newCoding(t *testing.T, runtime string) *coding {
	t.Helper()
	up := NewUpstream(t, coder)
	yaml := SwitchedOrg(up.URL, runtime, "sandbox: {drivers: [quickjs]}\n")
	return &coding{MustRunWith(t, NewData(t), yaml, Environment(), app.Options{Program: sandboxtest.Program(t)}), t, up}
}

// ask sends a request with the tool code_interpreter. more are members.
func (c *coding) ask(key, container, input, more string, headers ...string) Answer {
	body := fmt.Sprintf(`{"model":"m","input":%q,"tools":[{"type":"code_interpreter","container":%s}]%s}`, input, container, more)
	return c.Send("POST", "/v1/responses", strings.NewReader(body), append([]string{"Authorization", "Bearer " + key}, headers...)...)
}

// code returns the response and its item of the type code_interpreter_call.
func (c *coding) code(a Answer) (id string, it codeItem) {
	c.t.Helper()
	var o struct {
		ID, Status string
		Output     []codeItem
	}
	if err := json.Unmarshal(a.Body, &o); err != nil || a.Status != 200 || len(o.Output) != 2 || o.Output[0].Type != "code_interpreter_call" || o.Status != "completed" {
		c.t.Fatalf("%v: %d %s", err, a.Status, a.Body)
	}
	return o.ID, o.Output[0]
}

// told returns what the model was told by its latest call.
func (c *coding) told() string {
	c.t.Helper()
	seen := c.up.Requests()
	results := seen[len(seen)-1].Results(c.t)
	return results[len(results)-1]
}

const auto = `{"type":"auto"}`

// The switch for code answers the hosted tool code_interpreter. The item has the code, and its outputs if the request includes
// them; the answer, the stream and what is stored are the same. The model gets the call and its result in the next response.
// A07
func TestCodeOfTheResponsesAPI(t *testing.T) {
	NoLeaks(t)
	c := newCoding(t, "{enable_code_execution: true}")
	const code = "var n = 42; console.log('printed'); n"
	id, it := c.code(c.ask("owner-key", auto, "JS "+code, ""))
	container := "cntr_" + strings.TrimPrefix(id, "resp_")
	if it.Code != code || it.Status != "completed" || it.Outputs != nil || it.ContainerID != container || !strings.HasPrefix(it.ID, "ci_") {
		t.Errorf("%+v", it)
	}
	if got := c.up.Requests()[0]; !slices.Equal(OfferedTools(t, got), []string{"execute_javascript", "list_files", "read_file"}) {
		t.Errorf("the model was offered %s", got.Body)
	}
	whole := c.ask("owner-key", auto, "JS "+code, `,"include":["code_interpreter_call.outputs"]`)
	included, it := c.code(whole)
	if len(it.Outputs) != 1 || it.Outputs[0].Type != "logs" || it.Outputs[0].Logs != "printed\n42" {
		t.Errorf("outputs are %+v", it.Outputs)
	}
	for _, get := range []string{"/v1/responses/" + included, "/v1/responses/" + id + "?include[]=code_interpreter_call.outputs"} {
		a := c.Send("GET", get, nil, "Authorization", "Bearer owner-key")
		if _, it := c.code(a); len(it.Outputs) != 1 || a.Header.Get("Turnpike-Dropped-Params") != "" {
			t.Errorf("%s: %s", get, a.Body)
		}
	}
	if a := c.Send("GET", "/v1/responses/"+included, nil, "Authorization", "Bearer owner-key"); string(a.Body) != string(whole.Body) {
		t.Errorf("stored is\n%s\nnot\n%s", a.Body, whole.Body)
	}
	// The next response has the variables and the history.
	next, it := c.code(c.ask("owner-key", auto, "JS n + 1", `,"previous_response_id":"`+id+`"`))
	seen := c.up.Requests()
	if !strings.Contains(c.told(), `"result":"43"`) || len(seen[len(seen)-1].Results(t)) != 2 || it.ContainerID != container {
		t.Errorf("container %s, the model was told %q", it.ContainerID, seen[len(seen)-1].Results(t))
	}
	_, it = c.code(c.ask("owner-key", auto, "JS n + 2", `,"previous_response_id":"`+next+`"`))
	if !strings.Contains(c.told(), `"result":"44"`) || it.ContainerID != container {
		t.Errorf("the third response: %s in %s", c.told(), it.ContainerID)
	}
	// A container by its id.
	_, it = c.code(c.ask("owner-key", `"`+container+`"`, "JS n + 3", ""))
	if !strings.Contains(c.told(), `"result":"45"`) || it.ContainerID != container {
		t.Errorf("by its id: %s in %s", c.told(), it.ContainerID)
	}
	// An exception is an output of the code, and not a failure of the call.
	_, it = c.code(c.ask("owner-key", auto, "JS throw new Error('oh')", `,"include":["code_interpreter_call.outputs"]`))
	if it.Status != "completed" || len(it.Outputs) != 1 || !strings.Contains(it.Outputs[0].Logs, "oh") || it.ContainerID == container {
		t.Errorf("an exception: %+v", it)
	}
}

// A container belongs to the key of its response. What a request says of one is honoured or refused. // E13
func TestContainersOfTheResponsesAPI(t *testing.T) {
	NoLeaks(t)
	c := newCoding(t, "{enable_code_execution: true}")
	id, it := c.code(c.ask("owner-key", auto, "JS var n = 1; n", ""))
	unstored, _ := c.code(c.ask("owner-key", auto, "JS 1", `,"store":false`))
	for container, key := range map[string]string{
		it.ContainerID: "member-key", "cntr_none": "owner-key", "mine": "owner-key", "cntr_" + strings.TrimPrefix(unstored, "resp_"): "owner-key",
	} {
		a := c.ask(key, `"`+container+`"`, "JS n", "")
		if a.Status != 404 || *a.Fault(t).Error.Code != "container_not_found" || *a.Fault(t).Error.Param != "tools[0].container" {
			t.Errorf("%s of %s: %d %s", container, key, a.Status, a.Body)
		}
	}
	// A response of the org can be continued with another key, but its container cannot.
	_, theirs := c.code(c.ask("member-key", auto, "JS typeof n", `,"previous_response_id":"`+id+`"`))
	if !strings.Contains(c.told(), `undefined`) || theirs.ContainerID == it.ContainerID {
		t.Errorf("%+v: %s", theirs, c.told())
	}
	for container, param := range map[string]string{
		`{"type":"auto","memory_limit":"4g"}`:                   "tools[0].container.memory_limit",
		`{"type":"auto","network_policy":{"type":"allowlist"}}`: "tools[0].container.network_policy",
		`7`: "tools[0].container",
	} {
		if a := c.ask("owner-key", container, "JS 1", ""); a.Status != 400 || *a.Fault(t).Error.Param != param {
			t.Errorf("%s: %d %s", container, a.Status, a.Body)
		}
	}
	if a := c.ask("owner-key", `{"type":"auto","file_ids":["file-1"]}`, "JS 1", ""); a.Status != 404 || *a.Fault(t).Error.Code != "file_not_found" {
		t.Errorf("a file that does not exist: %d %s", a.Status, a.Body)
	}
	for _, body := range []string{
		`{"model":"m","input":"x","tools":[{"type":"code_interpreter","container":{"type":"auto"}}],"tool_choice":{"type":"code_interpreter"}}`,
		`{"model":"m","input":"x","tools":[{"type":"code_interpreter","container":{"type":"auto"}}],"background":true}`,
	} {
		if a := c.Send("POST", "/v1/responses", strings.NewReader(body), "Authorization", "Bearer owner-key"); a.Status != 200 {
			t.Errorf("%s: %d %s", body, a.Status, a.Body)
		}
	}
	// The tokens of its input are those with the tool.
	plain := c.Send("POST", "/v1/responses/input_tokens", strings.NewReader(`{"model":"m","input":"x"}`), "Authorization", "Bearer owner-key")
	with := c.Send("POST", "/v1/responses/input_tokens", strings.NewReader(`{"model":"m","input":"x","tools":[{"type":"code_interpreter","container":{"type":"auto"}}]}`), "Authorization", "Bearer owner-key")
	var a, b struct {
		Tokens int `json:"input_tokens"`
	}
	if json.Unmarshal(plain.Body, &a) != nil || json.Unmarshal(with.Body, &b) != nil || b.Tokens <= a.Tokens {
		t.Errorf("%s, with the tool %s", plain.Body, with.Body)
	}
}

// The stream has the events of the call in their order.
func TestTheStreamOfCodeOfTheResponsesAPI(t *testing.T) {
	NoLeaks(t)
	c := newCoding(t, "{enable_code_execution: true}")
	a := c.ask("owner-key", auto, "JS 6*7", `,"stream":true`)
	var names []string
	for i, e := range a.Events(t) {
		if e.Sequence == nil || *e.Sequence != i {
			t.Errorf("event %d has the number %v", i, e.Sequence)
		}
		names = append(names, strings.TrimPrefix(e.Type, "response."))
	}
	want := []string{
		"created", "in_progress", "output_item.added", "code_interpreter_call.in_progress", "code_interpreter_call_code.delta",
		"code_interpreter_call_code.done", "code_interpreter_call.interpreting", "code_interpreter_call.completed", "output_item.done",
		"output_item.added", "content_part.added", "output_text.delta", "output_text.done", "content_part.done", "output_item.done", "completed",
	}
	if !slices.Equal(names, want) {
		t.Errorf("%q", names)
	}
	last := a.Events(t)[len(want)-1].Response
	again := c.Send("GET", "/v1/responses/"+last.ID+"?stream=true", nil, "Authorization", "Bearer owner-key")
	if len(again.Events(t)) != len(want) || string(again.Body) != string(a.Body) {
		t.Errorf("the stream again is\n%s\nnot\n%s", again.Body, a.Body)
	}
}

// Without the switch the hosted tool is for the provider, which this one cannot take; so it is with the loop off. A key that may not
// run code is refused. // A07
func TestCodeOfTheResponsesAPIWithoutTheSwitch(t *testing.T) {
	NoLeaks(t)
	c := newCoding(t, "{}")
	a := c.ask("owner-key", auto, "x", "")
	if a.Status != 200 || a.Header.Get("Turnpike-Dropped-Params") != "tools[0]" || len(OfferedTools(t, c.up.Requests()[0])) > 0 {
		t.Errorf("%d %q %s", a.Status, a.Header.Get("Turnpike-Dropped-Params"), a.Body)
	}
	on := newCoding(t, "{enable_code_execution: true}")
	a = on.ask("owner-key", auto, "x", "", "turnpike-mcp-disabled", "true")
	if a.Status != 200 || a.Header.Get("Turnpike-Dropped-Params") != "tools[0]" {
		t.Errorf("with the loop off: %d %q %s", a.Status, a.Header.Get("Turnpike-Dropped-Params"), a.Body)
	}
	a = on.Send("POST", "/v1/responses", strings.NewReader(`{"model":"m","input":"x"}`), "Authorization", "Bearer owner-key")
	if seen := on.up.Requests(); a.Status != 200 || len(OfferedTools(t, seen[len(seen)-1])) > 0 || strings.Contains(string(a.Body), "agentic") {
		t.Errorf("without the tool: %d %s", a.Status, a.Body)
	}
}

// With nothing but the switch for search, a request that declares web_search is offered the tools, and its searches and the pages
// that the model reads are items. What the request says of the search is honoured, or refused. // A07 P38
func TestSearchOfTheResponsesAPIWithTheSwitch(t *testing.T) {
	NoLeaks(t)
	search := NewSearch(t)
	up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, got Received) {
		switch n := len(got.Results(t)); n {
		case 0:
			Asks(Use("web_search", `{"query":"q"}`)).Write(w)
		case 1:
			Asks(Use("web_scrape", `{"url":"nope"}`)).Write(w)
		default:
			Says("done").Write(w)
		}
	})
	d := Manage(MustRun(t, SwitchedOrg(up.URL, fmt.Sprintf(Searching, search.URL), "")))
	const body = `{"model":"m","input":"x","tools":[{"type":%q,"search_context_size":"low"}]%s}`
	for _, kind := range []string{"web_search", "web_search_preview_2025_03_11"} {
		before, sent := len(up.Requests()), func() int { all, _ := search.All(); return len(all) }()
		a := d.Send("POST", "/v1/responses", strings.NewReader(fmt.Sprintf(body, kind, "")))
		o := a.Responded(t)
		if got := up.Requests()[before]; !slices.Equal(OfferedTools(t, got), []string{"fetch_page", "web_search"}) || !slices.Equal(o.Types(), []string{"web_search_call", "web_search_call", "message"}) {
			t.Fatalf("offered %s; %s", got.Body, a.Body)
		}
		for _, want := range []string{`"status":"completed","action":{"type":"search","query":"q"}`, `"status":"failed","action":{"type":"open_page","url":"nope"}`} {
			if !strings.Contains(string(a.Body), want) {
				t.Errorf("%s is not in %s", want, a.Body)
			}
		}
		if one := SearchesOf(t, search, sent); len(one) != 1 || one[0]["search_context_size"] != "low" {
			t.Errorf("the endpoint got %v", one)
		}
	}
	all := d.Send("POST", "/v1/responses", strings.NewReader(fmt.Sprintf(body, "web_search", `,"stream":true`))).Events(t)
	var steps []string
	for _, e := range typed(all, "response.web_search_call.", "") {
		steps = append(steps, strings.TrimPrefix(e.Type, "response.web_search_call."))
	}
	if !slices.Equal(steps, []string{"in_progress", "searching", "completed", "in_progress", "searching"}) {
		t.Errorf("%q", steps)
	}
	if a := d.Send("POST", "/v1/responses", strings.NewReader(strings.Replace(fmt.Sprintf(body, "web_search", ""), "low", "huge", 1))); a.Status != 400 || *a.Fault(t).Error.Param != "tools[0].search_context_size" {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	before := len(up.Requests())
	if d.Send("POST", "/v1/responses", strings.NewReader(`{"model":"m","input":"x"}`)); len(OfferedTools(t, up.Requests()[before])) > 0 {
		t.Errorf("a request without the tool was offered %q", OfferedTools(t, up.Requests()[before]))
	}
}

// A file that code has made is an annotation of the answer, with which the client gets its content. // J16 J20
func TestFilesOfTheResponsesAPI(t *testing.T) {
	NoLeaks(t)
	arguments, err := json.Marshal(map[string]any{"language": "python", "code": "open('a.txt', 'w').write('hello')", "outputs": []string{"a.txt"}})
	if err != nil {
		t.Fatal(err)
	}
	up := NewUpstream(t, Script(Asks(Use("code_execute", string(arguments))), Says("Look at a.txt.")))
	yaml := SwitchedOrg(up.URL, "{enable_code_execution: true}", "sandbox: {drivers: [wasm]}\n")
	c := &coding{MustRunWith(t, WithPython(t), yaml, Environment(), app.Options{Program: sandboxtest.Program(t)}), t, up}
	a := c.ask("owner-key", auto, "x", `,"stream":true`)
	type annotation struct {
		Type, Filename string
		File           string `json:"file_id"`
		Container      string `json:"container_id"`
		Start          int    `json:"start_index"`
		End            int    `json:"end_index"`
	}
	type response struct {
		Output []struct {
			Container string `json:"container_id"`
			Content   []struct{ Annotations []annotation }
		}
	}
	_, last, _ := strings.Cut(string(a.Body), `data: {"type":"response.completed"`)
	last, _, _ = strings.Cut(last, "\n")
	var done struct{ Response response }
	if err := json.Unmarshal([]byte(`{"type":"response.completed"`+last), &done); err != nil || len(done.Response.Output) != 2 || len(done.Response.Output[1].Content[0].Annotations) != 1 {
		t.Fatalf("%v: %s", err, a.Body)
	}
	got := done.Response.Output[1].Content[0].Annotations[0]
	if got.Type != "container_file_citation" || got.Filename != "a.txt" || got.Container != done.Response.Output[0].Container || got.Start != 8 || got.End != 13 {
		t.Errorf("%+v", got)
	}
	if n := len(typed(a.Events(t), "response.output_text.annotation.added", "")); n != 1 {
		t.Errorf("the stream has %d events of annotations", n)
	}
	for _, path := range []string{"/v1/files/", "/v1/containers/" + got.Container + "/files/"} {
		if content := c.Send("GET", path+got.File+"/content", nil, "Authorization", "Bearer owner-key"); string(content.Body) != "hello" {
			t.Errorf("%s: the file is %d %s", path, content.Status, content.Body)
		}
	}
}

// An image that code shows is an annotation of the answer, as a file that it lists. // J20
func TestImagesOfTheResponsesAPI(t *testing.T) {
	NoLeaks(t)
	arguments, err := json.Marshal(map[string]any{"code": sandboxtest.Matplotlib + "plt.plot(1); plt.show()"})
	if err != nil {
		t.Fatal(err)
	}
	up := NewUpstream(t, Script(Asks(Use("execute_python", string(arguments))), Says("Look at figure_1.png.")))
	yaml := SwitchedOrg(up.URL, "{enable_code_execution: true}", "sandbox: {drivers: [wasm]}\n")
	c := &coding{MustRunWith(t, WithPython(t), yaml, Environment(), app.Options{Program: sandboxtest.Program(t)}), t, up}
	a := c.ask("owner-key", auto, "x", "")
	var got struct {
		Output []struct {
			Container string `json:"container_id"`
			Content   []struct {
				Annotations []struct {
					Type, Filename string
					File           string `json:"file_id"`
				}
			}
		}
	}
	if err := json.Unmarshal(a.Body, &got); err != nil || len(got.Output) != 2 || len(got.Output[1].Content[0].Annotations) != 1 {
		t.Fatalf("%v: %s", err, a.Body)
	}
	cited := got.Output[1].Content[0].Annotations[0]
	content := c.Send("GET", "/v1/containers/"+got.Output[0].Container+"/files/"+cited.File+"/content", nil, "Authorization", "Bearer owner-key")
	if cited.Type != "container_file_citation" || cited.Filename != "figure_1.png" || content.Status != 200 || !strings.HasPrefix(string(content.Body), "\x89PNG") {
		t.Errorf("%+v: %d %.20q", cited, content.Status, content.Body)
	}
	if a := c.Send("GET", "/v1/files/"+cited.File+"/content", nil, "Authorization", "Bearer member-key"); a.Status != 404 {
		t.Errorf("another key gets %d", a.Status)
	}
}

// The responses of a conversation share a container, and its items have their outputs as the requests have included them. // E13
func TestCodeOfAConversationOfTheResponsesAPI(t *testing.T) {
	NoLeaks(t)
	c := newCoding(t, "{enable_code_execution: true}")
	var made struct{ ID string }
	if a := c.Send("POST", "/v1/conversations", strings.NewReader(`{}`), "Authorization", "Bearer owner-key"); json.Unmarshal(a.Body, &made) != nil || a.Status != 200 {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	in := `,"conversation":"` + made.ID + `"`
	_, first := c.code(c.ask("owner-key", auto, "JS var n = 5; n", in))
	if a := c.Send("POST", "/v1/responses", strings.NewReader(`{"model":"m","input":"no code"`+in+`}`), "Authorization", "Bearer owner-key"); a.Status != 200 {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	_, next := c.code(c.ask("owner-key", auto, "JS n + 1", in+`,"include":["code_interpreter_call.outputs"]`))
	if next.ContainerID != first.ContainerID || !strings.Contains(c.told(), `"result":"6"`) {
		t.Errorf("%+v, then %+v: %s", first, next, c.told())
	}
	if _, theirs := c.code(c.ask("member-key", auto, "JS typeof n", in)); theirs.ContainerID == first.ContainerID {
		t.Errorf("another key has the container: %+v", theirs)
	}
	for include, want := range map[string]int{"": 1, "&include[]=code_interpreter_call.outputs": 3} {
		a := c.Send("GET", "/v1/conversations/"+made.ID+"/items?limit=100"+include, nil, "Authorization", "Bearer owner-key")
		if got := strings.Count(string(a.Body), `"outputs":[{`); got != want || a.Header.Get("Turnpike-Dropped-Params") != "" {
			t.Errorf("%q: %d items have outputs, want %d: %s", include, got, want, a.Body)
		}
	}
	// In the background.
	a := c.ask("owner-key", auto, "JS n + 2", `,"background":true,"stream":true`+in)
	if n := len(typed(a.Events(t), "response.code_interpreter_call.completed", "")); n != 1 || !strings.Contains(c.told(), `"result":"7"`) {
		t.Errorf("in the background: %s", a.Body)
	}
}

// A key that may not use the tool is refused.
func TestAKeyThatMayNotRunCodeOnTheResponsesAPI(t *testing.T) {
	NoLeaks(t)
	c := newCoding(t, "{enable_code_execution: true}")
	d := Manage(c.Gateway)
	made := d.Do("POST", "/api/keys", "owner-key", `{"name":"narrow","role":"member","tools":["web_search"]}`, 201)
	a := c.ask(made["key"].(string), auto, "x", "")
	if a.Status != 403 || *a.Fault(t).Error.Code != "tool_not_allowed" || *a.Fault(t).Error.Param != "tools[0]" {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}

// A client that stores nothing here sends the items back: the model gets the code, and the outputs that the items have.
func TestItemsOfCodeThatAreSentBackToTheResponsesAPI(t *testing.T) {
	NoLeaks(t)
	c := newCoding(t, "{enable_code_execution: true}")
	for include, want := range map[string]string{`["code_interpreter_call.outputs"]`: "42", `[]`: "The client has not sent the output of this call."} {
		a := c.ask("owner-key", auto, "JS 6*7", `,"store":false,"include":`+include)
		var o struct{ Output json.RawMessage }
		if err := json.Unmarshal(a.Body, &o); err != nil || a.Status != 200 {
			t.Fatalf("%v: %d %s", err, a.Status, a.Body)
		}
		body := fmt.Sprintf(`{"model":"m","store":false,"tools":[{"type":"code_interpreter","container":{"type":"auto"}}],"input":[{"role":"user","content":"x"},%s,{"role":"user","content":"y"}]}`,
			strings.Trim(string(o.Output), "[]"))
		a = c.Send("POST", "/v1/responses", strings.NewReader(body), "Authorization", "Bearer owner-key")
		seen := c.up.Requests()
		if got := seen[len(seen)-1]; a.Status != 200 || a.Header.Get("Turnpike-Dropped-Params") != "" || c.told() != want || !strings.Contains(string(got.Body), `\"code\":\"6*7\"`) {
			t.Errorf("%s: %d %q %s; the model was told %q", include, a.Status, a.Header.Get("Turnpike-Dropped-Params"), got.Body, c.told())
		}
	}
}
