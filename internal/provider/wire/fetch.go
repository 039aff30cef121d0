package wire

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

const (
	// maxFetched is how many URLs of one request are fetched.
	maxFetched = 20
	// copies is how often the bytes of a fetched file are in memory while a request
	// is written: in its part, in the buffer of the encoder, and in the body.
	copies = 3
)

// Fetch returns what a URL names that a client has written, and charges its capacity to
// memory unless that is nil. An error that is a [tool.Blocked] ends the run; the text of
// any other is for the client. Nil refuses such URLs.
type Fetch func(ctx context.Context, url string, memory tool.Memory) ([]byte, error)

// Insecure reports whether a URL is one that a provider does not fetch which fetches
// only https:// URLs.
func Insecure(url string) bool { return strings.HasPrefix(url, "http://") }

// Remote reports whether a URL names bytes that are elsewhere, for a provider that fetches
// nothing.
func Remote(url string) bool { return strings.HasPrefix(url, "https://") || Insecure(url) }

// Into returns the request with the bytes of images and files whose URLs are wanted,
// because the provider does not fetch them. Without such a URL it returns req itself. The
// bytes stay charged to the request's memory until release is called.
func (f Fetch) Into(ctx context.Context, req *model.Request, wanted func(url string) bool) (with *model.Request, release func(), err error) {
	release = func() {}
	with = req
	left, unit, charged := maxFetched, -1, 0
	for i := range req.Items {
		if BeginsMessage(req.Items, i) {
			unit++
		}
		it := &req.Items[i]
		for j, part := range it.Parts {
			if it.Kind != item.Message || part.Kind != item.Image && part.Kind != item.File || !wanted(part.URL) {
				continue
			}
			param := PlaceOf(req, unit, it, j)
			if left--; left < 0 {
				return nil, release, &model.Error{Class: model.Target, Param: param, Message: fmt.Sprintf("%s: the gateway fetches at most %d URLs of a request", param, maxFetched)}
			}
			part.URL = ""
			if part.Data, part.MIMEType, err = f.fetched(ctx, it.Parts[j].URL, req.Memory); err != nil {
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
func (f Fetch) fetched(ctx context.Context, url string, memory tool.Memory) (data, kind string, err error) {
	if f == nil {
		return "", "", errors.New("the provider does not fetch this URL")
	}
	raw, err := f(ctx, url, memory)
	if err != nil {
		return "", "", err
	}
	if memory != nil {
		defer memory.Release(cap(raw))
		if err := memory.Acquire(copies * base64.StdEncoding.EncodedLen(len(raw))); err != nil {
			return "", "", err
		}
	}
	return base64.StdEncoding.EncodeToString(raw), sniffed(raw), nil
}

// fetchError returns the error of a request with a URL that was not fetched.
func fetchError(ctx context.Context, param string, err error) error {
	var refused *memlimit.Refused
	var fatal tool.Blocked
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

// BeginsMessage reports whether an item is the first of a message of the client's
// request: an answer of a model is one message.
func BeginsMessage(items []item.Item, at int) bool {
	return at == 0 || items[at].Turn == 0 || items[at].Turn != items[at-1].Turn
}

// PlaceOf returns the place of a part of a message in the client's request. A message of
// a model is one or more items, and unit is its index in a request of DialectChat. In
// other dialects the index of an item is not known here.
func PlaceOf(req *model.Request, unit int, it *item.Item, part int) string {
	name := NameOfPart(req, it, it.Parts[part].Kind)
	if req.Dialect != model.DialectResponses {
		name = strings.Replace(name, "[]", fmt.Sprintf("[%d]", unit), 1)
	}
	return strings.Replace(name, "content[]", fmt.Sprintf("content[%d]", part), 1)
}

// Inline returns the media type and the base64 of a part that carries its bytes, or what
// is wrong with it.
func Inline(p item.Part) (kind, data, problem string) {
	kind, data = p.MIMEType, p.Data
	for _, u := range []string{p.URL, p.Data} { // file_data of the chat dialect is a data URL
		if !strings.HasPrefix(u, "data:") {
			continue
		}
		var is64 bool
		if kind, data, is64 = item.DataURL(u); !is64 {
			return "", "", "a data URL must be in base64"
		}
	}
	if data == "" {
		return "", "", "its URL must begin with https://, http:// or data:"
	}
	return mediaType(kind, data), data, ""
}

// Embedded returns a part whose URL holds its bytes as one with Data, and with the media type that
// these bytes have. Other parts are returned as they are.
func Embedded(p item.Part) item.Part {
	if _, _, is := item.DataURL(p.URL); !is {
		return p
	}
	if kind, data, problem := Inline(p); problem == "" {
		p.URL, p.MIMEType, p.Data = "", kind, data
	}
	return p
}

// mediaType returns a media type without parameters, for base64 data. Images and PDF files
// are recognized by their first bytes, whatever was said: providers refuse an image of
// another type. So is data of which nothing was said.
func mediaType(said, data string) string {
	kind, _, err := mime.ParseMediaType(said)
	head := make([]byte, 512)
	n, _ := base64.StdEncoding.Decode(head, []byte(data[:min(len(data), 512)/4*4])) // up to what is not base64
	found := sniffed(head[:n])
	switch {
	case err != nil, kind == "application/octet-stream", strings.HasPrefix(found, "image/"), found == "application/pdf":
		return found
	case kind == "image/jpg":
		return "image/jpeg"
	}
	return kind
}

func sniffed(head []byte) string {
	kind, _, _ := strings.Cut(http.DetectContentType(head), ";")
	return kind
}
