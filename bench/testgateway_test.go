package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// behaviourVar tells the test gateway how to behave; without it, it does not serve.
const behaviourVar = "BENCH_TEST_GATEWAY"

// The behaviours of the test gateway.
const (
	asConfigured = "as configured"
	hasty        = "tools at the same time, whatever the configuration says"
	disordered   = "tool results in another order than the calls"
	forgetful    = "no tools"
	twice        = "every tool call twice"
)

// withTestGateway measures one case with the test gateway.
func withTestGateway(t *testing.T, behaviour, name string) (out, errs string, passed bool) {
	t.Helper()
	t.Setenv(behaviourVar, behaviour)
	opt, err := parse([]string{"-gateway", os.Args[0], "-case", name}, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	opt.runs, opt.serialRuns = 3, 1
	var o, e bytes.Buffer
	passed, err = measure(t.Context(), opt, &o, &e)
	if err != nil {
		t.Fatal(err)
	}
	return o.String(), e.String(), passed
}

func TestTheLoopCaseTellsGatewaysApart(t *testing.T) {
	for _, tt := range []struct {
		behaviour string
		want      []string // in the table or the complaints
	}{
		{asConfigured, []string{"at most 8 tool calls", "at most 1 tool calls", "0  <= 0      PASS"}},
		{hasty, []string{"serial calls that overlapped", "<= 0      FAIL"}},
		{disordered, []string{"results out of call order, of 12 runs", "12  <= 0      FAIL", "run 1, round 0: result 0 is"}},
		{forgetful, []string{"status 400", "offers no tool", "loop       could not be measured: FAIL"}},
		{twice, []string{"the tool was called for [1000 1000", "FAIL"}},
	} {
		t.Run(tt.behaviour, func(t *testing.T) {
			out, errs, passed := withTestGateway(t, tt.behaviour, "loop")
			// Time is the machine's affair: only the other rows must hold.
			if failed := strings.Contains(out, "<= 0      FAIL") || errs != ""; failed != (tt.behaviour != asConfigured) {
				t.Errorf("passed %v", passed)
			}
			for _, want := range tt.want {
				if !strings.Contains(out+errs, want) {
					t.Errorf("no %q in\n%s\n%s", want, out, errs)
				}
			}
		})
	}
}

// testGateway is just enough of a gateway to try the loop case on: one org,
// one MCP server, no limits, no security.
type testGateway struct {
	behaviour string
	provider  string // base URL
	serial    bool
	session   *mcp.ClientSession
}

func serveTestGateway(config string) int {
	behaviour := os.Getenv(behaviourVar)
	if behaviour == "" {
		fmt.Fprintln(os.Stderr, "I do not serve")
		return 1
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := runTestGateway(ctx, config, behaviour); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func runTestGateway(ctx context.Context, config, behaviour string) error {
	b, err := os.ReadFile(config)
	if err != nil {
		return err
	}
	var c struct {
		Listen    string
		Providers []struct {
			BaseURL string `yaml:"base_url"`
		}
		Orgs []struct {
			MCPServers []struct{ URL string } `yaml:"mcp_servers"`
			Runtime    struct {
				ToolParallelism string `yaml:"tool_parallelism"`
			}
		}
	}
	if err := yaml.Unmarshal(b, &c); err != nil {
		return err
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	session, err := client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: c.Orgs[0].MCPServers[0].URL}, nil)
	if err != nil {
		return err
	}
	g := &testGateway{behaviour, c.Providers[0].BaseURL, c.Orgs[0].Runtime.ToolParallelism == "serial", session}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST /v1/chat/completions", g.chat)
	srv := &http.Server{Addr: c.Listen, Handler: mux}
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stop()
	if err := srv.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

type testCall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

// chat runs the loop: the model's turns until one has no calls, which is passed on.
func (g *testGateway) chat(w http.ResponseWriter, r *http.Request) {
	var req map[string]any
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if g.behaviour != forgetful {
		req["tools"] = []any{map[string]any{"type": "function", "function": map[string]any{"name": "slow"}}}
	}
	for {
		status, stream, err := g.call(r.Context(), req)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		calls := callsOf(stream)
		if len(calls) == 0 {
			w.WriteHeader(status)
			_, _ = w.Write(stream)
			return
		}
		messages := append(req["messages"].([]any), map[string]any{"role": "assistant", "tool_calls": calls})
		req["messages"] = append(messages, g.execute(r.Context(), calls)...)
	}
}

func (g *testGateway) call(ctx context.Context, body any) (int, []byte, error) {
	b, err := json.Marshal(body)
	if err != nil {
		return 0, nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, g.provider+"/chat/completions", bytes.NewReader(b))
	if err != nil {
		return 0, nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	stream, err := io.ReadAll(resp.Body)
	return resp.StatusCode, stream, err
}

// callsOf collects a turn's calls; the scripted model sends each in one piece.
func callsOf(stream []byte) (calls []testCall) {
	for line := range strings.SplitSeq(string(stream), "\n") {
		var chunk struct {
			Choices []struct {
				Delta struct {
					ToolCalls []testCall `json:"tool_calls"`
				} `json:"delta"`
			} `json:"choices"`
		}
		data, isData := strings.CutPrefix(line, "data: ")
		if isData && json.Unmarshal([]byte(data), &chunk) == nil && len(chunk.Choices) > 0 {
			calls = append(calls, chunk.Choices[0].Delta.ToolCalls...)
		}
	}
	return calls
}

func (g *testGateway) execute(ctx context.Context, calls []testCall) []any {
	results := make([]any, len(calls))
	var all sync.WaitGroup
	for i, c := range calls {
		at := i
		if g.behaviour == disordered {
			at = len(calls) - 1 - i
		}
		all.Go(func() { results[at] = g.result(ctx, c) })
		if g.serial && g.behaviour != hasty {
			all.Wait()
		}
	}
	all.Wait()
	return results
}

func (g *testGateway) result(ctx context.Context, c testCall) any {
	times, text := 1, ""
	if g.behaviour == twice {
		times = 2
	}
	for range times {
		res, err := g.session.CallTool(ctx, &mcp.CallToolParams{Name: c.Function.Name, Arguments: json.RawMessage(c.Function.Arguments)})
		if err != nil {
			text = err.Error()
			continue
		}
		text = res.Content[0].(*mcp.TextContent).Text
	}
	return map[string]any{"role": "tool", "tool_call_id": c.ID, "content": text}
}
