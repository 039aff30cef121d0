// Package wire is the HTTP client of all provider adapters. It sends requests with
// the gateway's credential, ends a call when the provider stops sending, limits the
// size of answers, classifies errors, and removes header fields that a client must
// not see.
//
// It also has what dialects share: a [Dialogue] writes the messages of a transcript, [Losses] note what a
// request loses, a [Turn] puts an answer together, and [ModelPages] are read as a list of models.
//
//	c := wire.New(model.DialectChat, wire.Endpoint{BaseURL: "https://api.example.com/v1", Transport: rt}, nil)
//	err := c.Stream(ctx, c.URL("/chat/completions"), header, body, memory, func(answer io.Reader) error { … })
package wire

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/internal/relay"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

const (
	defaultSilence = 120 * time.Second
	// MaxAnswer is how many bytes of one answer are read in all.
	MaxAnswer = 64 << 20
	// MaxTurn is how many bytes of text, reasoning, refusal and arguments one turn
	// may have. A million tokens are less.
	MaxTurn = 8 << 20
	// MaxCalls is how many tool calls one turn may have.
	MaxCalls = 1024
	// MaxUsage is the highest token count of one call that an adapter reports. Sums of
	// higher ones could overflow. Negative counts, which would refund a budget, become
	// 0.
	MaxUsage = 1_000_000_000
	// lastWait is how long a client waits, after the end of the turn, for the end of
	// the HTTP answer. The connection can only be reused after that.
	lastWait = 50 * time.Millisecond
)

// Endpoint is where a provider is and how it is called.
type Endpoint struct {
	// BaseURL is everything before the path of a request, such as
	// "https://api.openai.com/v1". A query in it is sent with every request.
	BaseURL string
	// APIKey returns the key, at every call; nil or "" means that no key is sent.
	APIKey func(context.Context) (string, error)
	// KeyHeader is the field that carries the bare key; "" means that of the
	// dialect: x-api-key for Anthropic, "Authorization: Bearer KEY" for OpenAI.
	KeyHeader string
	// Sign signs a request, which has the body, after the key was set; nil signs nothing.
	// An error that is no *[model.Error] is about the gateway's credentials.
	Sign func(ctx context.Context, r *http.Request, body []byte) error
	// Transport sends the requests. It is required.
	Transport http.RoundTripper
	// Log takes notes that are not errors; nil discards them.
	Log *slog.Logger
	// Silence is how long the provider may send nothing during Stream; 0 means 120 s.
	Silence time.Duration
}

// Client sends requests to one provider. It is safe for concurrent use.
type Client struct {
	e        Endpoint
	dialect  string
	header   http.Header
	template http.Request // what all requests share
	err      error        // the base URL cannot be used

	unasked refusals // which models refuse to be asked for the usage of a stream
}

