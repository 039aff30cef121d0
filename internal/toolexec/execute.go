package toolexec

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/visible"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/tool"
)

// Done is what became of an executed call.
type Done struct {
	Outcome loop.Outcome
	Text    string // what the model reads
	Full    string // all of it, where Text was cut; otherwise empty
	Digest  string // of all of it
	Hidden  int    // characters that nobody would have seen, taken out of Text and Full
}

// Execute calls the tool and turns whatever comes back into text for the model.
// An error ends the run: ctx is done, or the failure is a [tool.Fatal]. The Done
// says in any case what is known of the call.
func Execute(ctx context.Context, e *catalog.Entry, c tool.Call, limit Cap) (Done, error) {
	result, err := call(ctx, e.Tool, c)
	var fatal tool.Fatal
	switch {
	case err == nil && result.IsError:
		return finished(loop.Error, failure(text(result)), limit), nil
	case err == nil:
		return finished(loop.OK, text(result), limit), nil
	case errors.As(err, &fatal):
		return unanswered(e, c, errors.Is(err, tool.ErrNotSent), "the outbound policy refused an address of its server", limit), fatal
	}
	return unanswered(e, c, errors.Is(err, tool.ErrNotSent), strings.TrimPrefix(err.Error(), tool.ErrNotSent.Error()+": "), limit), ctx.Err()
}

// unanswered is a call that got no answer from its tool. It is not_run only if
// neither this attempt nor an earlier one can have left.
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
	return finished(outcome, refusal{Error: why}.String(), limit)
}

// Whole returns all of what the tool answered.
func (d Done) Whole() string {
	if d.Full != "" {
		return d.Full
	}
	return d.Text
}

// Again returns an earlier successful result for another call.
func Again(text string, limit Cap) Done {
	done := finished(loop.OK, text, limit)
	done.Outcome = loop.Cached
	return done
}

// call keeps a tool that panics from taking the process with it.
func call(ctx context.Context, t tool.Tool, c tool.Call) (r tool.Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return t.Call(ctx, c)
}

func finished(o loop.Outcome, text string, limit Cap) Done {
	text, hidden := visible.Text(strings.ToValidUTF8(text, "\uFFFD"))
	done := Done{Outcome: o, Text: Truncate(text, limit), Digest: digest(string(o) + text), Hidden: hidden}
	if len(done.Text) != len(text) {
		done.Full = text
	}
	return done
}

// failure marks a tool's own error for dialects that have no other mark.
func failure(text string) string {
	if text == "" {
		text = "the tool reported an error and said no more"
	}
	return "Error: " + text
}

// text returns the readable content of a result. What a text cannot carry is
// named.
func text(r tool.Result) string {
	var parts []string
	for _, p := range r.Parts {
		if p.Kind == item.Text {
			parts = append(parts, p.Text)
			continue
		}
		parts = append(parts, fmt.Sprintf("[%s %s, %d bytes of base64, not shown]", p.Kind, p.MIMEType, len(p.Data)))
	}
	return strings.Join(parts, "\n")
}
