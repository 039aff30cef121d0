package webtool

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/JohannesKaufmann/html-to-markdown/v2/converter"
	"github.com/JohannesKaufmann/html-to-markdown/v2/marker"
	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// rawText is the name of an element whose attribute text is written as it is. No page can have it: names have no spaces.
const rawText = "raw text"

// prepare gives a clean page a form that Markdown can express, and reports whether it contains a table. The cells of tables become
// one line each; a table within another one, or within a link, is a layout whose cells become blocks.
func prepare(n *html.Node, inLink bool) (table bool) {
	inner := false
	inLink = inLink || isOneOf(n, atom.A, atom.Del, atom.S, atom.Strike)
	for child := n.FirstChild; child != nil; {
		next := child.NextSibling
		inner = prepare(child, inLink) || inner
		child = next
	}
	switch {
	case isOneOf(n, atom.Table) && (inner || inLink || slices.Contains([]string{"presentation", "none"}, attribute(n, "role"))):
		layOut(n)
	case isOneOf(n, atom.Table):
		for child := range n.Descendants() {
			if isOneOf(child, atom.Td, atom.Th) {
				flatten(child)
			}
		}
		return true
	case inner && isOneOf(n, atom.B, atom.Strong, atom.I, atom.Em):
		rename(n, atom.Span) // a table cannot be bold
	case isOneOf(n, atom.Ol) && !countsUp(n):
		listAsLines(n)
	case isOneOf(n, atom.Code, atom.Pre, atom.Kbd, atom.Samp, atom.Tt):
		for child := range n.Descendants() { // code has no elements: 10<sup>6</sup> must not become 106
			if mark := map[atom.Atom]string{atom.Sup: "^", atom.Sub: "_"}[child.DataAtom]; mark != "" {
				child.InsertBefore(&html.Node{Type: html.TextNode, Data: mark}, child.FirstChild)
				rename(child, atom.Span)
			}
		}
	case isOneOf(n, atom.A) && attribute(n, "href") == "":
		rename(n, atom.Span)
	}
	return inner
}

// layOut makes blocks of the cells of a table.
func layOut(table *html.Node) {
	for n := range table.Descendants() {
		if isOneOf(n, atom.Tbody, atom.Thead, atom.Tfoot, atom.Tr, atom.Td, atom.Th, atom.Caption) && tableOf(n) == table {
			rename(n, atom.Div)
		}
	}
	rename(table, atom.Div)
}

func tableOf(n *html.Node) *html.Node {
	for n != nil && !isOneOf(n, atom.Table) {
		n = n.Parent
	}
	return n
}

// flatten replaces what the cell of a table cannot have by what [writeCell] makes one line of.
func flatten(cell *html.Node) {
	for n := range cell.Descendants() {
		switch n.DataAtom {
		case atom.Ul, atom.Ol:
			listAsLines(n)
		case atom.H1, atom.H2, atom.H3, atom.H4, atom.H5, atom.H6, atom.Blockquote:
			rename(n, atom.Div)
		case atom.Hr:
			rename(n, atom.Br)
		case atom.Pre:
			text := innerText(n)
			for n.FirstChild != nil {
				n.RemoveChild(n.FirstChild)
			}
			rename(n, atom.Div)
			for line := range strings.Lines(text) {
				block, code := element(atom.Div), element(atom.Code)
				code.AppendChild(&html.Node{Type: html.TextNode, Data: strings.TrimRight(line, "\r\n")})
				block.AppendChild(code)
				n.AppendChild(block)
			}
		}
	}
}

// countsUp reports whether the numbers of an ordered list follow each other from its start.
func countsUp(list *html.Node) bool {
	return !slices.ContainsFunc(list.Attr, func(a html.Attribute) bool { return a.Key == "reversed" }) &&
		!slices.ContainsFunc(itemsOf(list), func(n *html.Node) bool { return attribute(n, "value") != "" })
}

func itemsOf(list *html.Node) (items []*html.Node) {
	for n := range list.ChildNodes() {
		if isOneOf(n, atom.Li) {
			items = append(items, n)
		}
	}
	return items
}

