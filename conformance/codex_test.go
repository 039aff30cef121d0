package conformance

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/surface/spectest"
	"github.com/turnpike-gateway/turnpike/internal/upstreamtest"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// codexConfig is the configuration of Codex; its holes are further keys, the model, the name of the provider and
// the base URL.
const codexConfig = `
%s
model = %q
model_provider = "turnpike"
approval_policy = "never"
sandbox_mode = "danger-full-access" # the commands are the test's own
check_for_update_on_startup = false
analytics.enabled = false
feedback.enabled = false
features.apps = false
features.plugins = false
[model_providers.turnpike]
name = %q
base_url = %q
wire_api = "responses"
env_key = "TURNPIKE_KEY"
`

// codexCase is a model, what Codex sends for it, and what comes of that. Which tools Codex
// declares depends on the name of the model behind the slash.
type codexCase struct {
	model   string
	members string   // of the body of each request, sorted
	tools   []string // types and names
	dropped string   // what the gateway says that it does not carry
	call    string   // a call of a tool of Codex, as a line of a story
	outputs []string // what the model gets of the call
}

// codexCases has, for a provider of each dialect, a model that Codex does not know, one with
// a custom tool, and one whose tools are all in an item of the input. The last one calls
// Codex's shell in a script that reports before its end: its call has two outputs.
func codexCases() []codexCase {
	const (
		file  = "made by Codex"
		shell = `exec_command {"cmd":"printf '` + file + `' > made.txt; cat made.txt"}`
		patch = `apply_patch {"input":"*** Begin Patch\n*** Add File: made.txt\n+` + file + `\n*** End Patch\n"}`
		code  = `functions__exec {"input":"const r = await tools.exec_command({cmd: \"printf '` + file + `' > made.txt; cat made.txt\"}); notify(\"still here\"); text(r.output);"}`

		always  = "client_metadata include input model parallel_tool_calls prompt_cache_key reasoning store stream"
		patched = "Success. Updated the following files:\nA made.txt"
	)
	unknown := codexCase{
		model: "", members: always + " tool_choice tools", call: shell, outputs: []string{file},
		tools: []string{
			"function exec_command", "function write_stdin", "function request_user_input", "function view_image", "namespace multi_agent_v1",
			"function get_goal", "function create_goal", "function update_goal", "web_search",
		},
	}
	custom := codexCase{
		model: "/gpt-5.5", members: always + " text tool_choice tools", call: patch, outputs: []string{patched},
		tools: []string{
			"function exec_command", "function write_stdin", "function request_user_input", "custom apply_patch", "function view_image",
			"function get_goal", "function create_goal", "function update_goal", "tool_search", "web_search",
		},
	}
	inInput := codexCase{
		model: "/gpt-6-sol", members: always + " text tool_choice", call: code, outputs: []string{"still here", file},
		tools: []string{"namespace functions", "namespace clock", "namespace collaboration"},
	}
	of := func(model string, c codexCase, dropped string) codexCase {
		c.model, c.dropped = model+c.model, dropped
		return c
	}
	return []codexCase{
		of("gpt-test", unknown, "client_metadata,include,prompt_cache_key,reasoning.summary,tools[8]"),
		of("gpt-test", custom, "client_metadata,include,prompt_cache_key,tools[8],tools[9]"),
		of("gpt-test", inInput, "client_metadata,include,prompt_cache_key,reasoning"), // of reasoning, context
		of("claude-sonnet-4-5", unknown, "client_metadata,include,prompt_cache_key,tools[8]"),
		of("claude-sonnet-4-5", custom, "client_metadata,include,prompt_cache_key,text.verbosity,tools[8],tools[9]"),
		of("claude-sonnet-4-5", inInput, "client_metadata,include,prompt_cache_key,reasoning,text.verbosity"),
		of("responses-test", unknown, ""),
		of("responses-test", custom, ""),
		of("responses-test", inInput, ""),
	}
}

// codexHeaders are those that only Codex sends. They do not reach a provider.
var codexHeaders = []string{
	"Originator", "Session-Id", "Thread-Id", "X-Client-Request-Id", "X-Codex-Beta-Features", "X-Codex-Turn-Metadata", "X-Codex-Window-Id",
}

