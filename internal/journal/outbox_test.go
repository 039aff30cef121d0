package journal

import (
	"slices"
	"testing"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// L10. Every notice is one of the events that a webhook can ask for, and every event can happen.
func TestEveryNoticeIsAnEventOfWebhooks(t *testing.T) {
	seen := map[string]bool{}
	note := func(e string) {
		if seen[e] = true; !slices.Contains(org.WebhookEvents(), e) {
			t.Errorf("no webhook can ask for %q", e)
		}
	}
	s := loop.State{Accepted: &loop.Accepted{Surface: "responses"}, Grade: loop.Durable}
	for _, r := range event.Reasons() {
		n, told := loop.NoticeOf(s, loop.Fact{Body: loop.Finished{Reason: r}})
		if !told {
			t.Errorf("the end of a run with the reason %s is not told", r)
		}
		note(n.Event)
	}
	n, _ := loop.NoticeOf(s, loop.Fact{Body: loop.Parked{}})
	note(n.Event)
	for _, percent := range []int{80, 100} {
		note(Used{Budget: budget.Window{Scope: "org/day"}}.TellNotice(percent, 0).Event)
	}
	for _, e := range org.WebhookEvents() {
		if !seen[e] {
			t.Errorf("nothing tells %q", e)
		}
	}
}