// listAsLines makes a block of each item of a list, which begins with its number, or with a dash.
func listAsLines(list *html.Node) {
	items, ordered, number, step := itemsOf(list), isOneOf(list, atom.Ol), 1, 1
	if slices.ContainsFunc(list.Attr, func(a html.Attribute) bool { return a.Key == "reversed" }) {
		number, step = len(items), -1
	}
	if start, err := strconv.Atoi(attribute(list, "start")); err == nil {
		number = start
	}
	for _, item := range items {
		if value, err := strconv.Atoi(attribute(item, "value")); err == nil {
			number = value
		}
		text := "- "
		if ordered {
			text = fmt.Sprint(number, ". ")
			number += step
		}
		mark := &html.Node{Type: html.ElementNode, Data: rawText, Attr: []html.Attribute{{Key: "text", Val: text}}}
		first := item
		for first.FirstChild != nil && isOneOf(first.FirstChild, atom.P, atom.Div) { // the number is beside the text
			first = first.FirstChild
		}
		first.InsertBefore(mark, first.FirstChild)
		rename(item, atom.Div)
	}
	rename(list, atom.Div)
}

func isOneOf(n *html.Node, names ...atom.Atom) bool {
	return n.Type == html.ElementNode && n.Namespace == "" && slices.Contains(names, n.DataAtom)
}

func rename(n *html.Node, name atom.Atom) { n.DataAtom, n.Data = name, name.String() }

func element(name atom.Atom) *html.Node {
	return &html.Node{Type: html.ElementNode, DataAtom: name, Data: name.String()}
}

// plainly registers how what [prepare] leaves is written.
func plainly(c *converter.Converter) {
	raw := func(_ converter.Context, w converter.Writer, n *html.Node) converter.RenderStatus {
		_, _ = w.WriteString(attribute(n, "text"))
		return converter.RenderSuccess
	}
	c.Register.RendererFor(rawText, converter.TagTypeInline, raw, converter.PriorityEarly)
	for _, name := range []string{"sup", "sub"} {
		c.Register.RendererFor(name, converter.TagTypeInline, writeRaised, converter.PriorityEarly)
	}
	c.Register.Renderer(func(ctx converter.Context, w converter.Writer, n *html.Node) converter.RenderStatus {
		if !isOneOf(n, atom.Td, atom.Th) {
			return converter.RenderTryNext
		}
		return writeCell(ctx, w, n)
	}, converter.PriorityEarly)
}

// writeRaised keeps the element: Markdown has none, and without it 10<sup>6</sup> reads 106. A reference such as [1] needs none.
func writeRaised(ctx converter.Context, w converter.Writer, n *html.Node) converter.RenderStatus {
	var b bytes.Buffer
	ctx.RenderChildNodes(ctx, &b, n)
	text := strings.TrimSpace(innerText(n))
	if text == "" || strings.HasPrefix(text, "[") {
		_, _ = w.Write(b.Bytes())
		return converter.RenderSuccess
	}
	_, _ = fmt.Fprintf(w, "<%s>%s</%[1]s>", n.Data, bytes.TrimSpace(b.Bytes()))
	return converter.RenderSuccess
}

// writeCell writes a cell as one line. The lines within it are parted by <br>. A bar is escaped in code, too: Markdown
// parts cells before it reads code.
func writeCell(ctx converter.Context, w converter.Writer, n *html.Node) converter.RenderStatus {
	var b bytes.Buffer
	ctx.RenderChildNodes(ctx, &b, n)
	first := true
	content := bytes.ReplaceAll(b.Bytes(), marker.BytesMarkerCodeBlockNewline, []byte("\n"))
	for line := range bytes.SplitSeq(content, []byte("\n")) {
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		if !first {
			_, _ = w.WriteString("<br>")
		}
		first = false
		for i, c := range line {
			if c == '|' && (i == 0 || line[i-1] != byte(marker.MarkerEscaping)) {
				_ = w.WriteByte('\\')
			}
			_ = w.WriteByte(c)
		}
	}
	return converter.RenderSuccess
}