// testCodex runs a task with Codex: the model calls a tool of the org, then one more and
// one of Codex in one turn, and answers.
func testCodex(t *testing.T, s *site) { // P37 A08
	if _, err := os.Stat("node_modules/@openai/codex/package.json"); err != nil {
		skip(t, "npm package @openai/codex is not installed; run npm ci in the directory conformance")
	}
	specs := spectest.Find(t)
	for _, tt := range codexCases() {
		t.Run(tt.model, func(t *testing.T) { tt.run(t, s, specs) })
	}
}

func (tt codexCase) run(t *testing.T, s *site, specs *spectest.Documents) {
	const answer = "The sum is 42, and the file is there."
	story := `
reasoning First the numbers.
text I ask.
call c1 echo {"message":"20 22"}

reasoning Now both.
call c2 get-sum {"a":20,"b":22}
call c3 ` + tt.call + `

text ` + answer
	up := upstreamtest.New(turnpiketest.NewScript(t, story), upstreamtest.Options{Strict: true})
	t.Cleanup(up.Close)
	r := &rig{proxy: startProxy(t, s.everything)}
	r.program = s.startGateway(t, strings.TrimSuffix(up.URL, "/v1"), []object{{"name": "everything", "url": r.proxy.URL + "/mcp", "enabled": true}})
	front := startFront(t, startValidator(t, specs, r.program.url).URL)
	c := newCodex(t, s, "", tt.model, "Turnpike", front.URL+"/v1")
	printed, told := c.exec(t, "What is the sum? Write a file, too.")
	wantEqual(t, "what Codex prints", answer+"\n", printed)
	made, err := os.ReadFile(filepath.Join(c.dir, "made.txt"))
	if err != nil || strings.TrimSpace(string(made)) != "made by Codex" {
		t.Errorf("the file that Codex makes: %q, %v", made, err)
	}
	r.wantToolCalls(t, "echo", `{"message":"20 22"}`, "get-sum", `{"a":20,"b":22}`)
	tt.wantHidden(t, told)
	tt.wantSent(t, front.take())
	tt.wantReceived(t, up)
}

// wantHidden checks that Codex knows nothing of the tools of the org.
func (codexCase) wantHidden(t *testing.T, known string) {
	t.Helper()
	for _, word := range []string{"echo", "get-sum", "20 22", "20 and 22"} {
		if strings.Contains(strings.ToLower(known), word) {
			t.Errorf("Codex knows %q:\n%.2000s", word, known)
		}
	}
}

// wantSent checks the requests of Codex and how they were answered.
func (tt codexCase) wantSent(t *testing.T, requests []*passed) {
	if len(requests) != 2 {
		t.Errorf("%d requests of Codex, want one for each of its tools and the first", len(requests))
	}
	for _, r := range requests {
		wantEqual(t, "request", "POST /v1/responses", r.line)
		body := decodedAs[object](t, r.body)
		wantEqual(t, "members", tt.members, strings.Join(slices.Sorted(maps.Keys(body)), " "))
		wantEqual(t, "store", any(false), body["store"])
		wantEqual(t, "include", any([]any{"reasoning.encrypted_content"}), body["include"])
		input := listOf(body["input"])
		declared := listOf(body["tools"])
		if input[0]["type"] == "additional_tools" {
			declared = listOf(input[0]["tools"])
			input = input[1:]
		}
		var tools []string
		for _, tool := range declared {
			name, _ := tool["name"].(string)
			tools = append(tools, strings.TrimSpace(fmt.Sprint(tool["type"], " ", name)))
		}
		wantEqual(t, "tools", tt.tools, tools)
		for _, it := range input[4:] { // after what Codex tells each model
			tt.wantHidden(t, string(marshal(it)))
		}
		wantEqual(t, "Turnpike-Dropped-Params", tt.dropped, r.answer.Get("Turnpike-Dropped-Params"))
		for _, name := range codexHeaders {
			if r.header.Get(name) == "" {
				t.Errorf("Codex does not send the header %s", name)
			}
		}
	}
}

