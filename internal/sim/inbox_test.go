package sim

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/agent"
	"github.com/turnpike-gateway/turnpike/internal/conversation"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// inbox is what the observer knows of a session.
type inbox struct {
	turns  []runKey          // in the order in which they were accepted
	inputs map[string]*input // by mark
}

// input is a message that was accepted.
type input struct {
	run    runKey // that it was delivered to
	steers bool
	used   int  // how often a run has got it
	seen   bool // a model has seen it in that run
}

// turn is what the observer knows of a run that is a turn of a session.
type turn struct {
	session   string
	number    int       // from 0
	began     bool      // it has its input
	before    []string  // the marks that it began with, but for its own message
	said      []string  // what it has added since, with its own message
	answer    []string  // of said: the marks of the latest answer
	last      item.Kind // of what the model or a tool has added; "" = nothing
	text      int       // how much of said there was then, if that is a message
	cut       bool      // its last answer broke off after it was shown
	seen      int       // how much of said was there when the latest model call began
	hidden    []string  // the marks of what hooks have replaced
	interrupt bool      // a message was accepted that ends it
	atEnd     bool      // it was ending by itself when that came
	rewound   bool      // a rewind has taken it out
}

// inboxOf returns the inbox of a session.
func (b *book) inboxOf(key runKey, session string) *inbox {
	name := key.org + "/" + session
	if b.inboxes[name] == nil {
		b.inboxes[name] = &inbox{inputs: map[string]*input{}}
	}
	return b.inboxes[name]
}

// marksOf returns the marks in the items, in order.
func marksOf(items ...item.Item) (out []string) {
	for _, it := range items {
		if it.Kind == item.ToolCall {
			continue
		}
		for _, word := range strings.Fields(it.Text()) {
			for _, prefix := range []string{messageMark, wordMark, resultMark, hookMark, sumMark} {
				if strings.HasPrefix(word, prefix) {
					out = append(out, word)
				}
			}
		}
	}
	return out
}

// entersInbox enters what a batch changes in the inbox of a session, before its facts.
func (b *book) entersInbox(key runKey, h *history, batch journal.Batch) {
	if o := batch.Opening; o != nil && o.Turn != nil && len(b.w.sessions) > 0 {
		in := b.inboxOf(key, o.Turn.Session)
		if o.Turn.Interrupt != nil {
			b.interrupted(in)
		}
		h.turn = &turn{session: o.Turn.Session, number: len(in.turns)}
		in.turns = append(in.turns, key)
		b.delivered(key, in, o.Turn.Input, false)
		if o.Turn.Queued {
			b.w.saw("a message waited for its turn")
		}
	}
	if d := batch.Delivered; d != nil {
		b.delivered(key, b.inboxOf(key, d.Session), d.Input, true)
		b.w.saw("a message went into a run")
	}
}

// delivered enters an input that was stored.
func (b *book) delivered(key runKey, in *inbox, one journal.SessionInput, steers bool) {
	var body struct{ Message string }
	_ = json.Unmarshal(one.Body, &body)
	if known := in.inputs[body.Message]; known != nil {
		b.w.violate("I16: %s was delivered to run %s and to run %s", body.Message, known.run.run, key.run)
	}
	in.inputs[body.Message] = &input{run: key, steers: steers}
}

// interrupted enters that the turn in progress is to end.
func (b *book) interrupted(in *inbox) {
	for _, key := range in.turns {
		if h := b.runs[key]; h != nil && h.turn.began && h.state.Finished == nil {
			h.turn.interrupt = true
			h.turn.atEnd = h.state.Ended != ""
		}
	}
}

// hearsTurn enters what a fact adds to a session.
func (b *book) hearsTurn(key runKey, h *history, f loop.Fact, rows []journal.Row) {
	t := h.turn
	if t == nil {
		return
	}
	itemsOf := func(ref string) []item.Item {
		for _, row := range rows {
			if row.Ref != ref || ref == "" {
				continue
			}
			switch value := row.Value.(type) {
			case item.List:
				return value
			case journal.Prompt:
				return slices.Concat(value.Front, value.Rest)
			}
		}
		return nil
	}
	switch body := f.Body.(type) {
	case loop.InputAdded:
		marks := marksOf(itemsOf(body.ItemsRef)...)
		if len(marks) == 0 {
			b.w.violate("I16: run %s gets an input without a message", key.run)
			return
		}
		if body.By == loop.ByClient {
			t.before, marks = marks[:len(marks)-1], marks[len(marks)-1:]
			b.begins(key, t)
		}
		b.uses(key, marks)
		t.said = append(t.said, marks...)
	case loop.Turn:
		items := itemsOf(body.ItemsRef)
		t.answer = marksOf(items...)
		t.said = append(t.said, t.answer...)
		if t.text, t.last = 0, ""; len(items) > 0 {
			t.last = items[len(items)-1].Kind
		}
		if t.last == item.Message {
			t.text = len(t.said)
		}
	case loop.TurnStarted:
		t.seen = len(t.said)
	case loop.TurnFailed:
		shown := (body.Forwarded || body.Class == model.Gone) && !h.state.Accepted.HoldsAnswers()
		if marks := marksOf(itemsOf(body.PartialRef)...); shown && len(marks) > 0 {
			t.said, t.cut = slices.Insert(t.said, t.seen, marks...), true // what came during the call is not answered
			t.text = t.seen + len(marks)
		}
	case loop.CallDone:
		t.text, t.last = 0, item.ToolResult
		t.said = append(t.said, marksOf(itemsOf(body.ResultRef)...)...)
	case loop.HookRan:
		if body.Point != loop.PreResponse || body.PatchRef == "" {
			return
		}
		for _, mark := range t.answer {
			t.hidden = append(t.hidden, mark)
			t.said = slices.DeleteFunc(t.said, func(said string) bool { return said == mark })
		}
		t.answer = marksOf(itemsOf(body.PatchRef)...)
		t.said = append(t.said, t.answer...)
	}
}

