package codetool_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/builtin"
	"github.com/turnpike-gateway/turnpike/internal/codetool"
	"github.com/turnpike-gateway/turnpike/internal/file"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/sandbox"
	"github.com/turnpike-gateway/turnpike/internal/sandbox/sandboxtest"
	"github.com/turnpike-gateway/turnpike/internal/toolexec"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/tool"
)

func TestMain(m *testing.M) { os.Exit(sandboxtest.Main(m)) }

// fake answers every request alike, and remembers the last one.
type fake struct {
	outcome sandbox.Outcome
	err     error
	request sandbox.Request
	keeps   []sandbox.Language
}

func (f *fake) Run(_ context.Context, r sandbox.Request) (sandbox.Outcome, error) {
	f.request = r
	return f.outcome, f.err
}

func (f *fake) RunsCommands() bool { return true }

func (f *fake) KeepsFiles(l sandbox.Language) bool { return slices.Contains(f.keeps, l) }

func call(t *testing.T, o codetool.Options, args string) tool.Result {
	t.Helper()
	r, err := only(t, o).Call(t.Context(), tool.Call{RunID: "run_1", Arguments: json.RawMessage(args)})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func only(t *testing.T, o codetool.Options) tool.Tool {
	t.Helper()
	list, err := codetool.New(o).List(t.Context())
	if err != nil || len(list) != 2 || list[0].Definition().Name != "code_execute" || tool.ClassOf(list[0]) != tool.Once {
		t.Fatal(list, err)
	}
	return list[0]
}

// Code runs, with its output, its result and its exit status. // E05
func TestCodeRuns(t *testing.T) {
	m, err := sandbox.New(t.Context(), sandbox.Options{Drivers: []string{sandbox.Auto}, Program: sandboxtest.Program(t), Dir: filepath.Join(t.TempDir(), "sandbox")})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	o := codetool.Options{Org: "acme", Sandbox: m}
	for _, c := range []struct{ args, want string }{
		{`{"language":"javascript","code":"let n = 41; console.log('<&>'); n"}`,
			`{"language":"javascript","driver":"quickjs","exit":0,"result":"41","stdout":"<&>\n","stderr":""}`},
		{`{"language":"javascript","code":"n + 1"}`, `{"language":"javascript","driver":"quickjs","exit":0,"result":"42","stdout":"","stderr":""}`},
		{`{"language":"javascript","code":"for (;;);","timeout":0.3}`,
			`{"language":"javascript","driver":"quickjs","exit":-1,"error":"the time limit was reached","note":"The session has ended with this call, and its variables are gone.","stdout":"","stderr":""}`},
		{`{"language":"javascript","code":"typeof n"}`,
			`{"language":"javascript","driver":"quickjs","exit":0,"note":"The variables of earlier calls were lost before this call; define them again.","state_lost":true,"result":"\"undefined\"","stdout":"","stderr":""}`},
		{`{"language":"javascript","code":"typeof n"}`, `{"language":"javascript","driver":"quickjs","exit":0,"result":"\"undefined\"","stdout":"","stderr":""}`},
	} {
		r := call(t, o, c.args)
		if got := r.Parts[0].Text; got != c.want || string(r.Structured) != c.want || r.IsError != strings.Contains(c.want, `"exit":-1`) {
			t.Errorf("%s\n got %s\nwant %s", c.args, got, c.want)
		}
	}
}

// A missing prerequisite is a result that names the setting. // C22
func TestWhatIsMissingIsNamed(t *testing.T) {
	python := `{"language":"python","code":"1"}`
	for _, c := range []struct {
		sandbox codetool.Sandbox
		args    string
		want    string
		setting string
	}{
		{nil, python, "Code sandbox is not configured for python", "sandbox.drivers"},
		{nil, `{"language":"javascript","code":"1"}`, "to quickjs, remote or auto", "sandbox.drivers"},
		{&fake{err: sandbox.ErrNotConfigured}, python, "TURNPIKE_CODE_SANDBOX_URL", "sandbox.drivers"},
		{&fake{err: &sandbox.UnavailableError{Driver: "bwrap", Cause: errors.New("/a/secret/path")}}, python, "the code sandbox (driver bwrap) does not work", "sandbox.drivers"},
		{&fake{err: sandbox.ErrBusy}, python, "all code sessions are busy", "sandbox.max_sessions_per_org"},
		{&fake{}, `{"language":"perl","code":"1"}`, `language is "perl"`, ""},
		{&fake{}, `{"language":"python","code":""}`, "code is empty", ""},
		{&fake{}, `{"language":"python","code":"1","timeout":601}`, "at most 600 seconds", ""},
		{&fake{}, `{"language":"python","code":"1","timeout":-1}`, "at most 600 seconds", ""},
		{&fake{}, `{"language":"python","code":"` + strings.Repeat("x", 1<<18+1) + `"}`, "at most 262144", ""},
		{&fake{}, `{"language":3}`, "the argument language has the wrong type", ""},
		{&fake{}, `{"language":"python","code":"","Code":"1"}`, "code is empty", ""},
	} {
		r := call(t, codetool.Options{Org: "acme", Sandbox: c.sandbox}, c.args)
		var got struct{ Error, Setting string }
		if err := json.Unmarshal(r.Structured, &got); err != nil || !r.IsError || !strings.Contains(got.Error, c.want) || got.Setting != c.setting || strings.Contains(got.Error, "/a/secret") {
			t.Errorf("%.80s: %s, %v", c.args, r.Structured, err)
		}
	}
}

func TestSessionsAndLimitsAreThoseOfTheCall(t *testing.T) {
	f := &fake{}
	call(t, codetool.Options{Org: "acme", Sandbox: f}, `{"language":"python","code":"1","timeout":1.5}`)
	if want := (sandbox.Request{Org: "acme", Session: "run_1", Language: "python", Code: "1", Timeout: 1500 * time.Millisecond}); fmt.Sprint(f.request) != fmt.Sprint(want) {
		t.Errorf("%+v", f.request)
	}
	session := ""
	o := codetool.Options{Org: "acme", Sandbox: f, Session: func(_ context.Context, c tool.Call) string { return session }}
	call(t, o, `{"language":"python","code":"1"}`)
	one := f.request.Session
	call(t, o, `{"language":"python","code":"1"}`)
	if one == "" || one == f.request.Session {
		t.Errorf("calls without a session share %q", one)
	}
	session = "session_7"
	if call(t, o, `{"language":"python","code":"1"}`); f.request.Session != session {
		t.Errorf("%+v", f.request)
	}
}

func TestOutputIsReadable(t *testing.T) {
	f := &fake{outcome: sandbox.Outcome{Driver: "wasm", Stdout: "a\xff\x00b", StdoutDropped: 5, Exit: 3, Result: "\xff"}}
	r := call(t, codetool.Options{Sandbox: f}, `{"language":"python","code":"1"}`)
	if want := `{"language":"python","driver":"wasm","exit":3,"truncated":true,"result":"�","stdout":"a��b","stderr":""}`; string(r.Structured) != want || !r.IsError {
		t.Errorf("%s", r.Structured)
	}
}

// counter is the memory that a run may retain.
type counter struct{ used, most, limit int }

func (c *counter) Acquire(n int) error {
	if c.used+n > c.limit {
		return errors.New("too much")
	}
	c.used += n
	c.most = max(c.most, c.used)
	return nil
}

func (c *counter) Release(n int) { c.used -= n }

func TestMemoryIsChargedBeforeCodeRuns(t *testing.T) {
	f := &fake{outcome: sandbox.Outcome{Stdout: "hello"}}
	x := only(t, codetool.Options{Sandbox: f})
	args := json.RawMessage(`{"language":"python","code":"1"}`)
	small := &counter{limit: 1 << 20}
	if _, err := x.Call(t.Context(), tool.Call{Arguments: args, Memory: small}); !errors.Is(err, tool.ErrNotSent) || f.request.Code != "" || small.used != 0 {
		t.Errorf("%v, %+v", err, f.request)
	}
	large := &counter{limit: 8 << 20}
	r, err := x.Call(t.Context(), tool.Call{Arguments: args, Memory: large})
	if err != nil || large.most < 1<<20 || large.used != 4*len(r.Structured) {
		t.Errorf("%v, %+v", err, large)
	}
}

// A run that was cancelled gets no result.
func TestACancelledCallIsAnError(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("the client has left")
	cancel(cause)
	x := only(t, codetool.Options{Sandbox: &fake{err: cause}})
	if _, err := x.Call(ctx, tool.Call{Arguments: json.RawMessage(`{"language":"python","code":"1"}`)}); !errors.Is(err, cause) {
		t.Error(err)
	}
}

// A driver that keeps no files here, such as a service, has no functions for files, and its calls get none. // E13 J19
func TestFilesNeedAWorkingDirectoryOfTheLanguage(t *testing.T) {
	set, err := file.NewSet(nil, []item.Item{{Kind: item.Message, Role: item.User, Parts: []item.Part{{Kind: item.File, Name: "a.csv", Data: "data:text/csv;base64,eA=="}}}})
	if err != nil {
		t.Fatal(err)
	}
	const functions, list = "readFile(path)", `these files of the conversation`
	for _, c := range []struct {
		keeps                  []sandbox.Language
		both, python, js       string // of the descriptions
		told, hasPython, hasJS bool   // code_execute tells the functions, and which language gets files
	}{
		{[]sandbox.Language{sandbox.Python, sandbox.JavaScript}, "The working directory has", "The working directory has", "The working directory has", true, true, true},
		{[]sandbox.Language{sandbox.Python}, "The working directory of Python has", "The working directory has", "", false, true, false},
		{[]sandbox.Language{sandbox.JavaScript}, "The working directory of JavaScript has", "", "The working directory has", true, false, true},
		{nil, "", "", "", false, false, false},
	} {
		f := &fake{keeps: c.keeps}
		o := codetool.Options{Sandbox: f, Keep: keeps}
		tools := []tool.Tool{only(t, o)}
		for _, form := range codetool.Forms(o, []sandbox.Language{sandbox.Python, sandbox.JavaScript}, "") {
			if form.As == builtin.ExecutePython || form.As == builtin.ExecuteJavaScript {
				tools = append(tools, form.Tool)
			}
		}
		for i, want := range []string{c.both, c.python, c.js} {
			one := toolexec.WithFiles(tools[i], set)
			text := one.Definition().Description + one.(toolexec.Describer).Describe(nil)
			if strings.Contains(text, list) != (want != "") || !strings.Contains(text, want) || strings.Contains(text, functions) != ([]bool{c.told, false, c.hasJS}[i]) {
				t.Errorf("%v, tool %d: %s", c.keeps, i, text)
			}
		}
		for language, has := range map[string]bool{"python": c.hasPython, "javascript": c.hasJS} {
			if _, err := toolexec.WithFiles(tools[0], set).Call(t.Context(), tool.Call{Arguments: json.RawMessage(`{"language":"` + language + `","code":"1"}`)}); err != nil || (f.request.Prepare != nil) != has {
				t.Errorf("%v, %s: %+v, %v", c.keeps, language, f.request, err)
			}
		}
	}
}

// A name that the settings of hooks do not know would get around a hook of the tool.
func TestHooksKnowAllNamesOfTheTool(t *testing.T) {
	o := codetool.Options{
		Sandbox: &fake{keeps: []sandbox.Language{sandbox.Python, sandbox.JavaScript}}, Files: struct{ codetool.Files }{}, Keep: keeps,
	}
	names := builtin.AlsoSelected(builtin.CodeExecute)
	for _, named := range []string{"", org.ToolNamesMistralRS} {
		forms := codetool.Forms(o, []sandbox.Language{sandbox.Python, sandbox.JavaScript}, named)
		if len(forms) != len(names) {
			t.Errorf("the tool has %d forms, and hooks know %d names", len(forms), len(names))
		}
		for _, f := range forms {
			if !slices.Contains(names, f.As) {
				t.Errorf("hooks do not know %s", f.As)
			}
		}
	}
}
