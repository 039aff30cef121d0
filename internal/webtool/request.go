package webtool

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/http/httpguts"

	"github.com/turnpike-gateway/turnpike/internal/builtin"
	"github.com/turnpike-gateway/turnpike/internal/egress"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/tool"
)

const (
	// MaxRequestCharacters is how many characters of a body http_request returns.
	MaxRequestCharacters = 10_000

	maxHeaders     = 30
	maxHeaderValue = 4 << 10
	maxRequestBody = 256 << 10
)

func requestDefinition() tool.Definition {
	return tool.Definition{
		Name:        builtin.HTTPRequest,
		Description: "Send an HTTP request to a public URL and return the status and the body as text, at most 10,000 characters of it. GET and HEAD follow redirects. Use web_scrape to read a page.",
		InputSchema: json.RawMessage(`{"type":"object","properties":{` +
			`"url":{"type":"string","description":"Absolute http or https URL."},` +
			`"method":{"type":"string","enum":["GET","HEAD","POST","PUT","PATCH","DELETE"],"default":"GET"},` +
			`"headers":{"type":"object","maxProperties":30,"additionalProperties":{"type":"string"},"description":"Request headers."},` +
			`"body":{"type":"string","description":"Request body, not for GET and HEAD. JSON needs the header Content-Type: application/json."}` +
			`},"required":["url"],"additionalProperties":false}`),
		Annotations: tool.Annotations{OpenWorld: new(true)},
	}
}

// requestArguments are the arguments of http_request.
type requestArguments struct {
	URL     string            `json:"url"`
	Method  string            `json:"method"`
	Headers map[string]string `json:"headers"`
	Body    *string           `json:"body"`
}

// request executes a call of http_request.
func (s *Source) request(ctx context.Context, c tool.Call) (tool.Result, error) {
	settings := s.o.Settings()
	var a requestArguments
	if err := decode(c.Arguments, &a); err != nil {
		return tool.Result{}, err
	}
	req, err := a.request(settings)
	if err != nil {
		return tool.Result{}, err
	}
	const most = utf8.UTFMax * MaxRequestCharacters
	release, err := reserve(c, most)
	if err != nil {
		return tool.Result{}, err
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	reads := req.Method == http.MethodGet || req.Method == http.MethodHead
	x, err := s.fetch(limited, req, func(u *url.URL) error { return allowHost(settings, u) })
	if err != nil {
		release(tool.Result{})
		return tool.Result{}, failed(ctx, limited, x, err, reads)
	}
	defer x.resp.Body.Close()
	data, more, err := readBody(x.resp, most)
	if err != nil {
		release(tool.Result{})
		return tool.Result{}, failed(ctx, limited, x, err, reads)
	}
	r := requestResult(x, data, more)
	release(r)
	return r, nil
}

// request returns the request that the arguments ask for.
func (a requestArguments) request(settings org.Web) (*http.Request, error) {
	u, err := parseURL(a.URL)
	if err != nil {
		return nil, err
	}
	method := strings.ToUpper(a.Method)
	if method == "" {
		method = http.MethodGet
	}
	methods := settings.HTTPMethods
	if len(methods) == 0 {
		methods = org.WebMethods()
	}
	switch {
	case !slices.Contains(org.WebMethods(), method):
		return nil, refuse("the method %s is not possible; want %s", cutText(method, 20), strings.Join(methods, ", "))
	case !slices.Contains(methods, method):
		return nil, &refusal{text: fmt.Sprintf("the method %s is not allowed here; allowed are %s", method, strings.Join(methods, ", ")), setting: "web.http_methods"}
	case a.Body != nil && (method == http.MethodGet || method == http.MethodHead):
		return nil, refuse("a %s request has no body; use another method, or leave body out", method)
	case a.Body != nil && len(*a.Body) > maxRequestBody:
		return nil, refuse("the body is longer than %d bytes", maxRequestBody)
	}
	req := &http.Request{Method: method, URL: u, Host: u.Host, Header: http.Header{"User-Agent": {userAgent}}}
	if a.Body != nil { // without GetBody: net/http must not send it twice by itself
		req.Body, req.ContentLength = io.NopCloser(strings.NewReader(*a.Body)), int64(len(*a.Body))
		req.Header.Set("Content-Type", "text/plain; charset=utf-8")
	} else if method != http.MethodGet && method != http.MethodHead {
		req.Body = io.NopCloser(strings.NewReader("")) // the same
	}
	return req, a.setHeaders(req.Header)
}

// setHeaders adds the headers of the arguments, except those that only the gateway may set.
func (a requestArguments) setHeaders(h http.Header) error {
	if len(a.Headers) > maxHeaders {
		return refuse("the request has more than %d headers", maxHeaders)
	}
	for name, value := range a.Headers {
		switch canonical := http.CanonicalHeaderKey(name); {
		case !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) || len(value) > maxHeaderValue:
			return refuse("the header %q is not valid", cutText(name, 60))
		case canonical == "Content-Type", canonical == "Accept":
		case egress.ForbiddenHeader(name):
			return refuse("the header %s cannot be set by a tool call; leave it out", canonical)
		}
		h.Set(name, value)
	}
	return nil
}

// allowHost returns a refusal for hosts that the org has not allowed.
func allowHost(settings org.Web, u *url.URL) error {
	host := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
	if len(settings.HTTPHosts) == 0 || slices.ContainsFunc(settings.HTTPHosts, func(pattern string) bool { return matchHost(pattern, host) }) {
		return nil
	}
	return &refusal{text: fmt.Sprintf("requests to %s are not allowed here", cutText(host, 253)), setting: "web.http_hosts"}
}

// matchHost reports whether a pattern of the settings has the host.
func matchHost(pattern, host string) bool {
	if pattern == "*" {
		return true
	}
	if below, ok := strings.CutPrefix(pattern, "*."); ok {
		return strings.HasSuffix(host, "."+below)
	}
	return host == pattern
}

// requestResult returns the result of a response.
func requestResult(x exchange, data []byte, more bool) tool.Result {
	h := x.resp.Header
	var b strings.Builder
	fmt.Fprintln(&b, strings.TrimSpace(fmt.Sprint(x.resp.StatusCode, " ", http.StatusText(x.resp.StatusCode))))
	for _, name := range []string{"Content-Type", "Location", "Retry-After"} {
		if value := h.Get(name); value != "" {
			fmt.Fprintf(&b, "%s: %s\n", name, cutText(value, 500))
		}
	}
	b.WriteByte('\n')
	text, ok := textOf(data, h.Get("Content-Type"), more)
	switch {
	case !ok:
		fmt.Fprintf(&b, "[content that is not text: %s]", x.contentType())
	default:
		shown := cutText(text, MaxRequestCharacters)
		b.WriteString(shown)
		if more || len(shown) < len(text) {
			fmt.Fprintf(&b, "\n\n[Truncated: the body is longer than %d characters]", MaxRequestCharacters)
		}
	}
	r := tool.Text(b.String())
	r.IsError = x.resp.StatusCode >= http.StatusBadRequest
	return r
}

// contentType returns the media type of a response for the model.
func (x exchange) contentType() string {
	if kind := mediaType(x.resp.Header.Get("Content-Type")); kind != "" {
		return kind
	}
	return "unknown type"
}
