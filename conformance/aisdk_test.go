package conformance

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/upstreamtest"
)

// searchAndDraw searches and makes a chart at the same time, and then says the digest that was printed.
func searchAndDraw(ask chatRequest) turn {
	next := drawScript(ask)
	if len(next.Calls) > 0 {
		next.Calls = append(next.Calls, seenCall{ID: "call_2", Name: "web_search", Arguments: `{"query":"charts"}`})
	}
	return next
}

// testAISDK has the AI SDK stream answers of runs that search, run code and make a file, with all extensions: nothing that the
// gateway adds to the APIs makes it throw. // A07 G09 J16
func testAISDK(t *testing.T, s *site) {
	up := startUpstream(t, searchAndDraw)
	search := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"results":[{"title":"Charts","url":"https://charts.example/1","text":"about charts"}]}`)
	}))
	t.Cleanup(search.Close)
	dir, port := t.TempDir(), upstreamtest.FreePort(t)
	givePython(t, dir)
	g := &program{owner: t, url: loopback(port), binary: s.gateway, file: filepath.Join(dir, "turnpike.yaml")}
	with := strings.Replace(configFile, "runtime: {stream_mode: live}",
		"runtime: {stream_mode: live, enable_code_execution: true, enable_search: true, web: {search: {provider: custom, url: \""+search.URL+"\"}}}", 1)
	text := fmt.Sprintf(with, port, filepath.Join(dir, "data"), up.URL, "[]") + "sandbox: {drivers: [wasm]}\n"
	if err := os.WriteFile(g.file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	g.start()
	got := answer(t, nodeClient{node: s.node, script: "aisdk.mjs"}, ask{
		BaseURL: g.url + "/v1", Key: devKey, Request: object{"model": "gpt-test"},
	})
	const printed = "the digest that was printed"
	wantEqual(t, "parts", [][]string{
		{printed, "finish 1 stop", "tools "},
		{printed, "finish 1 stop", "calls code_interpreter,web_search", "results code_interpreter,web_search", "sources chart.png"},
	}, got.Items)
}

// givePython puts python.wasm where a gateway with this directory looks for it.
func givePython(t *testing.T, dir string) {
	t.Helper()
	python, err := os.ReadFile(filepath.Join("node_modules", "@antonz", "python-wasi", "dist", "python.wasm"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "data", "sandbox"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "data", "sandbox", "python.wasm"), python, 0o600); err != nil {
		t.Fatal(err)
	}
}
