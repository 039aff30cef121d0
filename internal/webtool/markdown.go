package webtool

import (
	"bytes"
	"fmt"
	"net/url"
	"slices"
	"strings"

	readability "codeberg.org/readeck/go-readability/v2"
	"github.com/JohannesKaufmann/html-to-markdown/v2/converter"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/base"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/commonmark"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/strikethrough"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/table"
	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// leastShare is the part of the text of a page, in percent, that its main part must have: with less, the
// whole page is taken.
const leastShare = 25

// readHTML reads a page. What is hidden on it is never part of the result.
func readHTML(p page, text string, at *url.URL, format string) (page, error) {
	root, err := html.Parse(strings.NewReader(text))
	if err != nil {
		return p, refuse("the page cannot be read: its elements are nested too deeply")
	}
	origin := baseOf(root, at)
	p.title = titleOf(root)
	other := elsewhere(root, origin, at)
	c := clean(root)
	if c.cut {
		p.notice = "The page is very large. The rest was not read."
	}
	absolute(root, origin)
	p.notice = strings.TrimSpace(p.notice + " " + other.notice(visible(root) == 0, c.hides))
	if format == "links" {
		p.links = linksOf(root)
		for _, address := range other.all() {
			p.links = append(p.links, link{URL: address})
		}
		return p, nil
	}
	content := mainPart(root, at)
	p.images = imagesOf(content)
	if format == "html" {
		var b bytes.Buffer
		withoutNames(content)
		if err := html.Render(&b, content); err != nil {
			return p, refuse("the page cannot be written: %v", err)
		}
		p.text = b.String()
		return p, nil
	}
	p.text, err = markdown(content)
	return p, err
}

// baseOf returns what the links of a page are relative to.
func baseOf(root *html.Node, at *url.URL) *url.URL {
	for n := range root.Descendants() {
		if n.Type == html.ElementNode && n.DataAtom == atom.Base {
			if u, err := at.Parse(attribute(n, "href")); err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" {
				return u
			}
			return at
		}
	}
	return at
}

func titleOf(root *html.Node) string {
	for n := range root.Descendants() {
		if n.Type == html.ElementNode && n.DataAtom == atom.Title && n.Namespace == "" {
			return cutText(strings.Join(strings.Fields(innerText(n)), " "), 300)
		}
	}
	return ""
}

// mainPart returns the part of a clean page that a reader came for, or the whole page.
func mainPart(root *html.Node, at *url.URL) *html.Node {
	body := root
	for n := range root.Descendants() {
		if n.Type == html.ElementNode && n.DataAtom == atom.Body {
			body = n
			break
		}
	}
	p := readability.NewParser()
	p.MaxElemsToParse = maxNodes
	p.DisableJSONLD = true
	article, err := p.ParseDocument(root, at) // of a copy
	if err != nil || article.Node == nil || 100*visible(article.Node) < leastShare*visible(body) {
		return body
	}
	clean(article.Node)
	return article.Node
}

// visible returns how many bytes of text a node has, without spaces.
func visible(n *html.Node) (size int) {
	for child := range n.Descendants() {
		if child.Type == html.TextNode {
			for word := range strings.FieldsSeq(child.Data) {
				size += len(word)
			}
		}
	}
	return size
}

// markdown converts a clean page.
func markdown(n *html.Node) (text string, err error) {
	defer func() { // of a library, on the page of a stranger
		if v := recover(); v != nil {
			err = refuse("the page cannot be converted to Markdown: %v", cutText(fmt.Sprint(v), 100))
		}
	}()
	prepare(n, false)
	c := converter.NewConverter(converter.WithPlugins(
		base.NewBasePlugin(), commonmark.NewCommonmarkPlugin(), strikethrough.NewStrikethroughPlugin(),
		table.NewTablePlugin(table.WithCellPaddingBehavior(table.CellPaddingBehaviorMinimal), table.WithHeaderPromotion(true)),
	))
	plainly(c)
	out, err := c.ConvertNode(n)
	if err != nil {
		return "", refuse("the page cannot be converted to Markdown")
	}
	return string(out), nil
}

// linksOf returns the links of a page, each URL once.
func linksOf(root *html.Node) (links []link) {
	seen := map[string]bool{}
	for n := range root.Descendants() {
		address := attribute(n, "href")
		if !isOneOf(n, atom.A, atom.Area) || !strings.HasPrefix(address, "http") || seen[address] || len(links) > maxLinks {
			continue
		}
		seen[address] = true
		links = append(links, link{address, cutText(strings.Join(strings.Fields(innerText(n)), " "), 200)})
	}
	return links
}

// imagesOf returns the URLs of the images of a page, each once.
func imagesOf(root *html.Node) (images []string) {
	for n := range root.Descendants() {
		if address := attribute(n, "src"); n.Type == html.ElementNode && n.DataAtom == atom.Img && address != "" && len(images) < 1000 && !slices.Contains(images, address) {
			images = append(images, address)
		}
	}
	return images
}

// withoutNames removes classes and ids, which say nothing without the style sheets.
func withoutNames(root *html.Node) {
	for n := range root.Descendants() {
		n.Attr = slices.DeleteFunc(n.Attr, func(a html.Attribute) bool { return a.Key == "class" || a.Key == "id" || a.Key == "role" })
	}
}
