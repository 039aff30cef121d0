package openai

import (
	"fmt"
	"slices"

	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/item"
)

// The images of tool results that a request may have, in all. The dialect takes only text in a result, so they are in a
// message of the user after the results of a turn.
const (
	maxImageData = 20 << 20 // bytes of base64
	maxImages    = 50
	maxSide      = 16_384 // pixels
)

// resultImages are the images of the results since the latest message of another kind.
type resultImages struct {
	first int // index of the first item whose images are sent
	parts []item.Part
}

func newResultImages(items []item.Item) *resultImages {
	return &resultImages{first: wire.BinaryLimits{Data: maxImageData, Images: maxImages}.FirstShown(items)}
}

// take keeps the images of a result, the item with that index, and returns the result with a text in place of each. A result that
// the client wrote, and one that is an error, keep theirs: the model reads what they are.
func (r *resultImages) take(i *item.Item, at int) *item.Item {
	if i.IsError || i.Native.Dialect != "" || at < r.first || !slices.ContainsFunc(i.Parts, isImage) {
		return i
	}
	out := *i
	out.Parts = slices.Clone(i.Parts)
	heading := fmt.Sprintf("Images in the result of the tool %s, which the user has not sent:", i.Name)
	r.parts = append(r.parts, item.Part{Kind: item.Text, Text: heading})
	for j, p := range out.Parts {
		if isImage(p) {
			out.Parts[j] = item.Part{Kind: item.Image, MIMEType: p.MIMEType, Description: "in the message after the results"}
			r.parts = append(r.parts, item.Part{Kind: item.Image, MIMEType: p.MIMEType, Data: p.Data})
		}
	}
	return &out
}

// appendTo appends the message with the images, if there are any.
func (r *resultImages) appendTo(dst []byte) []byte {
	if len(r.parts) == 0 {
		return dst
	}
	dst = append(dst, `,{"role":"user","content":[`...)
	for i, p := range r.parts {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendPart(dst, p)
	}
	r.parts = nil
	return append(dst, `]}`...)
}

func isImage(p item.Part) bool {
	return (p.Kind == item.Image || p.Kind == item.Resource) && wire.TakesImage(p, maxImageData, maxSide)
}
