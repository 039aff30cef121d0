package files_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/app"
	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/internal/file"
	"github.com/turnpike-gateway/turnpike/internal/sandbox/sandboxtest"
)

// makesChart makes an image of one pixel, and prints its digest.
const makesChart = `import hashlib, zlib, struct
def chunk(kind, data): return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))
png = b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', struct.pack('>IIBBBBB', 1, 1, 8, 2, 0, 0, 0)) + chunk(b'IDAT', zlib.compress(b'\0\xff\0\0')) + chunk(b'IEND', b'')
open('chart.png', 'wb').write(png)
print(hashlib.sha256(png).hexdigest())`

// A file that code has made and listed comes back over /v1/files with the digest that the code printed, for the
// key of the run and for those that manage the org, and for nobody else. // J16 J20 J23
func TestCodeMakesFilesForItsKey(t *testing.T) {
	NoLeaks(t)
	data := WithPython(t)
	args, err := json.Marshal(map[string]any{"language": "python", "code": makesChart, "outputs": []string{"chart.png", "report.pdf"}})
	if err != nil {
		t.Fatal(err)
	}
	up := NewUpstream(t, Script(Asks(Use("code_execute", string(args))), Says("done")))
	yaml := "sandbox: {drivers: [wasm]}\n" + Site{Upstream: up.URL}.WithBuiltins(`{builtin_tools: [{name: code_execute}]}`)
	d := Manage(MustRunWith(t, data, yaml, Environment(), app.Options{Program: sandboxtest.Program(t)}))
	if text, _ := d.Post(Question).Completion(t); text != "done" {
		t.Fatalf("answered %q", text)
	}
	told := strings.Join(up.Requests()[1].Results(t), "")
	var result struct {
		Stdout string
		Files  []struct {
			ID, Filename, SHA256 string
			Bytes                int
		}
		NotProduced []struct{ Path, Error string } `json:"not_produced"`
	}
	if err := json.Unmarshal([]byte(told), &result); err != nil || len(result.Files) != 1 || len(result.NotProduced) != 1 || result.NotProduced[0].Path != "report.pdf" {
		t.Fatalf("%v: the model is told %s", err, told)
	}
	made := result.Files[0]
	if printed := regexp.MustCompile(`[0-9a-f]{64}`).FindString(result.Stdout); made.SHA256 != printed || made.Filename != "chart.png" {
		t.Errorf("the code printed %s, and the file is %v", printed, made)
	}
	content := d.Send("GET", "/v1/files/"+made.ID+"/content", nil)
	if sum := sha256.Sum256(content.Body); content.Status != 200 || hex.EncodeToString(sum[:]) != made.SHA256 || content.Header.Get("Content-Type") != "image/png" {
		t.Errorf("the file is answered with %d, %v", content.Status, content.Header)
	}
	for key, status := range map[string]int{"owner-key": 200, "member-key": 404} {
		if a := d.Send("GET", "/v1/files/"+made.ID, nil, "Authorization", "Bearer "+key); a.Status != status {
			t.Errorf("%s gets %d: %s", key, a.Status, a.Body)
		}
	}
	listed := Objects(d.Do("GET", "/v1/files?purpose=assistants_output", "owner-key", "", 200))
	if len(listed) != 1 || listed[0]["id"] != made.ID || listed[0]["expires_at"].(float64)-listed[0]["created_at"].(float64) != 30*60 {
		t.Errorf("listed: %v", fmt.Sprint(listed))
	}
	runID := d.Do("GET", "/v1/runs", "owner-key", "", 200)["data"].([]any)[0].(map[string]any)["id"].(string) // J17: the aliases
	inside := "/v1/containers/" + file.ContainerOf(runID) + "/files"
	for key, want := range map[string]string{"owner-key": made.ID, "member-key": ""} {
		found := Objects(d.Do("GET", inside, key, "", 200))
		if len(found) != min(len(want), 1) || want != "" && (found[0]["id"] != want || found[0]["path"] != "/work/chart.png" || found[0]["object"] != "container.file") {
			t.Errorf("%s: in the container are %v", key, found)
		}
		for _, path := range []string{"/" + made.ID, "/" + made.ID + "/content"} {
			status := map[bool]int{true: 200, false: 404}
			if a := d.Send("GET", inside+path, nil, "Authorization", "Bearer "+key); a.Status != status[want != ""] || a.Status == 200 && strings.HasSuffix(path, "content") && string(a.Body) != string(content.Body) {
				t.Errorf("%s: %s: %d %s", key, path, a.Status, a.Body)
			}
			if a := d.Send("GET", "/v1/containers/cntr_other/files"+path, nil, "Authorization", "Bearer "+key); a.Status != 404 {
				t.Errorf("%s: in another container: %d %s", key, a.Status, a.Body)
			}
		}
	}
	if a := d.Send("DELETE", "/v1/files/"+made.ID, nil, "Authorization", "Bearer owner-key"); a.Status != 200 {
		t.Errorf("deleted with %d: %s", a.Status, a.Body)
	}
}

