package chat

import (
	"net/http"
	"unicode/utf8"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/sse"
)

// frameBytes is about how much text a frame of final_only carries.
const frameBytes = 64

// maxFrame is the most text that a frame carries: a client that reads slowly
// holds no more than one frame.
const maxFrame = 16 << 10

// encoder is the sink of a stream: a fold from events to chunks.
//
//	live        every delta as it comes; a blank line parts the rounds
//	final_only  nothing until the end, then the final text in small frames
type encoder struct {
	answer
	out        *sse.Writer
	asked      asked
	live       bool
	mayAddress bool

	opened bool // the chunk with the role has left
	spoke  int  // the round of the last text, -1 before any
	err    error
}

// answerStream runs and answers with chunks. Until the first of them has left,
// a failure is still an ordinary error with its status.
func (h *Handler) answerStream(w http.ResponseWriter, r *http.Request, req *run.Request, caller run.Caller, asked asked) error {
	out := sse.NewWriter(w, sse.Options{Heartbeats: h.o.Heartbeats})
	defer out.Close()
	e := &encoder{out: out, asked: asked, live: req.Live, mayAddress: caller.Principal.Role.MaySeeAddresses(), spoke: -1}
	e.account, e.passing = caller.Account, req.Live
	e.started.Model = req.Model
	err := h.o.Runner.Run(r.Context(), req, e)
	out.StopHeartbeats() // from here on nobody else begins the stream
	switch begun := out.Started(); {
	case err != nil && !begun:
		return unlessGone(r, err)
	case err != nil && r.Context().Err() != nil: // nobody is left to be told
	case err != nil:
		h.logInternal(err)
		e.fail(bodyOf(err))
	case e.end.Reason.Failed() && !begun:
		writeEnd(w, e.end, e.mayAddress)
	case e.end.Reason.Failed():
		e.fail(endFrame(e.end, e.mayAddress))
	}
	return nil
}

// Emit implements run.Sink.
func (e *encoder) Emit(ev event.Event) error {
	if err := e.add(ev); err != nil {
		return err
	}
	switch ev := ev.(type) {
	case event.Started:
		e.out.SetHeader("Turnpike-Run-Id", ev.RunID)
	case event.TextDelta:
		if e.live {
			e.text(ev.Round, ev.Text)
		}
	case event.ReasoningDelta:
		if e.live {
			inFrames(ev.Text, maxFrame, func(text string) { e.delta(delta{ReasoningContent: text}) })
		}
	case event.RefusalDelta:
		if e.live {
			inFrames(ev.Text, maxFrame, func(text string) { e.delta(delta{Refusal: text}) })
		}
	case event.Finished:
		e.finish(ev)
	}
	return e.err
}

// text sends text of a round, parted from that of an earlier one.
func (e *encoder) text(round int, text string) {
	if e.spoke >= 0 && e.spoke != round {
		text = parting + text
	}
	e.spoke = round
	if text == "" {
		e.delta(delta{Content: &text})
	}
	inFrames(text, maxFrame, func(frame string) { e.delta(delta{Content: &frame}) })
}

// finish sends the one terminal frame, the usage if it was asked for, and the
// end mark. How a failure is told depends on whether the stream has begun, which
// is settled after the run.
func (e *encoder) finish(end event.Finished) {
	if end.Reason.Failed() {
		return
	}
	e.remaining(end)
	if calls := newToolCalls(end.Calls, true); calls != nil {
		e.delta(delta{ToolCalls: calls})
	}
	reason := finishReason(end.Reason)
	e.open()
	e.send(chunk{Choices: []chunkChoice{{FinishReason: &reason}}})
	if e.asked.includeUsage {
		e.send(chunk{Choices: []chunkChoice{}, Usage: newUsage(end.Usage)})
	}
	e.event([]byte("[DONE]"))
}

// remaining sends what of the final text has not been sent. In live mode that
// is nothing, except that a last round without text is parted, too, from what
// was said before: the text after the last parting is the final text.
func (e *encoder) remaining(end event.Finished) {
	if e.live {
		if last := len(e.rounds) - 1; e.spoke >= 0 && e.spoke < last && !end.Reason.Limit() {
			e.text(last, "")
		}
		return
	}
	if r := e.round().refusal.String(); r != "" {
		e.delta(delta{Refusal: r})
	}
	inFrames(e.finalText(), frameBytes, func(frame string) { e.delta(delta{Content: &frame}) })
}

// inFrames sends the text in frames of about size bytes.
func inFrames(text string, size int, send func(string)) {
	for text != "" {
		frame := text[:frameEnd(text, size)]
		text = text[len(frame):]
		send(frame)
	}
}

// frameEnd returns where a frame of about size bytes ends, never inside a
// character.
func frameEnd(text string, size int) int {
	if len(text) <= size {
		return len(text)
	}
	n := size
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	if n == 0 {
		return size
	}
	return n
}

// open sends the chunk with the role, once, before everything else.
func (e *encoder) open() {
	if e.opened {
		return
	}
	e.opened = true
	empty := ""
	e.send(chunk{Choices: []chunkChoice{{Delta: delta{Role: "assistant", Content: &empty}}}})
}

func (e *encoder) delta(d delta) {
	e.open()
	e.send(chunk{Choices: []chunkChoice{{Delta: d}}})
}

func (e *encoder) send(c chunk) {
	c.ID, c.Object, c.Created, c.Model = completionID(e.started.RunID), "chat.completion.chunk", e.started.At.Unix(), e.started.Model
	e.event(marshal(c))
}

// fail sends the dialect's error form and the end mark: a stream that has begun
// cannot change its status.
func (e *encoder) fail(body []byte) {
	e.event(body)
	e.event([]byte("[DONE]"))
}

func (e *encoder) event(data []byte) {
	if e.err == nil {
		e.err = e.out.Event(data)
	}
}
