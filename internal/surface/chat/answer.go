package chat

import (
	"strings"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/ledger"
)

// answer is the fold of a run's events into what a client is told: the same for
// JSON and for streams.
type answer struct {
	// account is charged with what is kept of the texts.
	account *ledger.Account
	// passing says that texts leave as they come, so that none is kept.
	passing bool

	started event.Started
	rounds  []said // by round
	end     event.Finished
}

// said is what the model said in one round.
type said struct{ text, reasoning, refusal strings.Builder }

// size is how many bytes of text are kept.
func (s *said) size() int { return s.text.Len() + s.reasoning.Len() + s.refusal.Len() }

// add folds e. The error is that of the account, which has no room for a text.
func (a *answer) add(e event.Event) error {
	switch e := e.(type) {
	case event.Started:
		a.started = e
	case event.RoundStarted:
		kept := min(e.Round, len(a.rounds))
		for i := range a.rounds[kept:] { // a repeated round is void
			a.account.Release(2 * a.rounds[kept+i].size())
		}
		a.rounds = append(a.rounds[:kept], said{})
	case event.TextDelta:
		return a.keep(&a.round().text, e.Text)
	case event.ReasoningDelta:
		return a.keep(&a.round().reasoning, e.Text)
	case event.RefusalDelta:
		return a.keep(&a.round().refusal, e.Text)
	case event.Finished:
		a.end = e
	}
	return nil
}

// keep appends a text that is told later. What it is kept in may be twice as
// large.
func (a *answer) keep(in *strings.Builder, text string) error {
	if a.passing {
		return nil
	}
	if err := a.account.Charge(2 * len(text)); err != nil {
		return err
	}
	in.WriteString(text)
	return nil
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