// New returns a Client for a provider of a dialect, such as [model.DialectChat], which
// is set in every error that carries an answer of the provider. Every request of
// Stream and Get has the fields of header, besides those of the call. New connects to
// nothing. A base URL that cannot be parsed shows as an error of class Target at every
// call.
func New(dialect string, e Endpoint, header http.Header) *Client {
	if e.Silence <= 0 {
		e.Silence = defaultSilence
	}
	if e.Log == nil {
		e.Log = slog.New(slog.DiscardHandler)
	}
	c := &Client{e: e, dialect: dialect, header: header}
	base, err := parseBase(e.BaseURL)
	if err != nil {
		c.err = &model.Error{Class: model.Target, Message: "base URL", Err: err}
		base = &url.URL{}
	}
	base.Path, base.RawPath = strings.TrimRight(base.Path, "/"), ""
	c.template = http.Request{
		Method: http.MethodPost, URL: base, Host: base.Host,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
	return c
}

func parseBase(base string) (*url.URL, error) {
	u, err := url.Parse(strings.TrimSpace(base))
	if err == nil && u.Host == "" {
		err = fmt.Errorf("%q has no host", base)
	}
	return u, err
}

// Log returns the log of the endpoint. It is not nil.
func (c *Client) Log() *slog.Logger { return c.e.Log }

// Host returns the host name of the base URL, "" if there is none.
func (c *Client) Host() string { return c.template.URL.Hostname() }

// URL returns the URL of a path, which may have a query, below the base URL.
func (c *Client) URL(path string) *url.URL {
	u := *c.template.URL
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

// Stream posts the body and hands the answer to read. It returns the error that
// read returned, an *[model.Error], or the error of a caller's function that
// read has wrapped in [Stopped], unwrapped. An answer that is an error is not
// handed to read. The body is charged to memory, if there is one, until the answer
// begins.
func (c *Client) Stream(ctx context.Context, to *url.URL, header http.Header, body []byte, memory tool.Memory, read func(io.Reader) error) error {
	if c.err != nil {
		return c.err
	}
	charged := 0
	if memory != nil && len(body) > smallBody {
		charged = cap(body)
		if err := memory.Acquire(charged); err != nil {
			return &model.Error{Class: model.Target, Message: "the request needs more memory than the gateway may use", Err: err}
		}
	}
	maps.Copy(header, c.header)
	call, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watch := time.AfterFunc(c.e.Silence, func() { cancel(ErrSilent) })
	defer watch.Stop()

	resp, err := c.send(call, to, header, nil, body)
	if charged > 0 {
		memory.Release(charged)
	}
	if err != nil {
		return callError(ctx, call, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return c.answerError(failed(ctx, resp), header)
	}
	if err := encoded(resp); err != nil {
		return err
	}
	src := &source{src: resp.Body, left: MaxAnswer, watch: watch, silence: c.e.Silence}
	if err := read(src); err != nil {
		return c.answerError(broken(ctx, call, resp, err), header)
	}
	src.finish()
	return nil
}

// Turn makes a model call: it posts the body and returns the turn that decode reads out of the answer, with
// the number after those of the request's turns. The error is that of [Client.Stream].
func (c *Client) Turn(
	ctx context.Context, to *url.URL, header http.Header, body []byte, req *model.Request, decode func(io.Reader) (*model.Turn, error),
) (turn *model.Turn, err error) {
	err = c.Stream(ctx, to, header, body, req.Memory, func(answer io.Reader) (err error) {
		turn, err = decode(answer)
		return err
	})
	if turn != nil {
		item.SetTurn(turn.Items, item.LastTurn(req.Items)+1)
	}
	return turn, err
}

// Get requests a path and hands the answer to read. An answer of more than most bytes
// is an error.
// It is charged to memory, if there is one, until read returns. The caller sets
// the deadline. The error is that of read, an *[model.Error], or a
// *[memlimit.Refused].
func (c *Client) Get(ctx context.Context, path string, most int64, memory tool.Memory, read func([]byte) error) error {
	if c.err != nil {
		return c.err
	}
	req := c.template.WithContext(ctx)
	req.Method, req.URL = http.MethodGet, c.URL(path)
	req.Header = http.Header{"Accept": {"application/json"}, "Accept-Encoding": {"identity"}}
	maps.Copy(req.Header, c.header)
	if err := c.authorize(ctx, req.Header); err != nil {
		return callError(ctx, ctx, err)
	}
	resp, err := c.e.Transport.RoundTrip(req)
	if err != nil {
		return callError(ctx, ctx, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return c.answerError(failed(ctx, resp), req.Header)
	}
	if err := encoded(resp); err != nil {
		return err
	}
	data, err := memlimit.ReadAll(io.LimitReader(resp.Body, most+1), min(resp.ContentLength, most), memory)
	var refused *memlimit.Refused
	switch {
	case errors.As(err, &refused):
		return refused
	case err != nil:
		return callError(ctx, ctx, err)
	}
	if memory != nil {
		defer memory.Release(cap(data))
	}
	if int64(len(data)) > most {
		return Broken(fmt.Sprintf("sent an answer of more than %d bytes", most), nil)
	}
	data = jsonscan.TrimSpace(bytes.TrimPrefix(data, []byte(byteOrderMark)))
	switch {
	case jsonscan.IsKind(data, '<'):
		return page()
	case !jsonscan.Valid(data):
		return Broken(fmt.Sprintf("sent an answer that is not valid JSON: %q", data[:min(len(data), maxQuoted)]), nil)
	}
	return c.answerError(read(data), req.Header)
}

// shortestKey is the length of the shortest key that is removed from errors. A
// shorter one, such as "none", is not a secret and can be a word of the message.
const shortestKey = 8

// answerError completes the error of an answer: it names the dialect of the body
// and removes the key of the request. Some providers repeat the key that they
// refuse, and errors are logged, stored and shown to clients.
func (c *Client) answerError(err error, sent http.Header) error {
	var e *model.Error
	if !errors.As(err, &e) {
		return err
	}
	if len(e.Body) > 0 {
		e.Dialect = c.dialect
	}
	key := strings.TrimPrefix(sent.Get("Authorization"), "Bearer ")
	if c.e.KeyHeader != "" {
		key = sent.Get(c.e.KeyHeader)
	}
	// AWS quotes the header of a request whose signature is wrong.
	for _, secret := range []string{key, sent.Get("X-Amz-Security-Token")} {
		if len(secret) >= shortestKey {
			const mark = "[the gateway's key]"
			e.Message = strings.ReplaceAll(e.Message, secret, mark)
			e.Body = bytes.ReplaceAll(e.Body, []byte(secret), []byte(mark))
		}
	}
	return err
}

// failed returns the error of an answer with an error status, or of the caller's
// context if that has ended.
func failed(ctx context.Context, resp *http.Response) error {
	err := statusError(resp)
	if ctx.Err() != nil {
		return &model.Error{Class: model.Gone, Err: ctx.Err()}
	}
	return err
}

// encoded returns an error for an answer with a content encoding. No request asks
// for one.
func encoded(resp *http.Response) error {
	if enc := resp.Header.Get("Content-Encoding"); enc != "" && enc != "identity" {
		return unreadable(fmt.Sprintf("answered with the content encoding %.40q", enc))
	}
	return nil
}

// StreamHeader returns the header of a request for an event stream.
func StreamHeader() http.Header {
	return http.Header{
		"Content-Type":    {"application/json"},
		"Accept":          {"text/event-stream, application/json"},
		"Accept-Encoding": {"identity"}, // compression delays the pieces of a stream
	}
}

// Stopped wraps the error of a function of the caller, to be returned unchanged
// by [Client.Stream].
type Stopped struct{ Err error }

func (s Stopped) Error() string { return s.Err.Error() }

// broken returns the error of an answer that was not read to its end.
func broken(ctx, call context.Context, resp *http.Response, err error) error {
	var mine Stopped
	if errors.As(err, &mine) {
		return mine.Err
	}
	var answer *model.Error
	if errors.As(callError(ctx, call, err), &answer) && answer.Class != model.Gone {
		answer.Status, answer.Header = resp.StatusCode, callerHeader(resp.Header)
	}
	return answer
}

// source reads an answer's body up to a limit. Every read with data resets the watch.
type source struct {
	src     io.Reader
	left    int64
	watch   *time.Timer
	silence time.Duration
}

func (s *source) Read(p []byte) (int, error) {
	if s.left <= 0 {
		var one [1]byte
		if n, err := s.src.Read(one[:]); n == 0 {
			return 0, err
		}
		return 0, Broken("sent an answer that is too large", errTooMuch)
	}
	n, err := s.src.Read(p[:min(int64(len(p)), s.left)])
	s.left -= int64(n)
	if n > 0 {
		s.watch.Reset(s.silence)
	}
	return n, err
}

// finish reads the end of the HTTP answer if it comes within lastWait.
func (s *source) finish() {
	s.watch.Reset(lastWait)
	_, _ = io.CopyN(io.Discard, s.src, 4<<10) // an error does not matter: the turn is complete
}

// Relay sends the request unchanged to a URL, and returns the answer as the provider
// gave it, without the fields that concern only this connection. It repeats
// nothing, reads nothing of the answer but its usage, and that only if req.Meter is set, and
// has no deadline but the caller's. usageOf reads a usage object of the dialect. What req.Ask
// changes is said at [relay.Request]; see also [asked].
func (c *Client) Relay(ctx context.Context, to *url.URL, req *relay.Request, usageOf func(object []byte) model.Usage) (*relay.Response, error) {
	if c.err != nil {
		return nil, c.err
	}
	header := http.Header(req.Header)
	if header == nil {
		header = http.Header{}
	}
	if req.Meter || header.Get("Accept-Encoding") == "" { // a compressed answer could not be metered
		header["Accept-Encoding"] = []string{"identity"} // otherwise the transport asks for gzip and undoes it
	}
	resp, asked, err := c.sendRelayed(ctx, to, header, req)
	if err != nil {
		return nil, callError(ctx, ctx, err)
	}
	if req.FailsOver && resp.StatusCode >= http.StatusBadRequest {
		defer resp.Body.Close()
		return nil, inDialect(req.Dialect, c.answerError(failed(ctx, resp), header))
	}
	endToEnd(resp.Header)
	answer := &relay.Response{
		Status: resp.StatusCode, Header: resp.Header, Body: resp.Body, Length: resp.ContentLength,
	}
	if req.Meter {
		if req.Dialect == model.DialectEndpoints && !structured(resp.Header.Get("Content-Type")) {
			usageOf = func([]byte) model.Usage { return model.Usage{} }
		}
		m := &usageMeter{ReadCloser: resp.Body, usageOf: usageOf, status: resp.StatusCode, untold: req.Untold}
		answer.Body, answer.Usage = m, m.usage
		if req.Dialect == model.DialectResponses { // the tools and the format of the request are in the answer
			m.depth = 1
			if isEventStream(resp.Header) {
				m.depth = 2
			}
		}
		if asked && isEventStream(resp.Header) {
			answer.Body, answer.Length = &withoutUsage{usageMeter: m}, -1
			resp.Header.Del("Content-Length")
		}
	}
	return answer, nil
}

func isEventStream(h http.Header) bool {
	return strings.Contains(strings.ToLower(h.Get("Content-Type")), "event-stream")
}

// structured reports whether an answer of the content type can say its usage. In plain text or sound, what
// looks like it may have been spoken by the client. "" is a provider that does not say the type.
func structured(contentType string) bool {
	kind, _, _ := strings.Cut(strings.ToLower(contentType), ";")
	return kind == "" || strings.Contains(kind, "json") || strings.Contains(kind, "event-stream")
}

// inDialect sets the dialect of an error's body.
func inDialect(dialect string, err error) error {
	if e, ok := errors.AsType[*model.Error](err); ok && len(e.Body) > 0 {
		e.Dialect = dialect
	}
	return err
}

// endToEnd removes the fields that are about this connection or the provider's own
// site: cookies, alternative services, browser policies, cross-origin access. A
// client would apply them to the gateway.
func endToEnd(h http.Header) {
	for _, list := range h["Connection"] {
		for name := range strings.SplitSeq(list, ",") {
			h.Del(strings.TrimSpace(name))
		}
	}
	for name := range h {
		if ofConnection(name) {
			delete(h, name)
		}
	}
}

// ofConnection reports whether a field is one of those that endToEnd removes. The name is
// in canonical form, as net/http has it.
func ofConnection(name string) bool {
	switch name {
	case "Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Te", "Trailer",
		"Transfer-Encoding", "Upgrade", "Set-Cookie", "Set-Cookie2",
		"Alt-Svc", "Strict-Transport-Security", "Clear-Site-Data", "Nel", "Report-To", "Reporting-Endpoints",
		"Access-Control-Allow-Origin", "Access-Control-Allow-Credentials", "Access-Control-Expose-Headers":
		return true
	}
	return false
}

// send makes one request, whose body are the parts. A large body is not read after send returns. The error
// is the transport's own, or a *model.Error. release, if not nil, is called when the answer
// to a request with a large body has begun: nothing refers to the parts then.
func (c *Client) send(ctx context.Context, to *url.URL, header http.Header, release func(), parts ...[]byte) (*http.Response, error) {
	if err := c.authorize(ctx, header); err != nil {
		return nil, err
	}
	length := 0
	for _, part := range parts {
		length += len(part)
	}
	if length <= smallBody {
		return c.sendSmall(ctx, to, header, inOne(parts))
	}
	body := newBody(parts)
	req := c.template.WithContext(ctx)
	req.URL, req.Header, req.Body, req.ContentLength = to, header, body, int64(length)
	if err := c.sign(ctx, req, parts); err != nil {
		return nil, err
	}
	// The transport asks for the body again only where nothing of the request
	// was sent: on a kept connection that the provider had closed meanwhile.
	req.GetBody = func() (io.ReadCloser, error) {
		body = newBody(parts)
		return body, nil
	}
	resp, err := c.e.Transport.RoundTrip(req)
	if err != nil {
		body.drop()
		return nil, err
	}
	body.detach()
	// A stream can stay open for long. Free the body: the answer refers to the
	// request, and the transport to a copy of it whose GetBody refers to data.
	req.GetBody, parts = nil, nil
	if release != nil {
		release()
	}
	return resp, nil
}

// inOne returns the parts as one.
func inOne(parts [][]byte) []byte {
	if len(parts) == 1 {
		return parts[0]
	}
	return bytes.Join(parts, nil)
}

// sendOpened makes one request with a body that is not in memory.
func (c *Client) sendOpened(ctx context.Context, to *url.URL, header http.Header, open func() io.ReadCloser, length int64) (*http.Response, error) {
	if err := c.authorize(ctx, header); err != nil {
		return nil, err
	}
	req := c.template.WithContext(ctx)
	req.URL, req.Header, req.Body, req.ContentLength = to, header, open(), length
	req.GetBody = func() (io.ReadCloser, error) { return open(), nil }
	return c.e.Transport.RoundTrip(req)
}

// smallBody is the largest body that stays in memory until the answer ends. The
// transport sends a body that it knows to be in memory in one write with the header.
// For any other body it writes the header first.
const smallBody = 4 << 10

func (c *Client) sendSmall(ctx context.Context, to *url.URL, header http.Header, data []byte) (*http.Response, error) {
	body := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }
	req := c.template.WithContext(ctx)
	req.URL, req.Header, req.ContentLength, req.GetBody = to, header, int64(len(data)), body
	if err := c.sign(ctx, req, [][]byte{data}); err != nil {
		return nil, err
	}
	req.Body, _ = body()
	return c.e.Transport.RoundTrip(req)
}

// authorize sets the key in place of the caller's.
func (c *Client) authorize(ctx context.Context, header http.Header) error {
	delete(header, "Authorization") // the name is in canonical form
	if c.e.APIKey == nil {
		return nil
	}
	key, err := c.e.APIKey(ctx)
	switch {
	case err != nil && ctx.Err() != nil:
		return err // the caller's context ended
	case err != nil:
		return &model.Error{Class: model.Target, Message: "provider key", Err: err}
	case key == "":
	case c.e.KeyHeader != "":
		header.Set(c.e.KeyHeader, key)
	default:
		header["Authorization"] = []string{"Bearer " + key}
	}
	return nil
}

func (c *Client) sign(ctx context.Context, r *http.Request, body [][]byte) error {
	if c.e.Sign == nil {
		return nil
	}
	err := c.e.Sign(ctx, r, inOne(body))
	var known *model.Error
	if err == nil || ctx.Err() != nil || errors.As(err, &known) {
		return err
	}
	return &model.Error{Class: model.Target, Message: "provider credentials", Err: err}
}
