package wire

import (
	"context"

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

// maxModelList is how many bytes of a list of models are read.
const maxModelList = 16 << 20

// Models calls yield for each model of the list at GET {base}/models, as
// [model.Lister] says. It is for the dialects that have OpenAI's list. The caller
// sets the deadline.
func (c *Client) Models(ctx context.Context, memory tool.Memory, yield func(model.Listed) bool) error {
	return c.Get(ctx, "/models", maxModelList, memory, func(data []byte) error { return readModels(data, yield) })
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
