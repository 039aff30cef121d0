package toolexec

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/builtin"
	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/file"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/tool"
)

// Done is the result of an executed call.
type Done struct {
	Outcome    loop.Outcome
	Parts      []item.Part     // what the model gets; binary parts are checked
	Structured json.RawMessage // the same as a JSON value; nil = none
	Made       json.RawMessage // {"files": …} of a call that has made files; nil = none
	Value      builtin.Encoded // [tool.Result].Value, without hidden text; zero = none
	Label      item.Label      // where the content comes from
	Full       string          // all the text, if the text in Parts was truncated; otherwise empty
	Digest     string          // of the whole result
	Hidden     int             // characters that nobody would have seen, taken out
}

// Text returns the result as text, for a model that takes only text.
func (d Done) Text() string { return item.PlainText(d.Parts) }

// Whole returns the parts with nothing truncated.
func (d Done) Whole() []item.Part {
	if d.Full == "" {
		return d.Parts
	}
	return append([]item.Part{{Kind: item.Text, Text: d.Full}}, d.Parts[1:]...)
}

// WithoutData returns the result with each binary part replaced by a text that
// gives the reason.
func (d Done) WithoutData(reason string) Done {
	c := &content{}
	for _, p := range d.Parts {
		if p.Data != "" {
			p = leftOut(p, reason)
		}
		c.add(p)
	}
	d.Parts = c.parts
	return d
}

// Execute calls the tool and turns whatever comes back into parts for the model.
// An error ends the run: ctx is done, or the failure is a [tool.Blocked]. The Done
// says in any case what is known of the call.
func Execute(ctx context.Context, e *catalog.Entry, c tool.Call, limit Cap) (Done, error) {
	result, err := call(ctx, e.Tool, c)
	var fatal tool.Blocked
	_, reused := result.Value.(Reused)
	switch {
	case err == nil && reused:
		result.Value = nil
		return Again(result, limit), nil
	case err == nil && result.IsError:
		return finished(loop.Error, result, limit), nil
	case err == nil:
		return finished(loop.OK, result, limit), nil
	case errors.As(err, &fatal):
		return unanswered(e, c, errors.Is(err, tool.ErrNotSent), "the outbound policy refused an address of its server", limit), fatal
	}
	return unanswered(e, c, errors.Is(err, tool.ErrNotSent), strings.TrimPrefix(err.Error(), tool.ErrNotSent.Error()+": "), limit), ctx.Err()
}

// Describer is a tool that has something to add to its description for the model, because of what the request says of all calls of the tool.
// Only tools of the gateway itself implement it.
type Describer interface {
	// Describe returns a text that begins with a space; "" = nothing. options are as in [tool.Call].
	Describe(options json.RawMessage) string
}

// Receiver is a tool whose calls get the files of the conversation. Only tools of the gateway itself implement it.
type Receiver interface {
	tool.Tool

	// WithFiles returns the tool with the files of a run. It is safe for concurrent use.
	WithFiles(files *file.Set) tool.Tool
}

// WithFiles returns the tool with the files of a run, or as it is if it gets none.
func WithFiles(t tool.Tool, files *file.Set) tool.Tool {
	if r, is := t.(Receiver); is && files != nil {
		return r.WithFiles(files)
	}
	return t
}

// maxValue is the most bytes of a typed value.
const maxValue = 4 << 20

// keepValue adds the typed value of a result, and the files that the call has made: they stay when the result is cut, or replaced by
// a hook.
func (d *Done) keepValue(v any) {
	if v == nil {
		return
	}
	if made := (builtin.Made{Files: builtin.FilesOf(v)}); made.Files != nil {
		files, _ := json.Marshal(made) // texts, numbers and times: cannot fail
		d.Made, _ = value(files)
	}
	e, err := encoded(v)
	if err == nil && len(e.JSON) <= maxValue {
		e.JSON, _ = value(e.JSON) // each text by itself: what a tool prints must not become members
	} else {
		e.JSON = nil
	}
	switch {
	case e.JSON != nil:
		d.Value = e
	case d.Made != nil:
		d.Value = builtin.Encoded{Type: builtin.TypeMade, JSON: d.Made}
	}
}

// encoded encodes a value. A panic of its own encoding is an error.
func encoded(v any) (e builtin.Encoded, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("encode %T: panic: %v", v, p)
		}
	}()
	return builtin.Encode(v)
}

// unanswered returns the result of a call without an answer from its tool. The outcome is
// not_run only if neither this attempt nor an earlier one can have been sent.
func unanswered(e *catalog.Entry, c tool.Call, notSent bool, why string, limit Cap) Done {
	outcome := loop.LostOutcome(c.Class)
	switch {
	case notSent && c.Attempt > 1:
		why = "its answer was lost, and it could not be sent again: " + why
	case notSent:
		outcome, why = loop.NotRun, "not sent: "+why
	}
	why = fmt.Sprintf("tool %s: %s", e.Definition.Name, why)
	if outcome == loop.Unknown {
		why = "outcome_unknown: " + why + "; it may have been carried out"
	}
	return finished(outcome, tool.Text(refusal{Error: why}.String()), limit)
}

