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
		m := model.Listed{
			Name: jsonscan.Text(jsonscan.Member(e, "id")), Created: max(0, jsonscan.Number(jsonscan.Member(e, "created"), 0)),
			ContextWindow: ContextWindow(e), Tools: takesTools(e),
		}
		if m.Name != "" && !yield(m) {
			return nil
		}
	}
	return nil
}

// maxContextWindow is the largest context window that is believed, in tokens.
const maxContextWindow = 1 << 40

// ContextWindow returns the context window of an element of a list of models, in tokens; 0 = it does
// not say. OpenAI's own list does not; these are the members of others: OpenRouter and Together, vLLM,
// Groq, Mistral, Anthropic, Gemini.
func ContextWindow(e []byte) int64 {
	for _, name := range []string{"context_length", "max_model_len", "context_window", "max_context_length", "max_input_tokens", "inputTokenLimit"} {
		if n := jsonscan.Number(jsonscan.Member(e, name), 0); n > 0 && n <= maxContextWindow {
			return n
		}
	}
	return 0
}

// takesTools returns whether a model of a list takes tools; nil = the list does not say. OpenRouter
// lists the parameters of requests, Mistral has a member for it.
func takesTools(e []byte) *bool {
	if list := jsonscan.Member(e, "supported_parameters"); jsonscan.IsKind(list, '[') {
		takes := false
		for _, p := range jsonscan.Elements(list) {
			takes = takes || jsonscan.Text(p) == "tools"
		}
		return &takes
	}
	switch calls := jsonscan.Member(jsonscan.Member(e, "capabilities"), "function_calling"); {
	case jsonscan.IsKind(calls, 't'):
		return new(true)
	case jsonscan.IsKind(calls, 'f'):
		return new(false)
	}
	return nil
}
