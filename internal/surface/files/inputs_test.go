package files_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/app"
	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/internal/sandbox/sandboxtest"
)

// pythonCoder is a model that runs the Python that it was told to run last, and otherwise answers.
func pythonCoder(w http.ResponseWriter, _ *http.Request, got Received) {
	var body struct {
		Messages []struct {
			Role    string
			Content json.RawMessage
		}
	}
	_ = json.Unmarshal(got.Body, &body)
	last := body.Messages[len(body.Messages)-1]
	var said string
	if json.Unmarshal(last.Content, &said) != nil {
		var parts []struct{ Text string }
		_ = json.Unmarshal(last.Content, &parts)
		said = parts[len(parts)-1].Text
	}
	code, is := strings.CutPrefix(said, "PY ")
	if !is || last.Role != "user" {
		Says("Done.").Write(w)
		return
	}
	arguments, _ := json.Marshal(map[string]any{"language": "python", "code": code})
	Asks(Use("code_execute", string(arguments))).Write(w)
}

// given is a gateway whose code gets the files of conversations.
type given struct {
	*Gateway
	t    *testing.T
	up   *Upstream
	data string
}

func newGiven(t *testing.T, more string) *given {
	t.Helper()
	data := WithPython(t)
	up := NewUpstream(t, pythonCoder)
	yaml := SwitchedOrg(up.URL, "{enable_code_execution: true}", "sandbox: {drivers: [wasm]}\n"+more)
	return &given{MustRunWith(t, data, yaml, Environment(), app.Options{Program: sandboxtest.Program(t)}), t, up, data}
}

// upload uploads a file as a key, and returns its id.
func (g *given) upload(key, name, text string) string {
	g.t.Helper()
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	part, _ := form.CreateFormFile("file", name)
	_, _ = part.Write([]byte(text))
	_ = form.Close()
	a := g.Send("POST", "/v1/files", &body, "Authorization", "Bearer "+key, "Content-Type", form.FormDataContentType())
	var f struct{ ID string }
	if err := json.Unmarshal(a.Body, &f); err != nil || a.Status != 200 {
		g.t.Fatalf("%d %s", a.Status, a.Body)
	}
	return f.ID
}

// chat sends parts and then code, and returns what the model was told by the call.
func (g *given) chat(parts, code string) string {
	g.t.Helper()
	before := len(g.up.Requests())
	body := fmt.Sprintf(`{"model":"m","enable_code_execution":true,"messages":[{"role":"user","content":[%s{"type":"text","text":%q}]}]}`, parts, "PY "+code)
	a := g.Send("POST", ChatPath, strings.NewReader(body), "Authorization", "Bearer owner-key")
	if a.Status != 200 {
		g.t.Fatalf("%d %s", a.Status, a.Body)
	}
	return g.told(before)
}

// told returns what the model was told by its latest call.
func (g *given) told(before int) string {
	g.t.Helper()
	seen := g.up.Requests()
	if len(seen) != before+2 {
		g.t.Fatalf("%d requests to the model", len(seen)-before)
	}
	return lastContent(seen[len(seen)-1])
}

// lastContent returns the text of the last message of a request; "" = it is no text.
func lastContent(r Received) (text string) {
	var body struct {
		Messages []struct{ Content json.RawMessage }
	}
	_ = json.Unmarshal(r.Body, &body)
	_ = json.Unmarshal(body.Messages[len(body.Messages)-1].Content, &text)
	return text
}

func inlined(name, text string) string {
	return fmt.Sprintf(`{"type":"file","file":{"filename":%q,"file_data":"data:text/csv;base64,%s"}},`, name, base64.StdEncoding.EncodeToString([]byte(text)))
}

const listing = "import os; ' '.join(sorted(os.listdir('.'))) + '|' + '|'.join(open(f).read()[:20] for f in sorted(os.listdir('.')) if f.endswith('.csv'))"

