package chat

import (
	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/surface"
)

// whole is an answer as one object.
type whole struct{ *surface.Answer }

// Event implements surface.Object: the Answer has taken all that there is.
func (whole) Event(event.Event) error { return nil }

// Value implements surface.Object.
func (a whole) Value() any {
	msg := message{Role: "assistant", ReasoningContent: a.Last().Reasoning.String(), ToolCalls: newToolCalls(a.End.Calls, false), Annotations: newAnnotations(a.FinalCitations()...)}
	if text := a.FinalText(); text != "" || len(msg.ToolCalls) == 0 {
		msg.Content = &text
	}
	if refusal := a.Last().Refusal.String(); refusal != "" {
		msg.Refusal = &refusal
		if msg.Content != nil && *msg.Content == "" {
			msg.Content = nil
		}
	}
	return completion{
		ID: completionID(a.Started.RunID), Object: "chat.completion", Created: a.Started.At.Unix(), Model: a.Started.Model,
		Choices: []choice{{Message: msg, FinishReason: a.FinishWord(finishReasons)}},
		Usage:   newUsage(a.End.Usage), Extra: a.Extra(),
	}
}

// encoder turns events into chunks:
//
//	live        every delta as it comes; a blank line parts the rounds
//	final_only  nothing until the end, then the final text in small chunks
type encoder struct {
	*surface.Stream
	includeUsage bool

	calls  map[int]int       // of a relay: the index of each call that has begun to be sent, by its item
	opened bool              // the chunk with the role has been sent
	spoke  int               // the round of the latest text, -1 before any
	began  map[string]string // with progress: the arguments of the calls that have begun, by their keys
	asked  []string          // the approvals that the client knows of, if it asked for progress
	sent   int               // characters of the texts of earlier rounds, with what separates them
}

// Event implements surface.Encoder.
func (e *encoder) Event(ev event.Event) error {
	if call, ok := ev.(event.CallDelta); ok && e.Relayed {
		e.call(call)
	}
	if e.Extensions.Progress {
		if err := e.progress(ev); err != nil {
			return err
		}
	}
	if !e.Live {
		return nil
	}
	switch ev := ev.(type) {
	case event.TextDelta:
		e.text(ev.Round, ev.Text)
	case event.Citation:
		c := e.Last().Cited(ev)
		c.Start, c.End = c.Start+int64(e.sent), c.End+int64(e.sent)
		if a := newAnnotations(c); a != nil {
			e.delta(delta{Annotations: a})
		}
	case event.ReasoningDelta:
		surface.Pieces(ev.Text, surface.MaxPiece, func(text string) { e.delta(delta{ReasoningContent: text}) })
	case event.RefusalDelta:
		surface.Pieces(ev.Text, surface.MaxPiece, func(text string) { e.delta(delta{Refusal: text}) })
	case event.ApprovalDecided, event.CallDelta, event.Finished, event.ItemDone, event.Compacted, event.HookRan, event.LimitsRaised, event.ModelFallback, event.NativeItem,
		event.NativeProgress, event.Paused, event.RelayBody, event.RelayHead, event.RoundDone, event.RoundStarted,
		event.Started, event.ToolDone, event.ToolStarted, event.ToolsListed, event.Waiting: // not part of a chunk, or of its end
	}
	return nil
}

// call sends a piece of a tool call. The first piece names the call.
func (e *encoder) call(ev event.CallDelta) {
	index, begun := e.calls[ev.Item]
	if !begun {
		if e.calls == nil {
			e.calls = map[int]int{}
		}
		index = len(e.calls)
		e.calls[ev.Item] = index
		e.delta(delta{ToolCalls: []toolCall{{Index: &index, ID: ev.CallID, Type: "function", Function: function{Name: ev.Name}}}})
	}
	surface.Pieces(ev.Arguments, surface.MaxPiece, func(text string) {
		e.delta(delta{ToolCalls: []callPiece{{Index: index, Function: argumentsPiece{text}}}})
	})
}

// text sends text of a round, separated from that of an earlier one.
func (e *encoder) text(round int, text string) {
	if e.spoke >= 0 && e.spoke != round {
		e.sent += e.Rounds[e.spoke].Characters() + len(surface.RoundSeparator)
		text = surface.RoundSeparator + text
	}
	e.spoke = round
	if text == "" {
		e.delta(delta{Content: &text})
	}
	surface.Pieces(text, surface.MaxPiece, func(piece string) { e.delta(delta{Content: &piece}) })
}

// Finish implements surface.Encoder: it sends the rest of the text and the calls, the
// one chunk with the finish reason, the usage if it was asked for, and the end mark. The
// last three are one write.
func (e *encoder) Finish() {
	e.rest()
	if calls := newToolCalls(e.End.Calls, true); calls != nil && len(e.calls) == 0 {
		e.delta(delta{ToolCalls: calls})
	}
	reason := e.FinishWord(finishReasons)
	e.open()
	e.PrependJSON(e.named(chunk{Choices: []chunkChoice{{FinishReason: &reason}}, Extra: e.Extra()}))
	if e.includeUsage {
		e.PrependJSON(e.named(chunk{Choices: []chunkChoice{}, Usage: newUsage(e.End.Usage)}))
	}
	e.Send("", []byte("[DONE]"))
}

// rest sends what of the final text has not been sent. In live mode that is nothing,
// except that a last round without text is separated, too, from what was said before:
// the text after the last separator is the final text.
func (e *encoder) rest() {
	if e.Live {
		if last := len(e.Rounds) - 1; e.spoke >= 0 && e.spoke < last && !e.End.Reason.Limit() {
			e.text(last, "")
		}
		return
	}
	if r := e.Last().Refusal.String(); r != "" {
		e.delta(delta{Refusal: r})
	}
	surface.Pieces(e.FinalText(), surface.SmallPiece, func(piece string) { e.delta(delta{Content: &piece}) })
	if a := newAnnotations(e.FinalCitations()...); a != nil {
		e.delta(delta{Annotations: a})
	}
}

// open puts the chunk with the role before the first chunk. Both are one write.
func (e *encoder) open() {
	if e.opened {
		return
	}
	e.opened = true
	empty := ""
	e.PrependJSON(e.named(chunk{Choices: []chunkChoice{{Delta: delta{Role: "assistant", Content: &empty}}}}))
}

func (e *encoder) delta(d delta) {
	e.open()
	e.SendJSON("", e.named(chunk{Choices: []chunkChoice{{Delta: d}}}))
}

// named adds what all chunks of an answer have in common.
func (e *encoder) named(c chunk) chunk {
	c.ID, c.Object, c.Created, c.Model = completionID(e.Started.RunID), "chat.completion.chunk", e.Started.At.Unix(), e.Started.Model
	return c
}

// Fail implements surface.Encoder: it sends the error object and the end mark.
func (e *encoder) Fail(object []byte) {
	e.Send("", object)
	e.Send("", []byte("[DONE]"))
}
