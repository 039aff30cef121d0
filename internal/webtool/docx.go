package webtool

import (
	"archive/zip"
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
)

const (
	maxDocxFiles = 5000
	maxDocxXML   = 16 << 20 // bytes of the text of a docx, decompressed
	maxDocxDepth = 200
	maxDocxSpan  = 8 // columns of a cell
	wordSpace    = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
	mathSpace    = "http://schemas.openxmlformats.org/officeDocument/2006/math"
	choiceSpace  = "http://schemas.openxmlformats.org/markup-compatibility/2006"
)

// readDocx returns the text of a docx: paragraphs, headings, tables, formulas, and its notes at the end. Deleted and hidden text is
// left out.
func readDocx(data []byte) (string, error) {
	archive, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil || len(archive.File) > maxDocxFiles {
		return "", refuse("the content is a zip file that cannot be read")
	}
	var all strings.Builder
	for _, name := range []string{"word/document.xml", "word/footnotes.xml", "word/endnotes.xml"} {
		i := slices.IndexFunc(archive.File, func(f *zip.File) bool { return f.Name == name })
		switch {
		case i < 0 && all.Len() == 0 && name == "word/document.xml":
			return "", refuse("the content is a zip file, and not a docx")
		case i < 0 || all.Len() > maxPageText:
			continue
		}
		r, err := archive.File[i].Open()
		if err != nil {
			return "", refuse("the docx cannot be read")
		}
		text, err := docxText(io.LimitReader(r, maxDocxXML))
		_ = r.Close() // it was read
		if err != nil {
			return "", err
		}
		all.WriteString(text + "\n\n")
	}
	return strings.TrimSpace(all.String()), nil
}

// docx is what was read of a document so far.
type docx struct {
	out       strings.Builder
	paragraph strings.Builder
	run       strings.Builder // of the text with the same properties
	outside   []string        // the paragraphs around the text box that is read, so far
	note      string          // what comes before the next paragraph: the mark of a footnote
	form      string          // of the run: sup, sub, ~~; "" = plain
	heading   int
	tables    int  // depth: a table within a cell is lines of the cell
	cells     int  // of the row
	lines     int  // of the cell
	span      int  // columns of the cell
	inText    bool // in a w:t or m:t
	hidden    bool // the run is not shown
	deleted   int  // depth in what was deleted, or is there in another form
}

func docxText(r io.Reader) (string, error) {
	decoder := xml.NewDecoder(r)
	var d docx
	for depth := 0; ; {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			if d.out.Len() == 0 {
				return "", refuse("the docx cannot be read, or is too large")
			}
			d.out.WriteString("\n\n[The rest of the document cannot be read, or is too large]")
			break
		}
		switch t := token.(type) {
		case xml.StartElement:
			if depth++; depth > maxDocxDepth {
				return "", refuse("the docx is nested too deeply")
			}
			switch t.Name.Space {
			case wordSpace:
				d.start(t)
			case mathSpace:
				d.formula(t.Name.Local, 0)
			case choiceSpace:
				d.deleted += map[string]int{"Fallback": 1}[t.Name.Local]
			}
		case xml.EndElement:
			depth--
			switch t.Name.Space {
			case wordSpace:
				d.end(t.Name.Local)
			case mathSpace:
				d.formula(t.Name.Local, 1)
			case choiceSpace:
				d.deleted -= map[string]int{"Fallback": 1}[t.Name.Local]
			}
		case xml.CharData:
			if d.inText && d.deleted == 0 {
				d.run.Write(t)
			}
		}
		if d.out.Len() > maxPageText {
			break
		}
	}
	return strings.TrimSpace(d.out.String()), nil
}

