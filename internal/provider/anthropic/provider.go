// Package anthropic speaks the Messages dialect, to Anthropic and to providers
// that are compatible with it.
//
//	items, tools, options ── request.go ──► POST {base}/messages
//	                                              │
//	                   event stream, or one JSON object
//	                                              │
//	           decode.go ──► blocks ──► model.Turn, one item for each block
//
// Blocks that the provider wants back unchanged (thinking with its signature,
// redacted thinking, tools that the provider ran itself, texts with citations)
// ride on their items as native forms. The dialect is described at
// https://docs.anthropic.com/en/api/messages.
package anthropic

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// Dialect names the dialect in item.Native and model.Request.
const Dialect = "anthropic"

const (
	// version is the value of the header anthropic-version.
	version = "2023-06-01"
	// defaultMaxTokens is sent where neither the request nor Options say anything:
	// the dialect demands a value.
	defaultMaxTokens = 8192
)

var (
	_ model.Model      = (*Provider)(nil)
	_ model.Translator = (*Provider)(nil)
)

// Options say which provider a Provider talks to.
type Options struct {
	// BaseURL is everything before "/messages", such as
	// "https://api.anthropic.com/v1". A query in it is sent with every request.
	BaseURL string
	// APIKey returns the key, at every call; nil or "" means that no key is sent.
	APIKey func(context.Context) (string, error)
	// KeyHeader is the field that carries the key; "" means x-api-key.
	KeyHeader string
	// Transport sends the requests. It is required.
	Transport http.RoundTripper
	// Log takes notes that are not errors; nil discards them.
	Log *slog.Logger
	// Silence is how long the provider may send nothing during Stream; 0 means 120 s.
	Silence time.Duration
	// MaxTokens caps the output of requests that say nothing of it; 0 means 8,192.
	MaxTokens int
}

// Provider is one provider of the dialect. It is safe for concurrent use.
type Provider struct {
	o        Options
	client   *wire.Client
	messages *url.URL
}

// New returns a Provider. It connects to nothing. A base URL that cannot be
// parsed shows as an error of class Target at every call.
func New(o Options) *Provider {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.KeyHeader == "" {
		o.KeyHeader = "X-Api-Key"
	}
	if o.MaxTokens <= 0 {
		o.MaxTokens = defaultMaxTokens
	}
	p := &Provider{o: o, client: wire.New(wire.Options{
		BaseURL: o.BaseURL, APIKey: o.APIKey, KeyHeader: o.KeyHeader, Transport: o.Transport, Silence: o.Silence,
	})}
	p.messages = p.client.URL("/messages")
	return p
}

// Stream implements model.Model.
func (p *Provider) Stream(ctx context.Context, req *model.Request, emit func(model.Delta) error) (*model.Turn, error) {
	body, err := p.encode(req)
	if err != nil {
		return nil, &model.Error{Class: model.Invalid, Message: "the request cannot be written as JSON", Err: err}
	}
	header := wire.StreamHeader()
	header.Set("Anthropic-Version", version)
	var turn *model.Turn
	err = p.client.Stream(ctx, p.messages, header, body, func(answer io.Reader) error {
		var err error
		turn, err = decode(answer, req.Memory, emit)
		return err
	})
	if turn != nil {
		item.SetTurn(turn.Items, item.LastTurn(req.Items)+1)
	}
	return turn, err
}
