package codetool

import (
	"fmt"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/sandbox"
	"github.com/turnpike-gateway/turnpike/tool"
)

// answer is the JSON of a result.
type answer struct {
	Language  sandbox.Language `json:"language"`
	Driver    string           `json:"driver"` // the sandbox that ran the code
	Exit      int              `json:"exit"`   // 0 = no error, -1 = the session has ended
	Result    string           `json:"result,omitempty"`
	Stdout    string           `json:"stdout"`
	Stderr    string           `json:"stderr"`
	Truncated bool             `json:"truncated,omitempty"` // a part of the output was dropped
	StateLost bool             `json:"state_lost,omitempty"`
	Error     string           `json:"error,omitempty"` // why the session has ended
	Note      string           `json:"note,omitempty"`

	Files       []Kept        `json:"files,omitempty"`
	NotProduced []notProduced `json:"not_produced,omitempty"`
}

// resultOf returns the result of code that was run.
func resultOf(args arguments, o sandbox.Outcome, out *outputs) tool.Result {
	a := answer{
		Language: args.Language, Driver: o.Driver, Exit: o.Exit, Result: readable(o.Result),
		Stdout: output(o.Stdout, o.StdoutDropped), Stderr: output(o.Stderr, o.StderrDropped),
		Truncated: o.StdoutDropped+o.StderrDropped > 0, StateLost: o.StateLost,
	}
	out.told(&a)
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
	r.IsError = r.IsError || a.Exit != 0
	return r
}

// output returns an output as valid UTF-8, with a line that says how much of it was dropped.
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
