package app_test

import (
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

// A reload that changes the rule affects later runs. // H03
func TestAReloadChangesTheRuleOfLaterRuns(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, AskGated(Use("delete", `{"n":7}`)))
	tools := NewMCP(t, map[string]Handler{"delete": Echo})
	yaml := func(rule string) string {
		return Site{Upstream: up.URL, Servers: []string{Server("tools", tools.URL, "require_approval: "+rule)}}.Yaml()
	}
	r := serve(t, yaml("always"))
	g := &Gated{Documented: Manage(r.Gateway), Upstream: up, Tools: tools}
	open := g.Ask(GatedQuestion)
	id := g.Only()
	r.reload(t, yaml("never"), "require_approval")
	if text, _ := g.Post(GatedQuestion).Completion(t); text != "done" || g.Executed() != 1 {
		t.Errorf("after the reload: %q, %d calls", text, g.Executed())
	}
	if g.StatusOf(id) != "waiting" {
		t.Error("the earlier call does not wait any more")
	}
	g.Decide(id, "approve", "", 200)
	if text, _ := Wait(t, open, "the answer").Completion(t); text != "done" || g.Executed() != 2 {
		t.Errorf("%q after %d calls", text, g.Executed())
	}
	if got := g.Audited(id); got != "asked by a, approved by d, executed by a" {
		t.Errorf("audited: %s", got)
	}
}
