package surface

import (
	"strings"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/ledger"
)

// Answer collects the events of a run: what the model said in each round, and how the
// run ended. It is the same for JSON and for streams. Its texts are charged to the
// account of the caller.
type Answer struct {
	// account is charged with what is kept of the texts.
	account *ledger.Account
	// passing says that texts leave as they come, or that the surface keeps them: Rounds
	// has none.
	passing bool
	kept    int // bytes of text

	// Relayed says that the run is one model call whose tool calls are the client's.
	Relayed bool
	// FinalOnly says that the client gets the text of the last round only.
	FinalOnly bool

	// Started is how the run began: its id, model and time.
	Started event.Started
	// Rounds are by round number. A round that is repeated replaces its earlier attempt.
	Rounds []Round
	// End has the reason, the tool calls for the client, and the usage.
	End event.Finished

	waiting bool // the run waits for a human: the answer is what was said so far
}

// Round is what the model said in one round.
type Round struct{ Text, Reasoning, Refusal Text }

// size is how many bytes of text are kept.
func (r *Round) size() int { return r.Text.size + r.Reasoning.size + r.Refusal.size }

// Text is a text that comes in pieces. Long pieces are kept without a copy; short ones
// are joined. One growing buffer would take up to twice the size of the text. The zero
// value is an empty text.
type Text struct {
	size   int // bytes
	joined []string
	last   strings.Builder // short pieces that follow joined
}

// pieceBytes is the size from which on a piece is kept as it is.
const pieceBytes = 16 << 10

// Add appends a piece, which is not charged.
func (p *Text) Add(text string) {
	p.size += len(text)
	if len(text) < pieceBytes {
		p.last.WriteString(text)
	}
	if p.last.Len() > 0 && (len(text) >= pieceBytes || p.last.Len() >= pieceBytes) {
		p.joined = append(p.joined, p.last.String())
		p.last.Reset()
	}
	if len(text) >= pieceBytes {
		p.joined = append(p.joined, text)
	}
}

// Size returns the length of the text in bytes.
func (p *Text) Size() int { return p.size }

// String returns the text.
func (p *Text) String() string {
	if len(p.joined) == 0 {
		return p.last.String()
	}
	return strings.Join(append(p.joined[:len(p.joined):len(p.joined)], p.last.String()), "")
}

// add folds e. The error is that of the account, which has no room for a text.
func (a *Answer) add(e event.Event) error {
	switch e := e.(type) {
	case event.Started:
		a.Started = e
	case event.RoundStarted:
		kept := min(e.Round, len(a.Rounds))
		for i := range a.Rounds[kept:] { // a repeated round is void
			a.Release(a.Rounds[kept+i].size())
		}
		a.Rounds = append(a.Rounds[:kept], Round{})
	case event.TextDelta:
		return a.keep(&a.Last().Text, e.Text)
	case event.ReasoningDelta:
		return a.keep(&a.Last().Reasoning, e.Text)
	case event.RefusalDelta:
		return a.keep(&a.Last().Refusal, e.Text)
	case event.Waiting: // the answer ends here unless more events follow
		a.waiting = true
		a.End = event.Finished{Usage: e.Usage, Rounds: e.Rounds, SideEffects: e.SideEffects}
	case event.Finished:
		a.waiting, a.End = false, e
	}
	return nil
}

// keep appends a text of a round, unless it leaves as it comes.
func (a *Answer) keep(in *Text, text string) error {
	if a.passing {
		return nil
	}
	return a.Keep(in, text)
}

// Keep appends a text that is told later. It is charged twice: the pieces, and the text
// that they are joined to. The error is that of the account, which has no room for it.
func (a *Answer) Keep(in *Text, text string) error {
	if err := a.Charge(len(text)); err != nil {
		return err
	}
	in.Add(text)
	return nil
}

// Charge charges the account with n bytes that are told later, twice as [Answer.Keep] does.
func (a *Answer) Charge(n int) error {
	if err := a.account.Charge(2 * n); err != nil {
		return err
	}
	a.kept += n
	return nil
}

// Release takes back the charge for n bytes.
func (a *Answer) Release(n int) {
	a.account.Release(2 * n)
	a.kept -= n
}

// Last returns the latest round.
func (a *Answer) Last() *Round {
	if len(a.Rounds) == 0 {
		a.Rounds = append(a.Rounds, Round{})
	}
	return &a.Rounds[len(a.Rounds)-1]
}

// RoundSeparator is between the texts of rounds that are shown as one text.
const RoundSeparator = "\n\n"

// FinalText is the last round's text; when a limit ended the run, the texts of
// all rounds, joined by a blank line.
func (a *Answer) FinalText() string {
	if !a.End.Reason.Limit() {
		return a.Last().Text.String()
	}
	var texts []string
	for i := range a.Rounds {
		if t := a.Rounds[i].Text.String(); t != "" {
			texts = append(texts, t)
		}
	}
	return strings.Join(texts, RoundSeparator)
}

// FinishWord returns an API's word for why the run ended, from a table of its words. The
// word for the reason "" is that of a run that waits for a human, and of any reason that
// is not in the table.
func (a *Answer) FinishWord(words map[event.Reason]string) string {
	if word, ok := words[a.End.Reason]; ok {
		return word
	}
	return words[""]
}
