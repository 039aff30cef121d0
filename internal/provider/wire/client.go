// Package wire is what every adapter of an HTTP provider needs, once: requests
// with the gateway's credential, a watch over silence, bounded answers, error
// classes, header hygiene, and walks over JSON that keep every byte.
//
//	c := wire.New(wire.Options{BaseURL: "https://api.example.com/v1", Transport: rt})
//	err := c.Stream(ctx, c.URL("/chat/completions"), header, body, func(answer io.Reader) error { … })
package wire

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/ledger"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

const (
	defaultSilence = 120 * time.Second
	// MaxAnswer is how many bytes of one answer are read in all.
	MaxAnswer = 64 << 20
	// MaxTurn is how many of them may be the model's own words: text, reasoning,
	// refusal and arguments together. A million tokens are less.
	MaxTurn = 8 << 20
	// MaxCalls is how many tool calls one turn may have.
	MaxCalls = 1024
	// lastWait is how long the end of the HTTP answer may follow the end of the
	// turn. The connection can be used again only when it has been seen.
	lastWait = 50 * time.Millisecond
)

// Options say which provider a Client talks to.
type Options struct {
	// BaseURL is everything before the path of a request, such as
	// "https://api.openai.com/v1". A query in it is sent with every request.
	BaseURL string
	// APIKey returns the key, at every call; nil or "" means that no key is sent.
	APIKey func(context.Context) (string, error)
	// KeyHeader is the field that carries the bare key; "" means
	// "Authorization: Bearer KEY".
	KeyHeader string
	// Transport sends the requests. It is required.
	Transport http.RoundTripper
	// Silence is how long the provider may send nothing during Stream; 0 means 120 s.
	Silence time.Duration
}

// Client sends requests to one provider. It is safe for concurrent use.
type Client struct {
	o        Options
	template http.Request // what all requests share
	err      error        // the base URL cannot be used
}