// madeFiles is what an answer, or the last chunk of a stream, says of files.
type madeFiles struct {
	Calls []struct {
		Round   int
		Name    string
		Result  string   `json:"result_content"`
		FileIDs []string `json:"file_ids"`
	} `json:"agentic_tool_calls"`
	Files []struct {
		ID, Name, Format, Purpose, Text, Preview, Code, Message string

		Source struct {
			Tool  string
			Round int
			Turn  *int
		}
	}
}

// The files of a run are in its answer and in events of its stream, each with the round of its call, and their content is at
// /v1/files. A result that is cut, and one of a tool of the client that looks the same, change nothing. // J20 J23 G09 G10
func TestTheAnswerListsTheFilesOfARun(t *testing.T) {
	NoLeaks(t)
	data := WithPython(t)
	argsOf := func(code string, outputs ...string) string {
		raw, err := json.Marshal(map[string]any{"language": "python", "code": code, "outputs": outputs})
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, got Received) {
		switch strings.Count(string(got.Body), `"role":"tool"`) {
		case 0:
			Asks(Use("code_execute", argsOf("print('x')"))).Write(w)
		case 1:
			Asks(Use("code_execute", argsOf(makesChart, "chart.png"))).Write(w)
		case 2: // the result is cut
			Asks(Use("code_execute", argsOf("open('a.txt', 'w').write('notes'); print('x' * 200000)", "a.txt", "none"))).Write(w)
		default:
			Says("done").Write(w)
		}
	})
	g := MustRunWith(t, data, SwitchedOrg(up.URL, "{enable_code_execution: true}", "sandbox: {drivers: [wasm]}"), Environment(), app.Options{Program: sandboxtest.Program(t)})
	d := Manage(g)
	for _, stream := range []bool{false, true} {
		a := d.Send("POST", ChatPath, strings.NewReader(fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":"x"}],"enable_code_execution":true,"stream":%t}`, stream)))
		if a.Status != 200 {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
		var got madeFiles
		produced := map[string]int{} // events of each id
		last := string(a.Body)
		if stream {
			for _, frame := range strings.Split(string(a.Body), "\n\n") {
				if data, is := strings.CutPrefix(frame, "event: file_produced\ndata: "); is {
					var e struct {
						ID   *string
						File struct{ ID string }
					}
					if err := json.Unmarshal([]byte(data), &e); err != nil || e.ID != nil {
						t.Errorf("%v: %s", err, data)
					}
					produced[e.File.ID]++
				}
				if strings.Contains(frame, `"agentic_tool_calls"`) {
					last = strings.TrimPrefix(frame, "data: ")
				}
			}
		}
		if err := json.Unmarshal([]byte(last), &got); err != nil || len(got.Calls) != 3 || len(got.Files) != 2 {
			t.Fatalf("%v: %s", err, last)
		}
		chart, notes := got.Files[0], got.Files[1]
		if len(got.Calls[0].FileIDs) != 0 || !slices.Equal(got.Calls[1].FileIDs, []string{chart.ID}) || !slices.Equal(got.Calls[2].FileIDs, []string{notes.ID}) {
			t.Errorf("the calls say %v", got.Calls)
		}
		if chart.Name != "chart.png" || chart.Format != "png" || chart.Purpose != "agent_output" || chart.Source.Tool != "code_execute" || chart.Source.Round != 1 || chart.Source.Turn == nil || chart.Preview != "" {
			t.Errorf("the chart is %+v", chart)
		}
		if notes.Name != "a.txt" || notes.Text != "notes" || notes.Preview != "notes" || notes.Source.Round != 2 {
			t.Errorf("the notes are %+v", notes)
		}
		if stream && (len(produced) != 2 || produced[chart.ID] != 1 || produced[notes.ID] != 1) {
			t.Errorf("events: %v", produced)
		}
		if content := d.Send("GET", "/v1/files/"+notes.ID+"/content", nil); content.Status != 200 || string(content.Body) != "notes" {
			t.Errorf("the content is %d %s", content.Status, content.Body)
		}
	}
}

// A file that the request requires is kept when code writes it, without being in outputs. One that is not made is in the answer with its reason.
// Nothing of it reaches the provider but the description of the tool. // J16
func TestRequiredFilesOfARun(t *testing.T) {
	NoLeaks(t)
	data := WithPython(t)
	up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, got Received) {
		switch strings.Count(string(got.Body), `"role":"tool"`) {
		case 0:
			Asks(Use("code_execute", `{"language":"python","code":"import os; os.mkdir('out'); open('out/a.csv','w').write('1,2')"}`)).Write(w)
		case 1:
			Asks(Use("code_execute", `{"language":"python","code":"import os; os.utime('out/a.csv', (1, 1)); print(open('out/a.csv').read())","outputs":["b.txt"]}`)).Write(w)
		default:
			Says("done").Write(w)
		}
	})
	d := Manage(MustRunWith(t, data, SwitchedOrg(up.URL, "{enable_code_execution: true}", "sandbox: {drivers: [wasm]}"), Environment(), app.Options{Program: sandboxtest.Program(t)}))
	const required = `"files":[{"name":"out/a.csv","description":"two numbers"},{"name":"b.txt","format":"text"}]`
	a := d.Send("POST", ChatPath, strings.NewReader(`{"model":"m","messages":[{"role":"user","content":"x"}],"enable_code_execution":true,`+required+`}`))
	var got madeFiles
	if err := json.Unmarshal(a.Body, &got); err != nil || a.Status != 200 || len(got.Files) != 2 || len(got.Calls) != 2 {
		t.Fatalf("%v: %d %s", err, a.Status, a.Body)
	}
	made, missing := got.Files[0], got.Files[1]
	if made.Name != "a.csv" || made.Text != "1,2" || made.Source.Round != 0 || !slices.Equal(got.Calls[0].FileIDs, []string{made.ID}) || len(got.Calls[1].FileIDs) != 0 {
		t.Errorf("made: %+v, %v", made, got.Calls)
	}
	if missing.Name != "b.txt" || missing.ID == "" || missing.Format != "text" || missing.Code != "not_produced" || !strings.Contains(missing.Message, `"b.txt"`) {
		t.Errorf("missing: %+v", missing)
	}
	for _, path := range []string{"", "/content"} { // J17
		if a := d.Send("GET", "/v1/files/"+missing.ID+path, nil); a.Status != 422 || *a.Fault(t).Error.Code != "file_not_produced" {
			t.Errorf("%s%s: %d %s", missing.ID, path, a.Status, a.Body)
		}
	}
	first := string(up.Requests()[0].Body)
	if !strings.Contains(first, `two numbers`) || strings.Contains(first, `"files"`) {
		t.Errorf("the provider got %s", first)
	}
	a = d.Send("POST", ChatPath, strings.NewReader(`{"model":"m","messages":[{"role":"user","content":"x"}],`+required+`}`))
	if f := a.Fault(t).Error; a.Status != 400 || *f.Param != "files" || !strings.Contains(f.Message, "enable_code_execution: true") {
		t.Errorf("without code: %d %s", a.Status, a.Body)
	}
}

