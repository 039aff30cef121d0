package item

import (
	"fmt"
	"strings"
)

// PlainText returns the parts as one text, for a model or a reader that takes
// nothing else. Adjacent texts are joined with nothing between; every other part
// is on lines of its own, as [Part.Describe] returns it.
func PlainText(parts []Part) string {
	if len(parts) == 1 {
		return parts[0].Describe()
	}
	var b strings.Builder
	for i, p := range parts {
		if i > 0 && !(p.isText() && parts[i-1].isText()) {
			b.WriteByte('\n')
		}
		b.WriteString(p.Describe())
	}
	return b.String()
}

// Describe returns the part as text: what can be read in full, and of everything
// else what it is. It contains no binary data.
//
//	[image; type: image/png; 3412 bytes, not shown]
//	[resource https://example.com/a; name: a; type: text/html]
//	[resource file:///notes.txt]
//	The text of the resource.
func (p Part) Describe() string {
	if p.isText() {
		return p.Text
	}
	var b strings.Builder
	b.WriteString("[" + string(p.Kind))
	url, mime, data := p.URL, p.MIMEType, p.Data
	if strings.HasPrefix(url, "data:") {
		mime, data, _ = DataURL(url)
		url = ""
	}
	if url != "" {
		b.WriteString(" " + url)
	}
	if p.Text != "" {
		return b.String() + "]\n" + p.Text
	}
	for _, field := range []struct{ name, value string }{
		{"id", p.FileID}, {"name", p.Name}, {"title", p.Title}, {"type", mime}, {"description", p.Description},
	} {
		if field.value != "" {
			fmt.Fprintf(&b, "; %s: %s", field.name, field.value)
		}
	}
	if data != "" {
		fmt.Fprintf(&b, "; %d bytes, not shown", decodedLen(data))
	}
	return b.String() + "]"
}

func (p Part) isText() bool { return p.Kind == Text || p.Kind == Refusal }

// DataURL returns the MIME type and the base64 of a URL such as
// "data:image/png;base64,iVBO…"; false for any other URL.
func DataURL(url string) (mime, data string, ok bool) {
	rest, ok := strings.CutPrefix(url, "data:")
	if !ok {
		return "", "", false
	}
	kind, data, _ := strings.Cut(rest, ",")
	if mime, ok = strings.CutSuffix(kind, ";base64"); !ok {
		return "", "", false
	}
	return mime, data, true
}

// decodedLen returns how many bytes base64 holds.
func decodedLen(data string) int {
	return len(strings.TrimRight(data, "=")) * 3 / 4
}
