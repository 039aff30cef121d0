package responses_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/internal/upstreamtest"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/tool"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

const (
	onePixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="
	noPages  = "JVBERi0xLjQKJSVFT1YK"
)

// Each dialect gets as much of a tool's result as it takes, and a text for the
// rest. The provider accepts it, in the next round too. D15 M05
func TestWhatAProviderGetsOfAnImage(t *testing.T) {
	result := tool.Result{Parts: []item.Part{
		{Kind: item.Text, Text: "One pixel:"},
		{Kind: item.Image, MIMEType: "image/jpeg", Data: onePixel},  // the server is wrong: it is a PNG
		{Kind: item.Image, MIMEType: "image/png", Data: "aGVsbG8="}, // and this is no image
		{Kind: item.Audio, MIMEType: "audio/wav", Data: "AAAA"},
		{Kind: item.Resource, URL: "file:///a.pdf", MIMEType: "application/pdf", Data: noPages},
		{Kind: item.Resource, URL: "file:///a.md", MIMEType: "text/markdown", Text: "# A"},
		{Kind: item.Resource, URL: "https://example.com/b", Name: "b", Description: "another"},
	}, Structured: json.RawMessage(`{"pixels":1}`)}
	const broken = `[image; type: application/octet-stream; left out: its data is not an image]`
	for kind, want := range map[string]string{
		"openai": `"content":"One pixel:\n[image; type: image/png; description: in the message after the results]\n` + broken +
			`\n[audio; type: audio/wav; 3 bytes, not shown]\n[resource file:///a.pdf; type: application/pdf; 15 bytes, not shown]\n[resource file:///a.md]\n# A\n[resource https://example.com/b; name: b; description: another]"`,
		"gemini": `"response":{"output":"One pixel:\n` + broken + `\n[audio; type: audio/wav; 3 bytes, not shown]\n[resource file:///a.pdf; type: application/pdf]\n[resource file:///a.md]\n# A\n[resource https://example.com/b; name: b; description: another]"},` +
			`"parts":[{"inlineData":{"mimeType":"image/png","data":"` + onePixel + `"}},{"inlineData":{"mimeType":"application/pdf","data":"` + noPages + `"}}]`,
		"anthropic": `"content":[{"type":"text","text":"One pixel:"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + onePixel + `"}},{"type":"text","text":"` + broken + `"},` +
			`{"type":"text","text":"[audio; type: audio/wav; 3 bytes, not shown]"},{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"` + noPages + `"},"title":"file:///a.pdf"},` +
			`{"type":"document","source":{"type":"text","media_type":"text/plain","data":"# A"},"title":"file:///a.md"},{"type":"text","text":"[resource https://example.com/b; name: b; description: another]"}]`,
		"bedrock": `"content":[{"text":"One pixel:"},{"image":{"format":"png","source":{"bytes":"` + onePixel + `"}}},{"text":"` + broken + `"},` +
			`{"text":"[audio; type: audio/wav; 3 bytes, not shown]"},{"document":{"name":"file a","format":"pdf","source":{"bytes":"` + noPages + `"}}},` +
			`{"document":{"name":"file a (2)","format":"txt","source":{"bytes":"IyBB"}}},{"text":"[resource https://example.com/b; name: b; description: another]"}]`,
		"openai-responses": `"output":[{"type":"input_text","text":"One pixel:"},{"type":"input_image","image_url":"data:image/png;base64,` + onePixel + `","detail":"auto"},{"type":"input_text","text":"` + broken + `"},` +
			`{"type":"input_text","text":"[audio; type: audio/wav; 3 bytes, not shown]"},{"type":"input_file","filename":"file.pdf","file_data":"data:application/pdf;base64,` + noPages + `"},` +
			`{"type":"input_text","text":"[resource file:///a.md]\n# A"},{"type":"input_text","text":"[resource https://example.com/b; name: b; description: another]"}]`,
	} {
		t.Run(kind, func(t *testing.T) {
			NoLeaks(t)
			tools := turnpiketest.NewMCPServer(turnpiketest.MCPOptions{}, turnpiketest.Tool{
				Name: "shot", Answer: func(context.Context, json.RawMessage) (tool.Result, error) { return result, nil },
			})
			t.Cleanup(tools.Close)
			up := upstreamtest.New(turnpiketest.NewScript(t, "call c1 shot {}\n\ncall c2 shot {\"again\":true}\n\ntext Seen."), upstreamtest.Options{Strict: true})
			t.Cleanup(up.Close)
			yaml := Site{Upstream: strings.TrimSuffix(up.URL, "/v1"), Servers: []string{Server("s", tools.URL)}}.Yaml()
			yaml, _ = OfKind(yaml, kind)
			g := MustRun(t, yaml+"\nmodels: [{model: \"*\", images: true}]\n")
			if text, _ := g.Post(Question).Completion(t); text != "Seen." {
				t.Errorf("the answer is %q", text)
			}
			asked := up.Requests()
			if len(asked) != 3 {
				t.Fatalf("%d requests", len(asked))
			}
			for n, r := range asked {
				if r.Refused != "" {
					t.Errorf("request %d was refused: %s", n, r.Refused)
				}
				// Bedrock wants another name for each document of a request.
				body := strings.NewReplacer("file a (3)", "file a", "file a (4)", "file a (2)").Replace(string(r.Body))
				if got := strings.Count(body, want); got != n {
					t.Errorf("request %d has %d results as wanted: %s", n, got, r.Body)
				}
				if strings.Contains(string(r.Body), "pixels\\\"") {
					t.Errorf("request %d has the structured content beside the text", n)
				}
			}
		})
	}
}

// A text that the model got as structured content alone is sent once.
func TestStructuredContentAloneIsTheText(t *testing.T) {
	NoLeaks(t)
	tools := turnpiketest.NewMCPServer(turnpiketest.MCPOptions{}, turnpiketest.Tool{
		Name: "count", Answer: func(context.Context, json.RawMessage) (tool.Result, error) {
			return tool.Result{Structured: json.RawMessage(`{"n":12345678901234567890}`)}, nil
		},
	})
	t.Cleanup(tools.Close)
	up := NewUpstream(t, Script(Asks(Use("count", `{}`)), Says("Done.")))
	g := MustRun(t, Site{Upstream: up.URL, Servers: []string{Server("s", tools.URL)}}.Yaml())
	g.Post(Question).Completion(t)
	if told := up.Requests()[1].Results(t); len(told) != 1 || told[0] != `{"n":12345678901234567890}` {
		t.Errorf("the model was told %q", told)
	}
}
