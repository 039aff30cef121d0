package admin_test

import (
	"fmt"
	"slices"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

// The requests of an agent's run are those of the agent. A part of a day is added up from audit rows, but not by agent.
func TestUsageIsGroupedByAgent(t *testing.T) {
	NoLeaks(t)
	d := Manage(MustRun(t, Site{Upstream: NewUpstream(t, Script(Says("Hello."), Says("Hi."))).URL}.Yaml()))
	id := d.NewAgent("")
	d.StreamAgent(id, `{"message":"hi"}`)
	d.Post(Question, "Authorization", "Bearer owner-key")
	ComesTrue(t, "both requests are in the sums of their agents", func() bool { // a relay is recorded after its answer
		var got []string
		for _, one := range d.AsOwner("GET", "/api/usage?by=agent,provider,target", "", 200)["data"].([]any) {
			u := one.(map[string]any)
			got = append(got, fmt.Sprint(u["agent_id"], " ", u["provider"], " ", u["target"], " ", u["requests"]))
		}
		return slices.Equal(got, []string{" up m 1", id + " up m 1"})
	})
	if n := len(d.AsOwner("GET", "/api/usage?by=target&from=2026-01-01T12:00:00Z", "", 200)["data"].([]any)); n != 1 {
		t.Errorf("%d groups since a time within a day", n)
	}
	e := d.AsOwner("GET", "/api/usage?by=agent&from=2026-01-01T12:00:00Z", "", 400)["error"].(map[string]any)
	if e["code"] != "usage_needs_days" {
		t.Errorf("sums by agent of a part of a day: %v", e)
	}
}

// The keys of the file come first, then the others, and following next loses none.
func TestKeysAreListedInPages(t *testing.T) {
	NoLeaks(t)
	d := Manage(MustRun(t, Site{Upstream: "http://127.0.0.1:9"}.Yaml()))
	for i := range 5 {
		d.AsOwner("POST", "/api/keys", fmt.Sprintf(`{"name":"k%d","role":"member"}`, i), 201)
	}
	list := func(query string) (ids []string, next any) {
		page := d.AsOwner("GET", "/api/keys"+query, "", 200)
		for _, k := range page["data"].([]any) {
			ids = append(ids, k.(map[string]any)["id"].(string))
		}
		return ids, page["next"]
	}
	all, end := list("")
	if len(all) < 7 || end != nil {
		t.Fatalf("%d keys, next %v", len(all), end)
	}
	for _, limit := range []int{1, 2, 3, len(all) - 5, len(all)} { // one page ends between both kinds
		var got []string
		for query := fmt.Sprintf("?limit=%d", limit); ; {
			ids, next := list(query)
			if got = append(got, ids...); len(ids) > limit {
				t.Errorf("a page of %d has %d keys", limit, len(ids))
			}
			if next == nil {
				break
			}
			query = fmt.Sprintf("?limit=%d&after=%s", limit, next)
		}
		if !slices.Equal(got, all) {
			t.Errorf("in pages of %d: %q, want %q", limit, got, all)
		}
	}
	for _, wrong := range []string{"?limit=0", "?limit=1001", "?after=key_1", "?after=x.key_1", "?before=1", "?limit=1&limit=2"} {
		d.AsOwner("GET", "/api/keys"+wrong, "", 400)
	}
}
