package chat

import (
	"strings"

	"github.com/turnpike-gateway/turnpike/event"
)

// answer is the fold of a run's events into what a client is told: the same for
// JSON and for streams.
type answer struct {
	started event.Started
	rounds  []said // by round
	end     event.Finished
}

// said is what the model said in one round.
type said struct{ text, reasoning, refusal strings.Builder }

// add folds e.
func (a *answer) add(e event.Event) {
	switch e := e.(type) {
	case event.Started:
		a.started = e
	case event.RoundStarted:
		a.rounds = append(a.rounds[:min(e.Round, len(a.rounds))], said{}) // a repeated round is void
	case event.TextDelta:
		a.round().text.WriteString(e.Text)
	case event.ReasoningDelta:
		a.round().reasoning.WriteString(e.Text)
	case event.RefusalDelta:
		a.round().refusal.WriteString(e.Text)
	case event.Finished:
		a.end = e
	}
}

func (a *answer) round() *said {
	if len(a.rounds) == 0 {
		a.rounds = append(a.rounds, said{})
	}
	return &a.rounds[len(a.rounds)-1]
}

// parting stands between the texts of rounds.
const parting = "\n\n"

// finalText is the last round's text; when a limit ended the run, the texts of
// all rounds, joined by a blank line.
func (a *answer) finalText() string {
	if !a.end.Reason.Limit() {
		return a.round().text.String()
	}
	var texts []string
	for i := range a.rounds {
		if t := a.rounds[i].text.String(); t != "" {
			texts = append(texts, t)
		}
	}
	return strings.Join(texts, parting)
}

// finishReason maps why a run ended to the dialect's word.
func finishReason(r event.Reason) string {
	switch r {
	case event.ClientCalls:
		return "tool_calls"
	case event.Refused:
		return "content_filter"
	case event.OutputCut:
		return "length"
	}
	if r.Limit() {
		return "length"
	}
	return "stop"
}
