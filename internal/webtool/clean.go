package webtool

import (
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// The bounds of a page, so that no page takes long to read.
const (
	maxNodes     = 50_000
	maxPageText  = 3 * MaxScrapeCharacters // bytes
	maxNesting   = 12                      // of lists and quotations: each level makes each line longer
	lineCost     = 100                     // bytes that a line of preformatted text in lists and quotations counts in addition
	maxSpan      = 50                      // of a cell of a table
	maxAttribute = 2000
	maxSheet     = 256 << 10 // bytes of style sheets that are looked at
)

// cleaner removes from a page what nobody sees, because instructions for models are hidden there.
type cleaner struct {
	hiding map[string]bool // simple selectors of the page's own style sheets that hide: .class, #id
	nodes  int
	text   int
	hides  int  // bytes of text that is not shown
	cut    bool // the page was too large
}

// clean removes what is not shown, and what no reader needs, in place.
func clean(root *html.Node) *cleaner {
	c := &cleaner{hiding: map[string]bool{}}
	c.readSheets(root)
	c.children(root, ground{})
	return c
}

// ground is what the elements around an element say.
type ground struct {
	colored bool // there is a background that is not white
	nesting int
	lines   bool // lines of the text are kept
}

// children cleans what is inside a node. The depth is bounded: the parser refuses more than 512 levels.
func (c *cleaner) children(n *html.Node, g ground) {
	for child := n.FirstChild; child != nil; {
		next := child.NextSibling
		if !c.keeps(child, g) {
			n.RemoveChild(child)
		}
		child = next
	}
}

// keeps cleans a node, and reports whether it stays.
func (c *cleaner) keeps(n *html.Node, g ground) bool {
	if c.nodes++; c.nodes > maxNodes || c.text > maxPageText {
		c.cut = true
		return false
	}
	switch n.Type {
	case html.TextNode:
		c.addText(n, g)
		return true
	case html.ElementNode:
	case html.DoctypeNode:
		return true
	default:
		return false // comments, and what is none of HTML
	}
	switch {
	case n.Namespace == "math":
		return c.keepsMath(n, g)
	case n.Namespace != "" || isDropped(n.DataAtom):
		return false
	case c.hidden(n, g.colored):
		c.hides += visible(n)
		return false
	}
	if isOneOf(n, atom.Span, atom.Font) && strings.Contains(declarations(attribute(n, "style"))["text-decoration"], "line-through") {
		rename(n, atom.Del)
	}
	g.colored = g.colored || hasBackground(n)
	switch n.DataAtom {
	case atom.Pre:
		g.lines = true
	case atom.Ul, atom.Ol, atom.Blockquote, atom.Dl:
		if g.nesting++; g.nesting > maxNesting {
			n.DataAtom, n.Data = atom.Div, "div"
		}
	}
	n.Attr = slices.DeleteFunc(n.Attr, func(a html.Attribute) bool { return !keepsAttribute(a) })
	c.children(n, g)
	return true
}

// addText counts the text of a node, and cuts it if the page has too much.
func (c *cleaner) addText(n *html.Node, g ground) {
	room := maxPageText - c.text
	if g.lines && g.nesting > 0 { // each line begins with what its lists and quotations say
		for i := range len(n.Data) {
			if n.Data[i] != '\n' {
				continue
			}
			if room -= lineCost; room < i {
				room = i
				break
			}
		}
		c.text += lineCost * strings.Count(n.Data[:min(len(n.Data), max(room, 0))], "\n")
	}
	if room = max(room, 0); len(n.Data) > room {
		n.Data, c.cut = strings.ToValidUTF8(n.Data[:room], ""), true
	}
	c.text += len(n.Data)
}

// isDropped reports whether the elements have no text that is shown.
func isDropped(a atom.Atom) bool {
	switch a {
	case atom.Script, atom.Style, atom.Noscript, atom.Template, atom.Svg, atom.Iframe, atom.Object, atom.Embed, atom.Canvas, atom.Audio, atom.Video,
		atom.Input, atom.Select, atom.Textarea, atom.Button, atom.Datalist, atom.Link, atom.Meta, atom.Base, atom.Frame, atom.Frameset, atom.Noframes, atom.Applet, atom.Noembed:
		return true
	}
	return false
}

func keepsAttribute(a html.Attribute) bool {
	switch a.Key {
	case "href", "src", "alt", "class", "id", "role", "lang", "datetime":
		return len(a.Val) <= maxAttribute && !strings.HasPrefix(strings.ToLower(strings.TrimSpace(a.Val)), "data:")
	case "colspan", "rowspan":
		n, err := strconv.Atoi(a.Val)
		return err == nil && n > 0 && n <= maxSpan
	case "start", "value": // of lists
		n, err := strconv.Atoi(a.Val)
		return err == nil && n > -maxNodes && n < 1e9
	case "reversed":
		return true
	}
	return false
}

// hidden reports whether an element is not shown.
func (c *cleaner) hidden(n *html.Node, colored bool) bool {
	for _, a := range n.Attr {
		switch a.Key {
		case "hidden":
			return true
		case "aria-hidden":
			if strings.EqualFold(strings.TrimSpace(a.Val), "true") {
				return true
			}
		case "style":
			if hides(a.Val, colored) {
				return true
			}
		case "color": // of font
			if !colored && isPale(a.Val) {
				return true
			}
		case "id":
			if c.hiding["#"+a.Val] {
				return true
			}
		case "class":
			for class := range strings.FieldsSeq(a.Val) {
				if c.hiding["."+class] {
					return true
				}
			}
		}
	}
	return n.DataAtom == atom.Dialog && !slices.ContainsFunc(n.Attr, func(a html.Attribute) bool { return a.Key == "open" })
}

// declarations returns the properties of a style, in lower case.
func declarations(style string) map[string]string {
	out := map[string]string{}
	style = regexp.MustCompile(`(?s)/\*.*?\*/`).ReplaceAllString(cutText(style, 10_000), " ")
	for one := range strings.SplitSeq(strings.ToLower(style), ";") {
		name, value, ok := strings.Cut(one, ":")
		if value = strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "!important")); ok {
			out[strings.TrimSpace(name)] = value
		}
	}
	return out
}

