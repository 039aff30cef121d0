package mcptool

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/tool"
)

// maxParts is how many pieces of content one result may have.
const maxParts = 1000

// wireResult is the result of tools/call.
type wireResult struct {
	Content    json.RawMessage `json:"content"`
	Structured json.RawMessage `json:"structuredContent"`
	IsError    json.RawMessage `json:"isError"`
	Type       json.RawMessage `json:"resultType"`
}

// wireContent is one piece of content, of any type.
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
	URI      string  `json:"uri"`
	MIMEType string  `json:"mimeType"`
	Text     *string `json:"text"`
	Blob     string  `json:"blob"`
}

// decodeResult reads the result of a call. What cannot be read becomes a text
// that says so; nothing that the result points to is fetched.
func decodeResult(name, server string, raw json.RawMessage) tool.Result {
	var w wireResult
	if err := json.Unmarshal(raw, &w); err != nil {
		return tool.Error(fmt.Sprintf("tool %q of server %q sent a result that is not an object", name, server))
	}
	if read[string](w.Type) == "input_required" {
		return tool.Error(fmt.Sprintf("tool %q of server %q asks for input that cannot be given here", name, server))
	}
	r := tool.Result{Parts: decodeContent(w.Content), IsError: read[bool](w.IsError)}
	if present(w.Structured) && !hasText(r.Parts) {
		r.Parts = append(r.Parts, text(string(w.Structured)))
	}
	if r.IsError && len(r.Parts) == 0 {
		r.Parts = []item.Part{text(fmt.Sprintf("tool %q of server %q failed without an error message", name, server))}
	}
	return r
}

// decodeContent reads the pieces of content; a single one may stand without its
// list.
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

// elements returns the first elements of a JSON array, at most so many, and how
// many more there are; none of anything else.
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
		return media(item.Image, w)
	case "audio":
		return media(item.Audio, w)
	case "resource_link":
		return text(describeLink(w))
	case "resource":
		return text(describeResource(w.Resource))
	}
	return text(fmt.Sprintf("[content of unknown type %.40q left out]", w.Type))
}

// media returns an image or a sound, whose bytes must be base64: a provider
// refuses the whole conversation otherwise.
func media(kind item.PartKind, w wireContent) item.Part {
	n, err := base64.StdEncoding.DecodeString(w.Data)
	if err != nil || len(n) == 0 {
		return text(fmt.Sprintf("[%s with unreadable data left out]", kind))
	}
	return item.Part{Kind: kind, Data: w.Data, MIMEType: w.MIMEType}
}

func describeLink(w wireContent) string {
	var b strings.Builder
	fmt.Fprintf(&b, "[resource %s", w.URI)
	for _, field := range []struct{ name, value string }{
		{"name", w.Name}, {"title", w.Title}, {"type", w.MIMEType}, {"description", w.Description},
	} {
		if field.value != "" {
			fmt.Fprintf(&b, "; %s: %s", field.name, field.value)
		}
	}
	return b.String() + "]"
}

func describeResource(r wireResource) string {
	if r.Text != nil {
		return fmt.Sprintf("[resource %s]\n%s", r.URI, *r.Text)
	}
	return fmt.Sprintf("[resource %s; type: %s; %d bytes, not shown]", r.URI, r.MIMEType, base64.StdEncoding.DecodedLen(len(r.Blob)))
}

func text(s string) item.Part { return item.Part{Kind: item.Text, Text: s} }

func hasText(parts []item.Part) bool {
	for _, p := range parts {
		if p.Kind == item.Text {
			return true
		}
	}
	return false
}
