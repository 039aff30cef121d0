package webtool

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/builtin"
	"github.com/turnpike-gateway/turnpike/internal/egress"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/tool"
)

// The names of the tools.
const (
	RequestName = builtin.HTTPRequest
	SearchName  = builtin.WebSearch
	ScrapeName  = builtin.WebScrape
)

// web is an org with the tools.
type web struct {
	t        *testing.T
	settings org.Web
	secrets  map[string]string
	options  Options
	source   *Source
	asked    json.RawMessage // the options of the request whose calls these are
}

// newWeb returns an org whose tools reach 127.0.0.1 and no other private address.
func newWeb(t *testing.T, change func(*Options)) *web {
	t.Helper()
	p := egress.DefaultPolicy()
	p.Allowlist = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	out := egress.New(p, egress.Options{})
	t.Cleanup(out.CloseIdleConnections)
	w := &web{t: t, secrets: map[string]string{}}
	w.options = Options{
		Org: "acme", Client: out.Guarded(egress.GuardedOptions{}), Settings: func() org.Web { return w.settings },
		Secret: func(_ context.Context, ref string) (string, error) {
			if value, ok := w.secrets[ref]; ok {
				return value, nil
			}
			return "", org.ErrNotFound
		},
	}
	if change != nil {
		change(&w.options)
	}
	w.source = New(w.options)
	return w
}

// call calls a tool.
func (w *web) call(name string, arguments any) (tool.Result, error) {
	w.t.Helper()
	text, ok := arguments.(string)
	if !ok {
		data, err := json.Marshal(arguments)
		if err != nil {
			w.t.Fatal(err)
		}
		text = string(data)
	}
	tools, err := w.source.List(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	i := slices.IndexFunc(tools, func(one tool.Tool) bool { return one.Definition().Name == name })
	m := &memory{}
	r, err := tools[i].Call(w.t.Context(), tool.Call{Arguments: json.RawMessage(text), Memory: m, Options: w.asked})
	if kept := size(r); m.held < 0 || m.held > kept {
		w.t.Errorf("%s holds %d bytes for a result of %d", name, m.held, kept)
	}
	return r, err
}

// text is call for a call that must have a result.
func (w *web) text(name string, arguments any) (string, bool) {
	w.t.Helper()
	r, err := w.call(name, arguments)
	if err != nil {
		w.t.Fatalf("%s: %v", name, err)
	}
	return item.PlainText(r.Parts), r.IsError
}

func size(r tool.Result) int {
	n := len(r.Structured)
	for _, p := range r.Parts {
		n += len(p.Text) + len(p.Data)
	}
	return n
}

// memory counts what a call is charged with.
type memory struct {
	held, limit int // limit: 0 = none
}

func (m *memory) Acquire(n int) error {
	if m.limit > 0 && m.held+n > m.limit {
		return errors.New("no memory is left")
	}
	m.held += n
	return nil
}

func (m *memory) Release(n int) { m.held -= n }

// serve starts a web server.
func serve(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

var page0 = page{url: "https://example.com/"}

func mustURL(t testing.TB, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}
