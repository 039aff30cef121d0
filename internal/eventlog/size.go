package eventlog

import (
	"strings"

	"github.com/turnpike-gateway/turnpike/item"
)

// HeldBytes returns the memory that the items occupy, in bytes.
func HeldBytes(items []item.Item) int {
	return sizeOf(items, func(it item.Item) int {
		n := len(it.Structured) + DataBytes(it.Parts)
		for _, p := range it.Parts {
			n += len(p.Text)
		}
		return n
	})
}

// TextBytes returns the size of the items in a prompt, in bytes of text.
func TextBytes(items []item.Item) int64 {
	return int64(sizeOf(items, func(it item.Item) int { return PromptBytes(it.Parts) }))
}

// sizeOf returns the size of names, arguments and content. Of each turn it counts the larger
// of its native and its plain form, because the provider gets one of them.
func sizeOf(items []item.Item, content func(item.Item) int) int {
	total := 0
	for turn := range item.Turns(items) {
		native, plain := 0, 0
		for _, it := range turn {
			native += len(it.Native.JSON)
			plain += len(it.Name) + len(it.Arguments) + content(it)
		}
		total += max(native, plain)
	}
	return total
}

// maxImageBytes is the maximum size of an image in a prompt. Providers scale large images
// down, so that an image has a few thousand tokens at most.
const maxImageBytes = 16 << 10

// PromptBytes returns the size of the parts in a prompt, in bytes of text. Binary content
// other than images counts in full, because its tokens are not bounded.
func PromptBytes(parts []item.Part) int {
	n := 0
	for _, p := range parts {
		switch {
		case p.Data == "":
			n += len(p.Text)
		case strings.HasPrefix(p.MIMEType, "image/"):
			n += min(len(p.Data), maxImageBytes)
		default:
			n += len(p.Data)
		}
		if p.Kind == item.Resource {
			n += len(p.URL) + len(p.Name) + len(p.Title) + len(p.MIMEType) + len(p.Description)
		}
	}
	return n
}

// DataBytes returns the size of the base64 data in the parts.
func DataBytes(parts []item.Part) int {
	n := 0
	for _, p := range parts {
		n += len(p.Data)
	}
	return n
}
