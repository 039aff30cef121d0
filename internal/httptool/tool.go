package httptool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"golang.org/x/sync/semaphore"

	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/tool"
)

// Options are what a Tool needs. Client is required.
type Options struct {
	// Client makes the requests. Pass a guarded client of package egress, because orgs name the
	// targets.
	Client *http.Client

	// Headers returns the headers of a request; nil = none. It is called for each attempt.
	Headers func(ctx context.Context) (http.Header, error)

	// Living returns the number of living replicas of the gateway: each makes its part of the calls that
	// may be made at a time, and at least one. Nil = there is one.
	Living func() int

	Log *slog.Logger // nil = discard
}

var _ tool.Classed = (*Tool)(nil)

// Tool is an HTTP endpoint as a tool. It is safe for concurrent use.
type Tool struct {
	settings   org.HTTPTool
	url        URL
	definition tool.Definition
	o          Options
	calls      places
	dispatch   *Dispatch // the tool is one of a request, which this URL executes; nil = it is not
}

// places bounds the calls that are made at a time.
type places interface {
	Acquire(ctx context.Context, n int64) error
	Release(n int64)
}

// withDefaults returns the options with their defaults.
func (o Options) withDefaults() Options {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Living == nil {
		o.Living = func() int { return 1 }
	}
	return o
}

// New returns the tool with the settings, whose numbers are all set. It returns an error for a URL
// that [ParseURL] refuses.
func New(s org.HTTPTool, o Options) (*Tool, error) {
	u, err := ParseURL(s.URL)
	if err != nil {
		return nil, fmt.Errorf("HTTP tool %s: url: %w", s.Name, err)
	}
	t := &Tool{
		settings: s, url: u, o: o.withDefaults(), calls: semaphore.NewWeighted(int64(s.MaxConcurrentCalls)),
		definition: tool.Definition{Name: s.Name, Description: s.Description, InputSchema: s.InputSchema},
	}
	switch s.Class {
	case tool.Read:
		t.definition.Annotations.ReadOnly = new(true)
	case tool.Keyed:
		t.definition.Annotations.Idempotent = new(true)
	case tool.Once, tool.Attach:
	}
	return t, nil
}

// Definition implements [tool.Tool].
func (t *Tool) Definition() tool.Definition { return t.definition }

// Class implements [tool.Classed].
func (t *Tool) Class() tool.Class { return t.settings.Class }

// request is what is sent at each attempt of a call.
type request struct {
	url  string
	body []byte // nil = none
	key  string // "" = none
}

// request returns the request of a call. An error says what is wrong with its arguments.
func (t *Tool) request(c tool.Call) (request, error) {
	arguments := map[string]json.RawMessage{}
	if len(c.Arguments) > 0 {
		if err := json.Unmarshal(c.Arguments, &arguments); err != nil {
			return request{}, errors.New("the arguments are not a JSON object")
		}
	}
	if t.dispatch != nil {
		body, err := t.dispatch.body(t.settings.Name, argumentsOf(c))
		return request{t.dispatch.URL, body, c.IdempotencyKey}, err
	}
	all := len(arguments)
	text, err := t.url.Fill(arguments)
	if err != nil {
		return request{}, err
	}
	r := request{url: text, key: c.IdempotencyKey}
	switch {
	case t.settings.InQuery():
		r.url = withQuery(text, arguments)
	case len(arguments) == all && all > 0: // as the model wrote them
		r.body = bytes.TrimSpace(c.Arguments)
	default:
		r.body, err = json.Marshal(arguments)
	}
	if len(r.url) > maxURL {
		return request{}, fmt.Errorf("the arguments make the URL longer than %d bytes", maxURL)
	}
	return r, err
}

// argumentsOf returns the arguments of a call as the model wrote them.
func argumentsOf(c tool.Call) json.RawMessage {
	if len(c.Arguments) == 0 {
		return json.RawMessage("{}")
	}
	return bytes.TrimSpace(c.Arguments)
}

// repeatable reports whether the call may be sent again if its outcome is unknown.
func (t *Tool) repeatable(c tool.Call) bool {
	if t.reads(c) {
		return true
	}
	return c.IdempotencyKey != "" && (t.settings.Class.Repeatable() || c.Class.Repeatable())
}

// reads reports whether the call only reads.
func (t *Tool) reads(c tool.Call) bool { return t.settings.Class == tool.Read || c.Class == tool.Read }
