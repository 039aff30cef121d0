package responses_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/internal/upstreamtest"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// An item of a response ends before the next one begins if the provider says where its items
// end. Chat completions do not: there all items of a model call end with it. The stored stream
// of events and the response are the same either way.
func TestAnItemEndsBeforeTheNextBegins(t *testing.T) { // G15 G16
	NoLeaks(t)
	for kind, want := range map[string]string{
		"anthropic":        "+0 reasoning, -0 reasoning, +1 message, -1 message",
		"openai-responses": "+0 reasoning, -0 reasoning, +1 message, -1 message",
		"openai":           "+0 reasoning, +1 message, -0 reasoning, -1 message",
	} {
		t.Run(kind, func(t *testing.T) {
			script := turnpiketest.NewScript(t, "reasoning Let me\nreasoning  see.\ntext Look\ntext ing.\ncall c1 echo {}\n\nreasoning Hm.\ntext Done.\nstop length")
			up := upstreamtest.New(script, upstreamtest.Options{})
			t.Cleanup(up.Close)
			tools := NewMCP(t, map[string]Handler{"echo": Echo})
			yaml := Site{Upstream: up.URL, Servers: []string{Server("tools", tools.URL)}}.Yaml()
			g := MustRun(t, strings.Replace(yaml, "{name: up,", "{name: up, kind: "+kind+",", 1))
			a := g.Send("POST", "/v1/responses", strings.NewReader(`{"model":"m","input":"x","stream":true}`), "Authorization", "Bearer owner-key")
			all := a.Events(t)
			WantNumbered(t, all)
			wantOpened(t, all)
			wantWhole(t, all)
			wantEnded(t, all)
			var got []string
			for _, e := range all {
				switch e.Type {
				case "response.output_item.added":
					got = append(got, fmt.Sprintf("+%d %s", e.OutputIndex, e.Item.Type))
				case "response.output_item.done":
					got = append(got, fmt.Sprintf("-%d %s", e.OutputIndex, e.Item.Type))
				}
			}
			want := want + ", " + strings.NewReplacer("0", "2", "1", "3").Replace(want)
			if strings.Join(got, ", ") != want {
				t.Errorf("the items are %q, want %q", got, want)
			}
			// Whether the last message is complete is known at the end only.
			message := last(all).Of("message")
			if len(message) != 2 || message[0].Status != "completed" || message[1].Status != "incomplete" || last(all).Status != "incomplete" {
				t.Errorf("%s: %+v", last(all).Status, message)
			}
			object := g.Send("GET", "/v1/responses/"+last(all).ID, nil, "Authorization", "Bearer owner-key").Responded(t)
			if !slices.Equal(object.Types(), last(all).Types()) || object.Text() != last(all).Text() {
				t.Errorf("stored is %+v, not %+v", object, last(all))
			}
		})
	}
}
