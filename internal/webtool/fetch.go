package webtool

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"golang.org/x/net/html"
	"golang.org/x/net/html/charset"
	"golang.org/x/net/idna"
	"golang.org/x/text/encoding"

	"github.com/turnpike-gateway/turnpike/internal/egress"
	"github.com/turnpike-gateway/turnpike/tool"
)

const (
	userAgent    = "turnpike-tools"
	maxURL       = 4000 // bytes: the outbound policy ends the run for URLs of 4,096 and more
	maxRedirects = 5
	timeout      = 30 * time.Second // of a call, with all its redirects
)

// parseURL reads a URL that a model or a page wrote. What no request can have is a refusal. Whether the
// address is allowed is decided when it is requested.
func parseURL(text string) (*url.URL, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return nil, refuse("the URL is empty; want one such as https://example.com/page")
	}
	if len(text) > maxURL {
		return nil, refuse("the URL is longer than %d bytes", maxURL)
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, refuse("the URL cannot be read; want one such as https://example.com/page")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, refuse("the URL must begin with https:// or http://")
	case u.Host == "" || u.Opaque != "":
		return nil, refuse("the URL has no host; want one such as https://example.com/page")
	case u.User != nil:
		return nil, refuse("the URL has a user name in it; use a header for credentials")
	}
	if host := u.Hostname(); !isASCII(host) {
		ascii, err := idna.Lookup.ToASCII(host)
		if err != nil {
			return nil, refuse("the host of the URL is not a valid name")
		}
		u.Host = ascii + strings.TrimPrefix(u.Host, host)
	}
	u.Fragment, u.RawFragment = "", "" // no part of a request
	u.RawQuery = escaped(u.RawQuery)
	if len(u.String()) > maxURL {
		return nil, refuse("the URL is longer than %d bytes", maxURL)
	}
	return u, nil
}

func isASCII(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r >= utf8.RuneSelf }) < 0
}

// escaped escapes what the outbound policy does not let pass in a query.
func escaped(query string) string {
	var b strings.Builder
	for i := range len(query) {
		if c := query[i]; c <= ' ' || c >= 0x7f || c == '\\' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// exchange is one request with what was found out about it.
type exchange struct {
	resp *http.Response
	url  *url.URL // of the response
	sent bool     // a request may have reached a host
}

// fetch sends the request and follows redirects of GET and HEAD. allowed decides about each URL; nil = all.
// The caller closes the body.
func (s *Source) fetch(ctx context.Context, req *http.Request, allowed func(*url.URL) error) (exchange, error) {
	x := exchange{url: req.URL}
	for hop := 0; ; hop++ {
		if allowed != nil {
			if err := allowed(req.URL); err != nil {
				return x, err
			}
		}
		var wrote atomic.Bool
		traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
			GotConn: func(i httptrace.GotConnInfo) {
				if c, secure := i.Conn.(*tls.Conn); secure && c.ConnectionState().NegotiatedProtocol == "h2" {
					wrote.Store(true) // a request may be written after Do has returned
				}
			},
			WroteHeaders: func() { wrote.Store(true) },
		})
		resp, err := s.client.Do(req.WithContext(traced))
		x.sent = x.sent || wrote.Load() || err == nil
		if err != nil {
			return x, err
		}
		x.resp, x.url = resp, req.URL
		next, err := redirect(req, resp)
		if next == nil && err == nil {
			return x, nil
		}
		_ = resp.Body.Close()
		x.resp = nil
		if err == nil && hop == maxRedirects {
			err = refuse("the page redirects more than %d times", maxRedirects)
		}
		if err != nil {
			return x, err
		}
		req = next
	}
}

// redirect returns the request that a response redirects to; nil = the response is to be used.
func redirect(req *http.Request, resp *http.Response) (*http.Request, error) {
	switch resp.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
	default:
		return nil, nil
	}
	if req.Method != http.MethodGet && req.Method != http.MethodHead || resp.Header.Get("Location") == "" {
		return nil, nil
	}
	to, err := resp.Location()
	if err != nil {
		return nil, refuse("the page redirects to a URL that cannot be read")
	}
	if to.Scheme != "http" && to.Scheme != "https" || to.User != nil {
		return nil, &egress.BlockedError{Reason: "redirect", Host: to.Hostname()}
	}
	if to, err = parseURL(to.String()); err != nil {
		return nil, refuse("the page redirects to a URL that cannot be used: %v", err)
	}
	next := &http.Request{Method: req.Method, URL: to, Host: to.Host, Header: req.Header.Clone()}
	if to.Scheme != req.URL.Scheme || to.Host != req.URL.Host { // what the model sends to one host is not for another
		next.Header = http.Header{"Accept": req.Header["Accept"], "User-Agent": req.Header["User-Agent"]}
	}
	return next, nil
}

