package anthropic

import (
	"context"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

// List implements model.Lister: {"data":[{"id":"…","created_at":"…"}],"has_more":true,"last_id":"…"}.
func (p *Provider) List(ctx context.Context, memory tool.Memory, yield func(model.Listed) bool) error {
	return wire.ModelPages{
		Size: "limit", Cursor: "after_id", Member: "data",
		Next: func(page []byte) string {
			if !jsonscan.IsKind(jsonscan.Member(page, "has_more"), 't') || !jsonscan.IsKind(jsonscan.Member(page, "data"), '[') {
				return ""
			}
			return jsonscan.Text(jsonscan.Member(page, "last_id"))
		},
		Model: func(e []byte) model.Listed {
			name := jsonscan.Text(jsonscan.Member(e, "id"))
			return model.Listed{Name: name, Created: created(e), ContextWindow: wire.ContextWindow(e)}
		},
	}.List(ctx, p.client, memory, yield)
}

// created returns when a model was released; the zero time = not known. Compatible
// providers send the number of the chat dialect.
func created(e []byte) time.Time {
	if t, err := time.Parse(time.RFC3339, jsonscan.Text(jsonscan.Member(e, "created_at"))); err == nil {
		return wire.Created(t.Unix())
	}
	return wire.Created(jsonscan.Number(jsonscan.Member(e, "created"), 0))
}
