package loop

import (
	"slices"
	"testing"
)

// The tools of a shown server are listed once in a conversation, those of a hidden one
// never. // D20
func TestAShownServerIsListedOnce(t *testing.T) {
	knows := func(labels ...string) func(*Accepted) { return func(b *Accepted) { b.Listed = labels } }
	found := []Server{{Label: "hidden"}, {Label: "old", Shown: true}, {Label: "new", Shown: true, Error: "down", FromRequest: true}}
	s := play(t, accepted(knows("old", "gone")))
	announced := s.Announce(found)
	want := []Server{{Label: "hidden"}, {Label: "old", Shown: true}, {Label: "new", Shown: true, Error: "down", Announced: true, FromRequest: true}}
	if !slices.Equal(announced, want) || found[2].Announced {
		t.Errorf("announces %+v", announced)
	}
	after := play(t, accepted(knows("old", "gone")), Catalogued{Servers: announced})
	if got := after.Listed(); !slices.Equal(got, []string{"old", "gone", "new"}) {
		t.Errorf("the conversation has listed %v", got)
	}
	for label, shown := range map[string]bool{"old": true, "new": true, "hidden": false, "": false, "other": false} {
		if after.Shown(label) != shown {
			t.Errorf("server %q is shown: %v", label, !shown)
		}
		if after.FromRequest(label) != (label == "new") {
			t.Errorf("server %q is brought: %v", label, after.FromRequest(label))
		}
	}
	before, none := play(t, accepted(knows("old"))), State{}
	if got := before.Listed(); !slices.Equal(got, []string{"old"}) || none.Listed() != nil {
		t.Errorf("before discovery the conversation has listed %v", got)
	}
	for _, wrong := range []Server{{Label: "old", Shown: true, Announced: true}, {Label: "hidden", Announced: true}} {
		if err := Allowed(s, Fact{Seq: s.Seq + 1, Version: Version, Body: catalogued(wrong)}); err == nil {
			t.Errorf("%+v is allowed", wrong)
		}
	}
}
