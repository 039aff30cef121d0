package chat_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

// A model that takes images sees those in the results of tools, in the form of its dialect. Others, and those of which nothing is
// known, get a line of text for each. // C05 M05
func TestModelsSeeTheImagesOfTools(t *testing.T) {
	NoLeaks(t)
	const png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
	data, err := base64.StdEncoding.DecodeString(png)
	if err != nil {
		t.Fatal(err)
	}
	tools := NewMCP(t, nil)
	draw := &mcp.Tool{Name: "draw", InputSchema: json.RawMessage(`{"type":"object"}`)}
	tools.Sdk.AddTool(draw, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.ImageContent{MIMEType: "image/png", Data: data}}}, nil
	})
	for kind, shown := range map[string]string{
		"openai": `{"role":"user","content":[{"type":"text","text":"Images in the result of the tool draw, which the user has not sent:"},` +
			`{"type":"image_url","image_url":{"url":"data:image/png;base64,` + png,
		"openai-responses": `"output":[{"type":"input_image","image_url":"data:image/png;base64,` + png,
		"anthropic":        `{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + png,
		"gemini":           `"data":"` + png,
		"bedrock":          `"bytes":"` + png,
	} {
		known := kind == "bedrock" // by the name of its model
		for setting, want := range map[string]bool{"": known, "images: true": true, "images: false": false} {
			up := StrictUpstream(t, "call c1 draw {}\ncall c2 draw {}\n\ntext Done.")
			yaml, model := OfKind(Site{Upstream: strings.TrimSuffix(up.URL, "/v1"), Servers: []string{Server("tools", tools.URL)}}.Yaml(), kind)
			if setting != "" {
				yaml += "\nmodels: [{model: \"*\", " + setting + "}]\n"
			}
			g := MustRun(t, yaml)
			a := g.Post(`{"model":"` + model + `","messages":[{"role":"user","content":"go"}]}`)
			all := up.Requests()
			if a.Status != 200 || len(all) != 2 {
				t.Fatalf("%s %s: %d %s", kind, setting, a.Status, a.Body)
			}
			sent := string(all[1].Body)
			has := strings.Contains(sent, shown) && strings.Contains(sent, png)
			if has != want || strings.Contains(sent, "; 70 bytes, not shown]") == want {
				t.Errorf("%s, %q: shown %t, want %t\n%s", kind, setting, strings.Contains(sent, png), want, sent)
			}
		}
	}
}
