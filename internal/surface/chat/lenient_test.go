package chat_test

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

// The whole way of a call whose arguments have the wrong type: the setting comes
// over the API, the tool and the cache get what fits, the transcript keeps what
// the model wrote, and the journal says what was changed. // C07
func TestLenientArgumentsAreChangedAndShown(t *testing.T) {
	NoLeaks(t)
	arguments := make(chan string, 1)
	up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, got Received) {
		if !bytes.Contains(got.Body, []byte(`"role":"tool"`)) {
			Asks(Use("echo", <-arguments)).Write(w)
			return
		}
		Says("done").Write(w)
	})
	tools := NewMCP(t, map[string]Handler{"echo": Echo}, "echo")
	data, yaml := NewData(t), strings.Replace(Site{Upstream: up.URL, Servers: []string{Server("s", tools.URL, "reads: [echo]")}}.Yaml(), "    runtime: {}\n", "", 1)
	d := Manage(MustRunIn(t, data, yaml, Environment()))
	ask := func(args string) (id string) {
		t.Helper()
		arguments <- args
		a := d.Post(ChatBody)
		if a.Status != 200 {
			t.Fatalf("status %d: %s", a.Status, a.Body)
		}
		return a.Header.Get("Turnpike-Run-Id")
	}
	calls := func() int { return len(tools.Of("tools/call")) }

	if ask(`{"n":"5"}`); calls() != 0 {
		t.Fatal("strict arguments were changed")
	}
	got := d.Do("PATCH", "/api/org/runtime", "owner-key", `{"tool_arg_validation":"lenient","tool_cache_ttl_seconds":60}`, 200)["runtime"].(map[string]any)
	if got["tool_arg_validation"] != "lenient" {
		t.Fatalf("runtime %v", got)
	}
	id := ask(`{"n":"5"}`)
	if calls() != 1 || !strings.Contains(string(tools.Of("tools/call")[0].Params), `"arguments":{"n":5}`) {
		t.Fatalf("the server got %v", tools.Of("tools/call"))
	}
	if sent := up.Last(); !strings.Contains(sent, `{\"n\":\"5\"}`) {
		t.Errorf("the transcript does not have the model's own arguments: %s", sent)
	}
	if shown := RunShown(t, data, id); !strings.Contains(shown, "arguments changed to fit the schema: /n from string to integer") {
		t.Errorf("runs show:\n%s", shown)
	}
	if shown := RunShown(t, data, ask(`{"n":5}`)); calls() != 1 || strings.Contains(shown, "changed to fit") {
		t.Errorf("the same call after all made %d calls, want the kept result of the first:\n%s", calls(), shown)
	}
	if shown := RunShown(t, data, ask(`{"n":"five"}`)); calls() != 1 || strings.Contains(shown, "changed to fit") {
		t.Errorf("a text that is no number made %d calls:\n%s", calls(), shown)
	}
}
