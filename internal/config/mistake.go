package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Mistake is one thing that is wrong with a configuration.
type Mistake struct {
	File         string // empty when an environment variable is at fault
	Line, Column int    // from 1; 0 when the mistake is not at one place
	Env          string // the environment variable at fault
	Path         string // the key, such as orgs[0].runtime.max_rounds; empty for the whole
	Message      string
}

// String is the mistake in one line, as compilers print theirs.
func (m Mistake) String() string {
	var b strings.Builder
	switch {
	case m.Env != "":
		b.WriteString(m.Env + ": ")
	case m.Line > 0:
		fmt.Fprintf(&b, "%s:%d:%d: ", m.File, m.Line, m.Column)
	default:
		b.WriteString(m.File + ": ")
	}
	if m.Path != "" {
		b.WriteString(m.Path + ": ")
	}
	return b.String() + m.Message
}

// Error is a configuration that cannot be used: every mistake, in the order of
// the file, those of the environment last.
type Error struct{ Mistakes []Mistake }

// Error returns one line for each mistake.
func (e *Error) Error() string {
	lines := make([]string, len(e.Mistakes))
	for i, m := range e.Mistakes {
		lines[i] = m.String()
	}
	return strings.Join(lines, "\n")
}

func newError(mistakes []Mistake) error {
	if len(mistakes) == 0 {
		return nil
	}
	return &Error{sorted(mistakes)}
}

// sorted puts mistakes into the order of their places.
func sorted(mistakes []Mistake) []Mistake {
	slices.SortStableFunc(mistakes, func(a, b Mistake) int {
		return cmp.Or(cmp.Compare(a.Env, b.Env), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return mistakes
}

// origin is where the value of a key came from.
type origin struct {
	line, column int
	env          string
}

func (o origin) mistake(file, path, message string) Mistake {
	if o.env != "" {
		return Mistake{Env: o.env, Path: path, Message: message}
	}
	return Mistake{File: file, Line: o.line, Column: o.column, Path: path, Message: message}
}