// Figures that code shows, or leaves open, are files of the run: in the answer and in events of its stream, each with the round of its
// call, once. The one that is over the cap of the org is told to the model, and the run goes on. // J19 J20 J23
func TestTheAnswerListsTheImagesThatCodeShows(t *testing.T) {
	NoLeaks(t)
	data := WithPython(t)
	argsOf := func(code string, outputs ...string) string {
		raw, err := json.Marshal(struct {
			Code    string   `json:"code"`
			Outputs []string `json:"outputs,omitempty"`
		}{code, outputs})
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	var calls []Call
	up := NewUpstream(t, func(w http.ResponseWriter, r *http.Request, got Received) { Turns(calls...)(w, r, got) })
	yaml := "org_caps: {files: 17}\n" + SwitchedOrg(up.URL, "{enable_code_execution: true}", "sandbox: {drivers: [wasm]}")
	d := Manage(MustRunWith(t, data, yaml, Environment(), app.Options{Program: sandboxtest.Program(t)}))
	for _, stream := range []bool{false, true} {
		calls = []Call{
			Use("execute_python", argsOf(sandboxtest.Matplotlib+"plt.plot(1)")),
			Use("execute_python", argsOf("print(plt.get_fignums())")),
			Use("execute_python", argsOf("plt.plot(2); plt.savefig('mine.png'); plt.show(); plt.plot(3); plt.show(); plt.plot(None); plt.show(); Picture('4')", "mine.png")),
		}
		a := d.Send("POST", ChatPath, strings.NewReader(fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":"x"}],"enable_code_execution":true,"stream":%t}`, stream)))
		last := string(a.Body)
		if stream {
			begin, end, _ := strings.Cut(last, `"agentic_tool_calls"`)
			end, _, _ = strings.Cut(end, "\n")
			last = begin[strings.LastIndex(begin, "data: ")+len("data: "):] + `"agentic_tool_calls"` + end
			if n := strings.Count(string(a.Body), "event: file_produced\n"); n != 4 {
				t.Errorf("%d events: %s", n, a.Body)
			}
		}
		var got madeFiles
		if err := json.Unmarshal([]byte(last), &got); err != nil || a.Status != 200 || len(got.Files) != 4 || len(got.Calls) != 3 {
			t.Fatalf("%v: %d %s", err, a.Status, a.Body)
		}
		var ids []string
		for i, want := range []struct {
			name  string
			round int
		}{{"figure_1.png", 0}, {"mine.png", 2}, {"figure_3.png", 2}, {"figure_4.png", 2}} { // figure_2.png is mine.png
			f := got.Files[i]
			if f.Name != want.name || f.Source.Round != want.round || f.Format != "png" {
				t.Errorf("file %d: %+v", i, f)
			}
			if content := d.Send("GET", "/v1/files/"+f.ID+"/content", nil); content.Header.Get("Content-Type") != "image/png" || !strings.HasPrefix(string(content.Body), "\x89PNG") {
				t.Errorf("%s: %d %v", f.Name, content.Status, content.Header)
			}
			ids = append(ids, f.ID)
		}
		if !slices.Equal(got.Calls[0].FileIDs, ids[:1]) || len(got.Calls[1].FileIDs) != 0 || !slices.Equal(got.Calls[2].FileIDs, ids[1:]) {
			t.Errorf("the calls say %v", got.Calls)
		}
		if !json.Valid([]byte(got.Calls[0].Result)) {
			t.Errorf("the result of a call with an image: %s", got.Calls[0].Result)
		}
		seen := up.Requests()
		told := seen[len(seen)-1].Results(t)[0]
		if !strings.HasSuffix(told, ", not shown]") || !strings.Contains(told, "[image; type: image/png; ") {
			t.Errorf("a model that is not known to take images is told %s", told)
		}
		if told := seen[len(seen)-1].Results(t)[2]; !strings.Contains(told, `"exit":0`) || !strings.Contains(told, `"note":"Not shown to the user: figure 1: TypeError: None is no number."`) {
			t.Errorf("the model is told %s", told)
		}
	}
	calls = []Call{Use("execute_python", argsOf(sandboxtest.Matplotlib+"plt.plot(1); plt.figure(); plt.plot(2)"))}
	got := runsCode(t, d, "one")
	if len(got.Files) != 1 || len(got.Calls) != 1 || !strings.Contains(got.Calls[0].Result, `"not_produced":[{"path":"figure_2.png","error":`) || !strings.Contains(got.Calls[0].Result, "org_caps.files") {
		t.Errorf("over the cap: %+v", got)
	}
}
