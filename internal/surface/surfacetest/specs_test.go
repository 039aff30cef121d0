package surfacetest

import (
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/surface/spectest"
)

// Every body and every event of the stories is valid in the document of OpenAI, and in that
// of Open Responses, which is stricter and does not know items of MCP servers.
func TestResponsesAreValidInBothDocuments(t *testing.T) { // G15 O06
	specs := spectest.Read(t)
	stories, err := readStories()
	if err != nil {
		t.Fatal(err)
	}
	failed, refused := 0, 0
	for _, s := range stories {
		for _, p := range s.parts {
			_, form, _ := strings.Cut(strings.TrimPrefix(p.name, "second "), "responses.")
			if form != "json" && form != "sse" || strings.HasPrefix(p.name, "prompts") || strings.HasPrefix(p.name, "events") {
				continue
			}
			answer := p.text
			if _, body, ok := strings.Cut(p.text, "\n\n{"); ok && !strings.HasPrefix(p.text, "event:") { // after status and header
				answer = "{" + body
			}
			failed += strings.Count(answer, "event: response.failed\n")
			if strings.HasPrefix(answer, "{\n  \"error\": {") {
				refused++
			}
			if !strings.Contains(answer, "{") {
				continue // the client left before the first event
			}
			specs.Check(t, s.path+" "+p.name, answer)
		}
	}
	if bodies, events := specs.Checked(); bodies < 80 || events < 800 || failed < 5 || refused < 5 {
		t.Errorf("%d bodies, %d of them errors, and %d events, %d of them response.failed: the stories are not read", bodies, refused, events, failed)
	}
}
