package main

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"go.uber.org/goleak"
)

// The rig starts this test binary, too: as its children, and as the gateway of
// testgateway_test.go.
func TestMain(m *testing.M) {
	switch {
	case len(os.Args) == 3 && os.Args[1] == childCommand:
		main()
		return
	case len(os.Args) == 4 && os.Args[1] == "serve":
		os.Exit(serveTestGateway(os.Args[3]))
	}
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0") // else each child takes a second to end under -race
	goleak.VerifyTestMain(m)
}

// smallest are the sizes of tests: enough to see that something was measured.
func smallest() sizes {
	return sizes{
		pairs: 1, pass: 30 * time.Millisecond, streams: 50, streamsAtOnce: 20, lockedRequests: 20, runs: 2, serialRuns: 1,
		warm: 1, passes: 1, parallelRuns: 2, roundRuns: 2, roundWidth: 2, cpuRuns: 4, idleStreams: 20, idlePairs: 1, steady: 50 * time.Millisecond, disconnects: 10, runDisconnects: 4,
		neighborPairs: 1, neighborRuns: 4,
	}
}

// tiny returns the options of -self with the smallest sizes.
func tiny(t *testing.T, args ...string) options {
	t.Helper()
	opt, err := parse(append([]string{"-self", "-quick", "-pairs", "1"}, args...), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	opt.concurrency, opt.sizes = 2, smallest()
	return opt
}

// The ratios of such short passes mean nothing: the verdict is not checked.
func TestTheRelayCasesMeasureABaselineAgainstItself(t *testing.T) {
	var out, errs bytes.Buffer
	if _, err := measure(t.Context(), tiny(t), &out, &errs); err != nil {
		t.Fatal(err)
	}
	if errs.Len() > 0 {
		t.Errorf("complaints: %s", &errs)
	}
	for _, want := range []string{
		"small requests/s, gateway / baseline", "small128 requests/s, gateway / baseline", "body100k requests/s", "burst streams/s", "responses requests/s, gateway / baseline",
		"cuts cut or altered streams, of 50 0 0 0 <= 0 PASS", "the same of 20 at the same time 0 0 0 <= 0 PASS",
		"idle RssAnon of 20 streams, gateway / baseline", "leak streams open 1 s after 10 clients left 0 0 0 <= 0 PASS",
	} {
		if !strings.Contains(spaced(out.String()), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
}

func TestWithoutAGatewayOnlyWhatABaselineCanDoIsMeasured(t *testing.T) {
	var names []string
	for _, c := range tiny(t).cases {
		names = append(names, c.name)
	}
	if got := strings.Join(names, " "); got != "small small128 body100k burst responses cuts idle leak" {
		t.Errorf("cases %s", got)
	}
}

func TestListNamesEveryCase(t *testing.T) {
	var out bytes.Buffer
	if code := bench(t.Context(), []string{"-list"}, strings.NewReader(""), &out, t.Output()); code != 0 {
		t.Errorf("exit code %d", code)
	}
	for _, c := range cases() {
		if !strings.Contains(out.String(), c.name+" ") {
			t.Errorf("no case %s in\n%s", c.name, &out)
		}
	}
}

func TestACancelledBenchmarkSaysSoAndLeavesNothing(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
	defer cancel()
	opt := tiny(t, "-case", "small")
	opt.pass = time.Minute
	var out, errs bytes.Buffer
	passed, err := measure(ctx, opt, &out, &errs)
	if passed || err == nil {
		t.Errorf("passed %v, error %v", passed, err)
	}
}

func TestAGatewayThatDoesNotStartFailsTheTable(t *testing.T) {
	out, errs, passed := withTestGateway(t, "", "small")
	if passed || !strings.Contains(errs, "I do not serve") || !strings.Contains(out, "FAIL") {
		t.Errorf("passed %v, output:\n%s\ncomplaints:\n%s", passed, out, errs)
	}
}

func TestExitCodes(t *testing.T) {
	for _, tt := range []struct {
		name string
		args []string
		want int
	}{
		{"help", []string{"-h"}, 0},
		{"an unknown case", []string{"-case", "smal"}, 2},
		{"an unknown flag", []string{"-fast"}, 2},
		{"an unexpected argument", []string{"small"}, 2},
		{"no pairs", []string{"-pairs", "0"}, 2},
		{"a loop case without a gateway", []string{"-self", "-case", "loop"}, 2},
		{"-self with a gateway", []string{"-self", "-gateway", "x"}, 2},
		{"-self compared with a gateway", []string{"-self", "-against", "x"}, 2},
		{"a comparison of a case without a rate", []string{"-against", "x", "-case", "cuts"}, 2},
		{"a comparison with a missing gateway", []string{"-against", "/nonexistent/turnpike", "-gateway", os.Args[0], "-case", "small"}, 1},
		{"a profile of a given binary", []string{"-profile", "x", "-gateway", "y"}, 2},
		{"a missing gateway", []string{"-gateway", "/nonexistent/turnpike", "-case", "small"}, 1},
		{"an unknown role", []string{"child", "nobody"}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			if got := bench(t.Context(), tt.args, strings.NewReader(""), &out, t.Output()); got != tt.want {
				t.Errorf("exit code %d, want %d", got, tt.want)
			}
		})
	}
}

func TestTooManyStreamsForTheFileLimitAreRefused(t *testing.T) {
	if err := checkFileLimit(1000, 2199); err == nil || !strings.Contains(err.Error(), "need 2200 open files") {
		t.Errorf("error %v", err)
	}
	if err := checkFileLimit(1000, 2200); err != nil {
		t.Error(err)
	}
}

func TestQuickIsShorter(t *testing.T) {
	full, err := parse(nil, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	quick, err := parse([]string{"-quick"}, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	if full.streams != 10_000 || full.disconnects != 1000 || quick.streams >= full.streams || quick.pass >= full.pass || full.pairs <= quick.pairs || quick.pairs < 5 {
		t.Errorf("full %+v, quick %+v", full, quick)
	}
	if asked, err := parse([]string{"-pairs", "7", "-quick"}, t.Output()); err != nil || asked.pairs != 7 {
		t.Errorf("%d pairs, error %v", asked.pairs, err)
	}
}

func TestTheGatewayIsTheOneThatIsGiven(t *testing.T) {
	t.Setenv(programVar, "of the variable")
	for _, tt := range []struct {
		args []string
		want string
	}{
		{nil, "of the variable"},
		{[]string{"-gateway", "of the flag"}, "of the flag"},
		{[]string{"-self"}, ""},
	} {
		opt, err := parse(tt.args, t.Output())
		if err != nil {
			t.Fatal(err)
		}
		r, err := newRig(t.Context(), opt)
		if err != nil {
			t.Fatal(err)
		}
		if r.gateway != tt.want {
			t.Errorf("%q: gateway %q, want %q", tt.args, r.gateway, tt.want)
		}
		if err := r.close(); err != nil {
			t.Error(err)
		}
	}
}

func TestTheConfigurationIsYAML(t *testing.T) {
	type file struct {
		Listen    string
		Providers []struct {
			BaseURL string `yaml:"base_url"`
			Models  []string
		}
		Orgs []struct {
			Keys       []struct{ Key string }
			Features   []string
			MCPServers []struct {
				URL                string
				MaxConcurrentCalls int `yaml:"max_concurrent_calls"`
			} `yaml:"mcp_servers"`
			Runtime struct {
				ToolParallelism string `yaml:"tool_parallelism"`
				Concurrency     int
			}
		}
	}
	for _, tt := range []struct {
		name    string
		config  gatewayConfig
		servers int
	}{
		{"of a relay case: no loop", gatewayConfig{provider: "127.0.0.1:1", parallelism: "parallel"}, 0},
		{"of the loop case: one server", gatewayConfig{provider: "127.0.0.1:1", mcp: "127.0.0.1:2", parallelism: "serial"}, 1},
		{"of runs that leave: room for all of them", gatewayConfig{provider: "127.0.0.1:1", mcp: "127.0.0.1:2", parallelism: "parallel", slots: 200, calls: 100}, 1},
		{"with budgets, a route and metrics", gatewayConfig{provider: "127.0.0.1:1", parallelism: "parallel", caps: true, metrics: "127.0.0.1:4"}, 0},
		{"of two orgs", gatewayConfig{provider: "127.0.0.1:1", mcp: "127.0.0.1:2", parallelism: "parallel", secondOrg: true}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text, err := tt.config.text("127.0.0.1:3", "/data dir", "/rates.yaml")
			if err != nil {
				t.Fatal(err)
			}
			var got file
			if err := yaml.Unmarshal([]byte(text), &got); err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			org := got.Orgs[len(got.Orgs)-1]
			if (org.Keys[0].Key == "env:"+secondKeyVar) != tt.config.secondOrg || got.Orgs[0].Keys[0].Key != "env:"+clientKeyVar {
				t.Errorf("keys of %+v", got.Orgs)
			}
			if slots := tt.config.slots; slots > 0 && (org.Runtime.Concurrency != slots || org.MCPServers[0].MaxConcurrentCalls != tt.config.calls) {
				t.Errorf("limits of %+v", org)
			}
			if got.Listen != "127.0.0.1:3" || got.Providers[0].BaseURL != "http://127.0.0.1:1/v1" || got.Providers[0].Models[0] != "*" {
				t.Errorf("configuration %+v", got)
			}
			if len(org.Features) != tt.servers || len(org.MCPServers) != tt.servers || org.Runtime.ToolParallelism != tt.config.parallelism {
				t.Errorf("org %+v", org)
			}
		})
	}
}
