package wire

import (
	"context"
	"fmt"
	"net/url"
	"time"

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

// ModelPages is how a dialect lists its models at GET {base}/models, page by page.
type ModelPages struct {
	// Size and Cursor are parameters of the request: how many models a page has, and where it begins.
	Size, Cursor string
	Member       string // of a page: has the models
	// Next returns the cursor of the next page; "" = the page is the last.
	Next func(page []byte) string
	// Model reads an element of a page. One without a name is left out.
	Model func(e []byte) model.Listed
}

// maxPageSize is how many models a page has: the maximum of all dialects with pages.
const maxPageSize = "1000"

// List implements [model.Lister]. A list of more than 20 pages is an error. The caller sets the deadline.
func (l ModelPages) List(ctx context.Context, c *Client, memory tool.Memory, yield func(model.Listed) bool) error {
	query := url.Values{l.Size: {maxPageSize}}
	for range maxModelPages {
		next := ""
		err := c.Get(ctx, "/models?"+query.Encode(), maxModelPage, memory, func(page []byte) (err error) {
			next, err = l.read(page, yield)
			return err
		})
		switch {
		case err != nil || next == "":
			return err
		case next == query.Get(l.Cursor):
			return Broken("repeats a page of its list of models", nil)
		}
		query.Set(l.Cursor, next)
	}
	return Broken(fmt.Sprintf("lists its models on more than %d pages", maxModelPages), nil)
}

// read reads a page, and returns the cursor of the next one, "" if yield wants no more.
func (l ModelPages) read(page []byte, yield func(model.Listed) bool) (next string, err error) {
	if jsonscan.IsKind(page, '{') && SaysError(jsonscan.Member(page, "error")) {
		return "", AnswerError(page)
	}
	list, next := jsonscan.Member(page, l.Member), l.Next(page)
	if !jsonscan.IsKind(list, '[') && next == "" {
		return "", Broken("sent an answer without a list of models", nil)
	}
	for _, e := range jsonscan.Elements(list) {
		if m := l.Model(e); m.Name != "" && !yield(m) {
			return "", nil
		}
	}
	return next, nil
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
			Name: jsonscan.Text(jsonscan.Member(e, "id")), Created: Created(jsonscan.Number(jsonscan.Member(e, "created"), 0)),
			ContextWindow: ContextWindow(e), Tools: takesTools(e),
		}
		if m.Name != "" && !yield(m) {
			return nil
		}
	}
	return nil
}

// Created returns the time of a model in a list, in seconds since 1970. One that is not after 1970 is not known: the zero time.
func Created(seconds int64) time.Time {
	if seconds <= 0 {
		return time.Time{}
	}
	return time.Unix(seconds, 0).UTC()
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
