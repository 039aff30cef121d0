package chat_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

// A fallback to a target that is dearer than what is left of a cap, or whose price nobody knows, is not tried.
// Failure 6 of other gateways. // I07 P03
func TestAFallbackThatACapLeavesNoRoomForIsNotTried(t *testing.T) {
	for name, c := range map[string]struct {
		rates string // of the second target
		calls int
	}{
		"it fits":         {"- {model: b, provider: two, from: 2020-01-01, input: 1, output: 10}\n", 1},
		"it is too dear":  {"- {model: b, provider: two, from: 2020-01-01, input: 100, output: 100000}\n", 0},
		"it has no price": {"", 0},
	} {
		for _, how := range []string{"runs", "relays"} {
			t.Run(name+"/"+how, func(t *testing.T) {
				NoLeaks(t)
				one, two := NewUpstream(t, Refuses(503)), NewUpstream(t, Counts(3, 2))
				rates := filepath.Join(t.TempDir(), "rates.yaml")
				if err := os.WriteFile(rates, []byte("- {model: a, provider: up, from: 2020-01-01, input: 1, output: 10}\n"+c.rates), 0o600); err != nil {
					t.Fatal(err)
				}
				yaml := "rates: " + rates + "\n" + RoutesYAML(one.URL, two.URL, "")
				yaml = strings.Replace(yaml, "runtime: {}", "runtime: {max_run_cost_usd: 0.01}", 1)
				g := MustRun(t, yaml)
				var header []string
				if how == "relays" {
					header = []string{"turnpike-mcp-disabled", "true"}
				}
				a := g.Send("POST", "/v1/chat/completions", strings.NewReader(`{"model":"fast","max_tokens":100,"messages":[{"role":"user","content":"x"}]}`), header...)
				if n := len(two.Requests()); n != c.calls || (a.Status == 200) != (c.calls > 0) {
					t.Errorf("the second target was called %d times, want %d: %d %s", n, c.calls, a.Status, a.Body)
				}
				if c.calls == 0 && a.Status != 503 { // the error of the target that was tried
					t.Errorf("%d %s", a.Status, a.Body)
				}
			})
		}
	}
}
