package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/turnpike-gateway/turnpike/bench/fake"
)

// behaviourVar selects the behaviour of the test gateway; without it, it fails.
const behaviourVar = "BENCH_TEST_GATEWAY"

// The behaviours of the test gateway.
const (
	asConfigured        = "as configured"
	ignoresSerial       = "tools at the same time, also where the configuration says serial"
	wrongOrderOfResults = "tool results in another order than the calls"
	withoutTools        = "no tools"
	callsTwice          = "every tool call twice"
	keepsRequestsOpen   = "requests continue after their clients have disconnected"
	refusesSecondOrg    = "two of three runs of the second org are refused"
)

// withTestGateway measures cases with the test gateway.
func withTestGateway(t *testing.T, behaviour, names string) (out, errs string, passed bool) {
	t.Helper()
	t.Setenv(behaviourVar, behaviour)
	opt, err := parse([]string{"-gateway", os.Args[0], "-case", names}, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	opt.sizes = smallest()
	var o, e bytes.Buffer
	passed, err = measure(t.Context(), opt, &o, &e)
	if err != nil {
		t.Fatal(err)
	}
	return o.String(), e.String(), passed
}

func TestTheLoopCasesTellGatewaysApart(t *testing.T) {
	for _, tt := range []struct {
		behaviour, cases string
		want             []string // in the table or the complaints
	}{
		{asConfigured, "store,loop,rounds,cpu", []string{
			"store could not be measured: FAIL", "GET /api/keys: status 404",
			"at most 8 tool calls", "at most 1 tool calls", "0 <= 0 PASS", "the same, bare loop",
			"loop time of a run / minimum of 90 ms", "rounds time of a run / minimum of 200 ms", "time of a run, gateway / bare loop",
			"cpu CPU of a run, gateway / bare loop", "ms of gateway CPU a run",
		}},
		{asConfigured, "respcpu", []string{"respcpu could not be measured: FAIL", "status 404"}},
		{asConfigured, "neighbour", []string{"neighbour could not be measured: FAIL", "was never refused"}},
		{refusesSecondOrg, "neighbour", []string{"p99 of an org, other org loud / silent", "200 clients of the other org made"}},
		{ignoresSerial, "loop", []string{"serial calls that overlapped", "<= 0 FAIL"}},
		{wrongOrderOfResults, "loop", []string{"results out of call order, of 5 runs", "5 5 5 <= 0 FAIL", "round 0: result 0 is"}},
		{withoutTools, "loop", []string{"status 400", "offers no tool", "loop could not be measured: FAIL"}},
		{callsTwice, "loop", []string{"the tool was called for [", "FAIL"}},
		{asConfigured, "leak", []string{"streams open 1 s after 10 clients left 0 0 0 <= 0 PASS", "tool calls, the same 0 0 0"}},
		{keepsRequestsOpen, "leak", []string{"streams open 1 s after 10 clients left 10 10 10 <= 0 FAIL", "left 2 2 2 <= 0 FAIL"}},
	} {
		t.Run(tt.behaviour+", "+tt.cases, func(t *testing.T) {
			out, errs, _ := withTestGateway(t, tt.behaviour, tt.cases)
			for _, want := range tt.want {
				if !strings.Contains(spaced(out+errs), want) {
					t.Errorf("no %q in\n%s\n%s", want, out, errs)
				}
			}
		})
	}
}

// spaced returns a table with one space between its columns.
func spaced(table string) string { return strings.Join(strings.Fields(table), " ") }

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

// runTestGateway serves the bare loop if there is an MCP server, else the baseline,
// without limits or security.
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
	provider := strings.TrimSuffix(c.Providers[0].BaseURL, "/v1")
	var h http.Handler = fake.Baseline(&url.URL{Scheme: "http", Host: strings.TrimPrefix(provider, "http://")}, os.Getenv(providerKeyVar))
	if servers := c.Orgs[0].MCPServers; len(servers) > 0 {
		h, err = loopHandler(ctx, behaviour, provider, servers[0].URL, c.Orgs[0].Runtime.ToolParallelism == "serial")
		if err != nil {
			return err
		}
	}
	return listen(ctx, c.Listen, behave(behaviour, h))
}

func listen(ctx context.Context, addr string, h http.Handler) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", func(http.ResponseWriter, *http.Request) {})
	mux.Handle("POST /v1/chat/completions", h)
	srv := &http.Server{Addr: addr, Handler: mux}
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stop()
	if err := srv.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// behave wraps h with what the behaviour does to requests.
func behave(behaviour string, h http.Handler) http.Handler {
	var requests atomic.Int64
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case behaviour == keepsRequestsOpen:
			ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context())) // httputil.ReverseProxy replaces a context that is never done
			defer cancel()
			r = r.WithContext(ctx)
		case behaviour == refusesSecondOrg && r.Header.Get("Authorization") == "Bearer "+os.Getenv(secondKeyVar) && requests.Add(1)%3 != 0:
			_, _ = io.Copy(io.Discard, r.Body)
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		h.ServeHTTP(w, r)
	})
}

func loopHandler(ctx context.Context, behaviour, provider, endpoint string, serial bool) (http.Handler, error) {
	l, err := fake.NewBareLoop(ctx, provider, endpoint)
	if err != nil {
		return nil, err
	}
	inSeries := func(ctx context.Context, calls []fake.LoopCall) (results []any) {
		for _, c := range calls {
			results = append(results, l.Call(ctx, c))
		}
		return results
	}
	switch {
	case behaviour == withoutTools:
		l.Tools = nil
	case behaviour == wrongOrderOfResults:
		l.Execute = func(ctx context.Context, calls []fake.LoopCall) []any {
			results := inSeries(ctx, calls)
			slices.Reverse(results)
			return results
		}
	case behaviour == callsTwice:
		l.Execute = func(ctx context.Context, calls []fake.LoopCall) []any {
			inSeries(ctx, calls)
			return inSeries(ctx, calls)
		}
	case serial && behaviour != ignoresSerial:
		l.Execute = inSeries
	}
	return l, nil
}
