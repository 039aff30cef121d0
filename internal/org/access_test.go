package org

import (
	"testing"
	"time"
)

func TestWhatAnAccessAllows(t *testing.T) { // P46
	if full := (Access{}); !full.IsFull() || !full.AllowsServer("s") || !full.AllowsTool("t") || !full.AllowsModel("m") || !full.AllowsAddresses() {
		t.Error("the zero Access narrows something")
	}
	if none := NoAccess(); none.IsFull() || none.AllowsServer("s") || none.AllowsTool("t") || none.AllowsModel("m") || none.AllowsAddresses() {
		t.Error("an empty list allows something")
	}
	for _, tt := range []struct {
		pattern, name string
		want          bool
	}{
		{"a", "a", true}, {"a", "ab", false}, {"a*", "ab", true}, {"*", "", true}, {"*", "x/y", true}, {"g-*", "up/g-1", false},
		{"up/*", "up/x/y", true}, {"a?", "ab", true}, {"[ab]", "b", true}, {"[", "[", true}, {"[", "x", false}, {"A", "a", false},
	} {
		if got := Matches(tt.pattern, tt.name); got != tt.want {
			t.Errorf("%q matches %q: %v", tt.pattern, tt.name, got)
		}
	}
}

// Whatever a key within another one allows, the other one allows. // P46
func TestAGrantExceedsAnother(t *testing.T) {
	lists := [][]string{nil, {}, {"*"}, {"a"}, {"a*"}, {"ab*"}, {"a", "b"}, {"?"}, {"*a"}, {"[ab]"}, {"a?"}, {"**"}, {"a*c"}, {"ab"}}
	names := []string{"", "a", "b", "ab", "abc", "ba", "c", "a/b", "*", "a*"}
	for _, own := range lists {
		for _, by := range lists {
			setting, _ := Grant{Access: Access{Tools: own}}.Exceeds(Grant{Access: Access{Tools: by}})
			for _, name := range names {
				if setting == "" && (Access{Tools: own}).AllowsTool(name) && !(Access{Tools: by}).AllowsTool(name) {
					t.Errorf("%q is within %q, but allows %q", own, by, name)
				}
			}
		}
	}
	end := time.Unix(1000, 0)
	by := Grant{Access: Access{Servers: []string{"s"}, Tools: []string{"a*"}, EndUsers: true, ReadOnly: true}, Rate: Rate{PerMinute: 10, Burst: 5}, ExpiresAt: end}
	within := Grant{Access: Access{Servers: []string{"s"}, Tools: []string{"ab", "ac*"}, EndUsers: true, ReadOnly: true}, Rate: Rate{PerMinute: 10, Burst: 2}, ExpiresAt: end}
	for want, change := range map[string]func(*Grant){
		"":                    func(*Grant) {},
		"servers":             func(g *Grant) { g.Servers = nil },
		"tools":               func(g *Grant) { g.Tools = []string{"*"} },
		"end_users":           func(g *Grant) { g.EndUsers = false },
		"read_only":           func(g *Grant) { g.ReadOnly = false },
		"requests_per_minute": func(g *Grant) { g.Rate.Burst = 0 }, // which is 10
		"expires_at":          func(g *Grant) { g.ExpiresAt = time.Time{} },
	} {
		g := within
		change(&g)
		if got, _ := g.Exceeds(by); got != want {
			t.Errorf("exceeds in %q, want %q", got, want)
		}
	}
}

func TestWhoseLimitsAKeyHas(t *testing.T) {
	budgets := []Budget{{Period: "day", Tokens: 1}}
	hooks := []Hook{{ID: "all"}, {ID: "some", Keys: []string{"hooked"}}}
	for _, c := range []struct {
		maker Principal
		want  []Maker
	}{
		{Principal{ID: "free"}, nil},
		{Principal{ID: "hooked"}, []Maker{{Key: "hooked"}}},
		{Principal{ID: "poor", Access: Access{Budgets: budgets}}, []Maker{{"poor", budgets}}},
		{Principal{ID: "made", Access: Access{Makers: []Maker{{"poor", budgets}}}}, []Maker{{Key: "made"}, {"poor", budgets}}},
	} {
		if got := MadeBy(c.maker, hooks); !(Access{Makers: got}).Equal(Access{Makers: c.want}) {
			t.Errorf("%s: %v, want %v", c.maker.ID, got, c.want)
		}
	}
	now := WithMakers([]Key{{ID: "poor", RevokedAt: time.Unix(1, 0), Access: Access{Budgets: budgets}}, {ID: "made", Access: Access{Makers: []Maker{{Key: "poor"}, {"gone", budgets}}}}})
	if got := now[1].Access; !got.Equal(Access{Makers: []Maker{{"poor", budgets}, {"gone", budgets}}}) {
		t.Errorf("the budgets of now: %v", got)
	}
}
