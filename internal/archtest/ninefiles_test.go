package archtest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/provider/demo"
)

// story are the nine files that tell what happens to a streaming chat
// completion with tools, in the order of the telling. The package comment of
// internal/run and docs/how-a-request-flows.md name the same nine.
func story() []string {
	return []string{
		"internal/httpd/routes.go",
		"internal/surface/serve.go",
		"internal/surface/chat/decode.go",
		"internal/run/runner.go",
		"internal/loop/decide.go",
		"internal/run/model.go",
		"internal/run/tools.go",
		"internal/loop/apply.go",
		"internal/surface/chat/encode.go",
	}
}

// What a request adds to the blocks that starting and stopping run.
func TestTheCodeThatRequestsRun(t *testing.T) {
	g := buildCovered(t)
	idle := g.run(t, func(string) {})
	chat := g.run(t, func(baseURL string) { askWithTools(t, baseURL) })
	responses := g.run(t, func(baseURL string) { respondWithTools(t, baseURL) })
	t.Run("one request touches the nine files of the story", func(t *testing.T) { wantStory(t, chat, idle) })
	t.Run("both APIs run the same loop", func(t *testing.T) { wantSameLoop(t, ofTheRun(t, chat, idle), ofTheRun(t, responses, idle)) })
}

// wantStory fails the test unless a request has run each of the nine files.
func wantStory(t *testing.T, busy, idle map[string]bool) {
	t.Helper()
	touched := map[string]bool{}
	for block := range busy {
		if !idle[block] {
			touched[file(block)] = true
		}
	}
	for _, name := range story() {
		if !touched[name] {
			t.Errorf("%s is one of the nine files of the story, and the request did not run it: has the story changed?", name)
		}
	}
}

// covered is the program, built so that it tells which of its blocks ran.
type covered struct{ binary, model, tools string }

// buildCovered builds the program and starts what stands around it: the demo
// model and the demo MCP server, in this process, so that their code does not
// count.
func buildCovered(t *testing.T) covered {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "turnpike")
	build := exec.CommandContext(t.Context(), "go", "build", "-cover", "-coverpkg=./...", "-ldflags=-s -w", "-o", binary, "./cmd/turnpike")
	build.Dir = moduleRoot(t)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build -cover: %v\n%s", err, out)
	}
	model := httptest.NewServer(demo.New(demo.Options{}))
	t.Cleanup(model.Close)
	tools := httptest.NewServer(demo.MCPServer())
	t.Cleanup(tools.Close)
	return covered{binary, model.URL, tools.URL}
}

const coveredConfig = `
listen: 127.0.0.1:0
data: %q
providers: [{name: up, kind: demo, base_url: %s/v1, models: [demo]}]
outbound: {ssrf: {allowlist_cidrs: [127.0.0.1/32]}}
orgs:
  - id: default
    features: [mcp_outbound]
    keys: [{name: test, key: env:TURNPIKE_KEY, role: member}]
    runtime: {tool_parallelism: safe}
    mcp_servers: [{name: tools, url: %s}]
`

const coveredKey = "a-key-for-one-test"

// run starts the program, does what it is told, ends the program with SIGTERM
// and returns the blocks of code that ran.
func (c covered) run(t *testing.T, do func(baseURL string)) map[string]bool {
	t.Helper()
	dir := t.TempDir()
	config, counters := filepath.Join(dir, "turnpike.yaml"), filepath.Join(dir, "counters")
	text := fmt.Sprintf(coveredConfig, filepath.Join(dir, "data"), c.model, c.tools)
	if err := errors.Join(os.WriteFile(config, []byte(text), 0o600), os.Mkdir(counters, 0o700)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var log bytes.Buffer
	cmd := exec.CommandContext(ctx, c.binary, "serve", "--config", config)
	cmd.Env = append(os.Environ(), "GOCOVERDIR="+counters, "TURNPIKE_KEY="+coveredKey)
	cmd.Stderr = &log
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	baseURL, rest := address(stdout)
	if baseURL != "" {
		awaitReady(ctx, t, baseURL)
		do(baseURL)
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	_, _ = io.Copy(io.Discard, rest) // to the end, or Wait would cut it off
	if err := cmd.Wait(); err != nil || baseURL == "" {
		t.Fatalf("turnpike serve: %v\n%s", err, log.String())
	}
	return blocks(t, counters)
}

// address reads where the gateway says that it listens.
func address(stdout io.Reader) (baseURL string, rest io.Reader) {
	lines := bufio.NewReader(stdout)
	line, _ := lines.ReadString('\n') // on an error there is no address in it
	_, baseURL, _ = strings.Cut(strings.TrimSpace(line), "listens on ")
	return baseURL, lines
}

// awaitReady asks until the gateway takes work: its first answer is not the
// one that counts, so both runs have asked.
func awaitReady(ctx context.Context, t *testing.T, baseURL string) {
	t.Helper()
	for again := time.NewTicker(10 * time.Millisecond); ; {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, baseURL+"/readyz", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				again.Stop()
				return
			}
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			t.Fatalf("the gateway was not ready in time: %v", err)
		}
	}
}

// askWithTools makes one streaming chat completion that takes two rounds of
// tools, and sees to it that it did.
func askWithTools(t *testing.T, baseURL string) {
	t.Helper()
	body := fmt.Sprintf(`{"model":"demo","stream":true,"messages":[{"role":"user","content":%q}]}`, demo.Question)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, baseURL+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+coveredKey)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"get_weather", "75.2", `"finish_reason":"stop"`, "data: [DONE]"} {
		if !strings.Contains(string(answer), want) {
			t.Fatalf("the answer has no %s in it:\n%s", want, answer)
		}
	}
}

// blocks returns the blocks that ran, as file:from,to.
func blocks(t *testing.T, counters string) map[string]bool {
	t.Helper()
	profile := filepath.Join(counters, "profile.txt")
	cmd := exec.CommandContext(t.Context(), "go", "tool", "covdata", "textfmt", "-i="+counters, "-o="+profile)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go tool covdata: %v\n%s", err, out)
	}
	text, err := os.ReadFile(profile)
	if err != nil {
		t.Fatal(err)
	}
	ran := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 3 && f[2] != "0" { // file:from,to statements count
			ran[f[0]] = true
		}
	}
	if len(ran) == 0 {
		t.Fatal("the program left no counters: did it end by itself?")
	}
	return ran
}

// file returns the file of a block, from the module's root.
func file(block string) string {
	path, _, _ := strings.Cut(block, ":")
	return inModule(path)
}