// uses enters that a run gets messages.
func (b *book) uses(key runKey, marks []string) {
	in := b.inboxOf(key, b.runs[key].turn.session)
	for _, mark := range marks {
		one := in.inputs[mark]
		switch {
		case one == nil:
			b.w.violate("I16: run %s gets %s, which nobody has sent", key.run, mark)
		case one.run != key:
			b.w.violate("I16: run %s gets %s, which is for run %s", key.run, mark, one.run.run)
		case one.used > 0:
			b.w.violate("I16: run %s gets %s again", key.run, mark)
		default:
			one.used++
		}
	}
}

// begins checks that a turn begins when those before it have ended, and with all that they have added.
func (b *book) begins(key runKey, t *turn) {
	t.began = true
	rest := t.before
	for _, other := range b.inboxOf(key, t.session).turns {
		h := b.runs[other]
		o := h.turn
		switch {
		case o == t, o.rewound:
		case o.number > t.number && o.began:
			b.w.violate("I17: run %s begins, which is turn %d, and turn %d, run %s, has begun", key.run, t.number, o.number, other.run)
		case o.number > t.number:
		case h.state.Finished == nil:
			b.w.violate("I17: run %s begins, which is turn %d, and turn %d, run %s, has not ended", key.run, t.number, o.number, other.run)
		case !o.began:
		default:
			stays := o.stays(h.state.Finished.Reason)
			if len(rest) < len(stays) || !sameSet(rest[:len(stays)], stays) {
				b.w.violate("I19: run %s begins with %v, and of turn %d, run %s, %v stays (all: %v)", key.run, rest, o.number, other.run, stays, t.before)
				return
			}
			rest = rest[len(stays):]
			b.w.saw("a turn had what the turns before it have said")
		}
	}
	if len(rest) > 0 {
		b.w.violate("I19: run %s begins with %v, which no turn before it has said", key.run, rest)
	}
}

// rewound enters that a rewind has taken parts out of a session.
func (b *book) rewound(orgID, session string, parts []journal.ConversationKey) {
	for _, key := range b.inboxOf(runKey{org: orgID}, session).turns {
		h := b.runs[key]
		part := journal.ConversationKey{Kind: journal.ResponseID, ID: conversation.SegmentID(key.run, "")}
		if h.turn.rewound || !slices.Contains(parts, part) {
			continue
		}
		if h.turn.rewound = true; h.state.Finished == nil {
			b.w.violate("I20: run %s is taken out of its session before its end", key.run)
		}
	}
}

// stays returns the marks of what a turn leaves to those after it, if it has ended for the reason. One that has failed
// leaves what the model has answered, and no question without an answer.
func (t *turn) stays(reason event.Reason) []string {
	switch {
	case reason == event.Cancelled, !reason.Failed(), t.cut && (reason == event.Lost || reason == event.CallerGone):
		return t.said
	case reason == event.Lost && (t.last == item.Message || t.last == item.ToolResult):
		return t.said
	}
	return t.said[:t.text]
}

