package files_test

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

// codeAnswer is what a chat request that runs code answers.
type codeAnswer struct {
	Calls []struct {
		Name    string
		Result  string   `json:"result_content"`
		FileIDs []string `json:"file_ids"`
	} `json:"agentic_tool_calls"`
	Files []struct{ ID, Name, Text string }
}

// runsCode sends a chat request in a session, whose model asks for these calls one after the other.
func runsCode(t *testing.T, d Documented, session string) codeAnswer {
	t.Helper()
	a := d.Send("POST", ChatPath, strings.NewReader(fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":"x"}],"enable_code_execution":true,"session_id":%q}`, session)))
	var got codeAnswer
	if err := json.Unmarshal(a.Body, &got); err != nil || a.Status != 200 {
		t.Fatalf("%v: %d %s", err, a.Status, a.Body)
	}
	return got
}

// The switch offers code under the names of its languages. Calls by the names of mistral.rs and by code_execute run in the same
// session. Files are handed over, listed and read. // A07 E13 E17 J23
func TestTheNamesOfTheToolsThatRunCode(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, Turns(
		Use("execute_python", `{"code":"x = 40\nopen('a.txt','w').write('héllo')"}`),
		Use("mistralrs_execute_python", `{"code":"x += 1"}`),
		Use("code_execute", `{"language":"python","code":"x + 1"}`),
		Use("surface_outputs", `{"paths":["a.txt","b.txt"]}`),
		Use("list_files", `{}`),
		Use("execute_javascript", `{"code":"1"}`), // the driver has no JavaScript
	))
	yaml := SwitchedOrg(up.URL, "{enable_code_execution: true}", "sandbox: {drivers: [wasm]}")
	d := Manage(MustRunWith(t, WithPython(t), yaml, Environment(), app.Options{Program: sandboxtest.Program(t)}))
	got := runsCode(t, d, "one")
	if offered := OfferedTools(t, up.Requests()[0]); !slices.Equal(offered, []string{"execute_python", "list_files", "read_file", "surface_outputs"}) {
		t.Errorf("offered %q", offered)
	}
	if len(got.Calls) != 6 || len(got.Files) != 1 || got.Files[0].Text != "héllo" {
		t.Fatalf("%+v", got)
	}
	id := got.Files[0].ID
	for i, want := range []string{`"exit":0`, `"exit":0`, `"result":"42"`, id, `{"files":[{"file_id":"` + id + `","name":"a.txt","path":"a.txt","mime_type":"text/plain; charset=utf-8","bytes":6}]}`, `unknown tool \"execute_javascript\"`} {
		if !strings.Contains(got.Calls[i].Result, want) {
			t.Errorf("call %d: %s", i, got.Calls[i].Result)
		}
	}
	if !slices.Equal(got.Calls[3].FileIDs, []string{id}) || !strings.Contains(got.Calls[3].Result, `"not_produced":[{"path":"b.txt"`) {
		t.Errorf("handed over: %+v", got.Calls[3])
	}
}

// A slice of a file has its bounds and the length of the whole. A session reads its own files, and no others. // E17
func TestCodeReadsTheFilesOfItsSession(t *testing.T) {
	NoLeaks(t)
	var id string
	var reads []Call
	up := NewUpstream(t, func(w http.ResponseWriter, r *http.Request, got Received) {
		if strings.Contains(string(got.Body), "make it") {
			Turns(Use("execute_python", `{"code":"open('a.txt','w').write('é' * 70000)","outputs":["a.txt"]}`))(w, r, got)
			return
		}
		Turns(reads...)(w, r, got)
	})
	yaml := SwitchedOrg(up.URL, "{enable_code_execution: true}", "sandbox: {drivers: [wasm]}")
	d := Manage(MustRunWith(t, WithPython(t), yaml, Environment(), app.Options{Program: sandboxtest.Program(t)}))
	ask := func(session, text string) (got codeAnswer) {
		a := d.Send("POST", ChatPath, strings.NewReader(fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":%q}],"enable_code_execution":true,"session_id":%q}`, text, session)))
		if err := json.Unmarshal(a.Body, &got); err != nil || a.Status != 200 {
			t.Fatalf("%v: %d %s", err, a.Status, a.Body)
		}
		return got
	}
	id = ask("one", "make it").Files[0].ID
	for _, c := range []struct{ args, want string }{
		{`{"file_id":"%s"}`, `"name":"a.txt","format":"txt","start":0,"end":65536,"total_chars":70000,"max_slice_chars":65536,"text":"ééé`},
		{`{"file_id":"%s","start":69998}`, `"start":69998,"end":70000,"total_chars":70000,"max_slice_chars":65536,"text":"éé"}`},
		{`{"file_id":"%s","start":3,"end":4}`, `"start":3,"end":4,"total_chars":70000,"max_slice_chars":65536,"text":"é"}`},
		{`{"file_id":"%s","start":80000}`, `"start":70000,"end":70000,"total_chars":70000,"max_slice_chars":65536,"text":""}`},
		{`{"file_id":"%s","start":4,"end":3}`, `start is 4 and end is 3`},
		{`{"file_id":"%sx"}`, `this conversation has no file with the id`},
	} {
		reads = []Call{Use("read_file", fmt.Sprintf(c.args, id))}
		got := ask("one", "read")
		if len(got.Calls) != 1 || !strings.Contains(got.Calls[0].Result, c.want) {
			t.Errorf("%s: %.300v", c.args, got.Calls)
		}
	}
	reads = []Call{Use("read_file", `{"file_id":"`+id+`"}`), Use("list_files", `{}`)}
	if got := ask("another", "read"); !strings.Contains(got.Calls[0].Result, "no file with the id") || got.Calls[1].Result != `{"files":[]}` {
		t.Errorf("another session: %.300v", got.Calls)
	}
}

// runtime.tool_names: mistralrs offers the names of mistral.rs. What the org says of code_execute is about all names, together.
func TestOtherNamesOfToolsAndTheirSettings(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, Turns(
		Use("mistralrs_execute_python", `{"code":"1"}`), Use("execute_python", `{"code":"2"}`), Use("execute_python", `{"code":"3"}`),
	))
	const runtime = `{enable_code_execution: true, tool_names: mistralrs, builtin_tools: [{name: code_execute, max_uses: 2}]}`
	d := Manage(MustRunWith(t, WithPython(t), SwitchedOrg(up.URL, runtime, "sandbox: {drivers: [wasm]}"), Environment(), app.Options{Program: sandboxtest.Program(t)}))
	got := runsCode(t, d, "one")
	if offered := OfferedTools(t, up.Requests()[0]); !slices.Equal(offered, []string{"list_files", "mistralrs_execute_python", "mistralrs_surface_outputs", "read_file"}) {
		t.Errorf("offered %q", offered)
	}
	if len(got.Calls) != 3 || !strings.Contains(got.Calls[1].Result, `"result":"2"`) || !strings.Contains(got.Calls[2].Result, "max_uses of the tool execute_python is 2") {
		t.Errorf("%+v", got.Calls)
	}
}

// A hook selects the calls of a tool by the name of the tool itself too. A call by another name gets around no hook.
func TestHooksSelectTheFormsOfATool(t *testing.T) {
	NoLeaks(t)
	calls := []Call{
		Use("execute_javascript", `{"code":"1"}`), Use("list_files", `{}`), Use("code_execute", `{"language":"javascript","code":"2"}`), Use("mistralrs_execute_python", `{"code":"3"}`),
	}
	for matcher, blocked := range map[string][]bool{
		"code_execute":       {true, true, true, true},
		"execute_javascript": {true, false, true, false},
		"execute_python":     {false, false, true, true},
		"fetch_page":         {false, false, false, false},
	} {
		up := NewUpstream(t, Turns(calls...))
		runtime := fmt.Sprintf(`{enable_code_execution: true, hooks: [{id: h, event: PreToolUse, type: rule, matcher: %s, config: {rules: [{condition: code NOT CONTAINS zzz, message: no}]}}]}`, matcher)
		d := Manage(MustRunWith(t, WithPython(t), SwitchedOrg(up.URL, runtime, "sandbox: {drivers: [wasm, quickjs]}"), Environment(), app.Options{Program: sandboxtest.Program(t)}))
		got := runsCode(t, d, "one")
		for i, c := range got.Calls {
			if ran := strings.HasPrefix(c.Result, "{"); ran == blocked[i] {
				t.Errorf("%s: the call %s was answered with %s", matcher, calls[i].Name, c.Result)
			}
		}
		if len(got.Calls) != len(calls) {
			t.Errorf("%s: %+v", matcher, got.Calls)
		}
	}
}
