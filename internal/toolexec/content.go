package toolexec

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"image/gif"
	"image/jpeg"
	"image/png"
	"io"
	"mime"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/internal/visible"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/tool"
)

// The limits on the binary content of a result. Every later model call of the run
// sends it again. A part beyond a limit is replaced by a text that says so.
const (
	// maxPartData is the base64 of one part. It is what Anthropic accepts for an
	// image.
	maxPartData = 5 << 20
	// maxResultData is the base64 of all parts.
	maxResultData = 10 << 20
	maxDataParts  = 20
	// maxLabel is the length of a name or URL of a part with binary content, in bytes.
	// Longer ones are left out.
	maxLabel = 512
)

// content is a result that providers accept, in the order of the tool.
type content struct {
	parts      []item.Part
	structured json.RawMessage
	hidden     int // characters that were taken out
	data       int // bytes of base64
	dataParts  int
}

// newContent returns the content of a result for the model. Adjacent texts become
// one, a line each. Structured content that is the only content is added as text.
func newContent(r tool.Result, limit Cap) *content {
	c := &content{}
	for _, p := range r.Parts {
		c.add(c.part(p))
	}
	structured, hidden := value(r.Structured)
	if len(r.Structured) > 0 && !c.readable() {
		c.add(item.Part{Kind: item.Text, Text: c.text(string(r.Structured))})
	} else {
		c.hidden += hidden
	}
	if limit.Bytes <= 0 || len(structured) <= limit.Bytes {
		c.structured = structured // otherwise the text stands for it
	}
	return c
}

func (c *content) add(p item.Part) {
	if n := len(c.parts); n > 0 && p.Kind == item.Text && c.parts[n-1].Kind == item.Text {
		c.parts[n-1].Text += "\n" + p.Text
		return
	}
	c.parts = append(c.parts, p)
}

// readable reports whether there is text that the tool wrote for the model.
func (c *content) readable() bool {
	for _, p := range c.parts {
		if p.Kind == item.Text || p.Text != "" {
			return true
		}
	}
	return false
}

// text returns s as valid UTF-8 without hidden characters.
func (c *content) text(s string) string {
	clean, hidden := visible.Text(strings.ToValidUTF8(s, "\uFFFD"))
	c.hidden += hidden
	return clean
}

// value returns structured content without hidden characters, and how many it had;
// nil if it is not JSON, or too complex to be decoded wherever it is stored.
func value(raw json.RawMessage) (clean json.RawMessage, hidden int) {
	if len(raw) == 0 || !utf8.Valid(raw) || !json.Valid(raw) || jsonscan.Check(raw) != nil {
		return nil, 0
	}
	clean, hidden, err := visible.JSON(raw)
	if err != nil {
		return nil, 0
	}
	return clean, hidden
}

// part returns the part as it is given to the model.
func (c *content) part(p item.Part) item.Part {
	if p.Kind == item.Text || p.Kind == item.Refusal {
		return item.Part{Kind: item.Text, Text: c.text(p.Text)}
	}
	if kind, data, ok := item.DataURL(p.URL); ok && p.Data == "" {
		p.URL, p.MIMEType, p.Data = "", kind, data
	}
	for _, s := range []*string{&p.Text, &p.URL, &p.Name, &p.Title, &p.Description} {
		*s = c.text(*s)
	}
	p.MIMEType = mimeType(p.MIMEType)
	if p.Data == "" && (p.URL != "" || p.Text != "" || p.FileID != "") {
		return p
	}
	for _, s := range []*string{&p.URL, &p.Name} {
		if len(*s) > maxLabel {
			*s = ""
		}
	}
	if err := c.admit(&p); err != nil {
		return leftOut(p, err.Error())
	}
	return p
}

// leftOut returns the text that replaces a binary part.
func leftOut(p item.Part, reason string) item.Part {
	p.Data, p.Text = "", ""
	return item.Part{Kind: item.Text, Text: strings.TrimSuffix(p.Describe(), "]") + "; left out: " + reason + "]"}
}

