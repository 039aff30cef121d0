package openai

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/turnpike-gateway/turnpike/internal/ledger"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

const (
	modelsPath = "/models"
	// maxModelList is how much of a list of models is read.
	maxModelList = 16 << 20
)

// List implements model.Lister with GET {base}/models. The caller sets the
// deadline.
func (p *Provider) List(ctx context.Context, memory tool.Memory, yield func(model.Listed) bool) error {
	if p.err != nil {
		return p.err
	}
	req := p.template.WithContext(ctx)
	req.Method, req.URL = http.MethodGet, below(p.template.URL, modelsPath)
	req.Header = http.Header{"Accept": {"application/json"}, "Accept-Encoding": {"identity"}}
	if err := p.authorize(ctx, req.Header); err != nil {
		return callError(ctx, ctx, err)
	}
	resp, err := p.o.Transport.RoundTrip(req)
	if err != nil {
		return callError(ctx, ctx, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return p.failed(ctx, statusError(resp))
	}
	if err := encoded(resp); err != nil {
		return err
	}
	data, err := ledger.ReadAll(io.LimitReader(resp.Body, maxModelList+1), min(resp.ContentLength, maxModelList), memory)
	var refused *ledger.Refused
	switch {
	case errors.As(err, &refused):
		return refused
	case err != nil:
		return callError(ctx, ctx, err)
	}
	if memory != nil {
		defer memory.Release(cap(data))
	}
	if len(data) > maxModelList {
		return brokenAnswer(fmt.Sprintf("sent a list of models of more than %d bytes", maxModelList), nil)
	}
	return readModels(data, yield)
}

// readModels reads {"data":[{"id":"…","created":1}]}; some servers send the bare
// array. A null in its place is an empty list. Elements without an id are left out.
func readModels(data []byte, yield func(model.Listed) bool) error {
	data = trimSpace(bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")))
	switch {
	case isKind(data, '<'):
		return page()
	case !valid(data):
		return brokenAnswer(fmt.Sprintf("sent a list of models that is not valid JSON: %q", data[:min(len(data), maxQuoted)]), nil)
	case isKind(data, '{') && saysError(member(data, "error")):
		return answerError(data)
	}
	list := data
	if isKind(data, '{') {
		list = member(data, "data")
	}
	if !isKind(list, '[') && !isKind(list, 'n') {
		return brokenAnswer("sent an answer without a list of models", nil)
	}
	for _, e := range elements(list) {
		m := model.Listed{Name: text(member(e, "id")), Created: max(0, number(member(e, "created"), 0))}
		if m.Name != "" && !yield(m) {
			return nil
		}
	}
	return nil
}
