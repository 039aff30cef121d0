// Package anthropic speaks the Messages dialect, to Anthropic and to providers
// that are compatible with it.
//
//	items, tools, options ── request.go, message.go, media.go, tools.go ──► POST {base}/messages
//	                                              │
//	                   event stream, or one JSON object
//	                                              │
//	           decode.go ──► blocks ──► model.Turn, one item for each block
//
// Blocks that the provider wants back unchanged (thinking with its signature,
// redacted thinking, tools that the provider ran itself, texts with citations)
// ride on their items as native forms. The names of the provider's models come
// from GET {base}/models (models.go). The dialect is described at
// https://docs.anthropic.com/en/api/messages.
package anthropic

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/provider/claude"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/model"
)

const (
	// version is the value of the header anthropic-version.
	version = "2023-06-01"
	// filesBeta is the value of the header anthropic-beta for requests that name
	// uploaded files: https://platform.claude.com/docs/en/build-with-claude/files.
	filesBeta = "files-api-2025-04-14"
	// bindingBeta is the value of that header for requests with block_binding.
	bindingBeta = "thinking-binding-controls-2026-08-01"
	// editingBeta is the value of that header for requests with edits of the context, beside that of the
	// date of a compaction: https://platform.claude.com/docs/en/build-with-claude/context-editing.
	editingBeta = "context-management-2025-06-27"
	// defaultMaxTokens is sent where neither the request nor Options say anything:
	// the dialect demands a value.
	defaultMaxTokens = 8192
)

var (
	_ model.Model      = (*Provider)(nil)
	_ model.Translator = (*Provider)(nil)
	_ model.Lister     = (*Provider)(nil)

	_ model.ContextEditor = (*Provider)(nil)
)

// Options are the settings of this dialect. The zero value is usable.
type Options struct {
	// MaxTokens caps the output of requests that say nothing of it; 0 means 8,192.
	// Where the model thinks, the tokens of thinking are added.
	MaxTokens int
	// Fetch fetches http:// URLs of images and files, which the provider does not.
	Fetch wire.Fetch
}

// Provider is one provider of the dialect. It is safe for concurrent use.
type Provider struct {
	o        Options
	client   *wire.Client
	messages *url.URL
}

// New returns a Provider. It connects to nothing. A base URL that cannot be
// parsed shows as an error of class Target at every call.
func New(e wire.Endpoint, o Options) *Provider {
	if e.KeyHeader == "" {
		e.KeyHeader = "X-Api-Key"
	}
	if o.MaxTokens <= 0 {
		o.MaxTokens = defaultMaxTokens
	}
	p := &Provider{o: o, client: wire.New(model.DialectAnthropic, e, http.Header{"Anthropic-Version": {version}})}
	p.messages = p.client.URL("/messages")
	return p
}

// EditsContext implements model.ContextEditor.
func (p *Provider) EditsContext() bool { return true }

// Stream implements model.Model.
func (p *Provider) Stream(ctx context.Context, req *model.Request, emit func(model.Delta) error) (*model.Turn, error) {
	full, release, err := p.o.Fetch.Into(ctx, req, wire.Insecure)
	defer release()
	if err != nil {
		return nil, err
	}
	t := p.translate(full)
	t.LogHidden(ctx, p.client.Log(), req, "the names of their arguments")
	turn, err := p.send(ctx, req, t, emit)
	if claude.Outdated(ctx, p.client.Log(), err) {
		turn, err = p.send(ctx, req, p.withoutOutdated(t), emit)
	}
	return turn, err
}

// send makes one call.
func (p *Provider) send(ctx context.Context, req *model.Request, t *translation, emit func(model.Delta) error) (*model.Turn, error) {
	body, err := t.Write(t.request)
	if err != nil {
		return nil, err
	}
	header := wire.StreamHeader()
	if len(t.betas) > 0 {
		header.Set("Anthropic-Beta", strings.Join(t.betas, ","))
	}
	return p.client.Turn(ctx, p.messages, header, body, req, func(answer io.Reader) (*model.Turn, error) {
		return decode(answer, req.Memory, emit)
	})
}
