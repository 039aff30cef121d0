package gemini

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"mime"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/item"
)

// imageTypes are the images that the dialect takes:
// https://ai.google.dev/gemini-api/docs/image-understanding.
var imageTypes = []string{"image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"}

// resultTypes are what the dialect takes in the result of a call:
// https://ai.google.dev/gemini-api/docs/function-calling.
var resultTypes = []string{"image/png", "image/jpeg", "image/webp", "application/pdf"}

const (
	takenImages = "this provider takes PNG, JPEG, WebP, HEIC and HEIF images"
	takenFiles  = "this provider takes PDF files, texts, audio and video"
)

type blob struct {
	MimeType string `json:"mimeType"`
	Data     string `json:"data"`
}

type fileData struct {
	MimeType string `json:"mimeType,omitempty"`
	FileURI  string `json:"fileUri"`
}

// partOf returns a part of a message, or what keeps the dialect from taking it. The
// part is nil for an empty text, which the dialect refuses.
func (t *translation) partOf(p item.Part) (part *contentPart, problem string) {
	switch {
	case p.Text != "" || p.Kind == item.Text || p.Kind == item.Refusal: // also of a resource or a file
		if p.Text == "" {
			return nil, ""
		}
		return &contentPart{Text: p.Text}, ""
	case strings.HasPrefix(p.FileID, "files/"):
		return &contentPart{FileData: &fileData{p.MIMEType, t.fileURI(p.FileID)}}, ""
	case p.FileID != "":
		return nil, `a file id must be one of the provider's own, such as "files/abc"`
	case p.Kind == item.Resource && p.Data == "":
		return &contentPart{Text: p.Describe()}, ""
	case strings.HasPrefix(p.URL, "https://") && p.Data == "":
		return &contentPart{FileData: &fileData{typeOfURL(p), p.URL}}, ""
	}
	return dataPart(p)
}

// typeOfURL returns the media type of what a URL names, as far as its name tells; "" = it
// does not.
func typeOfURL(p item.Part) string {
	if p.MIMEType != "" {
		return p.MIMEType
	}
	u, err := url.Parse(p.URL)
	if err != nil {
		return ""
	}
	for _, known := range []struct{ extension, kind string }{
		{".png", "image/png"}, {".jpg", "image/jpeg"}, {".jpeg", "image/jpeg"}, {".webp", "image/webp"}, {".heic", "image/heic"}, {".pdf", "application/pdf"}, {".mp4", "video/mp4"},
	} {
		if strings.EqualFold(path.Ext(u.Path), known.extension) {
			return known.kind
		}
	}
	return ""
}

// dataPart returns the part of one that carries its bytes.
func dataPart(p item.Part) (part *contentPart, problem string) {
	kind, data, problem := wire.Inline(p)
	if problem != "" {
		return nil, problem
	}
	switch {
	case slices.Contains(imageTypes, kind):
	case p.Kind == item.Image, strings.HasPrefix(kind, "image/"):
		return nil, fmt.Sprintf("%s, and this is %.40q", takenImages, kind)
	case kind == "application/json":
		kind = "text/plain"
	case kind == "application/pdf", strings.HasPrefix(kind, "text/"), strings.HasPrefix(kind, "audio/"), strings.HasPrefix(kind, "video/"):
	default:
		return nil, fmt.Sprintf("%s, and this is %.40q", takenFiles, kind)
	}
	return &contentPart{InlineData: &blob{kind, data}}, ""
}

// resultMedia returns the part of a tool result that the dialect takes as it is; nil =
// it is sent as text.
func (t *translation) resultMedia(p item.Part) *contentPart {
	p = wire.Embedded(p)
	if p.Text != "" || p.Data == "" || !slices.Contains(resultTypes, p.MIMEType) {
		return nil
	}
	return &contentPart{InlineData: &blob{p.MIMEType, p.Data}}
}

// mediaOf returns what the model made as a part of the transcript.
func mediaOf(inline, file json.RawMessage) item.Part {
	var b blob
	var f fileData
	_ = json.Unmarshal(inline, &b)
	_ = json.Unmarshal(file, &f)
	p := item.Part{Kind: item.File, MIMEType: b.MimeType + f.MimeType, Data: b.Data, URL: f.FileURI}
	kind, _, _ := mime.ParseMediaType(p.MIMEType)
	switch {
	case strings.HasPrefix(kind, "image/"):
		p.Kind = item.Image
	case strings.HasPrefix(kind, "audio/"):
		p.Kind = item.Audio
	}
	return p
}

// markdownImage returns an image as a client can show it. OpenAI's APIs have no other
// place for an image that a model made.
func markdownImage(p item.Part) string {
	return "![image](data:" + p.MIMEType + ";base64," + p.Data + ")"
}

// image finds images that markdownImage wrote, with the lines between them and texts.
var image = regexp.MustCompile(`(?:\n\n)?!\[image\]\(data:(image/[a-z]+);base64,([A-Za-z0-9+/]+={0,2})\)`)

// splitImages returns a text that a client sends back as an answer of the model: the
// images in it become images again.
func splitImages(text string) []any {
	var parts []any
	add := func(text string) {
		if text != "" {
			parts = append(parts, &contentPart{Text: text})
		}
	}
	for {
		at := image.FindStringSubmatchIndex(text)
		if at == nil {
			break
		}
		kind, data := text[at[2]:at[3]], text[at[4]:at[5]]
		if _, err := base64.StdEncoding.DecodeString(data); err != nil || !slices.Contains(imageTypes, kind) {
			add(text[:at[1]])
		} else {
			add(text[:at[0]])
			parts = append(parts, &contentPart{InlineData: &blob{kind, data}})
		}
		text = text[at[1]:]
	}
	add(text)
	return parts
}
