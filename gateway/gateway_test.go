package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/turnpike-gateway/turnpike"
	"github.com/turnpike-gateway/turnpike/gateway"
	"github.com/turnpike-gateway/turnpike/internal/upstreamtest"
	"github.com/turnpike-gateway/turnpike/resource"
	"github.com/turnpike-gateway/turnpike/tool"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const yaml = `
data: %q
providers: [{name: demo, kind: demo, models: [demo]}]
orgs: [{id: acme, keys: [{name: app, key: tp_0123456789abcdef0123456789, role: admin}]}]
`

// A whole gateway in another program: it answers, and lives below the program's own routes.
func Example() {
	data, _ := os.MkdirTemp("", "gateway")
	defer func() { _ = os.RemoveAll(data) }()
	config, err := gateway.Parse(fmt.Sprintf(yaml, data))
	if err != nil {
		fmt.Println(err)
		return
	}
	gw, err := gateway.New(config)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = gw.Close() }()
	mux := http.NewServeMux()
	mux.Handle("/v1/", gw)  // the APIs for applications
	mux.Handle("/api/", gw) // the management API
	mux.Handle("/mcp", gw)  // the tools for MCP clients
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "the program's own page") })

	r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(`{"model":"demo","messages":[{"role":"user","content":"hello"}]}`))
	r.Header.Set("Authorization", "Bearer tp_0123456789abcdef0123456789")
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, r)
	body, _ := io.ReadAll(w.Result().Body)
	fmt.Println(w.Code, strings.Contains(string(body), `"chat.completion"`))
	// Output: 200 true
}

type price struct{}

func (price) Get(_ context.Context, id string) (string, error) { return "3.50 for " + id, nil }

// A resource of the program for MCP clients at /mcp, and for people: both leave rows in the audit log of the org.
func ExampleGateway_Audit() {
	data, _ := os.MkdirTemp("", "gateway")
	defer func() { _ = os.RemoveAll(data) }()
	config, err := gateway.Parse(fmt.Sprintf(yaml, data))
	if err != nil {
		fmt.Println(err)
		return
	}
	prices := resource.New("price", price{})
	config.Resources = []*resource.Resource{prices}
	gw, err := gateway.New(config)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = gw.Close() }()

	prices.Audit(gw.Audit("acme"))
	ada := tool.Caller{ID: "ada", Org: "acme", Permissions: []string{"get_price"}}
	var tea string
	err = prices.As(ada).Call(context.Background(), resource.Get, map[string]string{"id": "tea"}, &tea)
	fmt.Println(tea, err)
	// Output: 3.50 for tea <nil>
}

// Runs of the program's agents are in the audit log and in the usage of an org, as those of its clients are.
func ExampleGateway_Audit_agents() {
	data, _ := os.MkdirTemp("", "gateway")
	defer func() { _ = os.RemoveAll(data) }()
	config, err := gateway.Parse(fmt.Sprintf(yaml, data))
	if err != nil {
		fmt.Println(err)
		return
	}
	gw, err := gateway.New(config)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = gw.Close() }()

	agent := &turnpike.Agent{
		Name:  "clock",
		Model: turnpiketest.Model(new(testing.T), turnpiketest.Say("Noon.")),
		Audit: gw.Audit("acme"),
	}
	result, err := agent.Run(context.Background(), turnpike.Text("What time is it?"), turnpike.As(turnpike.Caller{ID: "ada"}))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(result.Text)
	// Output: Noon.
}

func TestWrongConfigurations(t *testing.T) {
	for _, text := range []string{"", "providers: []", "provders: []", "{"} {
		if _, err := gateway.Parse(text); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
	if _, err := gateway.New(gateway.Config{}); err == nil {
		t.Error("an empty configuration is accepted")
	}
}

// Close gives everything back: the next gateway can open the same data.
func TestAGatewayCanBeOpenedAgain(t *testing.T) {
	data := t.TempDir()
	for range 2 {
		config, err := gateway.Parse(fmt.Sprintf(yaml, data))
		if err != nil {
			t.Fatal(err)
		}
		gw, err := gateway.New(config)
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		gw.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz", nil))
		if w.Code != http.StatusOK {
			t.Error(w.Code, w.Body)
		}
		for range 2 {
			if err := gw.Close(); err != nil {
				t.Error(err)
			}
		}
		w = httptest.NewRecorder()
		gw.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/models", nil))
		if w.Code != http.StatusServiceUnavailable {
			t.Errorf("after Close: %d", w.Code)
		}
	}
}

// Shutdown waits for the requests in progress as long as its context, and Close ends the wait.
func TestShutdownWaitsAndCloseDoesNot(t *testing.T) {
	for name, end := range map[string]func(gw *gateway.Gateway, cancel func()){
		"the context ends": func(_ *gateway.Gateway, cancel func()) { cancel() },
		"Close": func(gw *gateway.Gateway, _ func()) {
			if err := gw.Close(); err != nil {
				t.Error(err)
			}
		},
	} {
		upstream := upstreamtest.New(turnpiketest.NewScript(t, "text a\nhang\n"), upstreamtest.Options{})
		t.Cleanup(upstream.Close)
		config, err := gateway.Parse(fmt.Sprintf(`
data: %q
providers: [{name: p, kind: openai, base_url: %s, api_key: k, models: [m]}]
orgs: [{id: acme, keys: [{name: app, key: tp_0123456789abcdef0123456789, role: admin}]}]
`, t.TempDir(), upstream.URL))
		if err != nil {
			t.Fatal(err)
		}
		gw, err := gateway.New(config)
		if err != nil {
			t.Fatal(err)
		}
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			defer func() { // an answer that is broken off
				if p := recover(); p != nil && p != http.ErrAbortHandler {
					panic(p)
				}
			}()
			r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions",
				strings.NewReader(`{"model":"m","stream":true,"messages":[{"role":"user","content":"hello"}]}`))
			r.Header.Set("Authorization", "Bearer tp_0123456789abcdef0123456789")
			gw.ServeHTTP(httptest.NewRecorder(), r)
		}()
		if err := upstream.Await(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- gw.Shutdown(ctx) }()
		end(gw, cancel)
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
		<-answered
	}
}

// Shutdown without requests is no error, nor is a later Close.
func TestShutdownOfAnIdleGateway(t *testing.T) {
	config, err := gateway.Parse(fmt.Sprintf(yaml, t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	gw, err := gateway.New(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(gw.Shutdown(t.Context()), gw.Close(), gw.Shutdown(t.Context())); err != nil {
		t.Error(err)
	}
}
