package bedrock

import (
	"cmp"
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

// ResultPart returns an image or a document.
func (w *writer) ResultPart(p item.Part) (b block, titled, ok bool) {
	format := documentFormat(p.MIMEType, p.Name)
	switch {
	case wire.TakesImage(p, maxImageData, maxSide):
		return block{Image: mediaOf("", imageFormat(p.MIMEType), p.Data)}, false, true
	case p.Kind != item.Image && p.Kind != item.Audio && p.Data != "" && len(p.Data) <= maxDocumentData && format != "":
		return block{Document: mediaOf(w.documentName(title(p)), format, p.Data)}, true, true
	case p.Kind == item.Resource && strings.TrimSpace(p.Text) != "":
		return w.textDocument(title(p), p.Text), true, true
	}
	return block{}, false, false
}

// title returns the name of a part, or its URL.
func title(p item.Part) string { return cmp.Or(p.Name, p.URL) }