// Uploads, files and images of a chat are in the working directory of code, under plain names of their own. The model reads the begin of a
// text, and not the whole. // J19 J17
func TestFilesOfAChatAreInTheWorkingDirectory(t *testing.T) {
	NoLeaks(t)
	g := newGiven(t, "")
	long := "city,people\n" + strings.Repeat("Zürich,443037\n", 5000)
	id := g.upload("owner-key", "data.csv", long)
	png := base64.StdEncoding.EncodeToString([]byte("\x89PNG\r\n\x1a\n-"))
	parts := `{"type":"file","file":{"file_id":"` + id + `"}},` + inlined("../x/data.csv", "a,b\n") + `{"type":"image_url","image_url":{"url":"data:image/png;base64,` + png + `"}},`
	told := g.chat(parts, listing)
	if !strings.Contains(told, `"result":"'data-2.csv data.csv image-1.png|a,b\\n|city,people\\nZürich,4'"`) {
		t.Errorf("the code sees %s", told)
	}
	for i, seen := range g.up.Requests() {
		body := string(seen.Body)
		for _, want := range []string{`The file \"data.csv\", text/csv, 75012 bytes`, `These are its first 4096 characters`, `- \"image-1.png\", image/png, 9 bytes`, png} {
			if !strings.Contains(body, want) {
				t.Errorf("request %d has no %s: %.3000s", i, want, body)
			}
		}
		if strings.Count(body, "Zürich") > 4096/12 || strings.Contains(body, id) || strings.Contains(body, base64.StdEncoding.EncodeToString([]byte(long))[:100]) {
			t.Errorf("request %d has the whole file", i)
		}
	}
	// Without code the model gets the whole file.
	g.Post(`{"model":"m","messages":[{"role":"user","content":[` + inlined("data.csv", long) + `{"type":"text","text":"x"}]}]}`)
	seen := g.up.Requests()
	if !strings.Contains(string(seen[len(seen)-1].Body), base64.StdEncoding.EncodeToString([]byte(long))) {
		t.Error("without code the model does not get the file")
	}
	for body, status := range map[string]int{
		`{"type":"file","file":{"file_id":"` + g.upload("member-key", "theirs.csv", "x") + `"}},`: 200, // an owner reads the files of the org
		`{"type":"file","file":{"file_id":"file-00000000000000000000000000"}},`:                   404,
		strings.Repeat(inlined("a.csv", "x"), 65):                                                 200, // one file, 65 times
		manyInlined(65): 400,
	} {
		a := g.Post(`{"model":"m","enable_code_execution":true,"messages":[{"role":"user","content":[` + body + `{"type":"text","text":"x"}]}]}`)
		if a.Status != status || status == 400 && (*a.Fault(t).Error.Code != "input_files_limit" || !strings.Contains(a.Fault(t).Error.Message, "at most 64")) {
			t.Errorf("%.100s: %d %.300s", body, a.Status, a.Body)
		}
	}
}

func manyInlined(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(inlined(fmt.Sprintf("%d.csv", i), "x"))
	}
	return b.String()
}