// hides reports whether a style makes an element invisible.
func hides(style string, colored bool) bool {
	d := declarations(style)
	background := d["background"] + d["background-color"]
	colored = colored || background != "" && !isPale(d["background"]) && !isPale(d["background-color"])
	tiny := func(name string, most float64) bool { n, ok := pixels(d[name]); return ok && n <= most }
	far := func(name string) bool { n, ok := pixels(d[name]); return ok && (n <= -200 || n >= 5000) }
	flat := d["overflow"] == "hidden" || d["overflow"] == "clip" || d["overflow-x"] == "hidden" || d["overflow-y"] == "hidden"
	switch {
	case d["display"] == "none", d["visibility"] == "hidden", d["visibility"] == "collapse", d["content-visibility"] == "hidden":
		return true
	case tiny("opacity", 0.1), strings.HasPrefix(d["opacity"], "0%"), tiny("font-size", 4), tiny("zoom", 0.1), tiny("line-height", 0) && flat:
		return true
	case !colored && isPale(d["color"]), d["color"] != "" && d["color"] == background, d["-webkit-text-fill-color"] == "transparent":
		return true
	case flat && (tiny("width", 1) || tiny("height", 1) || tiny("max-height", 1) || tiny("max-width", 1)):
		return true
	case far("text-indent"), far("left"), far("top"), far("right"), far("bottom"), far("margin-left"), far("margin-top"):
		return true
	}
	clip, path := strings.ReplaceAll(d["clip"], " ", ""), strings.ReplaceAll(d["clip-path"], " ", "")
	transform, filter := strings.ReplaceAll(d["transform"], " ", ""), strings.ReplaceAll(d["filter"], " ", "")
	return strings.HasPrefix(clip, "rect(0") || strings.HasPrefix(clip, "rect(1px") || strings.HasPrefix(path, "inset(50%") || strings.HasPrefix(path, "inset(100%") ||
		strings.HasPrefix(path, "circle(0") || strings.HasPrefix(path, "polygon(00") || strings.Contains(transform, "scale(0)") || strings.Contains(transform, "scale(0,") ||
		strings.Contains(transform, "scalex(0)") || strings.Contains(transform, "scaley(0)") || strings.Contains(transform, "(-9999") || strings.HasPrefix(filter, "opacity(0)") || strings.HasPrefix(filter, "opacity(0%")
}

// pixels returns about how many pixels a length is; a number without a unit is itself.
func pixels(length string) (float64, bool) {
	end := strings.IndexFunc(length, func(r rune) bool { return (r < '0' || r > '9') && r != '.' && r != '-' && r != '+' })
	unit := ""
	if end >= 0 {
		length, unit = length[:end], strings.TrimSpace(length[end:])
	}
	n, err := strconv.ParseFloat(length, 64)
	factor, known := map[string]float64{"": 1, "px": 1, "pt": 1.33, "em": 16, "rem": 16, "ex": 8, "ch": 8, "vw": 12, "vh": 8, "%": 0.16, "in": 96, "cm": 38, "mm": 3.8}[unit]
	return n * factor, err == nil && known
}

