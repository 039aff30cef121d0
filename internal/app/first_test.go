package app_test

import (
	"strings"
	"testing"
)

func TestFirstModeWarnsOnceInARun(t *testing.T) { // C04
	noLeaks(t)
	const warning = "level=WARN msg=\"the model asked for more than one tool call, and only the first is executed (tool_parallelism: first)\""
	two := func(n string) turn { return asks(call{"echo", `{"n":` + n + `1}`}, call{"echo", `{"n":` + n + `2}`}) }
	for mode, want := range map[string]int{"first": 1, "serial": 0} {
		up := newUpstream(t, script(two("1"), two("2"), says("done")))
		tools := newMCP(t, map[string]handler{"echo": echo})
		g := MustRun(t, site{upstream: up.URL, runtime: "tool_parallelism: " + mode, servers: []string{server("s", tools.URL)}}.yaml())
		if a := g.post(chatBody); a.status != 200 {
			t.Fatalf("status %d: %s", a.status, a.body)
		}
		if got := strings.Count(g.log.String(), warning); got != want {
			t.Errorf("%s: %d warnings, want %d:\n%s", mode, got, want, g.log)
		}
	}
}
