package surfacetest

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

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
	document := readDocument(t, "openai-openapi-2026-08-21.yaml")
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
	document.check(t, "the answer", "Response", parseJSON(t, performed[asJSON].answer.body()))
	items := map[string]int{}
	for line := range strings.Lines(performed[asStream].answer.body()) {
		data, isEvent := strings.CutPrefix(line, "data: {")
		if !isEvent {
			continue
		}
		value := parseJSON(t, "{"+data)
		kind := value["type"].(string)
		if document.events[kind] == "" {
			t.Errorf("there is no event %s", kind)
			continue
		}
		document.check(t, kind, document.events[kind], value)
		if it, ok := value["item"].(map[string]any); ok {
			items[fmt.Sprint(it["type"], " ", it["status"])]++
			document.check(t, kind, map[any]string{
				"web_search_call": "WebSearchToolCall", "file_search_call": "FileSearchToolCall", "code_interpreter_call": "CodeInterpreterToolCall", "message": "OutputMessage",
			}[it["type"]], it)
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
