package chat_test

import (
	"strings"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

// The threshold of the progress guard can be set over the management API, holds
// for the next run, and has the bounds of the file.
func TestTheThresholdOfTheProgressGuardIsASetting(t *testing.T) { // P04 B13
	NoLeaks(t)
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	twice := Asks(Use("echo", `{}`), Use("echo", `{}`))
	up := NewUpstream(t, Script(twice, Says("Done."), twice, Says("Done.")))
	yaml := Site{Upstream: up.URL, Servers: []string{Server("s", tools.URL)}}.Yaml()
	g := MustRun(t, strings.Replace(yaml, "    runtime: {}\n", "", 1))
	d := Manage(g)
	for body, want := range map[string]int{`{"doom_threshold":1}`: 422, `{"doom_threshold":101}`: 422, `{"doom_threshold":"3"}`: 422, `{"doom_threshold":2}`: 200} {
		d.Do("PATCH", "/api/org/runtime", "owner-key", body, want)
	}
	for _, want := range []struct {
		n       int
		advised bool
	}{{1, true}, {3, false}} {
		g.Post(Question).Completion(t)
		told := up.Requests()[want.n].Results(t)
		if len(told) != 2 || told[0] != "{}" || strings.HasPrefix(told[1], "Not run. This is the same call") != want.advised {
			t.Errorf("the model was told %q", told)
		}
		got := d.Do("PATCH", "/api/org/runtime", "owner-key", `{"doom_threshold":null}`, 200) // back to the default
		if runtime := got["runtime"].(map[string]any); runtime["doom_threshold"] != 3.0 {
			t.Errorf("after null: %v", runtime)
		}
	}
}
