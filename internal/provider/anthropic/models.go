package anthropic

import (
	"context"
	"net/url"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

// pageSize is how many models one page has, the dialect's maximum.
const pageSize = "1000"

// List implements model.Lister with GET {base}/models, page by page. The caller sets the
// deadline. A list of more than 20 pages is an error.
func (p *Provider) List(ctx context.Context, memory tool.Memory, yield func(model.Listed) bool) error {
	path := func(cursor string) string {
		query := url.Values{"limit": {pageSize}}
		if cursor != "" {
			query.Set("after_id", cursor)
		}
		return "/models?" + query.Encode()
	}
	return p.client.ModelPages(ctx, memory, path, func(page []byte) (string, error) { return readPage(page, yield) })
}

// readPage reads {"data":[{"id":"…","created_at":"…"}],"has_more":true,"last_id":"…"}
// and returns the cursor of the next page, "" if there is none or yield wants no
// more. Elements without an id are left out.
func readPage(data []byte, yield func(model.Listed) bool) (next string, err error) {
	if jsonscan.IsKind(data, '{') && wire.SaysError(jsonscan.Member(data, "error")) {
		return "", wire.AnswerError(data)
	}
	list := jsonscan.Member(data, "data")
	if !jsonscan.IsKind(list, '[') {
		return "", wire.Broken("sent an answer without a list of models", nil)
	}
	for _, e := range jsonscan.Elements(list) {
		m := model.Listed{Name: jsonscan.Text(jsonscan.Member(e, "id")), Created: created(e), ContextWindow: wire.ContextWindow(e)}
		if m.Name != "" && !yield(m) {
			return "", nil
		}
	}
	if !jsonscan.IsKind(jsonscan.Member(data, "has_more"), 't') {
		return "", nil
	}
	return jsonscan.Text(jsonscan.Member(data, "last_id")), nil
}

// created returns when a model was released, in seconds since 1970. Compatible
// providers send the number of the chat dialect. 0 = not known.
func created(e []byte) int64 {
	if t, err := time.Parse(time.RFC3339, jsonscan.Text(jsonscan.Member(e, "created_at"))); err == nil {
		return max(0, t.Unix())
	}
	return max(0, jsonscan.Number(jsonscan.Member(e, "created"), 0))
}
