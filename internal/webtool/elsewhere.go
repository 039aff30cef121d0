package webtool

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// maxNamed is how many other pages a notice names.
const maxNamed = 10

// others are pages that have the text of a page which has little itself.
type others struct {
	frames  []string // of a frameset
	inner   []string // frames within the page
	refresh string   // where the page sends browsers; "" = nowhere
}

// elsewhere finds them in a page that is not clean yet.
func elsewhere(root *html.Node, base, at *url.URL) (o others) {
	for n := range root.Descendants() {
		switch {
		case isOneOf(n, atom.Frame, atom.Iframe):
			list := &o.frames
			if n.DataAtom == atom.Iframe {
				list = &o.inner
			}
			if address := resolve(base, attribute(n, "src")); address != "" && len(*list) < maxNamed && !slices.Contains(*list, address) {
				*list = append(*list, address)
			}
		case isOneOf(n, atom.Meta) && strings.EqualFold(attribute(n, "http-equiv"), "refresh") && o.refresh == "":
			form := regexp.MustCompile(`(?i)^[\s\d.]*[;,\s]\s*(?:url\s*=\s*)?["']?([^"']+)`)
			m := form.FindStringSubmatch(cutText(attribute(n, "content"), maxAttribute))
			if m == nil {
				continue
			}
			here := *at
			here.Fragment = ""
			if address, _, _ := strings.Cut(resolve(base, m[1]), "#"); address != here.String() {
				o.refresh = address
			}
		}
	}
	return o
}

// all returns every page.
func (o others) all() []string {
	all := slices.Concat(o.frames, o.inner)
	if o.refresh != "" {
		all = append(all, o.refresh)
	}
	return all
}

// notice says where the text of a page is. empty says that the page shows none; hidden is how many bytes of text it hides.
func (o others) notice(empty bool, hidden int) string {
	var says []string
	if len(o.frames) > 0 {
		says = append(says, "The page consists of frames. Its text is in: "+strings.Join(o.frames, ", ")+".")
	}
	if o.refresh != "" {
		says = append(says, "The page sends browsers to "+o.refresh+".")
	}
	if empty && len(o.inner) > 0 {
		says = append(says, "The page shows other pages in frames: "+strings.Join(o.inner, ", ")+".")
	}
	if empty && hidden > 0 {
		says = append(says, fmt.Sprintf("The page hides all of its text, %d bytes, which was not read. ", hidden)+
			"A browser that runs scripts may show it.")
	}
	return strings.Join(says, " ")
}
