package surfacetest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/turnpike-gateway/turnpike/internal/surface/spectest"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// hostedStory is a story of a server whose tools answer hosted tools: one of each type, and a
// call that fails.
const hostedStory = `An MCP server answers hosted tools.
-- model --
call c1 find {"query":"go"}
call c2 look {"q":"notes"}
call c3 eval {"code":"1+1"}

call c4 look {"text":"broken"}

text Found.
-- tools --
find read => a result
look read => error down
eval => 2
`

// What the gateway sends of hosted tools that an MCP server answers is valid in the document of
// OpenAI, and the stream, the whole answer and the stored one agree.
func TestHostedToolsOfAnMCPServerAreValid(t *testing.T) {
	specs := spectest.Read(t)
	a := apis[1]
	a.body = func(_ string, f form) (string, error) {
		return fmt.Sprintf(`{"model":"scripted","input":"hi","stream":%t,"tools":[{"type":"web_search"},`+
			`{"type":"file_search","vector_store_ids":["v"]},{"type":"code_interpreter","container":{"type":"auto"}}]}`, f == asStream), nil
	}
	performed := map[form]performance{}
	for _, f := range []form{asJSON, asStream} {
		synctest.Test(t, func(t *testing.T) {
			s, err := parse("hosted", hostedStory)
			if err != nil {
				t.Fatal(err)
			}
			s.servers[0].Hosted = map[string]string{"web_search": "find", "file_search": "look", "code_interpreter": "eval"}
			st := &stage{story: s, api: a, script: turnpiketest.NewScript(t, s.get("model"))}
			defer st.build()()
			performed[f] = st.request(t, f, "request", "alice")
		})
		checkResponse(t, performed[f])
	}
	checkResponses(t, performed[asJSON], performed[asStream])
	specs.Check(t, "the answer", performed[asJSON].answer.body())
	specs.Check(t, "the stream", performed[asStream].answer.body())
	items := map[string]int{}
	for line := range strings.Lines(performed[asStream].answer.body()) {
		data, isEvent := strings.CutPrefix(line, "data: {")
		var event struct {
			Item *struct{ Type, Status string }
		}
		if !isEvent {
			continue
		}
		if err := json.Unmarshal([]byte("{"+data), &event); err != nil {
			t.Fatal(err)
		}
		if it := event.Item; it != nil {
			items[it.Type+" "+it.Status]++
		}
	}
	want := map[string]int{
		"web_search_call in_progress": 1, "web_search_call completed": 1, "file_search_call in_progress": 2, "file_search_call failed": 2,
		"code_interpreter_call in_progress": 1, "code_interpreter_call completed": 1, "message in_progress": 1, "message completed": 1,
	}
	if fmt.Sprint(items) != fmt.Sprint(want) {
		t.Errorf("items %v, want %v", items, want)
	}
}

// codeStory is a story of the built-in tool that runs code: it makes files, and the answer names one of them.
const codeStory = `Code makes files.
-- state --
enable_search
enable_code_execution
server builtin_tools tools=code_execute,web_search,web_scrape
-- model --
text Drawing.
call c1 code_execute {"language":"python","code":"draw()","outputs":["chart.png","notes.txt"]}
call c2 web_search {"query":"go"}
call c3 web_scrape {"url":"https://a.example/"}

text Zürich: see 
text chart.png.
-- tools --
web_search read server=builtin_tools => {}
web_scrape read server=builtin_tools => page
code_execute files server=builtin_tools => {"language":"python","driver":"wasm","exit":0,"stdout":"drawn","stderr":"","files":[{"id":"file-a","filename":"chart.png","bytes":70,"sha256":"0a","expires_at":"2000-01-01T00:30:00Z"},{"id":"file-b","filename":"notes.txt","bytes":5,"sha256":"0b","expires_at":"2000-01-01T00:30:00Z"}]}
`

// The files of code are annotations of the answer, in the stream, in the whole answer and in the stored one, and what is sent is valid in
// the document of OpenAI, with pages that were read. // E14 J16
func TestFilesOfCodeAreValidAnnotations(t *testing.T) {
	specs := spectest.Read(t)
	a := apis[1]
	a.body = func(_ string, f form) (string, error) {
		return fmt.Sprintf(`{"model":"scripted","input":"hi","stream":%t,"include":["code_interpreter_call.outputs"],"tools":[{"type":"code_interpreter","container":{"type":"auto"}},{"type":"web_search"}]}`, f == asStream), nil
	}
	performed := map[form]performance{}
	for _, f := range []form{asJSON, asStream} {
		synctest.Test(t, func(t *testing.T) {
			s, err := parse("hosted", codeStory)
			if err != nil {
				t.Fatal(err)
			}
			at := slices.IndexFunc(s.servers, func(s server) bool { return s.Name == "builtin_tools" })
			s.servers[at].Hosted = map[string]string{"code_interpreter": "code_execute", "web_search": "web_search"}
			s.servers[at].HostedToo = map[string]string{"web_search": "web_scrape"}
			st := &stage{story: s, api: a, script: turnpiketest.NewScript(t, s.get("model"))}
			defer st.build()()
			performed[f] = st.request(t, f, "request", "alice")
		})
		checkResponse(t, performed[f])
	}
	checkResponses(t, performed[asJSON], performed[asStream])
	whole, stream := performed[asJSON].answer.body(), performed[asStream].answer.body()
	specs.Check(t, "the answer", whole)
	specs.Check(t, "the stream", stream)
	const chart = `{"type":"container_file_citation","container_id":"cntr_1","file_id":"file-a","start_index":12,"end_index":21,"filename":"chart.png"}`
	const notes = `{"type":"container_file_citation","container_id":"cntr_1","file_id":"file-b","start_index":22,"end_index":22,"filename":"notes.txt"}`
	if want := `"text":"Zürich: see chart.png.","annotations":[` + chart + `,` + notes + `]`; strings.Count(whole, want) != 1 || strings.Count(whole, "container_file_citation") != 2 {
		t.Errorf("the answer is %s", whole)
	}
	if !strings.Contains(whole, `"outputs":[{"type":"logs","logs":"drawn"}]`) || !strings.Contains(whole, `"action":{"type":"open_page","url":"https://a.example/"}`) {
		t.Errorf("the answer is %s", whole)
	}
	for i, want := range []string{chart, notes} {
		if added := fmt.Sprintf(`"content_index":0,"annotation_index":%d,"annotation":%s`, i, want); strings.Count(stream, added) != 1 {
			t.Errorf("the stream lacks %s: %s", added, stream)
		}
	}
}
