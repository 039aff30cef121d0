package gemini

import (
	"context"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

// List implements model.Lister: {"models":[{"name":"models/…","supportedGenerationMethods":[…]}],
// "nextPageToken":"…"}. It leaves out models that do not generate content, such as those for embeddings.
func (p *Provider) List(ctx context.Context, memory tool.Memory, yield func(model.Listed) bool) error {
	return wire.ModelPages{
		Size: "pageSize", Cursor: "pageToken", Member: "models",
		Next: func(page []byte) string { return jsonscan.Text(jsonscan.Member(page, "nextPageToken")) },
		Model: func(e []byte) model.Listed {
			if !generates(e) {
				return model.Listed{}
			}
			name := strings.TrimPrefix(jsonscan.Text(jsonscan.Member(e, "name")), "models/")
			return model.Listed{Name: name, ContextWindow: wire.ContextWindow(e)}
		},
	}.List(ctx, p.client, memory, yield)
}

// generates reports whether a model generates content. Compatible providers do not say
// what theirs do.
func generates(e []byte) bool {
	methods := jsonscan.Member(e, "supportedGenerationMethods")
	if !jsonscan.IsKind(methods, '[') {
		return true
	}
	for _, m := range jsonscan.Elements(methods) {
		if jsonscan.Text(m) == "generateContent" {
			return true
		}
	}
	return false
}
