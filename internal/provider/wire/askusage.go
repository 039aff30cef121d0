package wire

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/model"
)

const (
	streamOptions = "stream_options"
	includeUsage  = "include_usage"
)

// maxRefusals is how many models are remembered. One more, and all are forgotten.
const maxRefusals = 256

// refusals remembers the models that refuse stream_options, until the process ends. The zero value is empty.
type refusals struct {
	mu     sync.Mutex
	models map[string]bool // by the provider's name of the model
}

func (r *refusals) has(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.models[name]
}

func (r *refusals) add(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.models == nil || len(r.models) >= maxRefusals {
		r.models = map[string]bool{}
	}
	r.models[name] = true
}

// Asks reports whether requests for streams of the model ask for the usage with stream_options.
func (c *Client) Asks(name string) bool { return !c.unasked.has(name) }

// Unasked remembers that the model answers without stream_options, and refuses requests with it.
func (c *Client) Unasked(ctx context.Context, name string) {
	c.unasked.add(name)
	c.e.Log.LogAttrs(ctx, slog.LevelWarn, "the provider refuses stream_options: streams are requested without it, and cost what is reserved if they have no usage",
		slog.String("model", name))
}

// RefusesStreamOptions reports whether an answer refuses the member stream_options, and perhaps nothing else.
func RefusesStreamOptions(status int, body []byte) bool {
	refused := status == http.StatusBadRequest || status == http.StatusUnprocessableEntity
	return refused && (bytes.Contains(body, []byte(streamOptions)) || bytes.Contains(body, []byte(includeUsage)))
}

// asking is the change to a body that asks for the usage of a stream: text in place of the bytes from at to end.
type asking struct {
	model   string
	at, end int64
	text    string
}

// askingOf returns the change to the body of a request that is to ask for the usage. ok is false if the request is for no
// stream, asks by itself, or has members twice, so that nobody knows which the provider takes.
func askingOf(req *model.RelayRequest) (a asking, ok bool) {
	streams, options, known := 0, 0, true
	member := func(name string, value []byte, at, end int64) error {
		switch name {
		case "model":
			a.model = jsonscan.Text(value)
		case "stream":
			streams++
			known = known && string(value) == "true"
			if options == 0 {
				a.at, a.end, a.text = end, end, `,"`+streamOptions+`":{"`+includeUsage+`":true}`
			}
		case streamOptions:
			options++
			text, asks := withUsage(value)
			known = known && asks
			a.at, a.end, a.text = at, end, text
		}
		return nil
	}
	var err error
	if req.Open != nil {
		body := req.Open()
		err = errors.Join(jsonscan.ObjectFrom(body, maxAskMember, member), body.Close())
	} else {
		err = jsonscan.Object(req.Body, func(name string, value []byte, at int) error {
			return member(name, value, int64(at), int64(at+len(value)))
		})
	}
	return a, err == nil && known && streams == 1 && options <= 1
}

// maxAskMember is how many bytes of a member are read.
const maxAskMember = 8 << 10

// withUsage returns stream options that ask for the usage. ok is false if the options do so, or are none.
func withUsage(options []byte) (text string, ok bool) {
	out := `{"` + includeUsage + `":true`
	switch {
	case string(options) == "null":
	case !jsonscan.IsKind(options, '{'):
		return "", false
	default:
		for name, v := range jsonscan.Members(options) {
			if string(name) == includeUsage && string(v) == "true" {
				return "", false
			}
			if string(name) != includeUsage {
				out += "," + string(jsonscan.AppendString(nil, name)) + ":" + string(v)
			}
		}
	}
	return out + "}", true
}

// sendRelayed sends the request of a relay. asked is true if it was changed to ask for the usage. A provider that
// refuses the change is asked once more without it, and not any more for this model.
func (c *Client) sendRelayed(ctx context.Context, to *url.URL, header http.Header, req *model.RelayRequest) (resp *http.Response, asked bool, err error) {
	var a asking
	if req.Ask && (req.Path == "/chat/completions" || req.Path == "/completions") {
		a, asked = askingOf(req)
	}
	if !asked || !c.Asks(a.model) {
		resp, err = c.sendUnchanged(ctx, to, header, req)
		return resp, false, err
	}
	if req.Open == nil {
		resp, err = c.send(ctx, to, header, nil, req.Body[:a.at], []byte(a.text), req.Body[a.end:])
	} else {
		resp, err = c.sendOpened(ctx, to, header, func() io.ReadCloser { return a.changed(req.Open()) }, req.Length+int64(len(a.text))-(a.end-a.at))
	}
	if err != nil {
		return nil, true, err
	}
	if resp.StatusCode < http.StatusBadRequest || !refusesOptions(resp) {
		if req.Open == nil && len(req.Body) > smallBody && req.Release != nil {
			req.Release()
		}
		return resp, true, nil
	}
	_ = resp.Body.Close()
	if resp, err = c.sendUnchanged(ctx, to, header, req); err == nil && resp.StatusCode < http.StatusMultipleChoices {
		c.Unasked(ctx, a.model)
	}
	return resp, false, err
}

func (c *Client) sendUnchanged(ctx context.Context, to *url.URL, header http.Header, req *model.RelayRequest) (*http.Response, error) {
	if req.Open != nil {
		return c.sendOpened(ctx, to, header, req.Open, req.Length)
	}
	return c.send(ctx, to, header, req.Release, req.Body)
}

// changed returns the body with the change.
func (a asking) changed(body io.ReadCloser) io.ReadCloser {
	return &changedBody{
		Reader: io.MultiReader(io.LimitReader(body, a.at), strings.NewReader(a.text), &skipping{body, a.end - a.at}),
		Closer: body,
	}
}

type changedBody struct {
	io.Reader
	io.Closer
}

// skipping reads without the first bytes.
type skipping struct {
	from io.Reader
	left int64
}

func (s *skipping) Read(p []byte) (int, error) {
	if s.left > 0 {
		n, err := io.CopyN(io.Discard, s.from, s.left)
		if s.left -= n; err != nil {
			return 0, err
		}
	}
	return s.from.Read(p)
}

// refusesOptions reads the beginning of an answer with an error status, and leaves it readable.
func refusesOptions(resp *http.Response) bool {
	read, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	rest := io.Reader(resp.Body)
	if err != nil {
		rest = errorReader{err}
	}
	resp.Body = &changedBody{io.MultiReader(bytes.NewReader(read), rest), resp.Body}
	return RefusesStreamOptions(resp.StatusCode, read)
}

type errorReader struct{ err error }

func (r errorReader) Read([]byte) (int, error) { return 0, r.err }
