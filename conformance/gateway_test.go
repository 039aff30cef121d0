package conformance

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// The keys of the gateway's callers and its own key to the upstream.
const (
	devKey    = "sk-conformance-dev-7d1f0c52a9e84b36"    // org default, role owner
	readerKey = "sk-conformance-reader-15c8e2f7b04d4a93" // org default, role reader
	plainKey  = "sk-conformance-plain-e90b3d6417f542c8"  // org plain, which has no tools
	upKey     = "sk-conformance-upstream-62a47b9cd1e0"
)

// configFile is the gateway's configuration; its holes are the port to listen
// on, the data directory, the upstream's and the recording proxy's base URL.
const configFile = `
listen: 127.0.0.1:%d
data: %q
providers:
  - {name: up, kind: openai, base_url: %s/v1, api_key: env:UP_KEY, models: [gpt-test, "gpt-*"]}
outbound: {ssrf: {allowlist_cidrs: [127.0.0.0/8]}}
orgs:
  - id: default
    features: [mcp_outbound]
    keys:
      - {name: dev, key: env:TURNPIKE_KEY, role: owner}
      - {name: ro, key: env:TURNPIKE_RO_KEY, role: reader}
    runtime: {stream_mode: live}
    mcp_servers: [{name: everything, url: %s/mcp, enabled: true}]
  - id: plain
    keys: [{name: plain, key: env:TURNPIKE_PLAIN_KEY, role: owner}]
`

// startGateway runs "turnpike serve" in front of the upstream and the proxy and
// returns its base URL, without a path, when it takes work.
func (s *site) startGateway(t *testing.T, upstream, proxy string) string {
	t.Helper()
	dir, port := t.TempDir(), freePort(t)
	file := filepath.Join(dir, "turnpike.yaml")
	text := fmt.Sprintf(configFile, port, filepath.Join(dir, "data"), upstream, proxy)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	env := append(baseEnv(), "TURNPIKE_KEY="+devKey, "TURNPIKE_RO_KEY="+readerKey,
		"TURNPIKE_PLAIN_KEY="+plainKey, "UP_KEY="+upKey)
	p := startProcess(t, nil, env, s.gateway, "serve", "--config", file)
	base := loopback(port)
	waitReady(t, p, base)
	return base
}

// waitReady returns when GET /readyz answers 200.
func waitReady(t *testing.T, p *process, base string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	client := newHTTPClient(t)
	last := "no answer yet"
	for {
		select {
		case <-p.exited:
			t.Fatal("the gateway ended before it was ready")
		case <-ctx.Done():
			t.Fatalf("the gateway was not ready within 30s: %s", last)
		case <-again.C:
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/readyz", nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(request)
		if err != nil {
			last = err.Error()
			continue
		}
		_ = response.Body.Close()
		if last = response.Status; response.StatusCode == http.StatusOK {
			return
		}
	}
}

// freePort returns a port of 127.0.0.1 that nobody listened on a moment ago.
func freePort(t *testing.T) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().(*net.TCPAddr).Port
}

func loopback(port int) string { return fmt.Sprintf("http://127.0.0.1:%d", port) }

// newHTTPClient returns a client whose idle connections end with the test.
func newHTTPClient(t testing.TB) *http.Client {
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}