// New returns a Client. It connects to nothing. A base URL that cannot be parsed
// shows as an error of class Target at every call.
func New(o Options) *Client {
	if o.Silence <= 0 {
		o.Silence = defaultSilence
	}
	c := &Client{o: o}
	base, err := url.Parse(strings.TrimSpace(o.BaseURL))
	if err == nil && base.Host == "" {
		err = fmt.Errorf("%q has no host", o.BaseURL)
	}
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
// handed to read.
func (c *Client) Stream(ctx context.Context, to *url.URL, header http.Header, body []byte, read func(io.Reader) error) error {
	if c.err != nil {
		return c.err
	}
	call, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watch := time.AfterFunc(c.o.Silence, func() { cancel(ErrSilent) })
	defer watch.Stop()

	resp, err := c.send(call, to, header, body)
	if err != nil {
		return callError(ctx, call, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return c.withoutKey(failed(ctx, resp), header)
	}
	if err := encoded(resp); err != nil {
		return err
	}
	src := &source{src: resp.Body, left: MaxAnswer, watch: watch, silence: c.o.Silence}
	if err := read(src); err != nil {
		return c.withoutKey(broken(ctx, call, resp, err), header)
	}
	src.finish()
	return nil
}

// Get reads the answer to GET path, at most so many bytes, and hands it to read.
// It is charged to memory, if there is one, until read returns. The caller sets
// the deadline. The error is that of read, an *[model.Error], or a
// *[ledger.Refused].
func (c *Client) Get(ctx context.Context, path string, most int64, memory tool.Memory, read func([]byte) error) error {
	if c.err != nil {
		return c.err
	}
	req := c.template.WithContext(ctx)
	req.Method, req.URL = http.MethodGet, c.URL(path)
	req.Header = http.Header{"Accept": {"application/json"}, "Accept-Encoding": {"identity"}}
	if err := c.authorize(ctx, req.Header); err != nil {
		return callError(ctx, ctx, err)
	}
	resp, err := c.o.Transport.RoundTrip(req)
	if err != nil {
		return callError(ctx, ctx, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return c.withoutKey(failed(ctx, resp), req.Header)
	}
	if err := encoded(resp); err != nil {
		return err
	}
	data, err := ledger.ReadAll(io.LimitReader(resp.Body, most+1), min(resp.ContentLength, most), memory)
	var refused *ledger.Refused
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
	data = TrimSpace(bytes.TrimPrefix(data, []byte(byteOrderMark)))
	switch {
	case IsKind(data, '<'):
		return page()
	case !Valid(data):
		return Broken(fmt.Sprintf("sent an answer that is not valid JSON: %q", data[:min(len(data), maxQuoted)]), nil)
	}
	return c.withoutKey(read(data), req.Header)
}

// shortestKey is the length from which on a key is looked for in errors. A
// shorter one, such as "none", is no secret and may be a word.
const shortestKey = 8

// withoutKey removes the key of the request from the error of an answer. Some
// providers repeat the key that they refuse, and errors are logged, stored and
// shown to clients.
func (c *Client) withoutKey(err error, sent http.Header) error {
	key := strings.TrimPrefix(sent.Get("Authorization"), "Bearer ")
	if c.o.KeyHeader != "" {
		key = sent.Get(c.o.KeyHeader)
	}
	var e *model.Error
	if len(key) < shortestKey || !errors.As(err, &e) {
		return err
	}
	const mark = "[the gateway's key]"
	e.Message = strings.ReplaceAll(e.Message, key, mark)
	e.Body = bytes.ReplaceAll(e.Body, []byte(key), []byte(mark))
	return err
}

// failed returns the error of an answer whose status says that the call failed,
// unless the caller left while it was read.
func failed(ctx context.Context, resp *http.Response) error {
	err := statusError(resp)
	if ctx.Err() != nil {
		return &model.Error{Class: model.Gone, Err: ctx.Err()}
	}
	return err
}

// encoded refuses an answer with a content encoding: no request asks for one.
func encoded(resp *http.Response) error {
	if enc := resp.Header.Get("Content-Encoding"); enc != "" && enc != "identity" {
		return Broken(fmt.Sprintf("answered with the content encoding %.40q", enc), nil)
	}
	return nil
}

// StreamHeader returns the header of a request for an event stream.
func StreamHeader() http.Header {
	return http.Header{
		"Content-Type":    {"application/json"},
		"Accept":          {"text/event-stream, application/json"},
		"Accept-Encoding": {"identity"}, // a compressed stream comes in lumps
	}
}

// Stopped wraps the error of a function of the caller, to be returned unchanged
// by [Client.Stream].
type Stopped struct{ Err error }

func (s Stopped) Error() string { return s.Err.Error() }

// broken returns the error of an answer that did not come to its end.
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

// source reads an answer's body, within its size, and resets the watch.
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

// finish reads to the end of the HTTP answer, where that comes soon.
func (s *source) finish() {
	s.watch.Reset(lastWait)
	_, _ = io.CopyN(io.Discard, s.src, 4<<10) // the turn is complete whatever comes
}

// Relay sends the request unchanged to a URL, and returns the answer as the provider
// gave it, without the fields that concern only this connection. It repeats
// nothing, reads nothing of the answer, and has no deadline but the caller's.
func (c *Client) Relay(ctx context.Context, to *url.URL, req *model.RelayRequest) (*model.RelayResponse, error) {
	if c.err != nil {
		return nil, c.err
	}
	header := req.Header
	if header == nil {
		header = http.Header{}
	}
	if header.Get("Accept-Encoding") == "" {
		header.Set("Accept-Encoding", "identity") // otherwise the transport asks for gzip and undoes it
	}
	resp, err := c.send(ctx, to, header, req.Body) //nolint:bodyclose // the caller closes it
	if err != nil {
		return nil, callError(ctx, ctx, err)
	}
	endToEnd(resp.Header)
	return &model.RelayResponse{
		Status: resp.StatusCode, Header: resp.Header, Body: resp.Body, Length: resp.ContentLength,
	}, nil
}

// endToEnd removes what concerns only this connection, and what the provider
// says of its own site: cookies, other ways to reach it, how browsers shall
// treat it, who may read its answers. Passed on, it would be said of the gateway.
func endToEnd(h http.Header) {
	for _, list := range h["Connection"] {
		for name := range strings.SplitSeq(list, ",") {
			h.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range [...]string{
		"Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Te", "Trailer",
		"Transfer-Encoding", "Upgrade", "Set-Cookie", "Set-Cookie2",
		"Alt-Svc", "Strict-Transport-Security", "Clear-Site-Data", "Nel", "Report-To", "Reporting-Endpoints",
		"Access-Control-Allow-Origin", "Access-Control-Allow-Credentials", "Access-Control-Expose-Headers",
	} {
		delete(h, name)
	}
}

// send makes one request. A large body is not read after send returns. The error
// is the transport's own, or a *model.Error.
func (c *Client) send(ctx context.Context, to *url.URL, header http.Header, data []byte) (*http.Response, error) {
	if err := c.authorize(ctx, header); err != nil {
		return nil, err
	}
	if len(data) <= smallBody {
		return c.sendSmall(ctx, to, header, data)
	}
	body := &sentBody{rest: data}
	req := c.template.WithContext(ctx)
	req.URL, req.Header, req.Body, req.ContentLength = to, header, body, int64(len(data))
	// The transport asks for the body again only where nothing of the request
	// was sent: on a kept connection that the provider had closed meanwhile.
	req.GetBody = func() (io.ReadCloser, error) {
		body = &sentBody{rest: data}
		return body, nil
	}
	resp, err := c.o.Transport.RoundTrip(req)
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

func (c *Client) sendSmall(ctx context.Context, to *url.URL, header http.Header, data []byte) (*http.Response, error) {
	body := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }
	req := c.template.WithContext(ctx)
	req.URL, req.Header, req.ContentLength, req.GetBody = to, header, int64(len(data)), body
	req.Body, _ = body()
	return c.o.Transport.RoundTrip(req)
}

// authorize sets the key in place of the caller's.
func (c *Client) authorize(ctx context.Context, header http.Header) error {
	header.Del("Authorization")
	if c.o.APIKey == nil {
		return nil
	}
	key, err := c.o.APIKey(ctx)
	switch {
	case err != nil && ctx.Err() != nil:
		return err // the caller left
	case err != nil:
		return &model.Error{Class: model.Target, Message: "provider key", Err: err}
	case key == "":
	case c.o.KeyHeader != "":
		header.Set(c.o.KeyHeader, key)
	default:
		header.Set("Authorization", "Bearer "+key)
	}
	return nil
}
