// Package openai speaks the chat-completions dialect, to OpenAI and to every
// provider that is compatible with it.
//
//	items, tools, params ── request.go ──► POST {base}/chat/completions
//	                                             │
//	              event stream, or one JSON object where a server ignores "stream"
//	                                             │
//	   decode.go ──► chunk.go ──► assembly: content.go, calls.go, object.go ──► model.Turn
//	                    │
//	                    └──► emit(model.Delta) as it arrives
//
// What compatible providers do differently is met where it shows: in which
// member reasoning comes (reasoning.go), how tool calls are cut into pieces
// (calls.go). Members that this package does not know are kept on the item and
// go back to the provider with the next round. Package wire sends and reads.
//
// A client that speaks the dialect itself is relayed, byte for byte.
// The names of the provider\'s models come from GET {base}/models (models.go).
//
//	p := openai.New(openai.Options{BaseURL: "https://api.openai.com/v1", Transport: rt})
//	turn, err := p.Stream(ctx, &model.Request{Model: "gpt-5", Items: items}, emit)
package openai

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// Dialect names the dialect in item.Native and model.Request.
const Dialect = "openai-chat"

const chatPath = "/chat/completions"

var (
	_ model.Model   = (*Provider)(nil)
	_ model.Relayer = (*Provider)(nil)
	_ model.Lister  = (*Provider)(nil)
)

// Options say which provider a Provider talks to.
type Options struct {
	// BaseURL is everything before "/chat/completions", such as
	// "https://api.openai.com/v1". A query in it is sent with every request.
	BaseURL string
	// APIKey returns the key, at every call; nil or "" means that no key is sent.
	APIKey func(context.Context) (string, error)
	// KeyHeader is the field that carries the bare key; "" means
	// "Authorization: Bearer KEY".
	KeyHeader string
	// Transport sends the requests. It is required.
	Transport http.RoundTripper
	// Log takes notes that are not errors; nil discards them.
	Log *slog.Logger
	// Silence is how long the provider may send nothing during Stream; 0 means 120 s.
	Silence time.Duration
	// MaxTokensParam is the member that carries model.Request.MaxTokens where
	// Params have none of the two; "" means max_completion_tokens at OpenAI and
	// Azure and max_tokens elsewhere.
	MaxTokensParam string
}

// Provider is one provider of the dialect. It is safe for concurrent use.
type Provider struct {
	o      Options
	client *wire.Client
	chat   *url.URL
}

// New returns a Provider. It connects to nothing. A base URL that cannot be
// parsed shows as an error of class Target at every call.
func New(o Options) *Provider {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	p := &Provider{o: o, client: wire.New(wire.Options{
		BaseURL: o.BaseURL, APIKey: o.APIKey, KeyHeader: o.KeyHeader, Transport: o.Transport, Silence: o.Silence,
	})}
	p.chat = p.client.URL(chatPath)
	if p.o.MaxTokensParam == "" {
		p.o.MaxTokensParam = maxTokensParam(p.client.Host())
	}
	return p
}

func maxTokensParam(host string) string {
	if host == "api.openai.com" || strings.HasSuffix(host, ".openai.azure.com") {
		return "max_completion_tokens"
	}
	return "max_tokens"
}

// Stream implements model.Model.
func (p *Provider) Stream(ctx context.Context, req *model.Request, emit func(model.Delta) error) (*model.Turn, error) {
	var turn *model.Turn
	err := p.client.Stream(ctx, p.chat, wire.StreamHeader(), p.encode(req), func(answer io.Reader) error {
		var err error
		turn, err = decode(answer, req.Memory, emit)
		return err
	})
	if turn != nil {
		item.SetTurn(turn.Items, item.LastTurn(req.Items)+1)
	}
	if err == nil && turn.Usage == (model.Usage{}) {
		p.o.Log.LogAttrs(ctx, slog.LevelDebug, "provider reported no usage", slog.String("model", req.Model))
	}
	return turn, err
}

// Relay implements model.Relayer.
func (p *Provider) Relay(ctx context.Context, req *model.RelayRequest) (*model.RelayResponse, error) {
	to := p.chat // nearly always
	if req.Path != chatPath {
		to = p.client.URL(req.Path)
	}
	return p.client.Relay(ctx, to, req)
}
