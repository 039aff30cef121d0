package anthropic

import (
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/item"
)

// The limits of the Messages API on images and documents. It refuses a request
// beyond them, and would refuse every later request of the conversation.
const (
	maxImageData  = 5 << 20 // of base64
	maxSide       = 8000    // pixels of one side
	manyImages    = 20      // with more images in a request, the limit is lower
	maxSideOfMany = 2000
	maxTitle      = 500 // characters of a document's title
	maxImages     = 100 // of a request
	// maxRequestData is the base64 of a request, of which the API takes 32 MB in
	// all.
	maxRequestData = 24 << 20
)

// pixelLimit returns the limit on one side of an image in a request with the items.
func pixelLimit(items []item.Item) int {
	n := 0
	for _, it := range items {
		for _, p := range it.Parts {
			if p.Kind == item.Image || strings.HasPrefix(p.MIMEType, "image/") {
				n++
			}
		}
	}
	if n > manyImages {
		return maxSideOfMany
	}
	return maxSide
}

// firstShown returns the index of the first item whose binary content is sent: as
// many of the latest as a request can hold. What earlier tool results hold is
// shown as text.
func firstShown(items []item.Item) int {
	data, images := 0, 0
	for i := len(items) - 1; i >= 0; i-- {
		for _, p := range items[i].Parts {
			data += len(p.Data)
			if p.Kind == item.Image || strings.HasPrefix(p.MIMEType, "image/") {
				images++
				data += len(p.URL) // which may be a data URL
			}
		}
		if data > maxRequestData || images > maxImages {
			return i + 1
		}
	}
	return 0
}

// result returns the block of a tool result, with or without its binary content.
// In a result that is an error the dialect takes only text.
func (w *writer) result(it *item.Item, shown bool) block {
	b := block{Type: "tool_result", ToolUseID: w.ids.Result(it.CallID), IsError: it.IsError}
	for _, p := range it.Parts { // the result is what can be marked, not its parts
		if mark := w.mark(p.Cache); mark != nil {
			b.CacheControl = mark
		}
	}
	if it.IsError || !shown {
		b.Content = texts(item.PlainText(it.Parts))
		return b
	}
	for _, p := range it.Parts {
		content, taken := w.resultContent(p)
		b.Content = append(b.Content, content...)
		w.Drop(w.req.NameOfPart(it, p.Kind), !taken && it.Native.Dialect != "") // the client's own
	}
	return b
}

// texts returns a text as a block; none for an empty one, which is refused.
func texts(text string) []any {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	return []any{block{Type: "text", Text: text}}
}

// resultContent returns a part of a tool result as blocks: an image, a document, or
// else a text that says what it is. The dialect does not take a part of which the
// text is all that is shown.
func (w *writer) resultContent(p item.Part) (content []any, taken bool) {
	p = wire.Embedded(p)
	switch {
	case p.Kind == item.Text || p.Kind == item.Refusal:
		return texts(p.Text), true
	case p.FileID != "", p.Kind == item.Image && strings.HasPrefix(p.URL, "https://"):
		b, _ := w.blockOf(p)
		return []any{b}, true
	case wire.TakesImage(p, maxImageData, w.maxPixels):
		shown := []any{block{Type: "image", Source: &source{Type: "base64", MediaType: p.MIMEType, Data: p.Data}}}
		if p.Data = ""; p.URL != "" || p.Name != "" { // which the block has no place for
			shown = append(texts(p.Describe()), shown...)
		}
		return shown, true
	case p.MIMEType == "application/pdf" && p.Data != "":
		return document(p, &source{Type: "base64", MediaType: p.MIMEType, Data: p.Data}), true
	case p.Kind == item.Resource && strings.TrimSpace(p.Text) != "":
		return document(p, &source{Type: "text", MediaType: "text/plain", Data: p.Text}), true
	}
	return texts(p.Describe()), false
}

// document returns a document with the name or the URL of the part as its title.
func document(p item.Part, s *source) []any {
	title := p.Name
	if title == "" {
		title = p.URL
	}
	if r := []rune(title); len(r) > maxTitle {
		title = string(r[:maxTitle-1]) + "…"
	}
	return []any{block{Type: "document", Source: s, Title: title}}
}
