package codetool

import (
	"fmt"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/builtin"
	"github.com/turnpike-gateway/turnpike/internal/sandbox"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/tool"
)

// resultOf returns the result of code that was run.
func resultOf(args arguments, o sandbox.Outcome, out *outputs) tool.Result {
	a := builtin.CodeResult{
		Language: string(args.Language), Driver: o.Driver, Exit: o.Exit, Result: readable(o.Result),
		Stdout: readable(o.Stdout), Stderr: readable(o.Stderr),
		Truncated: o.StdoutDropped+o.StderrDropped > 0, StateLost: o.StateLost,
	}
	a.Files, a.NotProduced = out.told(o.Driver)
	var notes []string
	if o.StateLost {
		notes = append(notes, "The variables of earlier calls were lost before this call; define them again.")
	}
	if o.Ended != "" {
		a.Exit, a.Error = -1, o.Ended
		notes = append(notes, "The session has ended with this call, and its variables are gone.")
	}
	notes = append(notes, out.notes(o)...)
	a.Note = strings.Join(notes, " ")
	r := asJSON(a)
	a.Images = out.images
	for _, image := range out.images {
		r.Parts = append(r.Parts, item.Part{Kind: item.Image, MIMEType: "image/png", Data: image})
	}
	r.IsError, r.Value = r.IsError || a.Exit != 0, a
	return r
}

// output returns an output of a command as valid UTF-8, with a line that says how much of it was dropped.
func output(text string, dropped int64) string {
	text = readable(text)
	if dropped > 0 {
		text += fmt.Sprintf("\n[%d more bytes were dropped]", dropped)
	}
	return text
}

// readable returns valid UTF-8 without NUL, which stores do not take.
func readable(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\ufffd"), "\x00", "\ufffd")
}
