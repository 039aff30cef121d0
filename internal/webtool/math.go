package webtool

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// keepsMath cleans an element of MathML, and reports whether it stays. A formula becomes one line of code. It is read from what
// browsers show: annotations, which would have it as TeX, are not shown, so anything can be hidden there.
func (c *cleaner) keepsMath(n *html.Node, g ground) bool {
	switch {
	case n.Data == "annotation", n.Data == "annotation-xml", n.Data == "mphantom", c.hidden(n, g.colored):
		return false
	case !g.colored && isPale(attribute(n, "mathcolor")):
		return false
	}
	if size, ok := pixels(attribute(n, "mathsize")); ok && size <= 4 {
		return false
	}
	g.colored = g.colored || hasBackground(n) || attribute(n, "mathbackground") != "" && !isPale(attribute(n, "mathbackground"))
	n.Attr = nil
	c.children(n, g)
	if n.Data != "math" {
		return true
	}
	var f formula
	f.row(n)
	text := strings.TrimSpace(f.String())
	if text == "" {
		return false
	}
	for n.FirstChild != nil {
		n.RemoveChild(n.FirstChild)
	}
	n.Namespace = ""
	rename(n, atom.Code)
	n.AppendChild(&html.Node{Type: html.TextNode, Data: text})
	return true
}

// formula writes MathML as one line, such as x^2+(a+b)/c.
type formula struct {
	strings.Builder
	word bool // what was written last is a name of several letters
}

// mathForms says how the children of an element are written: what comes before each of them, and after the last.
func mathForms() map[string][]string {
	return map[string][]string{
		"msup": {"", "^", ""}, "msub": {"", "_", ""}, "msubsup": {"", "_", "^", ""}, "mover": {"", "^", ""}, "munder": {"", "_", ""},
		"munderover": {"", "_", "^", ""}, "mfrac": {"", "/", ""}, "mroot": {"root(", ", ", ")"},
	}
}

func (f *formula) row(n *html.Node) {
	for child := range n.ChildNodes() {
		f.node(child)
	}
}

func (f *formula) node(n *html.Node) {
	if n.Type == html.TextNode {
		f.token(strings.Join(strings.Fields(n.Data), " "))
		return
	}
	parts := slices.DeleteFunc(slices.Collect(n.ChildNodes()), func(child *html.Node) bool { return child.Type != html.ElementNode })
	form := mathForms()[n.Data]
	switch {
	case form != nil && len(parts) == len(form)-1:
		for i, part := range parts {
			f.WriteString(form[i])
			f.group(part)
		}
		f.WriteString(form[len(parts)])
	case n.Data == "msqrt":
		f.WriteString("√(")
		f.row(n)
		f.WriteByte(')')
	case n.Data == "mtd" && n.PrevSibling != nil, n.Data == "mfenced":
		f.WriteString(map[string]string{"mtd": ", ", "mfenced": "("}[n.Data])
		f.row(n)
		f.WriteString(map[string]string{"mfenced": ")"}[n.Data])
	case n.Data == "mtr" && n.PrevSibling != nil:
		f.WriteString("; ")
		f.row(n)
	case n.Data == "mspace":
		f.WriteByte(' ')
	case n.Data == "maction" && len(parts) > 0: // the others are shown when it is used
		f.node(parts[0])
	default:
		f.row(n)
	}
}

// group writes an element, in parentheses if it is more than one number, name or sign.
func (f *formula) group(n *html.Node) {
	var inner formula
	inner.node(n)
	text := strings.TrimSpace(inner.String())
	one := !strings.ContainsFunc(text, func(r rune) bool { return r != '.' && !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	if one || utf8.RuneCountInString(text) == 1 {
		f.token(text)
		return
	}
	f.WriteString("(" + text + ")")
}

// token writes a text. Numbers, and names of several letters, do not run into what is before them.
func (f *formula) token(text string) {
	first, _ := utf8.DecodeRuneInString(text)
	last, _ := utf8.DecodeLastRuneInString(f.String())
	digits := unicode.IsDigit(first) && unicode.IsDigit(last)
	long := utf8.RuneCountInString(text) > 1
	if names := unicode.IsLetter(first) && unicode.IsLetter(last); digits || names && (long || f.word) {
		f.WriteByte(' ')
	}
	f.word = long
	f.WriteString(text)
}