// isPale reports whether a color is nearly white, or transparent.
func isPale(color string) bool {
	color = strings.ReplaceAll(strings.ToLower(strings.TrimSpace(color)), " ", "")
	switch color {
	case "white", "transparent", "snow", "ghostwhite", "ivory", "whitesmoke", "floralwhite", "mintcream", "azure", "#fff", "fff", "#ffff":
		return true
	}
	if m := regexp.MustCompile(`^#?([0-9a-f]{2})([0-9a-f]{2})([0-9a-f]{2})([0-9a-f]{2})?$`).FindStringSubmatch(color); m != nil {
		return m[4] != "" && m[4] < "1a" || slices.Min(m[1:4]) >= "f0"
	}
	inside, ok := strings.CutSuffix(color, ")")
	if name, list, found := strings.Cut(inside, "("); ok && found && strings.HasPrefix(name, "rgb") {
		parts := strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == '/' })
		pale := len(parts) >= 3
		for i, part := range parts {
			n, err := strconv.ParseFloat(strings.TrimSuffix(part, "%"), 64)
			if i == 3 && err == nil && n <= 0.1 {
				return true
			}
			pale = pale && (i > 2 || err == nil && n >= 240)
		}
		return pale
	} else if ok && found && strings.HasPrefix(name, "hsl") {
		parts := strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == '/' })
		return len(parts) >= 3 && slices.Contains([]string{"95%", "96%", "97%", "98%", "99%", "100%"}, parts[2])
	}
	return false
}

// hasBackground reports whether an element says by itself that its ground is not white.
func hasBackground(n *html.Node) bool {
	if color := attribute(n, "bgcolor"); color != "" && !isPale(color) {
		return true
	}
	d := declarations(attribute(n, "style"))
	background := d["background"] + d["background-color"] + d["background-image"]
	return background != "" && !isPale(background) && background != "none"
}

// readSheets finds the selectors of one class or id that the style sheets of the page hide. Blocks for
// other media, and selectors of several parts, are not looked at.
func (c *cleaner) readSheets(root *html.Node) {
	size := 0
	for n := range root.Descendants() {
		if n.Type != html.ElementNode || n.DataAtom != atom.Style {
			continue
		}
		sheet := innerText(n)
		if size += len(sheet); size > maxSheet {
			return
		}
		c.readSheet(regexp.MustCompile(`(?s)/\*.*?\*/`).ReplaceAllString(sheet, " "))
	}
}

func (c *cleaner) readSheet(sheet string) {
	for sheet != "" {
		open := strings.IndexAny(sheet, "{;")
		if open < 0 {
			return
		}
		prelude := strings.TrimSpace(sheet[:open])
		if sheet[open] == ';' { // such as @import
			sheet = sheet[open+1:]
			continue
		}
		body, rest := block(sheet[open+1:])
		sheet = rest
		if name, _, _ := strings.Cut(prelude, "("); strings.HasPrefix(prelude, "@") {
			if name = strings.TrimSpace(name); name == "@media screen" || name == "@media all" || strings.HasPrefix(name, "@layer") || name == "@supports" {
				c.readSheet(body)
			}
			continue
		}
		if !hides(body, false) {
			continue
		}
		for selector := range strings.SplitSeq(prelude, ",") {
			if m := regexp.MustCompile(`^[a-zA-Z0-9]*([.#][\w-]+)$`).FindStringSubmatch(strings.TrimSpace(selector)); m != nil {
				c.hiding[m[1]] = true
			}
		}
	}
}

// block returns what comes before the brace that closes a block, and after it.
func block(text string) (body, rest string) {
	depth := 1
	for i := range len(text) {
		switch text[i] {
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return text[:i], text[i+1:]
			}
		}
	}
	return text, ""
}

// absolute makes the links and images of a page absolute, and removes what is no link of the web, no mail address and no
// telephone number.
func absolute(root *html.Node, base *url.URL) {
	for n := range root.Descendants() {
		if n.Type != html.ElementNode {
			continue
		}
		n.Attr = slices.DeleteFunc(n.Attr, func(a html.Attribute) bool {
			return (a.Key == "href" || a.Key == "src") && resolve(base, a.Val) == "" && !isContact(n, a)
		})
		for i, a := range n.Attr {
			if (a.Key == "href" || a.Key == "src") && !isContact(n, a) {
				n.Attr[i].Val = resolve(base, a.Val)
			}
		}
	}
}

// isContact reports whether a link has a mail address or a telephone number.
func isContact(n *html.Node, a html.Attribute) bool {
	u, err := url.Parse(strings.TrimSpace(a.Val))
	return isOneOf(n, atom.A) && a.Key == "href" && err == nil && (u.Scheme == "mailto" || u.Scheme == "tel")
}

// resolve returns the absolute URL of a link; "" = it leads to nothing on the web.
func resolve(base *url.URL, text string) string {
	u, err := base.Parse(strings.TrimSpace(text))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || len(u.String()) > maxURL {
		return ""
	}
	return u.String()
}
