package surface

import (
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/file"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/item"
)

// Answer collects the events of a run: what the model said in each round, and how the
// run ended. It is the same for JSON and for streams. Its texts are charged to the
// account of the caller.
type Answer struct {
	// account is charged with what is kept of the texts.
	account *memlimit.Account
	// passing says that texts leave as they come, or that the surface keeps them: Rounds
	// has none.
	passing bool
	kept    int // bytes of text

	// Relayed says that the run is one model call whose tool calls are the client's.
	Relayed bool
	// FinalOnly says that the client gets the text of the last round only.
	FinalOnly bool

	// Extensions are what the client or its org asks for. Session is the id of the conversation
	// of the run; "" = none.
	Extensions Extensions
	Session    string

	calls []TracedCall // if Extensions has them
	files []MadeFile   // the same
	turn  *int         // of the files; nil = not known

	required []file.Required // that the run is to make

	// Started is how the run began: its id, model and time.
	Started event.Started
	// Missing are the org's servers whose tools the run does not have.
	Missing []string
	// Rounds are by round number. A round that is repeated replaces its earlier attempt.
	Rounds []Round
	// End has the reason, the tool calls for the client, and the usage.
	End event.Finished

	served  event.Target  // of the latest model call
	waiting bool          // the run waits for a human: the answer is what was said so far
	paused  *event.Paused // the run waits for a raise of its limits; nil = it does not
}

// Round is what the model said in one round.
type Round struct {
	Text, Reasoning, Refusal Text

	// Citations are the sources of Text. Their Start and End are those of the Answer's text of
	// the round, and Part is not set.
	Citations []item.Citation

	cited int // about how many bytes Citations retains
	said  int // characters of text, kept or not
	begin map[textPlace]int
}

// textPlace is a text of a model call.
type textPlace struct{ item, part int }

// Characters is the length of the round's text in characters, whether it is kept or not.
func (r *Round) Characters() int { return r.said }

// Cited returns a citation of the round with its place in the round's text, in which all texts of
// the model follow each other.
func (r *Round) Cited(e event.Citation) item.Citation {
	c := e.Citation
	at := int64(r.begin[textPlace{e.Item, c.Part}])
	c.Part, c.Start, c.End = 0, c.Start+at, c.End+at
	return c
}

// say notes a piece of a text.
func (r *Round) say(e event.TextDelta) {
	if r.begin == nil {
		r.begin = map[textPlace]int{}
	}
	at := textPlace{e.Item, e.Part}
	if _, begun := r.begin[at]; !begun {
		r.begin[at] = r.said
	}
	r.said += utf8.RuneCountInString(e.Text)
}

// size is how many bytes of text are kept.
func (r *Round) size() int { return r.Text.size + r.Reasoning.size + r.Refusal.size + r.cited }

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
		a.Missing, a.served = e.Missing, e.Target
		kept := min(e.Round, len(a.Rounds))
		for i := range a.Rounds[kept:] { // a repeated round is void
			a.Release(a.Rounds[kept+i].size())
		}
		a.Rounds = append(a.Rounds[:kept], Round{})
	case event.TextDelta:
		a.Last().say(e)
		return a.keep(&a.Last().Text, e.Text)
	case event.Citation:
		return a.cite(e)
	case event.ReasoningDelta:
		return a.keep(&a.Last().Reasoning, e.Text)
	case event.RefusalDelta:
		return a.keep(&a.Last().Refusal, e.Text)
	case event.ToolStarted:
		return a.trace(e)
	case event.ToolDone:
		return errors.Join(a.trace(e), a.make(e))
	case event.Paused:
		a.paused = &e
		a.End = event.Finished{Usage: e.Usage, Rounds: e.Rounds, SideEffects: e.SideEffects, At: e.At, Cost: e.Cost}
	case event.LimitsRaised:
		a.paused, a.End = nil, event.Finished{}
	case event.Waiting: // the answer ends here unless more events follow
		a.waiting = true
		a.End = event.Finished{Usage: e.Usage, Rounds: e.Rounds, SideEffects: e.SideEffects, At: e.At, Cost: e.Cost}
	case event.Finished:
		a.waiting, a.paused, a.End = false, nil, e
	case event.ApprovalDecided, event.CallDelta, event.Compacted, event.HookRan, event.ItemDone, event.ModelFallback, event.NativeItem, event.NativeProgress,
		event.RelayBody, event.RelayHead, event.RoundDone, event.ToolsListed: // not part of an answer
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

// cite keeps a citation, unless it leaves as it comes.
func (a *Answer) cite(e event.Citation) error {
	if a.passing {
		return nil
	}
	const own = 128
	size := own + len(e.Citation.URL) + len(e.Citation.Title) + len(e.Citation.FileID) + len(e.Citation.Filename) + len(e.Citation.ContainerID)
	if err := a.Charge(size); err != nil {
		return err
	}
	r := a.Last()
	r.Citations, r.cited = append(r.Citations, r.Cited(e)), r.cited+size
	return nil
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
	if err := a.account.Acquire(2 * n); err != nil {
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

// Over reports whether the run has ended, or waits for a human: the answer is whole.
func (a *Answer) Over() bool { return a.waiting || a.End.Reason != "" }

// limitReached returns the limit that has ended the run; "" = none.
func (a *Answer) limitReached() event.Reason {
	if a.End.Reason.Limit() {
		return a.End.Reason
	}
	return a.End.Limit
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

// FinalCitations are the sources of FinalText, with their places in it.
func (a *Answer) FinalCitations() (out []item.Citation) {
	if !a.End.Reason.Limit() {
		return a.Last().Citations
	}
	at := int64(0)
	for i := range a.Rounds {
		r := &a.Rounds[i]
		for _, c := range r.Citations {
			c.Start, c.End = c.Start+at, c.End+at
			out = append(out, c)
		}
		if r.said > 0 {
			at += int64(r.said + len(RoundSeparator))
		}
	}
	return out
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
