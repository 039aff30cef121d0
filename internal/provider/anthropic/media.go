package anthropic

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/item"
)

// imageTypes are the images that the dialect takes.
var imageTypes = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}

const (
	takenImages = "this provider takes PNG, JPEG, GIF and WebP images"
	takenFiles  = "this provider takes PDF files and texts"
)

// source is where the bytes of an image or a document are.
type source struct {
	Type      string `json:"type"` // base64, url, text or file
	MediaType string `json:"media_type,omitempty"`
	Data      string `json:"data,omitempty"`
	URL       string `json:"url,omitempty"`
	FileID    string `json:"file_id,omitempty"`
}

// Part returns an image or a document.
func (w *writer) Part(p item.Part) (b any, problem string) {
	switch {
	case p.FileID != "":
		w.beta(filesBeta)
		return named(p, &source{Type: "file", FileID: p.FileID}), ""
	case strings.HasPrefix(p.URL, "https://") && p.Kind != item.Resource:
		return named(p, &source{Type: "url", URL: p.URL}), ""
	}
	return dataBlock(p)
}

// named returns the block of a part whose bytes are elsewhere. Images have no title.
func named(p item.Part, s *source) block {
	if p.Kind == item.Image {
		return block{Type: "image", Source: s}
	}
	return block{Type: "document", Source: s, Title: p.Name}
}

// dataBlock returns the block of a part that carries its bytes.
func dataBlock(p item.Part) (b block, problem string) {
	kind, data, problem := wire.Inline(p)
	if problem != "" {
		return block{}, problem
	}
	switch {
	case slices.Contains(imageTypes, kind):
		return block{Type: "image", Source: &source{Type: "base64", MediaType: kind, Data: data}}, ""
	case p.Kind == item.Image:
		return block{}, fmt.Sprintf("%s, and this is %.40q", takenImages, kind)
	case kind == "application/pdf":
		return block{Type: "document", Source: &source{Type: "base64", MediaType: kind, Data: data}, Title: p.Name}, ""
	case strings.HasPrefix(kind, "text/") || kind == "application/json":
		text, err := base64.StdEncoding.DecodeString(data)
		if err != nil {
			return block{}, "its base64 is not valid"
		}
		return block{Type: "document", Source: &source{Type: "text", MediaType: "text/plain", Data: strings.ToValidUTF8(string(text), "\uFFFD")}, Title: p.Name}, ""
	}
	return block{}, fmt.Sprintf("%s, and this is %.40q", takenFiles, kind)
}
