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
	"github.com/turnpike-gateway/turnpike/internal/relay"
	"github.com/turnpike-gateway/turnpike/model"
)

var (
	_ model.Model      = (*Provider)(nil)
	_ model.Translator = (*Provider)(nil)
	_ model.Lister     = (*Provider)(nil)
	_ relay.Model      = (*Provider)(nil)
	_ model.Counter    = (*Provider)(nil)
)

const responsesPath = "/responses"

// Provider is one provider of the dialect. It is safe for concurrent use.
type Provider struct {
	wire.Relayer
	client      *wire.Client
	responses   *url.URL
	unsupported unsupported
}

// New returns a Provider. It connects to nothing. A base URL that cannot be
// parsed shows as an error of class Target at every call.
func New(e wire.Endpoint) *Provider {
	p := &Provider{client: wire.New(model.DialectResponses, e, nil)}
	p.responses, p.Relayer = p.client.URL(responsesPath), p.client.Relayer(responsesPath, usageOf)
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
	body := encode(req, without)
	return p.client.Turn(ctx, p.responses, wire.StreamHeader(), body, req, func(answer io.Reader) (*model.Turn, error) {
		return decode(answer, req.Memory, req.Dialect == model.DialectResponses, emit)
	})
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
