package wire

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/internal/relay"
)

const (
	streamOptions = "stream_options"
	includeUsage  = "include_usage"
)

const (
	maxRefusals = 256              // that are remembered. One more, and all are forgotten
	refusalTime = 10 * time.Minute // for which one is remembered: a provider may refuse for a while, or with one of its machines
)

// asked are requests of which a provider that refuses stream_options for one refuses it for all.
type asked struct {
	model   string // the provider's name of the model
	members string // the names of the unusual members of a relayed request, in order: some are refused only together with it
}

// unusual reports whether a member of a request is none that OpenAI's API of chat completions or completions has.
func unusual(name string) bool {
	switch name {
	case "model", "messages", "prompt", "stream", streamOptions, "max_tokens", "max_completion_tokens", "temperature", "top_p",
		"n", "best_of", "stop", "presence_penalty", "frequency_penalty", "logit_bias", "logprobs", "top_logprobs", "user",
		"safety_identifier", "prompt_cache_key", "metadata", "seed", "tools", "tool_choice", "parallel_tool_calls", "functions",
		"function_call", "response_format", "reasoning_effort", "verbosity",
		"service_tier", "store", "modalities", "prediction", "suffix", "echo":
		return false
	}
	return true
}

// refusals remembers what is refused with stream_options. The zero value is empty.
type refusals struct {
	mu    sync.Mutex
	until map[asked]time.Time
}

func (r *refusals) has(a asked) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Now().Before(r.until[a])
}

func (r *refusals) add(a asked) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.until == nil || len(r.until) >= maxRefusals {
		r.until = map[asked]time.Time{}
	}
	r.until[a] = time.Now().Add(refusalTime)
}

// Asks reports whether requests for streams of the model that the gateway makes ask for the usage with stream_options.
func (c *Client) Asks(name string) bool { return !c.unasked.has(asked{model: name}) }

// Unasked remembers that the model answers without stream_options, and refuses requests with it.
func (c *Client) Unasked(ctx context.Context, name string) { c.refused(ctx, asked{model: name}) }

func (c *Client) refused(ctx context.Context, a asked) {
	c.unasked.add(a)
	c.e.Log.LogAttrs(ctx, slog.LevelWarn, "the provider refuses stream_options: streams are requested without it, and cost what is reserved if they have no usage",
		slog.String("model", a.model), slog.String("for", refusalTime.String()))
}

// RefusesStreamOptions reports whether an answer refuses the member stream_options, and perhaps nothing else.
func RefusesStreamOptions(status int, body []byte) bool {
	refused := status == http.StatusBadRequest || status == http.StatusUnprocessableEntity
	return refused && (bytes.Contains(body, []byte(streamOptions)) || bytes.Contains(body, []byte(includeUsage)))
}

// asking is the change to a body that asks for the usage of a stream: text in place of the bytes from at to end.
type asking struct {
	asked
	at, end int64
	text    string
}

// askingOf returns the change to the body of a request that is to ask for the usage. ok is false if the request is for no
// stream, asks by itself, or has members twice, so that nobody knows which the provider takes.
func askingOf(req *relay.Request) (a asking, ok bool) {
	streams, options, known := 0, 0, true
	var names []string
	member := func(name string, value []byte, at, end int64) error {
		if unusual(name) && len(names) < maxAskNames {
			names = append(names, name)
		}
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
	slices.Sort(names)
	a.members = strings.Join(names, " ")
	return a, err == nil && known && streams == 1 && options <= 1
}

const (
	maxAskMember = 8 << 10 // bytes of a member that are read
	maxAskNames  = 64      // names of members that are compared
)

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
func (c *Client) sendRelayed(ctx context.Context, to *url.URL, header http.Header, req *relay.Request) (resp *http.Response, asked bool, err error) {
	var a asking
	if req.Ask && (req.Path == "/chat/completions" || req.Path == "/completions") {
		a, asked = askingOf(req)
	}
	if !asked || c.unasked.has(a.asked) {
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
		c.refused(ctx, a.asked)
	}
	return resp, false, err
}

func (c *Client) sendUnchanged(ctx context.Context, to *url.URL, header http.Header, req *relay.Request) (*http.Response, error) {
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
