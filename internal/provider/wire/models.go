package wire

import (
	"context"
	"fmt"

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

const (
	// maxModelList is how many bytes of a list of models are read that has no pages.
	maxModelList = 16 << 20
	// maxModelPage is how many bytes of a page are read.
	maxModelPage = 4 << 20
	// maxModelPages is how many pages of a list are read.
	maxModelPages = 20
)

// Models calls yield for each model of the list at GET {base}/models, as
// [model.Lister] says. It is for the dialects that have OpenAI's list. The caller
// sets the deadline.
func (c *Client) Models(ctx context.Context, memory tool.Memory, yield func(model.Listed) bool) error {
	return c.Get(ctx, "/models", maxModelList, memory, func(data []byte) error { return readModels(data, yield) })
}

// ModelPages reads a list of models page by page. path returns the path of the page at a
// cursor, "" for the first. read returns the cursor of the next page, "" after the last.
// A list of more than 20 pages is an error. The caller sets the deadline.
func (c *Client) ModelPages(ctx context.Context, memory tool.Memory, path func(cursor string) string, read func(page []byte) (next string, err error)) error {
	cursor := ""
	for range maxModelPages {
		var next string
		err := c.Get(ctx, path(cursor), maxModelPage, memory, func(page []byte) error {
			var err error
			next, err = read(page)
			return err
		})
		if err != nil || next == "" {
			return err
		}
		if next == cursor {
			return Broken("repeats a page of its list of models", nil)
		}
		cursor = next
	}
	return Broken(fmt.Sprintf("lists its models on more than %d pages", maxModelPages), nil)
}

// readModels reads {"data":[{"id":"…","created":1}]}; some servers send the bare
// array. A null in its place is an empty list. Elements without an id are left out.
func readModels(data []byte, yield func(model.Listed) bool) error {
	if jsonscan.IsKind(data, '{') && SaysError(jsonscan.Member(data, "error")) {
		return AnswerError(data)
	}
	list := data
	if jsonscan.IsKind(data, '{') {
		list = jsonscan.Member(data, "data")
	}
	if !jsonscan.IsKind(list, '[') && !jsonscan.IsKind(list, 'n') {
		return Broken("sent an answer without a list of models", nil)
	}
	for _, e := range jsonscan.Elements(list) {
		m := model.Listed{Name: jsonscan.Text(jsonscan.Member(e, "id")), Created: max(0, jsonscan.Number(jsonscan.Member(e, "created"), 0))}
		if m.Name != "" && !yield(m) {
			return nil
		}
	}
	return nil
}
