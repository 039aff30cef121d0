package anthropic

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

const (
	// pageSize is how many models one page has, the dialect's maximum.
	pageSize = 1000
	// maxPages is how many pages of a list are read.
	maxPages = 20
	// maxPage is how many bytes of a page are read.
	maxPage = 4 << 20
)

// List implements model.Lister with GET {base}/models, page by page. The caller
// sets the deadline. A list of more than 20 pages is an error.
func (p *Provider) List(ctx context.Context, memory tool.Memory, yield func(model.Listed) bool) error {
	after := ""
	for range maxPages {
		query := url.Values{"limit": {fmt.Sprint(pageSize)}}
		if after != "" {
			query.Set("after_id", after)
		}
		var next string
		err := p.client.Get(ctx, "/models?"+query.Encode(), maxPage, memory, func(data []byte) error {
			var err error
			next, err = readPage(data, yield)
			return err
		})
		if err != nil || next == "" {
			return err
		}
		if next == after {
			return wire.Broken("repeats a page of its list of models", nil)
		}
		after = next
	}
	return wire.Broken(fmt.Sprintf("lists its models on more than %d pages", maxPages), nil)
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
		m := model.Listed{Name: jsonscan.Text(jsonscan.Member(e, "id")), Created: created(e)}
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
