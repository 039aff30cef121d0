package gemini

import (
	"context"
	"net/url"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

// pageSize is how many models one page has, the dialect's maximum.
const pageSize = "1000"

// List implements model.Lister with GET {base}/models, page by page. It leaves out
// models that do not generate content, such as those for embeddings. The caller sets
// the deadline. A list of more than 20 pages is an error.
func (p *Provider) List(ctx context.Context, memory tool.Memory, yield func(model.Listed) bool) error {
	path := func(cursor string) string {
		query := url.Values{"pageSize": {pageSize}}
		if cursor != "" {
			query.Set("pageToken", cursor)
		}
		return "/models?" + query.Encode()
	}
	return p.client.ModelPages(ctx, memory, path, func(page []byte) (string, error) { return readPage(page, yield) })
}

// readPage reads {"models":[{"name":"models/…","supportedGenerationMethods":[…]}],
// "nextPageToken":"…"} and returns the token of the next page, "" if there is none or
// yield wants no more. Elements without a name are left out.
func readPage(data []byte, yield func(model.Listed) bool) (next string, err error) {
	if jsonscan.IsKind(data, '{') && wire.SaysError(jsonscan.Member(data, "error")) {
		return "", wire.AnswerError(data)
	}
	next = jsonscan.Text(jsonscan.Member(data, "nextPageToken"))
	list := jsonscan.Member(data, "models")
	if !jsonscan.IsKind(list, '[') && next == "" {
		return "", wire.Broken("sent an answer without a list of models", nil)
	}
	for _, e := range jsonscan.Elements(list) {
		name := strings.TrimPrefix(jsonscan.Text(jsonscan.Member(e, "name")), "models/")
		if name != "" && generates(e) && !yield(model.Listed{Name: name, ContextWindow: wire.ContextWindow(e)}) {
			return "", nil
		}
	}
	return next, nil
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
