package conformance

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// site is what all tests share: Node with the installed packages, the gateway's
// binary and one running server-everything. Each test builds its own rig on it.
type site struct {
	node       string // path of the node program
	gateway    string // path of the gateway binary; empty until buildGateway
	everything string // base URL of server-everything, without a path
}

// newSite skips the test when Node or its packages are missing.
func newSite(t *testing.T) *site {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		skip(t, "node is not installed: %v", err)
	}
	for _, name := range []string{"openai", "@anthropic-ai/sdk", "@google/genai", "zod", "@modelcontextprotocol/sdk", "@modelcontextprotocol/inspector", "@modelcontextprotocol/server-everything", "@modelcontextprotocol/server-filesystem"} {
		if _, err := os.Stat(filepath.Join("node_modules", name, "package.json")); err != nil {
			skip(t, "npm package %s is not installed; run npm ci in the directory conformance", name)
		}
	}
	s := &site{node: node}
	s.everything = s.startEverything(t)
	return s
}

// skip leaves the test out, or fails it where skipping is forbidden.
func skip(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("TURNPIKE_TEST_NO_SKIP") == "1" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// buildGateway builds the parent module's program once for all tests.
func (s *site) buildGateway(t *testing.T) {
	t.Helper()
	if s.gateway = os.Getenv("TURNPIKE_TEST_PROGRAM"); s.gateway != "" {
		return
	}
	s.gateway = filepath.Join(t.TempDir(), "turnpike")
	build := exec.CommandContext(t.Context(), "go", "build", "-C", "..", "-o", s.gateway, "./cmd/turnpike")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the gateway: %v\n%s", err, output)
	}
}

// startEverything runs the official example server on a port that it chooses
// itself and returns its base URL.
func (s *site) startEverything(t *testing.T) string {
	t.Helper()
	port := make(chan int, 1)
	onLine := func(line []byte) {
		var said struct{ Port int }
		if bytes.HasPrefix(line, []byte("{")) && json.Unmarshal(line, &said) == nil && said.Port > 0 {
			port <- said.Port
		}
	}
	server := startProcess(t, onLine, append(baseEnv(), "PORT=0"), s.node,
		"--import", "./clients/loopback.mjs",
		"node_modules/@modelcontextprotocol/server-everything/dist/index.js", "streamableHttp")
	select {
	case p := <-port:
		return loopback(p)
	case <-server.exited:
		t.Fatal("server-everything ended before it listened")
	case <-time.After(30 * time.Second):
		t.Fatal("server-everything did not listen within 30s")
	}
	return ""
}

// baseEnv is the environment of every child: nothing of the caller's that could
// change what a client or the gateway does.
func baseEnv() []string {
	var env []string
	for _, name := range []string{"PATH", "HOME", "TMPDIR"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}