// admit checks the binary content of a part and sets its MIME type to what the
// bytes are. A provider that gets anything else refuses this request and every
// later one of the conversation.
func (c *content) admit(p *item.Part) error {
	switch {
	case p.Data == "":
		return fmt.Errorf("it has no data")
	case len(p.Data) > maxPartData:
		return fmt.Errorf("%d bytes of base64 are more than the limit of %d", len(p.Data), maxPartData)
	case c.data+len(p.Data) > maxResultData:
		return fmt.Errorf("the result has more than %d bytes of base64", maxResultData)
	case c.dataParts == maxDataParts:
		return fmt.Errorf("the result has more than %d binary parts", maxDataParts)
	}
	if strings.ContainsAny(p.Data, "\r\n") { // as MIME writes base64
		p.Data = strings.NewReplacer("\r", "", "\n", "").Replace(p.Data)
	}
	data, err := base64.StdEncoding.Strict().DecodeString(p.Data)
	if err != nil || len(data) == 0 {
		return fmt.Errorf("its data is not base64")
	}
	p.MIMEType = actualType(p.MIMEType, data)
	switch {
	case p.Kind == item.Image && !strings.HasPrefix(p.MIMEType, "image/"):
		return fmt.Errorf("its data is not an image")
	case p.Kind == item.Audio && !strings.HasPrefix(p.MIMEType, "audio/"):
		return fmt.Errorf("its data is not audio")
	}
	if err := checkImage(p.MIMEType, data); err != nil {
		return fmt.Errorf("its data is damaged: %w", err)
	}
	c.data += len(p.Data)
	c.dataParts++
	return nil
}

// maxMIMEType is the length of a type and a subtype (RFC 6838, section 4.2).
const maxMIMEType = 127 + 1 + 127

// mimeType returns the type and subtype in lower case; "" if it is not a MIME
// type.
func mimeType(s string) string {
	kind, _, err := mime.ParseMediaType(s)
	if (err != nil && kind == "") || len(kind) > maxMIMEType || !strings.Contains(kind, "/") {
		return ""
	}
	return kind
}

// actualType returns the type of data. Images and PDF files are recognized by
// their first bytes, whatever was declared. Other content has the declared type,
// unless that names one of the types that would have been recognized.
func actualType(declared string, data []byte) string {
	found := mimeType(http.DetectContentType(data))
	switch {
	case strings.HasPrefix(found, "image/"), found == "application/pdf", declared == "":
		return found
	case recognizable(declared):
		return "application/octet-stream"
	}
	return declared
}

func recognizable(kind string) bool {
	switch kind {
	case "image/png", "image/jpeg", "image/jpg", "image/gif", "image/webp", "image/bmp", "application/pdf":
		return true
	}
	return false
}

// checkImage reads the header of an image of a format that it knows.
func checkImage(kind string, data []byte) error {
	var err error
	switch r := bytes.NewReader(data); kind {
	case "image/png":
		_, err = png.DecodeConfig(r)
	case "image/jpeg":
		_, err = jpeg.DecodeConfig(r)
	case "image/gif":
		_, err = gif.DecodeConfig(r)
	}
	var rarePNG png.UnsupportedError
	var rareJPEG jpeg.UnsupportedError
	if errors.As(err, &rarePNG) || errors.As(err, &rareJPEG) {
		return nil // a form that these decoders do not read
	}
	return err
}

// digestOf returns the digest of a result: its outcome, text and binary content.
func digestOf(outcome string, parts []item.Part) string {
	text := outcome + item.PlainText(parts)
	h := sha256.New()
	binary := false
	for _, p := range parts {
		if p.Data != "" {
			fmt.Fprintf(h, "%d %s %d ", len(p.MIMEType), p.MIMEType, len(p.Data))
			_, _ = io.WriteString(h, p.Data) // a hash takes everything
			binary = true
		}
	}
	if binary {
		text += "\x00" + string(h.Sum(nil))
	}
	return digest(text)
}
