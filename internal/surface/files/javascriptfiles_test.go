package files_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/app"
	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/internal/sandbox/sandboxtest"
)

// javaScript is a gateway whose model makes calls, one after the other, for each request.
type javaScript struct {
	Documented
	t        *testing.T
	data     string
	up       *Upstream
	next     []Call
	messages string // of the session, as its client sends them again
}

func newJavaScript(t *testing.T, data, drivers, more string) *javaScript {
	t.Helper()
	j := &javaScript{t: t, data: data}
	j.up = NewUpstream(t, func(w http.ResponseWriter, r *http.Request, got Received) { Turns(j.next...)(w, r, got) })
	yaml := SwitchedOrg(j.up.URL, "{enable_code_execution: true}", "sandbox: {drivers: "+drivers+"}\n"+more)
	j.Documented = Manage(MustRunWith(t, data, yaml, Environment(), app.Options{Program: sandboxtest.Program(t)}))
	return j
}

// executes is a call of execute_javascript.
func executes(code string, outputs ...string) Call {
	args, _ := json.Marshal(map[string]any{"code": code, "outputs": append([]string{}, outputs...)})
	return Use("execute_javascript", string(args))
}

// ask sends the next message of the session s, with parts and members, and returns the answer.
func (j *javaScript) ask(parts, members string, calls ...Call) codeAnswer {
	j.t.Helper()
	j.next = calls
	j.messages += fmt.Sprintf(`{"role":"user","content":[%s{"type":"text","text":"x"}]}`, parts)
	a := j.Send("POST", ChatPath, strings.NewReader(`{"model":"m","enable_code_execution":true,"session_id":"s","messages":[`+j.messages+`]`+members+`}`))
	var got codeAnswer
	if err := json.Unmarshal(a.Body, &got); err != nil || a.Status != 200 || len(got.Calls) != len(calls) {
		j.t.Fatalf("%v: %d %s", err, a.Status, a.Body)
	}
	j.messages += `,{"role":"assistant","content":"done"},`
	return got
}

// wants compares parts of the results of calls.
func (j *javaScript) wants(got codeAnswer, want ...string) {
	j.t.Helper()
	for i, w := range want {
		if !strings.Contains(got.Calls[i].Result, w) {
			j.t.Errorf("call %d: %s, want %s", i, got.Calls[i].Result, w)
		}
	}
}

// JavaScript reads the files and images of the conversation, and what it writes comes back as files of the key, each with
// the round that has made it. The model reads how. // J16 J17 J19 J20 J23
func TestJavaScriptHasFiles(t *testing.T) {
	NoLeaks(t)
	j := newJavaScript(t, NewData(t), "[quickjs]", "")
	png := "\x89PNG\r\n\x1a\n-"
	long := "city,people\n" + strings.Repeat("Zürich,443037\n", 1000)
	image := `{"type":"image_url","image_url":{"url":"data:image/png;base64,` + base64.StdEncoding.EncodeToString([]byte(png)) + `"}},`
	got := j.ask(inlined("data.csv", long)+image, "",
		executes(`[listFiles(), readFile("data.csv").split("\n").length, [...readFile("image-1.png", "bytes")].length]`),
		executes(`writeFile("report.csv", "rows,1000\n"); writeFile("out/copy.png", readFile("image-1.png", "bytes"))`, "report.csv", "/work/out/copy.png", "data.csv", "none.csv", "../x"),
		Use("code_execute", `{"language":"javascript","code":"readFile('report.csv')","outputs":["report.csv"]}`),
		executes(`readFile("/etc/passwd")`),
		Use("list_files", `{}`),
	)
	j.wants(got, `"result":"[[\"data.csv\",\"image-1.png\"],1002,9]"`,
		`"not_produced":[{"path":"data.csv","error":"it is a file of the conversation, and the code has not changed it"},{"path":"none.csv","error":"the code has made no such file"},{"path":"../x","error":"it is no file of the working directory"}]`,
		`"result":"\"rows,1000\\n\""`, `readFile(\"/etc/passwd\"): the path is outside of the working directory; use a relative path`, `"name":"report.csv","path":"report.csv","mime_type":"text/csv`)
	if len(got.Files) != 3 || got.Files[0].Text != "rows,1000\n" || got.Files[1].Name != "copy.png" || got.Files[2].Name != "report.csv" {
		t.Fatalf("%+v", got)
	}
	if ids := got.Calls[1].FileIDs; !slices.Equal(ids, []string{got.Files[0].ID, got.Files[1].ID}) || !slices.Equal(got.Calls[2].FileIDs, []string{got.Files[2].ID}) || len(got.Calls[0].FileIDs) != 0 {
		t.Errorf("%+v", got.Calls)
	}
	sum := sha256.Sum256([]byte(png))
	if a := j.Send("GET", "/v1/files/"+got.Files[1].ID+"/content", nil); a.Status != 200 || string(a.Body) != png || !strings.Contains(got.Calls[1].Result, hex.EncodeToString(sum[:])) {
		t.Errorf("%d %q, %s", a.Status, a.Body, got.Calls[1].Result)
	}
	first := string(j.up.Requests()[0].Body)
	for _, want := range []string{`readFile(path), which returns text`, `writeFile(path, data)`, `The working directory has these files of the conversation:\n- \"data.csv\", text/csv`, `These are its first 4096 characters`} {
		if !strings.Contains(first, want) {
			t.Errorf("the model does not read %s: %.3000s", want, first)
		}
	}
	if strings.Count(first, "Zürich") > 4096/12 {
		t.Error("the model reads the whole file")
	}
}

