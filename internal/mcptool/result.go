package mcptool

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"mime"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/tool"
)

// maxParts is the maximum number of content blocks of a result.
const maxParts = 1000

// wireResult is the result of tools/call.
type wireResult struct {
	Content    json.RawMessage `json:"content"`
	Structured json.RawMessage `json:"structuredContent"`
	IsError    json.RawMessage `json:"isError"`
	Type       json.RawMessage `json:"resultType"`
}

// wireContent is one content block of any type.
type wireContent struct {
	Type        string       `json:"type"`
	Text        string       `json:"text"`
	Data        string       `json:"data"`
	MIMEType    string       `json:"mimeType"`
	URI         string       `json:"uri"`
	Name        string       `json:"name"`
	Title       string       `json:"title"`
	Description string       `json:"description"`
	Resource    wireResource `json:"resource"`
}

type wireResource struct {
	URI      string `json:"uri"`
	MIMEType string `json:"mimeType"`
	Text     string `json:"text"`
	Blob     string `json:"blob"`
}

// decodeResult decodes the result of a call. Content that cannot be decoded becomes a text that
// says so. Links in the result are not fetched, and binary content is not checked here.
func decodeResult(name, server string, raw json.RawMessage) tool.Result {
	var w wireResult
	if err := json.Unmarshal(raw, &w); err != nil {
		return tool.Error(fmt.Sprintf("tool %q of server %q sent a result that is not an object", name, server))
	}
	if read[string](w.Type) == "input_required" {
		return tool.Error(fmt.Sprintf("tool %q of server %q asks for input that cannot be given here", name, server))
	}
	r := tool.Result{Parts: decodeContent(w.Content), IsError: read[bool](w.IsError)}
	if present(w.Structured) {
		r.Structured = w.Structured
	}
	if r.IsError && len(r.Parts) == 0 && r.Structured == nil {
		r.Parts = []item.Part{text(fmt.Sprintf("tool %q of server %q failed without an error message", name, server))}
	}
	return r
}

// decodeContent decodes the content blocks: a list, or a single block.
func decodeContent(raw json.RawMessage) []item.Part {
	pieces, more := elements(raw, maxParts)
	if pieces == nil && present(raw) && raw[0] != '[' {
		pieces = []json.RawMessage{raw}
	}
	parts := make([]item.Part, 0, len(pieces)+1)
	for _, piece := range pieces {
		parts = append(parts, decodePiece(piece))
	}
	if more > 0 {
		parts = append(parts, text(fmt.Sprintf("[%d more pieces of content left out]", more)))
	}
	return parts
}

// elements returns at most the first most elements of a JSON array, and the number of the
// others. It returns none if array is not an array.
func elements(array json.RawMessage, most int) (first []json.RawMessage, more int) {
	d := jsontext.NewDecoder(bytes.NewReader(array), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if start, err := d.ReadToken(); err != nil || start.Kind() != '[' {
		return nil, 0
	}
	for d.PeekKind() != ']' {
		if len(first) == most {
			if d.SkipValue() != nil {
				return first, more
			}
			more++
			continue
		}
		v, err := d.ReadValue()
		if err != nil {
			return first, more
		}
		first = append(first, json.RawMessage(bytes.Clone(v)))
	}
	return first, more
}

func decodePiece(raw json.RawMessage) item.Part {
	var w wireContent
	if err := json.Unmarshal(raw, &w); err != nil {
		return text("[unreadable content left out]")
	}
	switch w.Type {
	case "text":
		return text(w.Text)
	case "image":
		return item.Part{Kind: item.Image, Data: w.Data, MIMEType: w.MIMEType}
	case "audio":
		return item.Part{Kind: item.Audio, Data: w.Data, MIMEType: w.MIMEType}
	case "resource_link":
		return item.Part{Kind: item.Resource, URL: w.URI, MIMEType: w.MIMEType, Name: w.Name, Title: w.Title, Description: w.Description}
	case "resource":
		r := w.Resource
		if inBlob, ok := textIn(r); ok {
			return item.Part{Kind: item.Resource, URL: r.URI, MIMEType: r.MIMEType, Text: inBlob}
		}
		return item.Part{Kind: item.Resource, URL: r.URI, MIMEType: r.MIMEType, Text: r.Text, Data: r.Blob}
	}
	return text(fmt.Sprintf("[content of unknown type %.40q left out]", w.Type))
}

// textIn returns the text that a resource of a text type has as its blob; false if it is not text in UTF-8.
func textIn(r wireResource) (string, bool) {
	kind, _, _ := mime.ParseMediaType(r.MIMEType)
	textual := strings.HasPrefix(kind, "text/") || strings.HasSuffix(kind, "json") || strings.HasSuffix(kind, "xml") ||
		strings.HasSuffix(kind, "yaml") || kind == "application/javascript"
	if !textual || r.Text != "" || r.Blob == "" {
		return "", false
	}
	data, err := base64.StdEncoding.DecodeString(r.Blob)
	if err != nil || !utf8.Valid(data) || bytes.IndexByte(data, 0) >= 0 {
		return "", false
	}
	return strings.TrimPrefix(string(data), "\ufeff"), true
}

func text(s string) item.Part { return item.Part{Kind: item.Text, Text: s} }
