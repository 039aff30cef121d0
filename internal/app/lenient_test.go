package app_test

import (
	"bytes"
	"net/http"
	"strings"
	"testing"
)

// The whole way of a call whose arguments have the wrong type: the setting comes
// over the API, the tool and the cache get what fits, the transcript keeps what
// the model wrote, and the journal says what was changed. // C07
func TestLenientArgumentsAreChangedAndShown(t *testing.T) {
	noLeaks(t)
	arguments := make(chan string, 1)
	up := newUpstream(t, func(w http.ResponseWriter, _ *http.Request, got received) {
		if !bytes.Contains(got.body, []byte(`"role":"tool"`)) {
			asks(call{"echo", <-arguments}).write(w)
			return
		}
		says("done").write(w)
	})
	tools := newMCP(t, map[string]handler{"echo": echo}, "echo")
	data, yaml := t.TempDir(), strings.Replace(site{upstream: up.URL, servers: []string{server("s", tools.URL, "reads: [echo]")}}.yaml(), "    runtime: {}\n", "", 1)
	d := manage(mustRunIn(t, data, yaml, environment()))
	ask := func(args string) (id string) {
		t.Helper()
		arguments <- args
		a := d.post(chatBody)
		if a.status != 200 {
			t.Fatalf("status %d: %s", a.status, a.body)
		}
		return a.header.Get("Turnpike-Run-Id")
	}
	calls := func() int { return len(tools.of("tools/call")) }

	if ask(`{"n":"5"}`); calls() != 0 {
		t.Fatal("strict arguments were changed")
	}
	got := d.do("PATCH", "/api/org/runtime", "owner-key", `{"tool_arg_validation":"lenient","tool_cache_ttl_seconds":60}`, 200)["runtime"].(map[string]any)
	if got["tool_arg_validation"] != "lenient" {
		t.Fatalf("runtime %v", got)
	}
	id := ask(`{"n":"5"}`)
	if calls() != 1 || !strings.Contains(string(tools.of("tools/call")[0].Params), `"arguments":{"n":5}`) {
		t.Fatalf("the server got %v", tools.of("tools/call"))
	}
	if sent := up.last(); !strings.Contains(sent, `{\"n\":\"5\"}`) {
		t.Errorf("the transcript does not have the model's own arguments: %s", sent)
	}
	if shown := runShown(t, data, id); !strings.Contains(shown, "arguments changed to fit the schema: /n from string to integer") {
		t.Errorf("runs show:\n%s", shown)
	}
	if shown := runShown(t, data, ask(`{"n":5}`)); calls() != 1 || strings.Contains(shown, "changed to fit") {
		t.Errorf("the same call after all made %d calls, want the kept result of the first:\n%s", calls(), shown)
	}
	if shown := runShown(t, data, ask(`{"n":"five"}`)); calls() != 1 || strings.Contains(shown, "changed to fit") {
		t.Errorf("a text that is no number made %d calls:\n%s", calls(), shown)
	}
}
