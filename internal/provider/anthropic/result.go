package anthropic

import (
	"cmp"
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

// ResultPart returns an image or a document.
func (w *writer) ResultPart(p item.Part) (b any, titled, ok bool) {
	switch {
	case p.FileID != "" && p.Kind != item.Audio, p.Kind == item.Image && strings.HasPrefix(p.URL, "https://"):
		b, _ = w.Part(p)
		return b, true, true
	case wire.TakesImage(p, maxImageData, w.maxPixels):
		return block{Type: "image", Source: &source{Type: "base64", MediaType: p.MIMEType, Data: p.Data}}, false, true
	case p.MIMEType == "application/pdf" && p.Data != "":
		return document(p, &source{Type: "base64", MediaType: p.MIMEType, Data: p.Data}), true, true
	case p.Kind == item.Resource && strings.TrimSpace(p.Text) != "":
		return document(p, &source{Type: "text", MediaType: "text/plain", Data: p.Text}), true, true
	}
	return nil, false, false
}

// document returns a document with the name or the URL of the part as its title.
func document(p item.Part, s *source) block {
	title := cmp.Or(p.Name, p.URL)
	if r := []rune(title); len(r) > maxTitle {
		title = string(r[:maxTitle-1]) + "…"
	}
	return block{Type: "document", Source: s, Title: title}
}
