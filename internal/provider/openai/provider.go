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
// (calls.go), how a failure looks (errors.go). Members that nobody here knows
// are kept on the item and go back to the provider with the next round.
//
// A client that speaks the dialect itself is relayed, byte for byte (relay.go).
// The names of the provider's models come from GET {base}/models (models.go).
//
//	p := openai.New(openai.Options{BaseURL: "https://api.openai.com/v1", Transport: rt})
//	turn, err := p.Stream(ctx, &model.Request{Model: "gpt-5", Items: items}, emit)
package openai

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/model"
)

// Dialect names the dialect in item.Native and model.Request.
const Dialect = "openai-chat"

const (
	chatPath       = "/chat/completions"
	defaultSilence = 120 * time.Second
	// maxAnswer is how much of one answer is read in all.
	maxAnswer = 64 << 20
	// maxTurn is how much of it may be the model's own words: text, reasoning,
	// refusal and arguments together. A million tokens are less.
	maxTurn = 8 << 20
)

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
	// Log takes what is worth knowing and no error; nil discards it.
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
	o        Options
	template http.Request // what all requests share
	chat     *url.URL
	err      error // the base URL is none
}

// New returns a Provider. It connects to nothing. A base URL that cannot be
// parsed shows as an error of class Target at every call.
func New(o Options) *Provider {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Silence <= 0 {
		o.Silence = defaultSilence
	}
	p := &Provider{o: o}
	base, err := url.Parse(strings.TrimSpace(o.BaseURL))
	if err == nil && base.Host == "" {
		err = fmt.Errorf("%q names no host", o.BaseURL)
	}
	if err != nil {
		p.err = &model.Error{Class: model.Target, Message: "base URL", Err: err}
		return p
	}
	base.Path, base.RawPath = strings.TrimRight(base.Path, "/"), ""
	p.chat = below(base, chatPath)
	p.template = http.Request{
		Method: http.MethodPost, URL: base, Host: base.Host,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
	if p.o.MaxTokensParam == "" {
		p.o.MaxTokensParam = maxTokensParam(base.Hostname())
	}
	return p
}

// below returns the URL of a path, which may have a query, below base.
func below(base *url.URL, path string) *url.URL {
	u := *base
	path, query, _ := strings.Cut(path, "?")
	u.Path += path
	switch {
	case u.RawQuery == "":
		u.RawQuery = query
	case query != "":
		u.RawQuery += "&" + query
	}
	return &u
}

func maxTokensParam(host string) string {
	if host == "api.openai.com" || strings.HasSuffix(host, ".openai.azure.com") {
		return "max_completion_tokens"
	}
	return "max_tokens"
}

// send makes one request. A large body is not read after send returns. The error
// is the transport's own, or a *model.Error.
func (p *Provider) send(ctx context.Context, to *url.URL, header http.Header, data []byte) (*http.Response, error) {
	if err := p.authorize(ctx, header); err != nil {
		return nil, err
	}
	if len(data) <= smallBody {
		return p.sendSmall(ctx, to, header, data)
	}
	body := &sentBody{rest: data}
	req := p.template.WithContext(ctx)
	req.URL, req.Header, req.Body, req.ContentLength = to, header, body, int64(len(data))
	// The transport asks for the body again only where nothing of the request
	// was sent: on a kept connection that the provider had closed meanwhile.
	req.GetBody = func() (io.ReadCloser, error) {
		body = &sentBody{rest: data}
		return body, nil
	}
	resp, err := p.o.Transport.RoundTrip(req)
	if err != nil {
		body.drop()
		return nil, err
	}
	body.detach()
	// A stream is open for long. The answer refers to its request, and the
	// transport to a copy of it, whose GetBody is still there: it gets nothing.
	req.GetBody, data = nil, nil
	return resp, nil
}

// smallBody is the size of a body that may stay in memory for as long as its
// answer. The transport sends one that it knows to be in memory together with the
// header; before any other, it sends the header on its own.
const smallBody = 4 << 10

func (p *Provider) sendSmall(ctx context.Context, to *url.URL, header http.Header, data []byte) (*http.Response, error) {
	body := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }
	req := p.template.WithContext(ctx)
	req.URL, req.Header, req.ContentLength, req.GetBody = to, header, int64(len(data)), body
	req.Body, _ = body()
	return p.o.Transport.RoundTrip(req)
}

// authorize sets the key in place of the caller's.
func (p *Provider) authorize(ctx context.Context, header http.Header) error {
	header.Del("Authorization")
	if p.o.APIKey == nil {
		return nil
	}
	key, err := p.o.APIKey(ctx)
	switch {
	case err != nil && ctx.Err() != nil:
		return err // the caller left
	case err != nil:
		return &model.Error{Class: model.Target, Message: "provider key", Err: err}
	case key == "":
	case p.o.KeyHeader != "":
		header.Set(p.o.KeyHeader, key)
	default:
		header.Set("Authorization", "Bearer "+key)
	}
	return nil
}
