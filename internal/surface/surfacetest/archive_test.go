package surfacetest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// archive is a text with parts, in the txtar format: each part begins with a
// line "-- name --".
type archive struct {
	comment string
	parts   []part
}

type part struct{ name, text string }

func parseArchive(data string) archive {
	var a archive
	into := &a.comment
	for line := range strings.Lines(data) {
		if name, ok := marker(line); ok {
			a.parts = append(a.parts, part{name: name})
			into = &a.parts[len(a.parts)-1].text
			continue
		}
		*into += line
	}
	return a
}

func marker(line string) (name string, ok bool) {
	rest, ok := strings.CutPrefix(strings.TrimRight(line, "\r\n"), "-- ")
	if !ok {
		return "", false
	}
	name, ok = strings.CutSuffix(rest, " --")
	return strings.TrimSpace(name), ok
}

// get returns the text of a part, or "".
func (a archive) get(name string) string {
	for _, p := range a.parts {
		if p.name == name {
			return p.text
		}
	}
	return ""
}

func (a archive) has(name string) bool {
	return slices.ContainsFunc(a.parts, func(p part) bool { return p.name == name })
}

// with returns the archive with these parts in place of those that drop names.
func (a archive) with(parts []part, drop func(name string) bool) archive {
	kept := slices.DeleteFunc(slices.Clone(a.parts), func(p part) bool { return drop(p.name) })
	return archive{a.comment, append(kept, parts...)}
}

func (a archive) format() []byte {
	var b bytes.Buffer
	b.WriteString(a.comment)
	for _, p := range a.parts {
		fmt.Fprintf(&b, "-- %s --\n%s", p.name, p.text)
		if p.text != "" && !strings.HasSuffix(p.text, "\n") {
			b.WriteByte('\n')
		}
	}
	return b.Bytes()
}
