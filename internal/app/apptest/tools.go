package apptest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/sandbox"
	"github.com/turnpike-gateway/turnpike/internal/sandbox/sandboxtest"
)

// WithBuiltins is a configuration whose org has the settings.
func (s Site) WithBuiltins(runtime string) string {
	return strings.ReplaceAll(s.WithVault(), "    runtime: {}\n", "    runtime: "+runtime+"\n")
}

// Endpoint is an HTTP endpoint of a customer.
type Endpoint struct {
	*httptest.Server
	Mu  sync.Mutex
	Got []string // method, URI, body
	key []string // Idempotency-Key and X-Key
}

func NewEndpoint(t *testing.T, answer http.HandlerFunc) *Endpoint {
	t.Helper()
	e := &Endpoint{}
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		e.Mu.Lock()
		e.Got = append(e.Got, strings.TrimSpace(r.Method+" "+r.RequestURI+" "+string(body)))
		e.key = append(e.key, r.Header.Get("Idempotency-Key")+" "+r.Header.Get("X-Key"))
		e.Mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(e.Close)
	return e
}

func (e *Endpoint) All() ([]string, []string) {
	e.Mu.Lock()
	defer e.Mu.Unlock()
	return append([]string{}, e.Got...), append([]string{}, e.key...)
}

// HTTPTools is a configuration with two HTTP tools of the endpoint, and a vault.
func HTTPTools(s Site, endpoint string) string {
	return strings.ReplaceAll(s.WithVault(), "    runtime: {}\n", "    runtime: {catalog_ttl: 10m}\n") + fmt.Sprintf(`    http_tools:
      - name: get_order
        description: Returns an order.
        url: "%[1]s/orders/{order_id}"
        method: GET
        class: read
        input_schema: {type: object, properties: {order_id: {type: string}, full: {type: boolean}}, required: [order_id]}
        headers: {X-Key: "secret:shop"}
      - {name: refund, description: Refunds an order., url: "%[1]s/refunds", headers: {X-Key: "Bearer env:TOKEN"}, price_usd: 0.5}
`, endpoint)
}

// pythonOnce compiles Python for all tests of a program: it takes seconds.
var pythonOnce sync.Once

// WithPython returns a data directory that has Python, compiled.
func WithPython(t *testing.T) string {
	t.Helper()
	python := sandboxtest.PythonWasm(t)
	data := t.TempDir()
	dir := filepath.Join(data, "sandbox")
	o := sandbox.Options{Dir: dir, Compiled: sandboxtest.Compiled(), PythonWasm: python, Program: sandboxtest.Program(t)}
	pythonOnce.Do(func() {
		if err := sandbox.Compile(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	})
	err := errors.Join(os.Mkdir(dir, 0o700), os.Symlink(python, filepath.Join(dir, "python.wasm")),
		os.Symlink(sandboxtest.Compiled(), filepath.Join(dir, "compiled")))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// SwitchedOrg is an org without the feature mcp_outbound and without MCP servers. more are top-level keys.
func SwitchedOrg(upstream, runtime, more string) string {
	yaml := Site{Upstream: upstream, Feature: "none"}.WithVault()
	return strings.ReplaceAll(yaml, "    runtime: {}\n", "    runtime: "+runtime+"\n") + "\n" + more
}

// OfferedTools returns the names of the tools that the provider was offered, sorted.
func OfferedTools(t *testing.T, r Received) []string {
	t.Helper()
	var body struct {
		Tools []struct {
			Type     string
			Function struct{ Name string }
		}
	}
	if err := json.Unmarshal(r.Body, &body); err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for _, one := range body.Tools {
		names = append(names, one.Function.Name)
	}
	slices.Sort(names)
	return names
}

const (
	ChatPath  = "/v1/chat/completions"
	Searching = `{enable_search: true, web: {search: {provider: custom, url: %q}}}`
)

// Upload is a form of POST /v1/files.
type Upload struct {
	Name, Text string
	Fields     []string // names and values of the other parts, in turn
}

// Form returns the body and its media type.
func (u Upload) Form() (*bytes.Buffer, string) {
	var body bytes.Buffer
	w := multipart.NewWriter(&body)
	for i := 0; i < len(u.Fields); i += 2 {
		_ = w.WriteField(u.Fields[i], u.Fields[i+1])
	}
	if u.Name != "" {
		part, _ := w.CreateFormFile("file", u.Name)
		_, _ = part.Write([]byte(u.Text))
	}
	_ = w.Close()
	return &body, w.FormDataContentType()
}

// Uploaded uploads a file and returns the answer.
func (d Documented) Uploaded(key string, u Upload, want int) (out map[string]any) {
	d.T.Helper()
	body, kind := u.Form()
	a := d.Send("POST", "/v1/files", body, "Authorization", "Bearer "+key, "Content-Type", kind)
	if err := json.Unmarshal(a.Body, &out); err != nil || a.Status != want {
		d.T.Fatalf("an upload was answered with %d, want %d: %s", a.Status, want, a.Body)
	}
	return out
}

// Ask sends a request to a path that the document does not describe.
func (d Documented) Ask(path, key, body string, want int) (out map[string]any) {
	d.T.Helper()
	a := d.Send("POST", path, strings.NewReader(body), "Authorization", "Bearer "+key)
	if err := json.Unmarshal(a.Body, &out); err != nil || a.Status != want {
		d.T.Fatalf("%s answered %d, want %d: %s", path, a.Status, want, a.Body)
	}
	return out
}

// NewSearch is a search endpoint of an org, whose answer has one result of each of two domains.
func NewSearch(t *testing.T) *Endpoint {
	return NewEndpoint(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"results":[{"title":"One","url":"https://a.example/1","text":"first"},{"title":"Two","url":"https://b.example/2","text":"second"}]}`)
	})
}

// SearchesOf returns what the endpoint got of a request, as JSON objects.
func SearchesOf(t *testing.T, search *Endpoint, before int) (all []map[string]any) {
	t.Helper()
	got, _ := search.All()
	for _, one := range got[before:] {
		var body map[string]any
		if _, text, _ := strings.Cut(one, "{"); json.Unmarshal([]byte("{"+text), &body) != nil {
			t.Fatalf("the endpoint got %s", one)
		}
		all = append(all, body)
	}
	return all
}
