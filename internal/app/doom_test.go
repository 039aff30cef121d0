package app_test

import (
	"strings"
	"testing"
)

// The threshold of the progress guard can be set over the management API, holds
// for the next run, and has the bounds of the file.
func TestTheThresholdOfTheProgressGuardIsASetting(t *testing.T) { // P04 B13
	noLeaks(t)
	tools := newMCP(t, map[string]handler{"echo": echo})
	twice := asks(call{"echo", `{}`}, call{"echo", `{}`})
	up := newUpstream(t, script(twice, says("Done."), twice, says("Done.")))
	yaml := site{upstream: up.URL, servers: []string{server("s", tools.URL)}}.yaml()
	g := MustRun(t, strings.Replace(yaml, "    runtime: {}\n", "", 1))
	d := manage(g)
	for body, want := range map[string]int{`{"doom_threshold":1}`: 422, `{"doom_threshold":101}`: 422, `{"doom_threshold":"3"}`: 422, `{"doom_threshold":2}`: 200} {
		d.do("PATCH", "/api/org/runtime", "owner-key", body, want)
	}
	for _, want := range []struct {
		n       int
		advised bool
	}{{1, true}, {3, false}} {
		g.post(question).completion(t)
		told := up.requests()[want.n].results(t)
		if len(told) != 2 || told[0] != "{}" || strings.HasPrefix(told[1], "Not run. This is the same call") != want.advised {
			t.Errorf("the model was told %q", told)
		}
		got := d.do("PATCH", "/api/org/runtime", "owner-key", `{"doom_threshold":null}`, 200) // back to the default
		if runtime := got["runtime"].(map[string]any); runtime["doom_threshold"] != 3.0 {
			t.Errorf("after null: %v", runtime)
		}
	}
}
