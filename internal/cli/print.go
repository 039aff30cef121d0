package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"unicode"
	"unicode/utf16"
)

// What commands print comes from models, tools, servers, keys and files that
// somebody else has written. Three things keep it from commanding the terminal:
//
//   - Everything that a command prints goes through a [terminal], which replaces
//     control characters but newlines and tabs. Main sees to that.
//   - Tables are written with a [table], whose cells are one line.
//   - Other lines use [plain] for the values in them.

// terminal passes on what is written to it, see printable.
type terminal struct{ w io.Writer }

// Write implements io.Writer. A character must not be split between two calls.
func (t terminal) Write(p []byte) (int, error) {
	for _, b := range p {
		if b < ' ' && b != '\n' && b != '\t' || b > '~' {
			_, err := io.WriteString(t.w, printable(string(p)))
			return len(p), err
		}
	}
	return t.w.Write(p)
}

// printable replaces what would command a terminal. Newlines and tabs stay.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && commands(r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

// plain replaces what would command a terminal and what would begin another line
// or another column.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		if commands(r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

// printJSON writes v as one line of JSON. What would command a terminal is
// escaped, so that the line means what v says.
func printJSON(out io.Writer, v any) error {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := fmt.Fprintln(out, escaped(strings.TrimSuffix(text.String(), "\n")))
	return err
}

// escaped replaces what would command a terminal by its escape in JSON, so that the text means
// the same. Newlines stay: JSON has them only between values.
func escaped(text string) string {
	var line strings.Builder
	for _, r := range text {
		switch {
		case r == '\n' || !commands(r):
			line.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&line, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&line, `\u%04x`, r)
		}
	}
	return line.String()
}

// wrapWords writes words with commas in lines of at most width characters,
// indented by two.
func wrapWords(words []string, width int) string {
	var b strings.Builder
	column := 2
	for i, w := range words {
		if i < len(words)-1 {
			w += ","
		}
		switch {
		case i == 0:
		case column+1+len(w) > width:
			b.WriteString("\n  ")
			column = 2
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(w)
		column += len(w)
	}
	return b.String()
}

// commands reports whether a terminal may do something else than show r: control
// and format characters, and the two separators. The joiner that emojis are
// written with stays.
func commands(r rune) bool {
	return r != '\u200d' && (unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp))
}

// table writes rows in columns as wide as what is in them. Call flush at the end.
type table struct{ w *tabwriter.Writer }

func newTable(out io.Writer, headings ...any) table {
	t := table{tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)}
	t.row(headings...)
	return t
}

// row writes one line; each cell is shown by its default format.
func (t table) row(cells ...any) {
	text := make([]string, len(cells))
	for i, c := range cells {
		text[i] = plain(fmt.Sprint(c))
	}
	fmt.Fprintln(t.w, strings.Join(text, "\t"))
}

func (t table) flush() error { return t.w.Flush() }
