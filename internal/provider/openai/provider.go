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
// Compatible providers differ in the member that has the reasoning (reasoning.go)
// and in how they split tool calls into pieces (calls.go). Members that this package
// does not know are kept on the item and go back to the provider in the next
// request. Package wire sends requests and reads answers.
//
// Requests of clients that use the same dialect can be relayed unchanged.
// The names of the provider's models come from GET {base}/models.
//
//	p := openai.New(wire.Endpoint{BaseURL: "https://api.openai.com/v1", Transport: rt}, openai.Options{})
//	turn, err := p.Stream(ctx, &model.Request{Model: "gpt-5", Items: items}, emit)
package openai

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/url"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/internal/relay"
	"github.com/turnpike-gateway/turnpike/model"
)

const chatPath = "/chat/completions"

var (
	_ model.Model      = (*Provider)(nil)
	_ relay.Model      = (*Provider)(nil)
	_ model.Lister     = (*Provider)(nil)
	_ model.Translator = (*Provider)(nil)
)

// Options are the settings of this dialect. The zero value is usable.
type Options struct {
	// MaxTokensParam is the member that carries model.Request.MaxTokens where
	// Params have none of the two; "" means max_completion_tokens at OpenAI and
	// Azure and max_tokens elsewhere.
	MaxTokensParam string

	// ToolHints sends which tools only read, as MCP's annotations of the function. OpenAI refuses the member.
	ToolHints bool

	// ChatOnly says that the server has no other endpoints, such as embeddings: requests for them are not relayed to it.
	ChatOnly bool
}

// Provider is one provider of the dialect. It is safe for concurrent use.
type Provider struct {
	wire.Relayer
	o      Options
	client *wire.Client
	chat   *url.URL
	openAI bool // OpenAI itself, or Azure: it refuses what it does not know
}

// New returns a Provider. It connects to nothing. A base URL that cannot be
// parsed shows as an error of class Target at every call.
func New(e wire.Endpoint, o Options) *Provider {
	p := &Provider{o: o, client: wire.New(model.DialectChat, e, nil)}
	p.chat, p.Relayer = p.client.URL(chatPath), p.client.Relayer(chatPath, usageOf)
	host := p.client.Host()
	p.openAI = host == "api.openai.com" || strings.HasSuffix(host, ".openai.azure.com")
	switch {
	case p.o.MaxTokensParam != "":
	case p.openAI:
		p.o.MaxTokensParam = "max_completion_tokens"
	default:
		p.o.MaxTokensParam = "max_tokens"
	}
	return p
}

// Relays implements [relay.Model].
func (p *Provider) Relays(dialect string) bool {
	return p.Relayer.Relays(dialect) && !(p.o.ChatOnly && dialect == model.DialectEndpoints)
}

// Stream implements model.Model. A provider that refuses stream_options is asked once more without it.
func (p *Provider) Stream(ctx context.Context, req *model.Request, emit func(model.Delta) error) (*model.Turn, error) {
	asks := p.client.Asks(req.Model)
	turn, err := p.stream(ctx, req, asks, emit)
	refusal, refused := errors.AsType[*model.Error](err)
	if asks && refused && wire.RefusesStreamOptions(refusal.Status, refusal.Body) {
		turn, err = p.stream(ctx, req, false, emit)
		if turn != nil {
			p.client.Unasked(ctx, req.Model)
		}
	}
	return turn, err
}

func (p *Provider) stream(ctx context.Context, req *model.Request, asks bool, emit func(model.Delta) error) (*model.Turn, error) {
	body := p.encode(req, asks)
	turn, err := p.client.Turn(ctx, p.chat, wire.StreamHeader(), body, req, func(answer io.Reader) (*model.Turn, error) {
		return decode(answer, req.Memory, emit)
	})
	if err == nil && turn.Usage == (model.Usage{}) {
		p.client.Log().LogAttrs(ctx, slog.LevelDebug, "provider reported no usage", slog.String("model", req.Model))
	}
	return turn, err
}
