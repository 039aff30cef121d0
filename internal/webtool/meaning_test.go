package webtool

import (
	"strings"
	"testing"
)

// What Markdown has no form of its own for keeps its meaning. // E10
func TestMeaningIsKept(t *testing.T) {
	cell := func(content string) string {
		return "<table><tr><th>Name</th><th>Value</th></tr><tr><td>" + content + "</td><td>77</td></tr></table>"
	}
	for name, c := range map[string]struct{ page, want string }{
		"a break in a cell":    {cell("a<br>b"), "| Name | Value |\n|---|---|\n| a<br>b | 77 |"},
		"paragraphs in a cell": {cell("<p>2</p><p>3</p>"), "| 2<br>3 | 77 |"},
		"a list in a cell":     {cell("<ul><li>a<li>b<ol start=4><li>c</ol></ul>"), "| - a<br>- b<br>4. c | 77 |"},
		"code lines in a cell": {cell("<pre>x := 1\ny | z</pre>"), "| `x := 1`<br>`y \\| z` | 77 |"},
		"a heading in a cell":  {cell("<h3>a</h3>b<hr>c"), "| a<br>b<br>c | 77 |"},
		"bars in a cell":       {cell("<code>a|b</code> c|d"), "| `a\\|b` c\\|d | 77 |"},
		"a bar in a link":      {cell(`<a href="/x?a|b">l</a>`), `| [l](https://example.com/x?a%7Cb) | 77 |`},
		"a table in bold":      {"<b>" + cell("a") + "</b>", "| a | 77 |"},
		"tables as a layout": {"<table><tr><td>menu</td><td>" + cell("a") + "</td></tr></table>",
			"menu\n\n| Name | Value |\n|---|---|\n| a | 77 |"},
		"a layout by its role": {"<table role=presentation><tr><td>1</td><td>2</td></tr></table>", "1\n\n2"},
		"a power":              {"<p>10<sup>6</sup> and 10<sup>-6</sup> km", "10<sup>6</sup> and 10<sup>-6</sup> km"},
		"an index":             {"<p>CO<sub>2</sub>", "CO<sub>2</sub>"},
		"a power in code": {"<p><code>10<sup>6</sup> x<sub>1</sub></code><pre>2<sup>8</sup></pre>",
			"`10^6 x_1`\n\n```\n2^8\n```"},
		"a reference":               {`<p>said<sup><a href="#n1">[1]</a></sup>.`, "said[\\[1\\]](https://example.com/#n1)."},
		"a list that begins at 5":   {"<ol start=5><li>a<li>b</ol>", "5. a\n6. b"},
		"a list that counts down":   {"<ol reversed><li>a<li>b</ol>", "2. a\n\n1. b"},
		"an item with its number":   {"<ol><li>a<li value=7>b<li>c</ol>", "1. a\n\n7. b\n\n8. c"},
		"deleted text":              {"<p>Price <del>100</del> <ins>80</ins>, <s>9</s> 8", "Price ~~100~~ 80, ~~9~~ 8"},
		"text that a style strikes": {`<p><span style="text-decoration: line-through">100</span> 80`, "~~100~~ 80"},
		"a formula": {"<p>E <math><semantics><mrow><mi>E</mi><mo>=</mo><mi>m</mi><msup><mi>c</mi><mn>2</mn></msup></mrow>" +
			"<annotation encoding=\"application/x-tex\">E=mc^2</annotation></semantics></math> end", "E `E=mc^2` end"},
		"a formula with parts": {"<p><math><mfrac><mrow><mi>a</mi><mo>+</mo><mn>1</mn></mrow><mn>2</mn></mfrac>" +
			"<mo>+</mo><msqrt><mi>x</mi></msqrt><mo>+</mo>" +
			"<mroot><mi>y</mi><mn>3</mn></mroot><msubsup><mi>z</mi><mn>1</mn><mn>2</mn></msubsup>" +
			"<mi>sin</mi><mi>x</mi><mn>2</mn><mn>3</mn></math>",
			"`(a+1)/2+√(x)+root(y, 3)z_1^2sin x2 3`"},
		"a matrix": {"<p><math><mtable><mtr><mtd><mn>1</mn></mtd><mtd><mn>2</mn></mtd></mtr>" +
			"<mtr><mtd><mn>3</mn></mtd><mtd><mn>4</mn></mtd></mtr></mtable></math>", "`1, 2; 3, 4`"},
		"a mail address": {`<p><a href="mailto:help@example.com">us</a>, <a href="tel:+4930123">call</a>`,
			"[us](mailto:help@example.com), [call](tel:+4930123)"},
		"links to nowhere": {`<p><a href="javascript:x()">run</a> or <a>nothing</a>`, "run or nothing"},
		"a page of frames": {`<html><frameset><frame src="nav.html"><frame src="/main.html"></frameset></html>`,
			"Its text is in: https://example.com/nav.html, https://example.com/main.html."},
		"another address": {`<meta http-equiv="Refresh" content="0; URL='/real.html'"><p>`,
			"The page sends browsers to https://example.com/real.html."},
		"only inner frames": {`<div><iframe src="/app"></iframe></div>`, "shows other pages in frames: https://example.com/app."},
		"only hidden text":  {`<div hidden>abc def</div>`, "hides all of its text, 6 bytes"},
	} {
		p, err := readHTML(page0, c.page, mustURL(t, "https://example.com/"), "markdown")
		if got := p.notice + p.text; err != nil || !strings.Contains(got, c.want) {
			t.Errorf("%s: %v\n%s\nwant\n%s", name, err, got, c.want)
		}
	}
	for page, want := range map[string]string{
		`<frameset><frame src="/main.html"></frameset>`:                             "https://example.com/main.html",
		`<meta http-equiv=refresh content="300"><a href="mailto:a@b.c">x</a>`:       "",
		`<meta http-equiv=refresh content="300; url=https://example.com/#x"><p>new`: "",
		`<map><area href="/part"></map>`:                                            "https://example.com/part",
	} {
		p, err := readHTML(page0, page, mustURL(t, "https://example.com/"), "links")
		got := ""
		if len(p.links) == 1 {
			got = p.links[0].URL
		}
		if err != nil || got != want || len(p.links) > 1 {
			t.Errorf("%s: %v %v", page, err, p.links)
		}
	}
}

