package chat_test

import (
	"strings"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

func TestFirstModeWarnsOnceInARun(t *testing.T) { // C04
	NoLeaks(t)
	const warning = "level=WARN msg=\"the model asked for more than one tool call, and only the first is executed (tool_parallelism: first)\""
	two := func(n string) Turn { return Asks(Use("echo", `{"n":`+n+`1}`), Use("echo", `{"n":`+n+`2}`)) }
	for mode, want := range map[string]int{"first": 1, "serial": 0} {
		up := NewUpstream(t, Script(two("1"), two("2"), Says("done")))
		tools := NewMCP(t, map[string]Handler{"echo": Echo})
		g := MustRun(t, Site{Upstream: up.URL, Runtime: "tool_parallelism: " + mode, Servers: []string{Server("s", tools.URL)}}.Yaml())
		if a := g.Post(ChatBody); a.Status != 200 {
			t.Fatalf("status %d: %s", a.Status, a.Body)
		}
		if got := strings.Count(g.Log.String(), warning); got != want {
			t.Errorf("%s: %d warnings, want %d:\n%s", mode, got, want, g.Log)
		}
	}
}