// Reused is the Value of a result that a tool has not made by this call: it is the successful result of an earlier
// call with the same effect.
type Reused struct{}

// Again returns an earlier successful result, which is complete, for another call.
func Again(r tool.Result, limit Cap) Done {
	done := finished(loop.OK, r, limit)
	done.Outcome = loop.Cached
	return done
}

// Replaced returns the result with a text in place of all that it holds. It keeps its label: the text
// may be a part of what it held.
func (d Done) Replaced(text string, limit Cap) Done {
	r := tool.Text(text)
	r.Label = d.Label
	out := finished(d.Outcome, r, limit)
	if out.Made = d.Made; out.Made != nil {
		out.Value = builtin.Encoded{Type: builtin.TypeMade, JSON: d.Made}
	}
	return out
}

// ResultDigest returns the [Done].Digest of a call with this answer of its tool.
func ResultDigest(r tool.Result) string {
	if r.IsError {
		return finished(loop.Error, r, Cap{}).Digest
	}
	return finished(loop.OK, r, Cap{}).Digest
}

// call calls the tool. A panic of the tool becomes an error.
func call(ctx context.Context, t tool.Tool, c tool.Call) (r tool.Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return t.Call(tool.With(ctx, c), c)
}

func finished(o loop.Outcome, r tool.Result, limit Cap) Done {
	c := newContent(r, limit)
	if _, refused := r.Value.(builtin.Refusal); r.IsError && !refused { // a refusal is JSON with the member error
		c.parts = failure(c.parts)
	}
	done := Done{Outcome: o, Parts: c.parts, Structured: c.structured, Label: r.Label, Digest: digestOf(string(o), c.parts), Hidden: c.hidden}
	done.keepValue(r.Value)
	done.truncate(limit, r.Value)
	return done
}

// truncate cuts the text to the part of the limit that the descriptions of binary parts
// leave. The cut text comes before these parts. The text of a value that can be made shorter keeps all its members.
func (d *Done) truncate(limit Cap, value any) {
	if !limit.cuts(item.PlainText(d.Parts)) {
		return
	}
	var texts, binary []item.Part
	for _, p := range d.Parts {
		if room := limit.Bytes - len(item.PlainText(append(binary, p))); p.Data != "" && (room > limit.Bytes/2 || limit.Bytes <= 0) {
			binary = append(binary, p)
		} else if p.Data != "" {
			texts = append(texts, leftOut(p, "the limit of the result leaves no room for it"))
		} else {
			texts = append(texts, p)
		}
	}
	room := limit
	if len(binary) > 0 && limit.Bytes > 0 {
		room.Bytes -= len("\n" + item.PlainText(binary))
	}
	full := item.PlainText(texts)
	cut := Truncate(full, room)
	if v, ok := value.(builtin.Fitting); ok && !limit.HeadOnly {
		cut = fitted(v, full, room, d.Outcome == loop.Error)
	}
	if cut != full {
		d.Full = full
	}
	d.Parts = append([]item.Part{{Kind: item.Text, Text: cut}}, binary...)
}

// fitted returns the text of a value that was made shorter: its JSON, and a line that names the true size and how to read the rest.
func fitted(v builtin.Fitting, full string, limit Cap, failed bool) string {
	marker := fmt.Sprintf("\n[truncated; full result is %d bytes]%s", len(full), limit.Hint)
	room := limit.Chars // a character has a byte or more
	if limit.Bytes > 0 && (room == 0 || limit.Bytes < room) {
		room = limit.Bytes
	}
	e, err := encoded(v.Fit(room - len(marker) - len(failureMark)))
	if err != nil {
		return Truncate(full, limit)
	}
	c := &content{}
	text := c.text(string(e.JSON))
	if failed {
		text = failureMark + text
	}
	if text += marker; limit.cuts(text) { // even without its long texts
		return Truncate(full, limit)
	}
	return text
}

// failureMark begins the text of a failed call.
const failureMark = "Error: "

// failure adds a prefix to the error of a tool, for dialects that cannot mark a result as
// an error.
func failure(parts []item.Part) []item.Part {
	switch {
	case item.PlainText(parts) == "":
		return []item.Part{{Kind: item.Text, Text: failureMark + "the tool reported an error and said no more"}}
	case parts[0].Kind == item.Text:
		parts[0].Text = failureMark + parts[0].Text
		return parts
	}
	return append([]item.Part{{Kind: item.Text, Text: failureMark + "the tool failed"}}, parts...)
}
