package conformance

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/surface/spectest"
)

// validator is a proxy before a gateway that holds every answer against the specifications
// of the API.
type validator struct {
	*httptest.Server
	specs *spectest.Documents // nil = they are not there: nothing is checked

	mu      sync.Mutex
	answers int     // guarded by mu
	wrong   []error // guarded by mu
}

// startValidator fails the test at its end if an answer was not valid.
func startValidator(t *testing.T, specs *spectest.Documents, gateway string) *validator {
	t.Helper()
	target, err := url.Parse(gateway)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DisableCompression: true}
	v := &validator{specs: specs}
	onward := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Header.Set("Accept-Encoding", "identity")
		},
		Transport: transport, FlushInterval: -1,
		ModifyResponse: func(r *http.Response) error {
			r.Body = &validated{ReadCloser: r.Body, check: func(body string) { v.check(r, body) }}
			return nil
		},
	}
	v.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body) // a ReverseProxy that passes the body on cuts some answers: golang.org/issue/40747
		if err != nil {
			return // the client left
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		onward.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		v.CloseClientConnections()
		v.Close() // returns when every answer has been checked
		transport.CloseIdleConnections()
		if v.answers == 0 {
			t.Error("no answer came by the validator")
		}
		for _, err := range v.wrong[:min(len(v.wrong), 10)] {
			t.Error(err)
		}
		if n := len(v.wrong); n > 0 {
			t.Errorf("%d violations in %d answers", n, v.answers)
		}
	})
	return v
}

// check holds an answer against the specifications.
func (v *validator) check(r *http.Response, body string) {
	wrong := v.specs.Violations(r.Request.Method+" "+r.Request.URL.Path, body)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.answers++
	v.wrong = append(v.wrong, wrong...)
}

// validated is a body that is checked when it is closed.
type validated struct {
	io.ReadCloser
	check func(body string)
	read  bytes.Buffer
	once  sync.Once
}

// Read implements io.Reader.
func (b *validated) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.read.Write(p[:n])
	return n, err
}

// Close implements io.Closer.
func (b *validated) Close() error {
	b.once.Do(func() { b.check(b.read.String()) })
	return b.ReadCloser.Close()
}
