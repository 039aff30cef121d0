// Package openairesponses speaks the Responses dialect, to OpenAI and to
// providers that are compatible with it.
//
//	items, tools, options ── request.go, input.go ──► POST {base}/responses
//	                                                         │
//	           event stream, or one JSON object where a server ignores "stream"
//	                                                         │
//	                 decode.go ──► output items ──► turn.go: model.Turn
//
// A request holds the whole transcript and asks the provider to store nothing.
// Items that the provider wrote (reasoning with its encrypted content, calls,
// messages, tools that the provider ran itself) go back to it as it wrote them,
// without the members that only describe the answer. The dialect is described at
// https://developers.openai.com/api/docs and at https://www.openresponses.org.
package openairesponses

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/url"

	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

var (
	_ model.Model      = (*Provider)(nil)
	_ model.Translator = (*Provider)(nil)
	_ model.Lister     = (*Provider)(nil)
	_ model.Relayer    = (*Provider)(nil)
	_ model.Counter    = (*Provider)(nil)
)

const responsesPath = "/responses"

// Provider is one provider of the dialect. It is safe for concurrent use.
type Provider struct {
	client      *wire.Client
	responses   *url.URL
	unsupported unsupported
}

// New returns a Provider. It connects to nothing. A base URL that cannot be
// parsed shows as an error of class Target at every call.
func New(e wire.Endpoint) *Provider {
	p := &Provider{client: wire.New(model.DialectResponses, e, nil)}
	p.responses = p.client.URL(responsesPath)
	return p
}

// Stream implements model.Model. A provider that refuses one of the members that
// the gateway adds by itself is asked again without it, once for each.
func (p *Provider) Stream(ctx context.Context, req *model.Request, emit func(model.Delta) error) (*model.Turn, error) {
	without := p.unsupported.of(req.Model)
	for {
		turn, err := p.stream(ctx, req, without, emit)
		now := without.and(err)
		if now == without {
			return turn, err
		}
		p.client.Log().LogAttrs(ctx, slog.LevelDebug, "the provider refuses an optional member of the request; sending it without",
			slog.String("model", req.Model), slog.Any("error", err))
		p.unsupported.add(req.Model, now)
		without = now
	}
}

func (p *Provider) stream(ctx context.Context, req *model.Request, without optional, emit func(model.Delta) error) (*model.Turn, error) {
	var turn *model.Turn
	err := p.client.Stream(ctx, p.responses, wire.StreamHeader(), encode(req, without), req.Memory, func(answer io.Reader) error {
		var err error
		turn, err = decode(answer, req.Memory, req.Dialect == model.DialectResponses, emit)
		return err
	})
	if turn != nil {
		item.SetTurn(turn.Items, item.LastTurn(req.Items)+1)
	}
	return turn, err
}

// Relays implements model.Relayer.
func (p *Provider) Relays(dialect string) bool {
	return dialect == model.DialectResponses || dialect == model.DialectEndpoints
}

// Relay implements model.Relayer.
func (p *Provider) Relay(ctx context.Context, req *model.RelayRequest) (*model.RelayResponse, error) {
	to := p.responses // nearly always
	if req.Path != responsesPath {
		to = p.client.URL(req.Path)
	}
	if req.Dialect == model.DialectEndpoints {
		return p.client.Relay(ctx, to, req, wire.EndpointUsage)
	}
	return p.client.Relay(ctx, to, req, usageOf)
}

// CountInput implements model.Counter with POST {base}/responses/input_tokens, which compatible
// servers may lack.
func (p *Provider) CountInput(ctx context.Context, req *model.Request) (tokens int64, err error) {
	header := http.Header{"Accept": {"application/json"}, "Content-Type": {"application/json"}, "Accept-Encoding": {"identity"}}
	err = p.client.Stream(ctx, p.client.URL(responsesPath+"/input_tokens"), header, encodeInput(req), req.Memory, func(answer io.Reader) error {
		var counted struct {
			Tokens *int64 `json:"input_tokens"`
		}
		if err := json.NewDecoder(io.LimitReader(answer, maxCounted)).Decode(&counted); err != nil {
			return err
		}
		if counted.Tokens == nil || *counted.Tokens < 0 {
			return wire.Broken("did not say how many tokens there are", nil)
		}
		tokens = *counted.Tokens
		return nil
	})
	return tokens, err
}

// maxCounted is the most bytes of an answer about tokens.
const maxCounted = 64 << 10

// List implements model.Lister with GET {base}/models. The caller sets the
// deadline.
func (p *Provider) List(ctx context.Context, memory tool.Memory, yield func(model.Listed) bool) error {
	return p.client.Models(ctx, memory, yield)
}
