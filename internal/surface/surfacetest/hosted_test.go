package surfacetest

import (
	"encoding/json"
	"fmt"
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