// The same for a docx. // E10
func TestMeaningIsKeptOfADocx(t *testing.T) {
	para := func(text string) string { return "<w:p><w:r><w:t>" + text + "</w:t></w:r></w:p>" }
	box := func(branch, text string) string {
		return "<mc:" + branch + "><w:drawing><w:txbxContent>" + para(text) + "</w:txbxContent></w:drawing></mc:" + branch + ">"
	}
	for name, c := range map[string]struct{ body, want string }{
		"paragraphs in a cell": {"<w:tbl><w:tr><w:tc>" + para("2") + para("3") + "</w:tc><w:tc>" + para("77") + "</w:tc></w:tr></w:tbl>",
			"| 2<br>3 | 77 |"},
		"a table in a cell": {"<w:tbl><w:tr><w:tc>" + para("a") + "<w:tbl><w:tr><w:tc>" +
			para("2") + "</w:tc><w:tc>" + para("3") + "</w:tc></w:tr></w:tbl></w:tc><w:tc>" +
			para("b") + "</w:tc></w:tr></w:tbl>", "| a<br>2<br>3 | b |"},
		"a wide cell": {`<w:tbl><w:tr><w:tc><w:tcPr><w:gridSpan w:val="2"/></w:tcPr>` + para("a") + "</w:tc><w:tc>" +
			para("b") + "</w:tc></w:tr></w:tbl>", "| a |  | b |"},
		"a text box": {`<w:p><w:r><w:t>12</w:t></w:r><w:r><mc:AlternateContent xmlns:mc="` + choiceSpace + `">` +
			box("Choice", "34") + box("Fallback", "34") +
			"</mc:AlternateContent></w:r><w:r><w:t>56</w:t></w:r></w:p>", "34\n\n1256"},
		"a footnote": {`<w:p><w:r><w:t>Text</w:t></w:r><w:r>` +
			`<w:rPr><w:vertAlign w:val="superscript"/></w:rPr><w:footnoteReference w:id="2"/></w:r></w:p>`, "Text[^2]\n\n[^2]: of the note"},
		"a power": {`<w:p><w:r><w:t>10</w:t></w:r><w:r>` +
			`<w:rPr><w:vertAlign w:val="superscript"/></w:rPr><w:t>6</w:t></w:r></w:p>`, "10<sup>6</sup>"},
		"struck text": {"<w:p><w:r><w:rPr><w:strike/></w:rPr><w:t>10</w:t></w:r>" +
			"<w:r><w:rPr><w:strike/></w:rPr><w:t>0</w:t></w:r><w:r><w:t> 80</w:t></w:r></w:p>", "~~100~~ 80"},
		"a formula": {`<w:p><m:oMath xmlns:m="` + mathSpace + `"><m:sSup><m:e><m:r><m:t>x</m:t></m:r></m:e>` +
			`<m:sup><m:r><m:t>2</m:t></m:r></m:sup></m:sSup></m:oMath></w:p>`, "x^(2)"},
		"a hyphen":       {"<w:p><w:r><w:t>1</w:t><w:noBreakHyphen/><w:t>2</w:t></w:r></w:p>", "1-2"},
		"a deleted note": {"<w:p><w:r><w:t>x</w:t></w:r><w:del><w:r><w:footnoteReference/></w:r></w:del></w:p>", "x"},
	} {
		files := map[string]string{"word/document.xml": docxHead + c.body + "</w:body></w:document>"}
		if strings.Contains(c.body, "footnoteReference w") {
			files["word/footnotes.xml"] = `<w:footnotes xmlns:w="` + wordSpace + `"><w:footnote w:type="separator" w:id="-1"><w:p/></w:footnote>` +
				`<w:footnote w:id="2">` + para("of the note") + "</w:footnote></w:footnotes>"
		}
		if text, err := readDocx(zipped(t, files)); err != nil || text != c.want {
			t.Errorf("%s: %v %q, want %q", name, err, text, c.want)
		}
	}
}