func sameSet(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// checkSessionPrompt checks that a model sees what its turn began with, and then what the turn has added: nothing
// else, and nothing twice.
func (b *book) checkSessionPrompt(c *client, req *model.Request) {
	key := b.runFor(c, req)
	h := b.runs[key]
	if h == nil || h.turn == nil {
		b.w.violate("I16: the model of %s is asked for a run that nobody knows", c.id)
		return
	}
	got, t := marksOf(req.Items...), h.turn
	if len(got) < len(t.before) || !slices.Equal(got[:len(t.before)], t.before) {
		b.w.violate("I19: run %s began with %v, and its model sees %v", key.run, t.before, got)
		return
	}
	times := map[string]int{}
	for _, mark := range got {
		if times[mark]++; times[mark] > 1 {
			b.w.violate("I19: the model of run %s sees %s twice", key.run, mark)
		}
	}
	in := b.inboxOf(key, t.session)
	for _, mark := range got[len(t.before):] {
		if !slices.Contains(t.said, mark) {
			b.w.violate("I19: the model of run %s sees %s, which the run has not added", key.run, mark)
		}
		if one := in.inputs[mark]; one != nil {
			one.seen = true
		}
	}
}

// placed enters that the sender of a message was told its run.
func (b *book) placed(m *message) {
	one := b.inboxOf(runKey{org: m.s.org}, m.s.sid).inputs[m.mark]
	if one == nil || one.run.run != m.placed.RunID {
		b.w.violate("I16: the sender of %s was told that run %s has it", m.mark, m.placed.RunID)
	}
}

// refused enters that the sender of a message was told that it is refused.
func (b *book) refused(m *message) {
	if one := b.inboxOf(runKey{org: m.s.org}, m.s.sid).inputs[m.mark]; one != nil {
		b.w.violate("I16: the sender of %s was told that it is refused, and run %s has it", m.mark, one.run.run)
	}
}

// checkSessions checks what must hold of sessions when all is over.
func (b *book) checkSessions() {
	for _, s := range b.w.sessions {
		in := b.inboxOf(runKey{org: s.org}, s.sid)
		for _, mark := range slices.Sorted(maps.Keys(in.inputs)) {
			b.checkInput(mark, in.inputs[mark])
		}
		for _, key := range in.turns {
			b.checkInterrupt(key, b.runs[key])
		}
		for _, m := range s.messages {
			for _, c := range m.conns {
				b.checkHidden(m, c)
			}
		}
		b.checkStored(s, in)
	}
}

// checkInput checks that a message was used, or that its run says why not.
func (b *book) checkInput(mark string, one *input) {
	h := b.runs[one.run]
	if h.state.Finished == nil {
		return
	}
	reason := h.state.Finished.Reason
	switch {
	case one.used == 0 && (one.steers || h.state.Ended == ""):
		b.w.violate("I16: nobody got %s, and run %s has ended: %s", mark, one.run.run, reason)
	case one.used == 0:
		b.w.saw("a message was void with its run")
	case !one.seen && reason == event.Complete:
		b.w.violate("I16: run %s is complete, and its model has not seen %s", one.run.run, mark)
	}
}

// checkInterrupt checks that a turn which a message interrupts has ended for it, or before.
func (b *book) checkInterrupt(key runKey, h *history) {
	if !h.turn.interrupt || h.state.Finished == nil {
		return
	}
	if h.state.Finished.Reason == event.Cancelled {
		b.w.saw("an interrupt ended a turn")
	}
}

// checkHidden checks that nobody hears an answer that a hook has denied or replaced.
func (b *book) checkHidden(m *message, c *conn) {
	h := b.runs[runKey{m.s.org, m.placed.RunID}]
	var text strings.Builder
	for _, e := range c.events {
		if d, ok := e.(event.TextDelta); ok {
			text.WriteString(d.Text)
		}
	}
	for _, mark := range h.turn.hidden {
		if strings.Contains(text.String(), mark) {
			b.w.violate("I18: the sender of %s hears %s, and a hook has replaced it", m.mark, mark)
		}
	}
}

// checkStored checks that the session says the same of its inputs and its turns.
func (b *book) checkStored(s *session, in *inbox) {
	turns, n, _ := b.w.store.sessions.SessionTurns(b.ctx, s.org, s.sid, 1000, 0)
	slices.Reverse(turns)
	if n != len(in.turns) {
		b.w.violate("I17: session %s has %d turns, and %d were stored", s.sid, n, len(in.turns))
		return
	}
	for i, t := range turns {
		if t.RunID != in.turns[i].run || t.Number != i+1 {
			b.w.violate("I17: turn %d of session %s is run %s, and its number is %d", i+1, s.sid, t.RunID, t.Number)
		}
	}
	inputs, _, _ := b.w.store.sessions.SessionInputs(b.ctx, s.org, s.sid, 1000, 0)
	for _, one := range inputs {
		if one.ProcessedAt.IsZero() {
			b.w.violate("I16: input %s (%s) of session %s still waits", one.ID, one.Body, s.sid)
		}
		if one.Kind == agent.InputInterrupt {
			continue
		}
		var body struct{ Message string }
		_ = json.Unmarshal(one.Body, &body)
		if known := in.inputs[body.Message]; known == nil || known.run.run != one.RunID {
			b.w.violate("I16: session %s says that run %s has %s", s.sid, one.RunID, body.Message)
		}
	}
}

// runFor returns the run for which a model is asked.
func (b *book) runFor(c *client, req *model.Request) runKey {
	if c.talk == nil {
		return runKey{c.org, b.runOf(c)}
	}
	m, _ := c.talk.latest(req.Items)
	if m == nil {
		return runKey{org: c.org}
	}
	if one := b.inboxOf(runKey{org: c.org}, c.talk.sid).inputs[m.mark]; one != nil {
		return one.run
	}
	return runKey{org: c.org}
}
