package run

import (
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// storeAnswer returns the rows of a turn with these items, and sets their refs. If the turn goes on with an answer that
// was cut off, there is a second row with the whole answer, as one message.
func (m *modelCaller) storeAnswer(body *loop.Turn, items []item.Item) []journal.Row {
	s := m.run.state()
	if !s.Continues() {
		return m.run.events.Store(body.ItemsRef, items)
	}
	earlier := m.run.events.Items(s.Turn.AnswerRef())
	item.SetTurn(items, item.LastTurn(earlier))
	whole := joined(earlier, items)
	body.ItemsRef, body.WholeRef = fmt.Sprintf("turn:%d.%d", body.Round, s.Continued), fmt.Sprintf("whole:%d.%d", body.Round, s.Continued)
	body.Unsendable = m.unsendable(whole)
	return append(m.run.events.Store(body.ItemsRef, items), m.run.events.Store(body.WholeRef, whole)...)
}

// hasText reports whether items have a message with text.
func hasText(items []item.Item) bool {
	return slices.ContainsFunc(items, func(it item.Item) bool { return it.Kind == item.Message && it.Text() != "" })
}

// joined returns the items of an answer whose begin was cut off: its last message has the text of the rest as well.
// Native forms of what is joined are dropped, because they have one part only. So is reasoning before a rest without
// calls: its provider wants it in front of a message of its own.
func joined(begin, rest []item.Item) []item.Item {
	out := make([]item.Item, 0, len(begin)+len(rest))
	calls := slices.ContainsFunc(rest, func(it item.Item) bool { return it.Kind == item.ToolCall })
	for _, it := range begin {
		if it.Kind == item.Message || it.Native.Dialect == model.DialectChat || it.Native.Dialect == model.DialectResponses {
			it.Native = item.Native{}
		}
		out = append(out, it)
	}
	at := lastMessage(out)
	for _, it := range rest {
		if it.Kind == item.Message || it.Native.Dialect == model.DialectChat {
			it.Native = item.Native{}
		}
		switch {
		case it.Kind == item.Message && at >= 0:
			out[at], at = oneMessage(out[at], it), -1
		case it.Kind == item.Message && len(it.Parts) == 0: // a turn without text
		case it.Kind == item.Reasoning && !calls:
		default:
			out = append(out, it)
		}
	}
	return out
}

// lastMessage returns the index of the last message; -1 = there is none.
func lastMessage(items []item.Item) int {
	for i, it := range slices.Backward(items) {
		if it.Kind == item.Message {
			return i
		}
	}
	return -1
}

// oneMessage returns a message with the content of both. The first text of the rest follows the last one of the begin
// in the same part.
func oneMessage(begin, rest item.Item) item.Item {
	parts, more := slices.Clone(begin.Parts), rest.Parts
	shift, moved := len(parts), int64(0)
	if n := len(parts); n > 0 && len(more) > 0 && parts[n-1].Kind == item.Text && more[0].Kind == item.Text {
		shift, moved = n-1, int64(utf8.RuneCountInString(parts[n-1].Text))
		parts[n-1].Text += more[0].Text
		more = more[1:]
	}
	begin.Parts = slices.Concat(parts, more)
	begin.Citations = slices.Clip(begin.Citations)
	for _, c := range rest.Citations {
		if c.Part == 0 && c.End > 0 {
			c.Start, c.End = c.Start+moved, c.End+moved
		}
		if c.Part == 0 && c.Index > 0 {
			c.Index += moved
		}
		c.Part += shift
		begin.Citations = append(begin.Citations, c)
	}
	return begin
}
