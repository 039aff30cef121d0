package bedrock

import (
	"encoding/base64"
	"fmt"
	"path"
	"regexp"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/item"
)

// media is an image or a document. Only documents have names.
type media struct {
	Name   string `json:"name,omitempty"`
	Format string `json:"format"`
	Source struct {
		Bytes string `json:"bytes"` // base64
	} `json:"source"`
}

const (
	takenImages = "this provider takes PNG, JPEG, GIF and WebP images"
	takenFiles  = "this provider takes PDF, CSV, Word, Excel, HTML, Markdown and text files"
)

// imageFormat returns the dialect's name of an image type, "" for one that it does not
// take.
func imageFormat(kind string) string {
	switch kind {
	case "image/png", "image/jpeg", "image/gif", "image/webp":
		return strings.TrimPrefix(kind, "image/")
	}
	return ""
}

// documentFormat returns the dialect's name of a file type, "" for one that it does not
// take. Some types are only known by the name of the file.
func documentFormat(kind, name string) string {
	extension := strings.ToLower(strings.TrimPrefix(path.Ext(name), "."))
	switch kind {
	case "application/pdf":
		return "pdf"
	case "text/csv":
		return "csv"
	case "text/html":
		return "html"
	case "text/markdown":
		return "md"
	case "application/msword":
		return "doc"
	case "application/vnd.openxmlformats-officedocument.wordprocessingml.document":
		return "docx"
	case "application/vnd.ms-excel":
		return "xls"
	case "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet":
		return "xlsx"
	case "application/zip": // found out from the first bytes
		if extension == "docx" || extension == "xlsx" {
			return extension
		}
		return ""
	case "application/json":
		return "txt"
	}
	if !strings.HasPrefix(kind, "text/") {
		return ""
	}
	if extension == "md" || extension == "csv" || extension == "html" {
		return extension
	}
	return "txt"
}

// Part returns an image or a document.
func (w *writer) Part(p item.Part) (b block, problem string) {
	if p.FileID != "" {
		return block{}, "this provider stores no files: send the bytes of the file"
	}
	kind, data, problem := wire.Inline(p)
	if problem != "" {
		return block{}, problem
	}
	if format := imageFormat(kind); format != "" {
		return block{Image: mediaOf("", format, data)}, ""
	}
	if p.Kind == item.Image {
		return block{}, fmt.Sprintf("%s, and this is %.40q", takenImages, kind)
	}
	format := documentFormat(kind, p.Name)
	if format == "" {
		return block{}, fmt.Sprintf("%s, and this is %.40q", takenFiles, kind)
	}
	return block{Document: mediaOf(w.documentName(p.Name), format, data)}, ""
}

func mediaOf(name, format, data string) *media {
	m := &media{Name: name, Format: format}
	m.Source.Bytes = data
	return m
}

// textDocument returns a text as a document.
func (w *writer) textDocument(name, text string) block {
	return block{Document: mediaOf(w.documentName(name), "txt", base64.StdEncoding.EncodeToString([]byte(text)))}
}

// The limits of the dialect on the name of a document.
const maxDocumentName = 200

var (
	notInName  = regexp.MustCompile(`[^a-zA-Z0-9\s()\[\]-]+`)
	manySpaces = regexp.MustCompile(`\s+`)
)

// documentName returns a name that the dialect takes: of letters, digits, single spaces,
// hyphens and brackets, and each only once in a request.
func (w *writer) documentName(name string) string {
	name = strings.TrimSuffix(name, path.Ext(name)) // the format says it
	name = manySpaces.ReplaceAllString(notInName.ReplaceAllString(name, " "), " ")
	if name = strings.TrimSpace(name); name == "" {
		name = "document"
	}
	name = strings.TrimSpace(name[:min(len(name), maxDocumentName-8)])
	for n, wanted := 2, name; w.names[name]; n++ {
		name = fmt.Sprintf("%s (%d)", wanted, n)
	}
	w.names[name] = true
	return name
}
