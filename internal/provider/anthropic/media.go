package anthropic

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/ledger"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

// imageTypes are the images that the dialect takes.
var imageTypes = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}

const (
	takenImages = "this provider takes PNG, JPEG, GIF and WebP images"
	takenFiles  = "this provider takes PDF files and texts"

	// maxFetched is how many URLs of one request are fetched.
	maxFetched = 20
	// copies is how often the bytes of a fetched file are in memory while a request
	// is written: in its part, in the buffer of the encoder, and in the body.
	copies = 3
)

// source is where the bytes of an image or a document are.
type source struct {
	Type      string `json:"type"` // base64, url, text or file
	MediaType string `json:"media_type,omitempty"`
	Data      string `json:"data,omitempty"`
	URL       string `json:"url,omitempty"`
	FileID    string `json:"file_id,omitempty"`
}

// placeOf returns the place of a part of a message in the client's request. A message of
// a model is one or more items, and unit is its index in a request of DialectChat. In
// other dialects the index of an item is not known here.
func placeOf(req *model.Request, unit int, it *item.Item, part int) string {
	name := req.NameOfPart(it, it.Parts[part].Kind)
	if req.Dialect != model.DialectResponses {
		name = strings.Replace(name, "[]", fmt.Sprintf("[%d]", unit), 1)
	}
	return strings.Replace(name, "content[]", fmt.Sprintf("content[%d]", part), 1)
}

// blockOf returns a part as a block, or what keeps the dialect from taking it. The
// zero block is an empty text, which the dialect refuses.
func (w *writer) blockOf(p item.Part) (b block, problem string) {
	switch {
	case p.Kind == item.Audio:
		return block{}, "this provider takes no audio"
	case p.Text != "" || p.Kind == item.Text || p.Kind == item.Refusal: // also of a resource or a file
		if strings.TrimSpace(p.Text) == "" {
			return block{}, ""
		}
		return block{Type: "text", Text: p.Text}, ""
	case p.FileID != "":
		w.beta(filesBeta)
		return named(p, &source{Type: "file", FileID: p.FileID}), ""
	case strings.HasPrefix(p.URL, "https://") && p.Kind != item.Resource:
		return named(p, &source{Type: "url", URL: p.URL}), ""
	case p.Kind == item.Resource && p.Data == "":
		return block{Type: "text", Text: p.Describe()}, ""
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
	kind, data := p.MIMEType, p.Data
	for _, u := range []string{p.URL, p.Data} { // file_data of the chat dialect is a data URL
		if !strings.HasPrefix(u, "data:") {
			continue
		}
		var is64 bool
		if kind, data, is64 = item.DataURL(u); !is64 {
			return block{}, "a data URL must be in base64"
		}
	}
	if data == "" {
		return block{}, "its URL must begin with https://, http:// or data:"
	}
	switch kind = mediaType(kind, data); {
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

// mediaType returns a media type without parameters. One that says nothing is found
// out from the first bytes.
func mediaType(said, data string) string {
	kind, _, err := mime.ParseMediaType(said)
	switch {
	case err != nil || kind == "application/octet-stream":
		head := make([]byte, 512)
		n, _ := base64.StdEncoding.Decode(head, []byte(data[:min(len(data), 512)/4*4])) // up to what is not base64
		return sniffed(head[:n])
	case kind == "image/jpg":
		return "image/jpeg"
	}
	return kind
}

func sniffed(head []byte) string {
	kind, _, _ := strings.Cut(http.DetectContentType(head), ";")
	return kind
}

// withFetched returns the request with the bytes of images and files that have
// http:// URLs, which the provider does not fetch. Without such a URL it returns req
// itself. The bytes stay charged to the request's memory until release is called.
func (p *Provider) withFetched(ctx context.Context, req *model.Request) (with *model.Request, release func(), err error) {
	release = func() {}
	with = req
	left, unit, charged := maxFetched, -1, 0
	for i := range req.Items {
		if beginsMessage(req.Items, i) {
			unit++
		}
		it := &req.Items[i]
		for j, part := range it.Parts {
			if it.Kind != item.Message || part.Kind != item.Image && part.Kind != item.File || !strings.HasPrefix(part.URL, "http://") {
				continue
			}
			param := placeOf(req, unit, it, j)
			if left--; left < 0 {
				return nil, release, &model.Error{Class: model.Target, Param: param, Message: fmt.Sprintf("%s: a request may have at most %d http:// URLs; use https://", param, maxFetched)}
			}
			part.URL = ""
			if part.Data, part.MIMEType, err = p.fetched(ctx, it.Parts[j].URL, req.Memory); err != nil {
				return nil, release, fetchError(ctx, param, err)
			}
			if with == req {
				with = new(model.Request)
				*with = *req
				with.Items = slices.Clone(req.Items)
			}
			with.Items[i].Parts = slices.Clone(with.Items[i].Parts)
			with.Items[i].Parts[j] = part
			if req.Memory != nil {
				charged += copies * len(part.Data)
				release = func() { req.Memory.Release(charged) }
			}
		}
	}
	return with, release, nil
}

// fetched returns what a URL of the client names, in base64, with its type.
func (p *Provider) fetched(ctx context.Context, url string, memory tool.Memory) (data, kind string, err error) {
	if p.o.Fetch == nil {
		return "", "", errors.New("the provider takes no http:// URL; use https://")
	}
	raw, err := p.o.Fetch(ctx, url, memory)
	if err != nil {
		return "", "", err
	}
	if memory != nil {
		defer memory.Release(cap(raw))
		if err := memory.Charge(copies * base64.StdEncoding.EncodedLen(len(raw))); err != nil {
			return "", "", err
		}
	}
	return base64.StdEncoding.EncodeToString(raw), sniffed(raw), nil
}

// fetchError returns the error of a request with a URL that was not fetched.
func fetchError(ctx context.Context, param string, err error) error {
	var refused *ledger.Refused
	var fatal tool.Fatal
	switch {
	case errors.As(err, &refused):
		return refused
	case ctx.Err() != nil:
		return &model.Error{Class: model.Gone, Err: ctx.Err()}
	case errors.As(err, &fatal):
		return &model.Error{Class: model.Invalid, Param: param, Message: param + ": the outbound policy refuses the URL", Err: err}
	}
	return &model.Error{Class: model.Target, Param: param, Message: fmt.Sprintf("%s: %v", param, err)}
}