// Files of a session stay when its variables are lost, and those of the conversation are given again. // E13 J19
func TestFilesOfJavaScriptAreGivenAgain(t *testing.T) {
	NoLeaks(t)
	j := newJavaScript(t, NewData(t), "[quickjs]", "")
	j.wants(j.ask(inlined("data.csv", "one"), "", executes(`globalThis.n = 1; writeFile("mine", readFile("data.csv") + "!")`)), `"exit":0`)
	got := j.ask("", "", Use("execute_javascript", `{"code":"for (;;);","timeout":0.3}`), executes(`[typeof n, readFile("mine"), readFile("data.csv")]`))
	j.wants(got, `the time limit was reached`, `"result":"[\"undefined\",\"one!\",\"one\"]"`)
	j.wants(j.ask(inlined("data.csv", "two"), "", executes(`[listFiles(), readFile("data-2.csv")]`)), `"result":"[[\"data-2.csv\",\"data.csv\",\"mine\"],\"two\"]"`)
	dirs, err := filepath.Glob(filepath.Join(j.data, "sandbox", "sessions", "*", "quickjs-javascript-*", "*"))
	if err != nil || len(dirs) != 3 {
		t.Fatalf("%v, %v", dirs, err)
	}
	for _, path := range dirs { // as when the files of a session were too old
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	j.wants(j.ask("", "", executes(`[listFiles(), readFile("data.csv"), readFile("data-2.csv")]`)), `"result":"[[\"data-2.csv\",\"data.csv\"],\"one\",\"two\"]"`)
}

// JavaScript makes files that the request requires, and the cap of the key, half of the org's, counts. // J16 J18
func TestRequiredFilesAndCapsOfJavaScript(t *testing.T) {
	NoLeaks(t)
	j := newJavaScript(t, NewData(t), "[quickjs]", "org_caps: {files: 4}\n")
	got := j.ask("", `,"files":[{"name":"out/a.csv","description":"two numbers"},{"name":"none.txt"}]`,
		executes(`writeFile("out/a.csv", "1,2"); writeFile("b", "b")`, "b"), executes(`writeFile("c", "c")`, "c"))
	if len(got.Files) != 3 || got.Files[0].Name != "b" || got.Files[1].Text != "1,2" || got.Files[2].Name != "none.txt" {
		t.Errorf("%+v", got)
	}
	j.wants(got, `"path":"out/a.csv"`, `"not_produced":[{"path":"c","error":"the key has reached its limit of 2 files, half of what its org may have`)
	if first := string(j.up.Requests()[0].Body); !strings.Contains(first, "two numbers") {
		t.Errorf("the model reads %.2000s", first)
	}
}

// With both languages each has its own working directory, and the model reads the begin of a file once. // J19
func TestPythonAndJavaScriptHaveTheFilesOfTheConversation(t *testing.T) {
	NoLeaks(t)
	j := newJavaScript(t, WithPython(t), "[quickjs, wasm]", "")
	got := j.ask(inlined("data.csv", "a,b\n"), "",
		Use("execute_python", `{"code":"open('p.txt','w').write(open('data.csv').read() + 'python')"}`),
		executes(`writeFile("j.txt", "x"); [listFiles(), readFile("data.csv")]`),
		Use("execute_python", `{"code":"import os; sorted(os.listdir('.'))"}`))
	j.wants(got, `"exit":0`, `"result":"[[\"data.csv\",\"j.txt\"],\"a,b\\n\"]"`, `"result":"['data.csv', 'p.txt']"`)
	if first := string(j.up.Requests()[0].Body); strings.Count(first, `- \"data.csv\", text/csv, 4 bytes`) != 2 || strings.Count(first, `a,b`) != 1 {
		t.Errorf("the model reads %.4000s", first)
	}
}
