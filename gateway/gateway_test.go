package gateway_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/turnpike-gateway/turnpike/gateway"
	"github.com/turnpike-gateway/turnpike/resource"
	"github.com/turnpike-gateway/turnpike/tool"
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
	mux.Handle("/v1/", gw)
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
