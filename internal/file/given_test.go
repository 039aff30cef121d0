package file

import (
	"encoding/base64"
	"fmt"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/item"
)

// message is one of the user, with files.
func message(parts ...item.Part) item.Item {
	return item.Item{Kind: item.Message, Role: item.User, Parts: parts, Native: item.Native{Dialect: "chat", JSON: []byte(`{}`)}}
}

func dataURL(kind, text string) string {
	return "data:" + kind + ";base64," + base64.StdEncoding.EncodeToString([]byte(text))
}

func csv(name, text string) item.Part {
	return item.Part{Kind: item.File, Name: name, Data: dataURL("text/csv", text)}
}

func namesOf(s *Set) (out []string) {
	for _, g := range s.Files {
		out = append(out, g.Name)
	}
	return out
}

// Each file has a plain name of its own in the working directory, and the same conversation has always the same names. // J19
func TestTheNamesOfGivenFiles(t *testing.T) {
	long := strings.Repeat("ü", 200)
	items := []item.Item{
		message(csv("data.csv", "1"), csv("data.csv", "2"), csv("DATA.csv", "3"), csv("data.csv", "1")),
		message(csv("../../etc/passwd", "x"), csv(`C:\tmp\a.csv`, "x"), csv("..", "x"), csv(".hidden", "x"), csv("a\x00b\n.csv", "x"), csv(long+".csv", "x")),
		message(item.Part{Kind: item.Image, URL: dataURL("image/png", "png")}, item.Part{Kind: item.Image, URL: "https://example.com/a.png"}, item.Part{Kind: item.Image, URL: dataURL("image/jpeg", "jpg")}),
		{Kind: item.Message, Role: item.Assistant, Parts: []item.Part{csv("answer.csv", "x")}},
		message(item.Part{Kind: item.File, Data: dataURL("application/pdf", "%PDF-1")}, csv("broken.csv", "")),
	}
	s, err := NewSet([]Input{{ID: "file-1", Name: "data.csv"}}, items)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"data.csv", "data-2.csv", "data-3.csv", "DATA-4.csv", "passwd", "a.csv", "file.csv", "hidden", "a_b_.csv", "", "image-1.png", "image-2.jpg", "file.pdf",
	}
	got := namesOf(s)
	if len(got) != len(want) {
		t.Fatalf("%q", got)
	}
	for i, name := range got {
		if want[i] != "" && name != want[i] || len(name) > MaxName || !utf8.ValidString(name) || strings.ContainsAny(name, "/\\\x00") {
			t.Errorf("%d: %q, want %q", i, name, want[i])
		}
	}
	if data, err := io.ReadAll(s.Files[1].Content()); err != nil || string(data) != "1" || s.Files[1].Bytes != 1 {
		t.Errorf("%q, %v", data, err)
	}
}

// A model reads at most 4,096 characters of a text file, and 32,768 of all of them, never a part of one. // J19
func TestPreviewsOfGivenFiles(t *testing.T) {
	small, large := csv("small.csv", "a,b\n1,2\n"), csv("large.csv", strings.Repeat("ü", 50_000))
	image, pdf := item.Part{Kind: item.Image, URL: dataURL("image/png", "png")}, item.Part{Kind: item.File, Name: "a.pdf", Data: dataURL("application/pdf", "%PDF-1.4")}
	zip := item.Part{Kind: item.File, Name: "a.zip", Data: dataURL("application/zip", "PK\x03\x04\x00")}
	items := []item.Item{message(small, large, image, pdf, zip), item.NewText(item.User, "What is in it?")}
	s, err := NewSet(nil, items)
	if err != nil {
		t.Fatal(err)
	}
	shown := s.Shown(items)
	parts := shown[0].Parts
	for i, want := range []string{
		`[The file "small.csv", text/csv, 8 bytes, is in the working directory of code. This is its content:]` + "\na,b\n1,2\n",
		`[The file "large.csv", text/csv, 100000 bytes, is in the working directory of code. These are its first 4096 characters; read the rest with code:]` + "\n" + strings.Repeat("ü", 4096),
		"", "", `[The file "a.zip", application/zip, 5 bytes, is in the working directory of code. Its content is not shown; read it with code.]`,
	} {
		if parts[i].Text != want || want == "" && parts[i] != items[0].Parts[i] {
			t.Errorf("%d: %.300q", i, parts[i].Text)
		}
	}
	if shown[0].Native.JSON != nil || items[0].Native.JSON == nil || items[0].Parts[0] != small {
		t.Error("the native form stays, or the conversation was changed")
	}
	var many []item.Part
	for n := range 12 {
		many = append(many, csv(fmt.Sprintf("%d.csv", n), strings.Repeat("x", 5000)+fmt.Sprint(n)))
	}
	items = []item.Item{message(many...)}
	if s, err = NewSet([]Input{{ID: "f", Name: "g", Preview: strings.Repeat("x", 4096)}}, items); err != nil {
		t.Fatal(err)
	}
	total, with := 0, ""
	for i, p := range s.Shown(items)[0].Parts {
		if _, text, is := strings.Cut(p.Text, "\n"); is {
			total, with = total+len(text), with+fmt.Sprint(i, " ")
		}
	}
	if total != MaxPreviewTotal-4096 || with != "5 6 7 8 9 10 11 " {
		t.Errorf("%d characters, of %s", total, with)
	}
	var none *Set
	if got := none.Shown(items); len(got) != 1 || got[0].Parts[0].Data == "" {
		t.Error("no set changes the items")
	}
}

// A conversation with more than code may have is refused, with the limit.
func TestTheLimitsOfGivenFiles(t *testing.T) {
	var many []item.Part
	for n := range MaxGiven + 1 {
		many = append(many, csv(fmt.Sprintf("%d.csv", n), "x"))
	}
	for want, asked := range map[string]struct {
		inputs []Input
		items  []item.Item
	}{
		"at most 64":       {nil, []item.Item{message(many...)}},
		"at most 33554432": {[]Input{{Name: "a", Bytes: MaxGivenBytes + 1}}, nil},
		"at most 67108864": {[]Input{{Name: "a", Bytes: MaxGivenBytes}, {Name: "b", Bytes: MaxGivenBytes}, {Name: "c", Bytes: 1}}, nil},
	} {
		_, err := NewSet(asked.inputs, asked.items)
		if f := fault.From(err); err == nil || f.Code != fault.Invalid || f.Reason != "input_files_limit" || !strings.Contains(f.Message, want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if _, err := NewSet(nil, []item.Item{message(many[:MaxGiven]...)}); err != nil {
		t.Error(err)
	}
}

// base64 may have ends of lines, as in a mail. // J19
func TestGivenFilesWithLinesOfBase64(t *testing.T) {
	text := strings.Repeat("a,b,c\n", 5000)
	whole := base64.StdEncoding.EncodeToString([]byte(text))
	var lines strings.Builder
	for len(whole) > 0 {
		n := min(len(whole), 76)
		lines.WriteString(whole[:n] + "\r\n")
		whole = whole[n:]
	}
	s, err := NewSet(nil, []item.Item{message(item.Part{Kind: item.File, Name: "a.csv", Data: "data:text/csv;base64," + lines.String()})})
	if err != nil || len(s.Files) != 1 || s.Files[0].Bytes != int64(len(text)) {
		t.Fatalf("%v, %+v", err, s)
	}
	if data, err := io.ReadAll(s.Files[0].Content()); err != nil || string(data) != text {
		t.Errorf("%d bytes, %v", len(data), err)
	}
}
