package conformance

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/upstreamtest"
)

// The keys of the gateway's callers and its own key to the upstream.
const (
	devKey    = "sk-conformance-dev-7d1f0c52a9e84b36"    // org default, role owner
	otherKey  = "sk-conformance-other-4b7e21d86f3c4095"  // org default, role member
	readerKey = "sk-conformance-reader-15c8e2f7b04d4a93" // org default, role reader
	plainKey  = "sk-conformance-plain-e90b3d6417f542c8"  // org plain, which has no tools
	freshKey  = "sk-conformance-fresh-81c5f7a03e9d46b2"  // org fresh, role owner; it may have tools, but no server yet
	upKey     = "sk-conformance-upstream-62a47b9cd1e0"
	masterKey = "q0Jw7yL2Vx9Zt4Rb8Nf3Hk6Pm1Sd5GcUeXiOaYjTl0E="
)

// configFile is the gateway's configuration; its holes are the port to listen
// on, the data directory, the upstream's base URL and the MCP servers as JSON.
const configFile = `
listen: 127.0.0.1:%[1]d
data: %[2]q
master_key: env:TURNPIKE_MASTER
providers:
  - {name: up, kind: openai, base_url: %[3]s/v1, api_key: env:UP_KEY, models: [gpt-test, "gpt-*"]}
  - {name: claude, kind: anthropic, base_url: %[3]s/anthropic, api_key: env:UP_KEY, models: ["claude-*"]}
  - {name: gemini, kind: gemini, base_url: %[3]s/google, api_key: env:UP_KEY, models: ["gemini-*"]}
  - {name: responses, kind: openai-responses, base_url: %[3]s/v1, api_key: env:UP_KEY, models: ["responses-*"]}
  - {name: bedrock, kind: bedrock, base_url: %[3]s/v1, region: us-east-1, access_key_id: AKIDEXAMPLE, secret_access_key: env:AWS_KEY, session_token: env:AWS_TOKEN, models: ["arn:*"]}
outbound: {ssrf: {allowlist_cidrs: [127.0.0.0/8]}}
orgs:
  - id: default
    features: [mcp_outbound]
    keys:
      - {name: dev, key: env:TURNPIKE_KEY, role: owner}
      - {name: other, key: env:TURNPIKE_OTHER_KEY, role: member}
      - {name: ro, key: env:TURNPIKE_RO_KEY, role: reader}
    runtime: {stream_mode: live}
    mcp_servers: %[4]s
  - id: plain
    keys: [{name: plain, key: env:TURNPIKE_PLAIN_KEY, role: owner}]
  - id: fresh
    features: [mcp_outbound]
    keys: [{name: fresh, key: env:TURNPIKE_FRESH_KEY, role: owner}]
`

// program is "turnpike serve" with a configuration and a data directory of its
// own, which outlive a restart.
type program struct {
	owner   *testing.T // whose end ends the gateway
	url     string     // base URL without a path
	binary  string
	file    string // the configuration
	serving *process
}

// startGateway runs the gateway in front of the upstream and the MCP servers of
// the org default, and returns when it takes work.
func (s *site) startGateway(t *testing.T, upstream string, servers []object) *program {
	t.Helper()
	dir, port := t.TempDir(), upstreamtest.FreePort(t)
	g := &program{owner: t, url: loopback(port), binary: s.gateway, file: filepath.Join(dir, "turnpike.yaml")}
	text := fmt.Sprintf(configFile, port, filepath.Join(dir, "data"), upstream, marshal(servers))
	if err := os.WriteFile(g.file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	g.start()
	return g
}

func (g *program) start() {
	g.owner.Helper()
	g.serving = startProcess(g.owner, nil, gatewayEnv(), g.binary, "serve", "--config", g.file)
	waitReady(g.owner, g.serving, g.url)
}

// restart ends the gateway with SIGTERM and starts it again as it was.
func (g *program) restart() {
	g.owner.Helper()
	g.serving.stop()
	g.start()
}

// wantRunning fails the test if the gateway ended since it was started.
func (g *program) wantRunning(t *testing.T) {
	t.Helper()
	select {
	case <-g.serving.exited:
		t.Error("the gateway ended")
	default:
	}
}

// command runs another command of the gateway's binary on its configuration and
// returns what it printed, and its failure.
func (g *program) command(t *testing.T, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, g.binary, append(args, "--config", g.file)...)
	cmd.Env = gatewayEnv()
	output, err := cmd.CombinedOutput()
	return string(output), err
}

// must is command for those that succeed.
func (g *program) must(t *testing.T, args ...string) string {
	t.Helper()
	output, err := g.command(t, args...)
	if err != nil {
		t.Fatalf("turnpike %v: %v\n%s", args, err, output)
	}
	return output
}

func gatewayEnv() []string {
	return append(baseEnv(), "TURNPIKE_KEY="+devKey, "TURNPIKE_OTHER_KEY="+otherKey, "TURNPIKE_RO_KEY="+readerKey,
		"TURNPIKE_MASTER="+masterKey, "TURNPIKE_PLAIN_KEY="+plainKey, "TURNPIKE_FRESH_KEY="+freshKey, "UP_KEY="+upKey,
		"AWS_KEY="+upstreamtest.AWSSecretAccessKey, "AWS_TOKEN="+upstreamtest.AWSSessionToken)
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

func loopback(port int) string { return fmt.Sprintf("http://127.0.0.1:%d", port) }

// newHTTPClient returns a client whose idle connections end with the test.
func newHTTPClient(t testing.TB) *http.Client {
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}
