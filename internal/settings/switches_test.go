package settings_test

import (
	"slices"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/settings"
)

// What engages the agent loop, which tools the switches offer, and how many rounds the run has. // A07 B14
func TestTheSwitchesOfARun(t *testing.T) {
	search, code := []string{"web_search", "web_scrape"}, []string{"code_execute", "shell"}
	for name, c := range map[string]struct {
		org     org.Runtime
		asked   settings.Switches
		engaged bool
		tools   []string
		cap     int // of the operator; 0 = not set
		rounds  int // 0 = that of the surface
		calls   int // 0 = 256 if engaged
		onLimit string
	}{
		"nothing":                            {},
		"search":                             {org: org.Runtime{EnableSearch: true}, engaged: true, tools: search, rounds: 257, onLimit: budget.HandOver},
		"search, and a disabled web_scrape":  {org: org.Runtime{EnableSearch: true, BuiltinTools: []org.BuiltinTool{{Name: "web_scrape", Disabled: true}}}, engaged: true, tools: search[:1], rounds: 257, onLimit: budget.HandOver},
		"code that no request asks for":      {org: org.Runtime{EnableCode: true}},
		"code that the org does not have":    {asked: settings.Switches{Code: true}},
		"code":                               {org: org.Runtime{EnableCode: true}, asked: settings.Switches{Code: true}, engaged: true, tools: code, rounds: 257, onLimit: budget.HandOver},
		"rounds of the org":                  {org: org.Runtime{MaxToolRounds: new(3)}, engaged: true, rounds: 4, onLimit: budget.HandOver},
		"rounds of the request":              {asked: settings.Switches{Rounds: 2}, engaged: true, rounds: 3, onLimit: budget.HandOver},
		"the request before the org":         {org: org.Runtime{MaxToolRounds: new(3)}, asked: settings.Switches{Rounds: 5}, engaged: true, rounds: 6, onLimit: budget.HandOver},
		"the operator before the request":    {cap: 20, asked: settings.Switches{Rounds: 500}, engaged: true, rounds: 21, onLimit: budget.HandOver},
		"the operator before the switches":   {cap: 20, org: org.Runtime{EnableSearch: true}, engaged: true, tools: search, rounds: 21, onLimit: budget.HandOver},
		"the operator allows the most":       {cap: 256, org: org.Runtime{EnableSearch: true}, engaged: true, tools: search, rounds: 257, onLimit: budget.HandOver},
		"the most rounds without a cap":      {asked: settings.Switches{Rounds: 256}, engaged: true, rounds: 257, onLimit: budget.HandOver},
		"max_rounds above the cap":           {cap: 5, org: org.Runtime{EnableSearch: true, MaxRounds: new(50)}, engaged: true, tools: search, rounds: 5},
		"max_calls of the org":               {org: org.Runtime{EnableSearch: true, MaxCalls: new(9)}, engaged: true, tools: search, rounds: 257, calls: 9, onLimit: budget.HandOver},
		"max_rounds of the org":              {org: org.Runtime{EnableSearch: true, MaxRounds: new(7)}, engaged: true, tools: search, rounds: 7, onLimit: ""},
		"max_rounds before a request's":      {org: org.Runtime{MaxRounds: new(7)}, asked: settings.Switches{Rounds: 9}, engaged: true, rounds: 7},
		"a request below max_rounds":         {org: org.Runtime{MaxRounds: new(7)}, asked: settings.Switches{Rounds: 2}, engaged: true, rounds: 3, onLimit: budget.HandOver},
		"hosted tools that nobody declares":  {org: org.Runtime{EnableSearch: true, EnableCode: true, MaxToolRounds: new(3)}, asked: settings.Switches{Hosted: true}},
		"hosted tools":                       {org: org.Runtime{EnableSearch: true, EnableCode: true}, asked: settings.Switches{Hosted: true, Search: true, Code: true}, tools: append(slices.Clone(search), code[0])},
		"a hosted shell":                     {org: org.Runtime{EnableSearch: true, EnableCode: true}, asked: settings.Switches{Hosted: true, Shell: true}, tools: code[1:]},
		"an org whose last round is without": {org: org.Runtime{EnableSearch: true, OnLimit: budget.Answer}, engaged: true, tools: search, rounds: 257, onLimit: budget.Answer},
	} {
		if got := c.asked.Engaged(c.org); got != c.engaged {
			t.Errorf("%s: engaged %t", name, got)
		}
		p := settings.Resolve(settings.Operator{MaxRoundsCap: c.cap}, c.org, settings.Defaults{}, settings.Request{Switches: &c.asked})
		if c.rounds == 0 {
			c.rounds = budget.DefaultRounds
		}
		switch {
		case c.calls == 0 && c.engaged:
			c.calls = 256
		case c.calls == 0:
			c.calls = budget.DefaultCalls
		}
		if p.Limits.Rounds != c.rounds || p.Limits.Calls != c.calls || p.Limits.OnLimit != c.onLimit || !slices.Equal(p.Switched, c.tools) {
			t.Errorf("%s: %d rounds, %d calls, %q, tools %q", name, p.Limits.Rounds, p.Limits.Calls, p.Limits.OnLimit, p.Switched)
		}
		if most := max(settings.Ceilings(c.cap, c.org).Rounds, settings.SwitchedCeiling(c.cap, c.org)); most < p.Limits.Rounds {
			t.Errorf("%s: a paused run can be raised to %d rounds", name, most)
		}
	}
}