// In a session the files are written once, and again when the directory is new. A file that code has changed stays, and is no output
// unless it was changed. // J19
func TestFilesOfASessionAreWrittenOnce(t *testing.T) {
	NoLeaks(t)
	g := newGiven(t, "")
	messages := ""
	next := func(parts, code string) string { // the client sends again what it saw
		t.Helper()
		before := len(g.up.Requests())
		messages += fmt.Sprintf(`{"role":"user","content":[%s{"type":"text","text":%q}]}`, parts, "PY "+code)
		if a := g.Post(`{"model":"m","enable_code_execution":true,"session_id":"s","messages":[` + messages + `]}`); a.Status != 200 {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
		messages += `,{"role":"assistant","content":"Done."},`
		return g.told(before)
	}
	if told := next(inlined("data.csv", "one"), listing); !strings.Contains(told, `'data.csv|one'`) {
		t.Fatal(told)
	}
	if told := next("", listing); !strings.Contains(told, `'data.csv|one'`) { // the session has the file
		t.Error(told)
	}
	if told := next(inlined("data.csv", "two"), listing); !strings.Contains(told, `'data-2.csv data.csv|two|one'`) {
		t.Error(told)
	}
	if told := next("", "open('data.csv', 'w').write('mine')"); strings.Contains(told, "note") {
		t.Error(told)
	}
	if told := next("", listing); !strings.Contains(told, `'data-2.csv data-3.csv data.csv|two|one|mine'`) || !strings.Contains(told, `another file named \"data.csv\"; the one of the conversation is \"data-3.csv\"`) {
		t.Error(told)
	}
	dirs, err := filepath.Glob(filepath.Join(g.data, "sandbox", "sessions", "*", "wasm-python-*", "*"))
	if err != nil || len(dirs) != 3 {
		t.Fatalf("%v, %v", dirs, err)
	}
	for _, path := range dirs { // as when the files of a session were too old
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	if told := next("", listing); !strings.Contains(told, `'data-2.csv data.csv|two|one'`) {
		t.Error(told)
	}
}

// The hosted tool code_interpreter takes file_ids, and the container keeps them for the next response. // J17 J19
func TestFilesOfAContainer(t *testing.T) {
	NoLeaks(t)
	g := newGiven(t, "")
	id, theirs := g.upload("owner-key", "data.csv", "a,b\n1,2\n"), g.upload("member-key", "theirs.csv", "x")
	ask := func(key, container, input, more string) Answer {
		body := fmt.Sprintf(`{"model":"m","input":%s,"tools":[{"type":"code_interpreter","container":%s}]%s}`, input, container, more)
		return g.Send("POST", "/v1/responses", strings.NewReader(body), "Authorization", "Bearer "+key)
	}
	with := `{"type":"auto","file_ids":["` + id + `"]}`
	a := ask("owner-key", with, fmt.Sprintf("%q", "PY "+listing), "")
	if told := g.told(0); a.Status != 200 || !strings.Contains(told, `'data.csv|a,b\\n1,2\\n'`) {
		t.Fatalf("%d %s: %s", a.Status, a.Body, told)
	}
	if first := string(g.up.Requests()[0].Body); !strings.Contains(first, `- \"data.csv\", text/csv, 8 bytes, which begins with \"a,b\\n1,2\\n\"`) || strings.Contains(first, id) {
		t.Errorf("the model reads %s", first)
	}
	var o struct{ ID string }
	if err := json.Unmarshal(a.Body, &o); err != nil {
		t.Fatal(err)
	}
	more := fmt.Sprintf(`[{"role":"user","content":[{"type":"input_file","filename":"more.csv","file_data":"data:text/csv;base64,eA=="},{"type":"input_text","text":%q}]}]`, "PY "+listing)
	if a := ask("owner-key", with, more, `,"previous_response_id":"`+o.ID+`"`); a.Status != 200 || !strings.Contains(g.told(2), `'data.csv more.csv|a,b\\n1,2\\n|x'`) {
		t.Errorf("%d %s: %s", a.Status, a.Body, g.told(2))
	}
	for container, key := range map[string]string{
		`{"type":"auto","file_ids":["` + theirs + `"]}`: "owner-key", // an owner may use it
		with: "member-key", `{"type":"auto","file_ids":["file-1"]}`: "owner-key",
	} {
		want := map[bool]int{true: 200, false: 404}[strings.Contains(container, theirs)]
		if a := ask(key, container, `"x"`, ""); a.Status != want || want == 404 && *a.Fault(t).Error.Code != "file_not_found" {
			t.Errorf("%s of %s: %d %s", container, key, a.Status, a.Body)
		}
	}
}

// A file by its URL is fetched by the gateway, within the outbound policy, and code gets it. // J17
func TestAFileByItsURLIsInTheWorkingDirectory(t *testing.T) {
	NoLeaks(t)
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/a/far.csv" {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte("far,away\n"))
	}))
	defer site.Close()
	ask := func(g *given, url string) Answer {
		body := fmt.Sprintf(`{"model":"m","input":[{"role":"user","content":[{"type":"input_file","file_url":%q},{"type":"input_text","text":%q}]}],"tools":[{"type":"code_interpreter","container":{"type":"auto"}}]}`, url, "PY "+listing)
		return g.Send("POST", "/v1/responses", strings.NewReader(body), "Authorization", "Bearer owner-key")
	}
	g := newGiven(t, "")
	if a := ask(g, site.URL+"/a/far.csv?x=1"); a.Status != 200 || !strings.Contains(g.told(0), `'far.csv|far,away\\n'`) {
		t.Errorf("%d %s: %s", a.Status, a.Body, g.told(0))
	}
	for url, status := range map[string]int{site.URL + "/none.csv": 400, "http://169.254.169.254/a.csv": 403} {
		a := ask(g, url)
		if a.Status != status || *a.Fault(t).Error.Param != "file_url" || strings.Contains(string(a.Body), "169.254") {
			t.Errorf("%s: %d %s", url, a.Status, a.Body)
		}
	}
}
