package catalog

import (
	"context"
	"slices"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/tool"
)

// formed returns the tool "t" with two forms that are offered and one that is not, and a tool without forms.
func formed() source {
	return source(func(context.Context) ([]tool.Tool, error) {
		t := named("t")
		return []tool.Tool{t, Form{Tool: t, As: "second"}, Form{Tool: schemed("t", `{"type":"object","properties":{"x":{}}}`), As: "first"}, Form{Tool: t, As: "old", Unlisted: true}, named("plain")}, nil
	})
}

// A tool with forms is offered in its forms where the server says so, and otherwise under its own name. What is not offered is
// executed all the same. Settings and keys are about the tool.
func TestFormsOfTools(t *testing.T) {
	c, _ := logged(t)
	plain := Server{Name: "s", Source: formed()}
	forms := plain
	forms.Forms = true
	none := mustFind(t, c, plain)
	if got := none.Names(); !slices.Equal(got, []string{"plain", "t"}) || none.Callable("first") != nil || none.Callable("old") != nil {
		t.Errorf("without forms: %q", got)
	}
	set := mustFind(t, c, forms)
	if got := set.Names(); !slices.Equal(got, []string{"first", "plain", "second"}) || len(set.Offered()) != 3 {
		t.Errorf("with forms: %q", got)
	}
	for _, name := range []string{"first", "second", "old", "t"} {
		if e := set.Callable(name); e == nil || e.Name != "t" || e.Definition.Name != name || e.Tool.Definition().Name != "t" {
			t.Errorf("%s: %+v", name, e)
		}
	}
	if set.Lookup("old") != nil || set.Lookup("t") != nil || set.Choice("s", "t") != "second" || set.Choice("s", "plain") != "plain" || set.Choice("s", "old") != "" {
		t.Errorf("choices are %q, %q", set.Choice("s", "t"), set.Choice("s", "plain"))
	}
	if got := set.Called("s", "t"); !slices.Equal(got, []string{"first", "second"}) {
		t.Errorf("called %q", got)
	}
	for key, want := range map[string][]string{"t": {"first", "second"}, "plain": {"plain"}, "first": {}} {
		within := set.Within(org.Access{Tools: []string{key}})
		if got := within.Names(); !slices.Equal(got, want) || len(within.Offered()) != len(want) || (within.Callable("old") != nil) != (key == "t") {
			t.Errorf("a key for %q has %q", key, got)
		}
	}
	only := forms
	only.Tools = []string{"plain"}
	if less := mustFind(t, c, only); less.Callable("old") != nil || less.Callable("t") != nil || less.Callable("first") != nil || less.Withheld("first") != "s" {
		t.Errorf("without the tool: %q", less.Names())
	}
	then, err := set.Recall(set.Seal(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if e := then.Callable("old"); e == nil || then.Lookup("old") != nil || then.Choice("s", "t") != "second" || !slices.Equal(then.Names(), set.Names()) || len(then.Offered()) != 3 {
		t.Errorf("recalled: %+v", then.Names())
	}
	gone, err := none.Recall(set.Seal(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := gone.Callable("old").Tool.Call(t.Context(), tool.Call{}); err == nil {
		t.Error("a form that is gone is executed")
	}
}
