package files_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/app"
	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/internal/sandbox"
	"github.com/turnpike-gateway/turnpike/internal/sandbox/sandboxtest"
)

// withShell is the sandbox of an operator who allows commands.
const withShell = "sandbox: {drivers: [bwrap], shell: true}\n"

// needsBwrap skips a test where bubblewrap does not work.
func needsBwrap(t *testing.T) app.Options {
	t.Helper()
	o := app.Options{Program: sandboxtest.Program(t)}
	for _, s := range sandbox.Check(t.Context(), sandbox.Options{Program: o.Program, Dir: t.TempDir()}) {
		if s.Driver == sandbox.Bwrap && s.Err != nil {
			sandboxtest.Skip(t, "bwrap does not work here: %v", s.Err)
		}
	}
	return o
}

// Where the operator allows it, a chat request that may run code may run commands, in the directory of Python. The event has what they printed.
// E14 J23
func TestCommandsOfChat(t *testing.T) {
	NoLeaks(t)
	o := needsBwrap(t)
	up := NewUpstream(t, Turns(
		Use("execute_python", `{"code":"open('a.txt','w').write('from python')"}`),
		Use("shell", `{"commands":["cat a.txt; echo oh >&2","sh -c 'exit 7' > b.txt; exit 7"],"outputs":["b.txt"]}`),
	))
	yaml := SwitchedOrg(up.URL, "{enable_code_execution: true}", withShell)
	d := Manage(MustRunWith(t, NewData(t), yaml, Environment(), o))
	a := d.Send("POST", ChatPath, strings.NewReader(`{"model":"m","messages":[{"role":"user","content":"x"}],"enable_code_execution":true,"stream":true}`))
	for _, want := range []string{
		`"phase":"calling","data":{"tool_type":"shell","commands":["cat a.txt; echo oh \u003e\u00262","sh -c 'exit 7' \u003e b.txt; exit 7"]}`,
		`"stdout":"from python","stderr":"oh\n","exit_code":7,"status":"completed","working_directory":"/work","timed_out":false,`,
		`"name":"b.txt"`,
	} {
		if text := string(a.Body); !strings.Contains(text, want) && !strings.Contains(text, strings.NewReplacer(`\u003e`, ">", `\u0026`, "&").Replace(want)) {
			t.Errorf("no %s in\n%s", want, a.Body)
		}
	}
	off := Manage(MustRunWith(t, NewData(t), SwitchedOrg(up.URL, "{enable_code_execution: true}", "sandbox: {drivers: [bwrap]}\n"), Environment(), o))
	before := len(up.Requests())
	off.Send("POST", ChatPath, strings.NewReader(`{"model":"m","messages":[{"role":"user","content":"x"}],"enable_code_execution":true}`))
	if offered := OfferedTools(t, up.Requests()[before]); strings.Contains(strings.Join(offered, " "), "shell") {
		t.Errorf("offered %q where the operator does not allow commands", offered)
	}
}

// The hosted tool shell of the Responses API: a call and its output are items, stored and streamed alike. The next response has the same directory, also when
// the client sends the items back. // E14
func TestCommandsOfTheResponsesAPI(t *testing.T) {
	NoLeaks(t)
	o := needsBwrap(t)
	const command = "echo hi >> a.txt; wc -l < a.txt; exit 3"
	up := NewUpstream(t, Turns(Use("shell", fmt.Sprintf(`{"commands":[%q],"timeout_ms":20000}`, command))))
	g := MustRunWith(t, NewData(t), SwitchedOrg(up.URL, "{enable_code_execution: true}", withShell), Environment(), o)
	d := Manage(g)
	const body = `{"model":"m","input":%s,"tools":[{"type":"shell","environment":{"type":"container_auto"}}]%s}`
	a := d.Send("POST", "/v1/responses", strings.NewReader(fmt.Sprintf(body, `"x"`, "")))
	type output struct {
		ID     string
		Output []json.RawMessage
	}
	var got output
	if err := json.Unmarshal(a.Body, &got); err != nil || a.Status != 200 || len(got.Output) != 3 {
		t.Fatalf("%v: %d %s", err, a.Status, a.Body)
	}
	suffix := strings.TrimPrefix(got.ID, "resp_")
	for i, want := range []string{
		`{"id":"sh_` + suffix + `_0_0","type":"shell_call","call_id":"call_` + suffix + `_0_0","action":{"commands":["` + command + `"],"timeout_ms":20000,"max_output_length":null},"status":"completed","environment":{"type":"container_reference","container_id":"cntr_` + suffix + `"}}`,
		`{"id":"sho_` + suffix + `_0_0","type":"shell_call_output","call_id":"call_` + suffix + `_0_0","status":"completed","output":[{"stdout":"1\n","stderr":"","outcome":{"type":"exit","exit_code":3}}],"max_output_length":null}`,
	} {
		if text := strings.NewReplacer(`\u003e`, ">", `\u003c`, "<").Replace(string(got.Output[i])); text != want {
			t.Errorf("item %d is\n%s\nnot\n%s", i, text, want)
		}
	}
	if offered := OfferedTools(t, up.Requests()[0]); len(offered) != 1 || offered[0] != "shell" {
		t.Errorf("offered %q", offered)
	}
	if stored := d.Send("GET", "/v1/responses/"+got.ID, nil); string(stored.Body) != string(a.Body) {
		t.Errorf("stored is %s", stored.Body)
	}
	stream := d.Send("POST", "/v1/responses", strings.NewReader(fmt.Sprintf(body, `"y"`, `,"stream":true,"previous_response_id":"`+got.ID+`"`)))
	if text := string(stream.Body); strings.Count(text, `"type":"shell_call_output"`) < 3 || !strings.Contains(text, `"stdout":"2\n"`) || strings.Contains(text, "response.shell_call") || !strings.Contains(text, `"container_id":"cntr_`+suffix) {
		t.Errorf("the stream is %s", text)
	}
	items := `[{"role":"user","content":"x"},` + string(got.Output[0]) + `,` + string(got.Output[1]) + `,{"role":"user","content":"y"}]`
	before := len(up.Requests())
	again := d.Send("POST", "/v1/responses", strings.NewReader(fmt.Sprintf(body, items, "")))
	if sent := string(up.Requests()[before].Body); again.Status != 200 || !strings.Contains(sent, `"name":"shell"`) || !strings.Contains(sent, `exit_code\":3`) {
		t.Errorf("%d %s: the model was sent %s", again.Status, again.Body, sent)
	}
	for more, want := range map[string]string{
		`{"type":"shell","environment":{"type":"local"}}`: "tools[0].environment.type", `{"type":"shell","x":1}`: "tools[0].x",
		`{"type":"shell","environment":{"type":"container_auto","file_ids":["file-1"]}}`: "tools[0].environment.file_ids",
		`{"type":"shell","environment":{"type":"container_auto","memory_limit":"4g"}}`:   "tools[0].environment.memory_limit",
	} {
		a := d.Send("POST", "/v1/responses", strings.NewReader(`{"model":"m","input":"x","tools":[`+more+`]}`))
		if a.Status != 400 || *a.Fault(t).Error.Param != want {
			t.Errorf("%s: %d %s", more, a.Status, a.Body)
		}
	}
}
