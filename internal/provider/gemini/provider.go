// Package gemini speaks the generateContent dialect of Google's Gemini API.
//
//	items, tools, options ── request.go, content.go, media.go, tools.go, schema.go ──► POST {base}/models/{model}:streamGenerateContent?alt=sse
//	                                              │
//	                   event stream, or one JSON object
//	                                              │
//	               decode.go ──► parts ──► turn.go ──► model.Turn
//
// An answer is a list of parts. Adjacent parts of text are one item, and so are
// adjacent parts of thoughts; every call is one. Parts that have more than their text,
// such as a thought signature, ride on their item as native forms and go back
// unchanged, in their order. The names of the provider's models come from GET
// {base}/models (models.go). The dialect is described at
// https://ai.google.dev/api/generate-content.
package gemini

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

var (
	_ model.Model      = (*Provider)(nil)
	_ model.Translator = (*Provider)(nil)
	_ model.Lister     = (*Provider)(nil)
)

// Options are the settings of this dialect. The zero value is usable.
type Options struct {
	// Fetch fetches http:// URLs of images and files; nil refuses them.
	Fetch wire.Fetch
}

// Provider is one provider of the dialect. It is safe for concurrent use.
type Provider struct {
	o      Options
	client *wire.Client
	base   string // of the endpoint, without a query
}

// New returns a Provider. The base URL ends with the version of the API, such as
// "/v1beta". It connects to nothing. A base URL that cannot be parsed shows as an error
// of class Target at every call.
func New(e wire.Endpoint, o Options) *Provider {
	if e.KeyHeader == "" {
		e.KeyHeader = "X-Goog-Api-Key"
	}
	base, _, _ := strings.Cut(strings.TrimSpace(e.BaseURL), "?")
	return &Provider{o: o, client: wire.New(model.DialectGemini, e, nil), base: strings.TrimRight(base, "/")}
}

// Stream implements model.Model.
func (p *Provider) Stream(ctx context.Context, req *model.Request, emit func(model.Delta) error) (*model.Turn, error) {
	to, err := p.method(req.Model)
	if err != nil {
		return nil, err
	}
	full, release, err := p.o.Fetch.Into(ctx, req, wire.Insecure)
	defer release()
	if err != nil {
		return nil, err
	}
	t := p.translate(full)
	t.LogHidden(ctx, p.client.Log(), req, "their names")
	body, err := t.Write(t.request)
	if err != nil {
		return nil, err
	}
	return p.client.Turn(ctx, to, wire.StreamHeader(), body, req, func(answer io.Reader) (*model.Turn, error) {
		return decode(answer, item.LastTurn(req.Items)+1, aliases(req), req.Memory, emit)
	})
}

// modelName is what the name of a model may be: with its collection, such as
// tunedModels/mine, or without one, which means models/.
var modelName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._@-]*(/[a-zA-Z0-9][a-zA-Z0-9._@-]*)*$`)

// method returns the URL of the streaming method of a model. The name is a client's.
func (p *Provider) method(name string) (*url.URL, error) {
	if !modelName.MatchString(name) {
		return nil, &model.Error{Class: model.Target, Message: fmt.Sprintf("%.100q is not the name of a Gemini model", name)}
	}
	if !strings.Contains(name, "/") {
		name = "models/" + name
	}
	return p.client.URL("/" + name + ":streamGenerateContent?alt=sse"), nil
}