func (d *docx) start(t xml.StartElement) {
	value := func(name string) string {
		for _, a := range t.Attr {
			if a.Name.Local == name {
				return a.Value
			}
		}
		return ""
	}
	on := func() bool { return value("val") != "0" && value("val") != "false" }
	switch t.Name.Local {
	case "p":
		d.heading = 0
	case "pStyle":
		if level, ok := strings.CutPrefix(value("val"), "Heading"); ok && len(level) == 1 && level >= "1" && level <= "6" {
			d.heading = int(level[0] - '0')
		}
	case "r":
		d.hidden, d.form = false, ""
		d.run.Reset()
	case "vanish":
		d.hidden = on()
	case "vertAlign":
		d.form = map[string]string{"superscript": "sup", "subscript": "sub"}[value("val")]
	case "strike", "dstrike":
		if on() {
			d.form = "~~"
		}
	case "t":
		d.inText = true
	case "tab":
		d.run.WriteByte('\t')
	case "br", "cr":
		d.run.WriteByte('\n')
	case "noBreakHyphen":
		d.run.WriteByte('-')
	case "footnoteReference":
		d.run.WriteString("[^" + cutText(value("id"), 10) + "]")
	case "endnoteReference":
		d.run.WriteString("[^e" + cutText(value("id"), 10) + "]")
	case "footnote":
		d.note = "[^" + cutText(value("id"), 10) + "]: "
	case "endnote":
		d.note = "[^e" + cutText(value("id"), 10) + "]: "
	case "txbxContent":
		d.endRun()
		d.outside = append(d.outside, d.paragraph.String())
		d.paragraph.Reset()
	case "del", "moveFrom":
		d.deleted++
	case "tbl":
		d.tables++
	case "tr":
		if d.tables == 1 {
			d.cells = 0
		}
	case "tc":
		if d.tables == 1 {
			d.out.WriteString(map[bool]string{true: "| ", false: " | "}[d.cells == 0])
			d.cells++
			d.lines, d.span = 0, 1
		}
	case "gridSpan":
		if n, err := strconv.Atoi(value("val")); err == nil && d.tables == 1 {
			d.span = min(n, maxDocxSpan)
		}
	}
}

func (d *docx) end(name string) {
	switch name {
	case "t":
		d.inText = false
	case "r":
		d.endRun()
	case "txbxContent":
		if last := len(d.outside) - 1; last >= 0 {
			d.paragraph.Reset()
			d.paragraph.WriteString(d.outside[last])
			d.outside = d.outside[:last]
		}
	case "del", "moveFrom":
		d.deleted--
	case "p":
		d.endParagraph()
	case "tc":
		if d.tables == 1 {
			d.out.WriteString(strings.Repeat(" | ", max(0, d.span-1)))
		}
	case "tr":
		if d.tables == 1 {
			d.out.WriteString(" |\n")
		}
	case "tbl":
		if d.tables--; d.tables == 0 {
			d.out.WriteByte('\n')
		}
	}
}

func (d *docx) endRun() {
	text := d.run.String()
	d.run.Reset()
	switch {
	case d.hidden || d.deleted > 0:
	case d.form == "" || strings.TrimSpace(text) == "" || strings.HasPrefix(text, "[^"):
		d.paragraph.WriteString(text)
	case d.form == "~~":
		d.paragraph.WriteString("~~" + text + "~~")
	default:
		d.paragraph.WriteString("<" + d.form + ">" + text + "</" + d.form + ">")
	}
}

func (d *docx) endParagraph() {
	text := strings.TrimSpace(d.paragraph.String())
	d.paragraph.Reset()
	if text == "" {
		return
	}
	text = strings.NewReplacer("</sup><sup>", "", "</sub><sub>", "", "~~~~", "").Replace(text) // of one run after the other
	text, d.note = d.note+text, ""
	switch {
	case d.tables > 0:
		if d.lines++; d.lines > 1 {
			d.out.WriteString("<br>")
		}
		d.out.WriteString(strings.NewReplacer("|", `\|`, "\n", "<br>").Replace(text))
	case d.heading > 0:
		d.out.WriteString(strings.Repeat("#", d.heading) + " " + text + "\n\n")
	default:
		d.out.WriteString(text + "\n\n")
	}
}

// formula writes what comes before (at 0) and after (at 1) an element of a formula, whose text is written as one line.
func (d *docx) formula(name string, at int) {
	switch {
	case name == "t":
		d.inText = at == 0
	case name == "r" && at == 0:
		d.hidden, d.form = false, ""
	}
	d.run.WriteString(map[string][2]string{
		"sup": {"^(", ")"}, "sub": {"_(", ")"}, "num": {"(", ")"}, "den": {"/(", ")"}, "rad": {"√(", ")"}, "mr": {"", "; "},
	}[name][at])
	if at == 1 {
		d.endRun()
	}
}
