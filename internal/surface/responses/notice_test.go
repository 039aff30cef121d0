package responses

import (
	"testing"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/surface"
)

// L10. The event that webhooks get says what the response says.
func TestTheEventOfAResponseIsItsStatus(t *testing.T) {
	for _, r := range event.Reasons() {
		e := newEncoder(&surface.Answer{Started: event.Started{RunID: "run_1"}, End: event.Finished{Reason: r}}, nil, newEcho(), clientTools{})
		shown := e.ended()
		if r.Failed() {
			shown = e.failed([]byte(`{"error":{}}`))
		}
		if got := loop.ResponseStatus(r); got != shown.Status {
			t.Errorf("%s: the event says %s, the response %s", r, got, shown.Status)
		}
	}
}
