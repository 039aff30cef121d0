package openai

import (
	"context"

	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

// maxModelList is how many bytes of a list of models are read.
const maxModelList = 16 << 20

// List implements model.Lister with GET {base}/models. The caller sets the
// deadline.
func (p *Provider) List(ctx context.Context, memory tool.Memory, yield func(model.Listed) bool) error {
	return p.client.Get(ctx, "/models", maxModelList, memory, func(data []byte) error { return readModels(data, yield) })
}

// readModels reads {"data":[{"id":"…","created":1}]}; some servers send the bare
// array. A null in its place is an empty list. Elements without an id are left out.
func readModels(data []byte, yield func(model.Listed) bool) error {
	if wire.IsKind(data, '{') && wire.SaysError(wire.Member(data, "error")) {
		return wire.AnswerError(data)
	}
	list := data
	if wire.IsKind(data, '{') {
		list = wire.Member(data, "data")
	}
	if !wire.IsKind(list, '[') && !wire.IsKind(list, 'n') {
		return wire.Broken("sent an answer without a list of models", nil)
	}
	for _, e := range wire.Elements(list) {
		m := model.Listed{Name: wire.Text(wire.Member(e, "id")), Created: max(0, wire.Number(wire.Member(e, "created"), 0))}
		if m.Name != "" && !yield(m) {
			return nil
		}
	}
	return nil
}