// failed returns what a failed exchange is for the caller: a refusal for the model, or an error that the run
// must know. reads says that the request changes nothing.
func failed(ctx, limited context.Context, x exchange, err error, reads bool) error {
	var fatal tool.Blocked
	var told *refusal
	switch {
	case errors.As(err, &fatal):
		reason, _ := fatal.Blocked()
		return notSent(x, &callError{"refused by the outbound policy: " + reason, err})
	case errors.As(err, &told):
		return err
	case ctx.Err() != nil:
		return notSent(x, &callError{"the run has ended", context.Cause(ctx)})
	}
	text := describe(limited, x, err)
	if reads || !x.sent {
		return &refusal{text: text}
	}
	return &callError{text, plain(err)}
}

func notSent(x exchange, err error) error {
	if x.sent {
		return err
	}
	return fmt.Errorf("%w: %w", tool.ErrNotSent, err)
}

// callError is an error without a result. Its text has no address; the error that it wraps is for the log.
type callError struct {
	text  string
	cause error
}

func (e *callError) Error() string { return e.text }

func (e *callError) Unwrap() error { return e.cause }

// plain returns an error of net/http without the URL.
func plain(err error) error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		return wrapped.Err
	}
	return err
}

// describe says why there is no response, without addresses.
func describe(limited context.Context, x exchange, err error) string {
	var name *net.DNSError
	var certificate *tls.CertificateVerificationError
	switch {
	case limited.Err() != nil:
		return fmt.Sprintf("the host did not answer within %s", timeout)
	case errors.As(err, &name):
		return "the name of the host could not be resolved"
	case errors.As(err, &certificate):
		return "the certificate of the host is not trusted"
	case !x.sent:
		return "the host could not be reached"
	}
	return "the connection was closed before the answer was complete"
}

// readBody reads at most n bytes of a body, decompressed, and reports whether there are more. The compressed
// bytes are bounded by the same number.
func readBody(resp *http.Response, n int) (data []byte, more bool, err error) {
	body, err := egress.Unpack(resp.Header, io.LimitReader(resp.Body, int64(n)+1))
	if err != nil {
		return nil, false, refuse("%s", err)
	}
	var b bytes.Buffer
	_, err = io.Copy(&b, io.LimitReader(body, int64(n)+1))
	data = b.Bytes()
	if len(data) > n {
		return data[:n], true, nil
	}
	if errors.Is(err, io.ErrUnexpectedEOF) && len(data) > 0 && resp.Header.Get("Content-Encoding") != "" {
		return data, true, nil // the compressed bytes were cut
	}
	return data, false, err
}

// textOf decodes text by the charset that the header or the content names; false if it is not text.
func textOf(data []byte, contentType string, cut bool) (string, bool) {
	if cut { // perhaps in the middle of a character
		for i := 1; i < utf8.UTFMax && i <= len(data); i++ {
			if last := data[len(data)-i:]; utf8.RuneStart(last[0]) {
				if !utf8.FullRune(last) {
					data = data[:len(data)-i]
				}
				break
			}
		}
	}
	if utf8.Valid(data) && bytes.IndexByte(data, 0) < 0 {
		return strings.TrimPrefix(string(data), "\ufeff"), true
	}
	coding, _, certain := charset.DetermineEncoding(data, contentType)
	if !certain {
		coding = cmp.Or(declared(data), coding)
	}
	if !certain && !textual(contentType) {
		return "", false
	}
	decoded, err := coding.NewDecoder().Bytes(data)
	if err != nil || bytes.IndexByte(decoded, 0) >= 0 {
		return "", false
	}
	return strings.TrimPrefix(strings.ToValidUTF8(string(decoded), "\ufffd"), "\ufeff"), true
}

// declared returns the encoding that the head of a page names, wherever in the head, or the declaration of an XML document;
// nil = there is none.
func declared(data []byte) encoding.Encoding {
	form := regexp.MustCompile(`^\s*<\?xml[^>]{0,200}\sencoding\s*=\s*["']([\w.:-]+)["']`)
	if m := form.FindSubmatch(data[:min(len(data), 1024)]); m != nil {
		e, _ := charset.Lookup(string(m[1]))
		return e
	}
	z := html.NewTokenizer(bytes.NewReader(data))
	for {
		kind := z.Next()
		name, _ := z.TagName()
		switch {
		case kind == html.ErrorToken, string(name) == "body", kind == html.EndTagToken && string(name) == "head":
			return nil
		case (kind == html.StartTagToken || kind == html.SelfClosingTagToken) && string(name) == "meta":
			if e, found, _ := charset.DetermineEncoding(z.Raw(), ""); found != "windows-1252" { // which it returns without a name, too
				return e
			}
		}
	}
}

// textual reports whether a content type is that of text.
func textual(contentType string) bool {
	kind := mediaType(contentType)
	return strings.HasPrefix(kind, "text/") || strings.HasSuffix(kind, "json") || strings.HasSuffix(kind, "xml") || kind == "application/javascript"
}

// mediaType returns the media type of a content type; "" = it has none.
func mediaType(contentType string) string {
	kind, _, err := mime.ParseMediaType(contentType)
	if err != nil && kind == "" || len(kind) > 100 {
		return ""
	}
	return strings.ToLower(kind)
}

// cutText returns at most n characters of a text.
func cutText(text string, n int) string {
	count := 0
	for i := range text {
		if count == n {
			return text[:i]
		}
		count++
	}
	return text
}
