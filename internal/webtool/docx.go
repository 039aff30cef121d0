package webtool

import (
	"archive/zip"
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"slices"
	"strings"
)

const (
	maxDocxFiles = 5000
	maxDocxXML   = 16 << 20 // bytes of the text of a docx, decompressed
	maxDocxDepth = 200
	wordSpace    = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
)

// readDocx returns the text of a docx: paragraphs, headings and tables. Deleted and hidden text is left out.
func readDocx(data []byte) (string, error) {
	archive, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil || len(archive.File) > maxDocxFiles {
		return "", refuse("the content is a zip file that cannot be read")
	}
	i := slices.IndexFunc(archive.File, func(f *zip.File) bool { return f.Name == "word/document.xml" })
	if i < 0 {
		return "", refuse("the content is a zip file, and not a docx")
	}
	r, err := archive.File[i].Open()
	if err != nil {
		return "", refuse("the docx cannot be read")
	}
	defer r.Close()
	return docxText(io.LimitReader(r, maxDocxXML))
}

// docx is what was read of a document so far.
type docx struct {
	out       strings.Builder
	paragraph strings.Builder
	run       strings.Builder // of the text with the same properties
	heading   int
	cells     int  // of the row of a table
	inText    bool // in a w:t
	hidden    bool // the run is not shown
	deleted   int  // depth in what was deleted
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
			if t.Name.Space == wordSpace {
				d.start(t)
			}
		case xml.EndElement:
			if depth--; t.Name.Space == wordSpace {
				d.end(t.Name.Local)
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
	value := func() string {
		for _, a := range t.Attr {
			if a.Name.Local == "val" {
				return a.Value
			}
		}
		return ""
	}
	switch t.Name.Local {
	case "p":
		d.heading = 0
	case "pStyle":
		if level, ok := strings.CutPrefix(value(), "Heading"); ok && len(level) == 1 && level >= "1" && level <= "6" {
			d.heading = int(level[0] - '0')
		}
	case "r":
		d.hidden = false
		d.run.Reset()
	case "vanish":
		d.hidden = value() != "0" && value() != "false"
	case "t":
		d.inText = true
	case "tab":
		d.run.WriteByte('\t')
	case "br", "cr":
		d.run.WriteByte('\n')
	case "del", "moveFrom":
		d.deleted++
	case "tr":
		d.cells = 0
	case "tc":
		d.out.WriteString(map[bool]string{true: "| ", false: " | "}[d.cells == 0])
		d.cells++
	}
}

func (d *docx) end(name string) {
	switch name {
	case "t":
		d.inText = false
	case "r":
		if !d.hidden && d.deleted == 0 {
			d.paragraph.WriteString(d.run.String())
		}
		d.run.Reset()
	case "del", "moveFrom":
		d.deleted--
	case "p":
		text := strings.TrimSpace(d.paragraph.String())
		d.paragraph.Reset()
		switch {
		case d.cells > 0:
			d.out.WriteString(strings.ReplaceAll(strings.ReplaceAll(text, "|", `\|`), "\n", " "))
		case text != "" && d.heading > 0:
			d.out.WriteString(strings.Repeat("#", d.heading) + " " + text + "\n\n")
		case text != "":
			d.out.WriteString(text + "\n\n")
		}
	case "tr":
		d.out.WriteString(" |\n")
	case "tbl":
		d.cells = 0
		d.out.WriteByte('\n')
	}
}
