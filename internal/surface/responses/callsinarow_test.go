package responses_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/internal/upstreamtest"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// The limit on calls ends a response, and no limit on rounds does before: a model that asks for one tool at a
// time can make all of its calls, and then answers. // B08 B09
func TestAResponseMakesAllItsCallsOneAfterTheOther(t *testing.T) {
	NoLeaks(t)
	for name, c := range map[string]struct {
		member, runtime string
		wants           int // calls that the model asks for
		made            int
		reason          string
	}{
		"as many as it may":  {wants: 10, made: 10},
		"one more":           {wants: 11, made: 10, reason: "max_tool_calls"},
		"more are asked for": {member: `"max_tool_calls":50,`, wants: 11, made: 10, reason: "max_tool_calls"},
		"fewer":              {member: `"max_tool_calls":2,`, wants: 3, made: 2, reason: "max_tool_calls"},
		"calls of the org":   {runtime: "max_calls: 30", wants: 30, made: 30},
		"rounds of the org":  {runtime: "max_rounds: 4", wants: 10, made: 4, reason: "max_rounds"},
	} {
		t.Run(name, func(t *testing.T) {
			var story strings.Builder
			for i := range c.wants {
				fmt.Fprintf(&story, "call c%d echo {\"n\":%d}\n\n", i, i)
			}
			up := upstreamtest.New(turnpiketest.NewScript(t, story.String()+"text Done."), upstreamtest.Options{})
			t.Cleanup(up.Close)
			tools := NewMCP(t, map[string]Handler{"echo": Echo})
			g := MustRun(t, Site{Upstream: up.URL, Runtime: c.runtime, Servers: []string{Server("tools", tools.URL)}}.Yaml())
			a := g.Send("POST", "/v1/responses", strings.NewReader(`{`+c.member+`"model":"m","input":"x"}`), "Authorization", "Bearer owner-key")
			var got struct {
				Status     string
				Incomplete *struct{ Reason string } `json:"incomplete_details"`
			}
			if err := json.Unmarshal(a.Body, &got); err != nil || a.Status != 200 {
				t.Fatalf("%d %s", a.Status, a.Body)
			}
			if got.Incomplete == nil != (c.reason == "") || got.Incomplete != nil && got.Incomplete.Reason != c.reason {
				t.Errorf("%s, %+v; want %q", got.Status, got.Incomplete, c.reason)
			}
			if answered := strings.Contains(string(a.Body), "Done."); answered != (c.reason == "") {
				t.Errorf("answered: %v\n%s", answered, a.Body)
			}
			if n := len(tools.Of("tools/call")); n != c.made {
				t.Errorf("%d calls were made, want %d", n, c.made)
			}
		})
	}
}
