package bedrock

import (
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/item"
)

// The limits of Converse on images and documents. It refuses a request beyond them, and
// would refuse every later request of the conversation:
// https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Message.html.
const (
	maxImageData    = 5 << 20 // of base64: 3.75 MB
	maxDocumentData = 6 << 20 // of base64: 4.5 MB
	maxSide         = 8000    // pixels of one side of an image
	maxImages       = 20      // of a request
	maxDocuments    = 5       // of a request
	maxRequestData  = 18 << 20
)

// firstShown returns the index of the first item whose binary content is sent: as many of
// the latest as a request can hold. What earlier tool results hold is shown as text.
func firstShown(items []item.Item) int {
	data, images, documents := 0, 0, 0
	for i := len(items) - 1; i >= 0; i-- {
		for _, p := range items[i].Parts {
			data += len(p.Data)
			switch {
			case p.Kind == item.Image || strings.HasPrefix(p.MIMEType, "image/"):
				images++
				data += len(p.URL) // which may be a data URL
			case (p.Kind == item.File || p.Kind == item.Resource) && p.Data+p.Text != "":
				documents++
			}
		}
		if data > maxRequestData || images > maxImages || documents > maxDocuments {
			return i + 1
		}
	}
	return 0
}

// result returns the block of a tool result, with or without its binary content, and the
// cache point after it. In a result that is an error Claude takes only text.
func (w *writer) result(it *item.Item, shown bool) []block {
	r := &toolResult{ID: w.ids.Result(it.CallID)}
	if it.IsError && w.traits.status {
		r.Status = "error"
	}
	var mark *block
	for _, p := range it.Parts { // the result is what can be marked, not its parts
		if m := w.mark(p.Cache); m != nil {
			mark = m
		}
	}
	if it.IsError || !shown {
		r.Content = texts(item.PlainText(it.Parts))
	} else {
		for _, p := range it.Parts {
			content, taken := w.resultContent(p)
			r.Content = append(r.Content, content...)
			w.Drop(w.req.NameOfPart(it, p.Kind), !taken && it.Native.Dialect != "") // the client's own
		}
	}
	if len(r.Content) == 0 {
		r.Content = texts(empty)
	}
	return marked(nil, block{ToolResult: r}, mark)
}

// texts returns a text as a block; none for an empty one, which is refused.
func texts(text string) []block {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	return []block{{Text: text}}
}

// resultContent returns a part of a tool result as blocks: an image, a document, or else a
// text that says what it is. The dialect does not take a part of which the text is all
// that is shown.
func (w *writer) resultContent(p item.Part) (content []block, taken bool) {
	p = wire.Embedded(p)
	switch {
	case p.Kind == item.Text || p.Kind == item.Refusal:
		return texts(p.Text), true
	case wire.TakesImage(p, maxImageData, maxSide):
		shown := []block{{Image: mediaOf("", imageFormat(p.MIMEType), p.Data)}}
		if p.Data = ""; p.URL != "" || p.Name != "" { // which the block has no place for
			shown = append(texts(p.Describe()), shown...)
		}
		return shown, true
	case p.Kind != item.Image && p.Kind != item.Audio && p.Data != "" && len(p.Data) <= maxDocumentData && documentFormat(p.MIMEType, p.Name) != "":
		return []block{{Document: mediaOf(w.documentName(title(p)), documentFormat(p.MIMEType, p.Name), p.Data)}}, true
	case p.Kind == item.Resource && strings.TrimSpace(p.Text) != "":
		return []block{w.textDocument(title(p), p.Text)}, true
	}
	return texts(p.Describe()), false
}

// title returns the name of a part, or its URL.
func title(p item.Part) string {
	if p.Name == "" {
		return p.URL
	}
	return p.Name
}