// wantReceived checks the requests at the provider: the last one has the results of all calls.
func (tt codexCase) wantReceived(t *testing.T, up *upstreamtest.Upstream) {
	wantAccepted(t, up)
	requests := up.Requests()
	if len(requests) != 3 {
		t.Fatalf("%d requests at the provider, want one for each turn", len(requests))
	}
	for _, r := range requests {
		for _, name := range codexHeaders {
			if r.Header.Get(name) != "" {
				t.Errorf("the provider got the header %s", name)
			}
		}
	}
	for _, output := range append(tt.outputs, "Echo: 20 22", "The sum of 20 and 22 is 42.") {
		text := strings.Trim(string(marshal(output)), `"`)
		if got := bytes.Count(requests[2].Body, []byte(text)); got == 0 {
			t.Errorf("the provider did not get %q:\n%s", output, requests[2].Body)
		}
	}
}

// codex is the program of the npm package @openai/codex.
type codex struct {
	node string
	dir  string // the working directory
	env  []string
	away *front // gets the requests to all other addresses
}

// newCodex prepares Codex for a model, with further keys of its configuration and the name that it has for the provider. What it sends to other addresses than this one
// goes to a proxy that refuses it.
func newCodex(t *testing.T, s *site, more, model, provider, base string) *codex {
	t.Helper()
	home := t.TempDir()
	c := &codex{node: s.node, dir: t.TempDir(), away: startFront(t, "")}
	if err := os.WriteFile(filepath.Join(home, "config.toml"), fmt.Appendf(nil, codexConfig, more, model, provider, base), 0o600); err != nil {
		t.Fatal(err)
	}
	c.env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + home, "CODEX_HOME=" + home, "TURNPIKE_KEY=" + devKey,
		"NO_PROXY=127.0.0.1", "ALL_PROXY=" + c.away.URL, "HTTP_PROXY=" + c.away.URL, "HTTPS_PROXY=" + c.away.URL,
	}
	return c
}

// exec runs a task. It returns what Codex prints of the answer, and what it tells of the way
// there.
func (c *codex) exec(t *testing.T, prompt string) (printed, told string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	program, err := filepath.Abs("node_modules/@openai/codex/bin/codex.js")
	if err != nil {
		t.Fatal(err)
	}
	var errors bytes.Buffer
	cmd := exec.CommandContext(ctx, c.node, program, "exec", "--skip-git-repo-check", prompt)
	cmd.Dir, cmd.Env, cmd.Stderr = c.dir, c.env, &errors
	output, err := cmd.Output()
	if err != nil {
		t.Errorf("codex: %v\n%s", err, &errors)
	}
	for _, r := range c.away.take() {
		t.Errorf("Codex sent a request to another address: %s", r.line)
	}
	return string(output), errors.String()
}

// front is a proxy that keeps requests and answers. Without a target it refuses requests.
type front struct {
	*httptest.Server
	onward *httputil.ReverseProxy // nil = no target

	mu   sync.Mutex
	seen []*passed // guarded by mu
}

// passed is a request that a front got.
type passed struct {
	line   string
	header http.Header
	body   []byte
	answer http.Header
}

func startFront(t *testing.T, target string) *front {
	f := &front{}
	if target != "" {
		to, err := url.Parse(target)
		if err != nil {
			t.Fatal(err)
		}
		transport := &http.Transport{}
		t.Cleanup(transport.CloseIdleConnections)
		f.onward = &httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(to) }, Transport: transport, FlushInterval: -1}
	}
	f.Server = httptest.NewServer(f)
	t.Cleanup(func() {
		f.CloseClientConnections()
		f.Close()
	})
	return f
}

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client left
	}
	kept := &passed{line: r.Method + " " + r.RequestURI, header: r.Header.Clone(), body: body, answer: w.Header()}
	f.mu.Lock()
	f.seen = append(f.seen, kept)
	f.mu.Unlock()
	if f.onward == nil {
		http.Error(w, "this proxy refuses everything", http.StatusForbidden)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	f.onward.ServeHTTP(w, r)
}

// take returns the requests since the last take. Called when they have been answered.
func (f *front) take() []*passed {
	f.mu.Lock()
	defer f.mu.Unlock()
	seen := f.seen
	f.seen = nil
	return seen
}
