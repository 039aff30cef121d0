package webtool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"golang.org/x/sync/semaphore"

	"github.com/turnpike-gateway/turnpike/internal/builtin"
	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/tool"
)

// DefaultMaxCalls is the default of [Options].MaxCalls.
const DefaultMaxCalls = 16

// Options are what a Source needs. Client, Settings and Check are required.
type Options struct {
	Org string // the org whose tools these are, for the log

	// Settings returns the org's settings. It is called for each call of a tool.
	Settings func() org.Web

	// Secret resolves a reference to the org's vault, such as secret:EXA_API_KEY. The error wraps
	// [org.ErrNotFound] if there is no such secret. nil = there are no secrets.
	Secret func(ctx context.Context, ref string) (string, error)

	// Client makes the requests. Pass a guarded client of package egress. Its CheckRedirect and Timeout
	// are not used.
	Client *http.Client

	// Check reports whether the outbound policy allows a URL, as egress.Resolve does. It is needed for pages
	// that another service reads. Required.
	Check func(ctx context.Context, url string) error

	// Describe returns what a vision model says of an image, on behalf of a call. An error that is an [Undescribed] is for the
	// model. nil = there is no vision model, and the tools do not offer descriptions.
	Describe func(ctx context.Context, call tool.Call, image Image) (string, error)

	// PDF returns the text of a PDF, such as pdf.Reader.Read. It is called once at a time for an org. It must not read it in this process. "" = it has no text; an error
	// is for the model. nil = PDFs are refused.
	PDF func(ctx context.Context, data []byte) (string, error)

	// MaxCalls is how many calls of the org may be under way at the same time. Further calls wait.
	// 0 = DefaultMaxCalls.
	MaxCalls int

	Log *slog.Logger // nil = discard
}

// Source lists the tools of one org. It is safe for concurrent use.
type Source struct {
	o      Options
	client *http.Client
	calls  *semaphore.Weighted
	pdfs   *semaphore.Weighted // PDFs of the org that are read at the same time
	tools  []tool.Tool
}

var _ tool.Source = (*Source)(nil)

// New returns the tools for the web of an org.
func New(o Options) *Source {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.MaxCalls == 0 {
		o.MaxCalls = DefaultMaxCalls
	}
	client := *o.Client
	client.Timeout = 0
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	s := &Source{o: o, client: &client, calls: semaphore.NewWeighted(int64(o.MaxCalls)), pdfs: semaphore.NewWeighted(1)}
	s.tools = []tool.Tool{
		&webTool{s, requestDefinition(), tool.Once, (*Source).request},
		&webTool{s, searchDefinition(), tool.Read, (*Source).search},
		&webTool{s, scrapeDefinition(o.Describe != nil), tool.Read, (*Source).scrape},
	}
	return s
}

// List implements [tool.Source]. The tools and their order never change.
func (s *Source) List(context.Context) ([]tool.Tool, error) { return s.tools, nil }

// webTool is one of the tools.
type webTool struct {
	source     *Source
	definition tool.Definition
	class      tool.Class
	call       func(*Source, context.Context, tool.Call) (tool.Result, error)
}

var _ tool.Classed = (*webTool)(nil)

// Definition implements [tool.Tool].
func (b *webTool) Definition() tool.Definition { return b.definition }

// Class implements [tool.Classed].
func (b *webTool) Class() tool.Class { return b.class }

// Call implements [tool.Tool].
func (b *webTool) Call(ctx context.Context, c tool.Call) (tool.Result, error) {
	if b.source.calls.Acquire(ctx, 1) != nil {
		return tool.Result{}, fmt.Errorf("%w: %w", tool.ErrNotSent, context.Cause(ctx))
	}
	defer b.source.calls.Release(1)
	r, err := b.call(b.source, ctx, c)
	var wrong *refusal
	switch {
	case errors.As(err, &wrong):
		r = wrong.result()
		if wrong.quotes {
			r.Label = item.Untrusted
		}
		return r, nil
	case err == nil:
		r.Label = item.Untrusted
	default:
		b.source.o.Log.Debug("a web tool has not answered", "tool", b.definition.Name, "org", b.source.o.Org, "error", errors.Unwrap(err))
	}
	return r, err
}

// refusal is an error that the model reads as a result.
type refusal struct {
	text    string
	setting string // what must be set; "" = nothing
	quotes  bool   // the text has words of a stranger
	last    bool   // see [Undescribed]
}

func (r *refusal) Error() string { return r.text }

func (r *refusal) result() tool.Result {
	return builtin.Refusal{Error: r.text, Setting: r.setting}.Result()
}

func refuse(format string, args ...any) error { return &refusal{text: fmt.Sprintf(format, args...)} }

// decode reads the arguments of a call into a struct, strictly.
func decode(arguments json.RawMessage, into any) error {
	if len(arguments) == 0 {
		arguments = json.RawMessage("{}")
	}
	if err := jsonscan.DecodeStrict(arguments, into); err != nil {
		return refuse("the arguments cannot be used: %v", err)
	}
	return nil
}

// secret returns the secret that a reference names. A refusal names the setting if there is none.
func (s *Source) secret(ctx context.Context, ref, missing, setting string) (string, error) {
	if s.o.Secret == nil {
		return "", &refusal{text: missing, setting: setting}
	}
	value, err := s.o.Secret(ctx, ref)
	switch {
	case errors.Is(err, org.ErrNotFound), err == nil && value == "":
		return "", &refusal{text: missing, setting: setting}
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case err != nil:
		s.o.Log.Warn("the secret of a web tool cannot be read", "org", s.o.Org, "secret", ref, "error", err)
		return "", &refusal{text: "The key of the tool cannot be read. An administrator must look at the log of the gateway.", setting: setting}
	}
	return value, nil
}

// reserve charges the memory of a call with n bytes, and returns what releases all but the result.
func reserve(c tool.Call, n int) (func(tool.Result), error) {
	if c.Memory == nil {
		return func(tool.Result) {}, nil
	}
	if err := c.Memory.Acquire(n); err != nil {
		return nil, fmt.Errorf("%w: the answer needs more memory than the run may retain: %w", tool.ErrNotSent, err)
	}
	return func(r tool.Result) {
		kept := len(r.Structured)
		for _, p := range r.Parts {
			kept += len(p.Text) + len(p.Data)
		}
		c.Memory.Release(max(0, n-kept))
	}, nil
}
