package file

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/item"
)

// The limits on the files of a conversation that code gets.
const (
	MaxGiven      = 64       // files
	MaxGivenBytes = 32 << 20 // of one file
	MaxGivenTotal = 64 << 20 // bytes of all of them

	MaxPreview      = 4096  // characters of a text file that the model reads without code
	MaxPreviewTotal = 32768 // the same, of all of them
)

// Input is a file of a key that a request puts into the working directory of code, beside those in its messages. Its JSON is
// stored with the run, in the member inputs of what the request says of the calls of the tool that runs code.
type Input struct {
	ID        string `json:"id"`
	Name      string `json:"name,omitempty"`
	MediaType string `json:"mime_type,omitempty"`
	Bytes     int64  `json:"bytes,omitempty"`
	SHA256    string `json:"sha256,omitempty"`
	Preview   string `json:"preview,omitempty"` // the begin of a text file, at most MaxPreview characters
}

// InputsIn returns the inputs of a request, by what it says of the calls of the tool that runs code.
func InputsIn(options json.RawMessage) []Input {
	var w struct {
		Inputs []Input `json:"inputs"`
	}
	_ = json.Unmarshal(options, &w) // the surface has written it
	return w.Inputs
}

// Given is a file of a conversation that is put into the working directory of code.
type Given struct {
	Name      string // in the directory; it has no directory of its own, and is unique
	MediaType string // "" = not known
	Bytes     int64
	Input     *Input // whose content is in the library; nil = the conversation has it
	Preview   string // of an Input

	data string // base64
}

// Content returns the content of a file that the conversation has. It is decoded as it is read.
func (g Given) Content() io.Reader {
	return base64.NewDecoder(base64.StdEncoding, strings.NewReader(g.data))
}

// Set is the files of a conversation that are put into the working directory of code. A nil Set has none.
type Set struct {
	Files []Given

	shown map[content]string // what the model reads in place of a file
}

// content is a part of a message that has a file.
type content struct {
	kind       item.PartKind
	name, data string
}

// NewSet returns the inputs of a request and the files and images in the messages of the user, in this order. A file that a
// conversation repeats is one file. The same conversation always has the same set. The error is a *fault.Error that names a limit.
func NewSet(inputs []Input, items []item.Item) (*Set, error) {
	b := builder{set: &Set{shown: map[content]string{}}, taken: map[string]bool{}, known: map[content]bool{}}
	for i := range inputs {
		in := &inputs[i]
		b.add(Given{Name: in.Name, MediaType: in.MediaType, Bytes: in.Bytes, Input: in, Preview: in.Preview}, in.Name)
		b.previewed += utf8.RuneCountInString(in.Preview)
	}
	for i := range items {
		if items[i].Kind != item.Message || items[i].Role != item.User {
			continue
		}
		for _, p := range items[i].Parts {
			b.part(p)
		}
	}
	b.preview()
	return b.set, b.set.check()
}

// check returns an error if the files are too many or too large.
func (s *Set) check() error {
	if len(s.Files) > MaxGiven {
		return tooMuch("the conversation has %d files for the working directory of code; at most %d are allowed", len(s.Files), MaxGiven)
	}
	total := int64(0)
	for _, g := range s.Files {
		if g.Bytes > MaxGivenBytes {
			return tooMuch("the file %q has %d bytes; at most %d are allowed in the working directory of code", g.Name, g.Bytes, MaxGivenBytes)
		}
		total += g.Bytes
	}
	if total > MaxGivenTotal {
		return tooMuch("the files of the conversation have %d bytes together; at most %d are allowed in the working directory of code", total, MaxGivenTotal)
	}
	return nil
}

func tooMuch(format string, args ...any) error {
	return fault.New(fault.Invalid, "input_files_limit", format+". Send fewer files, or leave code execution out", args...)
}

// Shown returns items in which files that models cannot read, and those that are text, are a note with the begin of the text. Images and PDF
// files stay. It changes none of the items that it gets.
func (s *Set) Shown(items []item.Item) []item.Item {
	if s == nil || len(s.shown) == 0 {
		return items
	}
	out, cloned := items, false
	for i := range items {
		it := &items[i]
		if it.Kind != item.Message || it.Role != item.User {
			continue
		}
		var parts []item.Part
		for j, p := range it.Parts {
			note, ok := s.shown[content{p.Kind, p.Name, p.URL + p.Data}]
			if !ok || p.Kind != item.File {
				continue
			}
			if parts == nil {
				parts = append(parts, it.Parts...)
			}
			parts[j] = item.Part{Kind: item.Text, Text: note, Cache: p.Cache}
		}
		if parts == nil {
			continue
		}
		if !cloned {
			out, cloned = append([]item.Item(nil), items...), true
		}
		out[i].Parts, out[i].Native = parts, item.Native{}
	}
	return out
}

// builder makes a Set.
type builder struct {
	set       *Set
	taken     map[string]bool // names, in lower case
	known     map[content]bool
	images    int
	previewed int // characters of previews that the model reads elsewhere
	notes     []note
}

// note is a file that the model reads as a note.
type note struct {
	of    content
	index int // in Files
	begin string
	whole bool // begin is all of it
	text  bool
}

// add adds a file under a name that is free.
func (b *builder) add(g Given, name string) {
	plain := cmp.Or(plainName(name), "file")
	name = plain
	for n := 2; b.taken[strings.ToLower(name)]; n++ {
		name = Numbered(plain, n)
	}
	b.taken[strings.ToLower(name)] = true
	g.Name = name
	b.set.Files = append(b.set.Files, g)
}

// Numbered returns the name of a file beside another one of that name, such as data-2.csv.
func Numbered(name string, n int) string {
	ext := path.Ext(name)
	return fmt.Sprintf("%s-%d%s", strings.TrimSuffix(name, ext), n, ext)
}

// part adds the file of a part, if it has one that is in the request.
func (b *builder) part(p item.Part) {
	if p.Kind != item.File && p.Kind != item.Image {
		return
	}
	key := content{p.Kind, p.Name, p.URL + p.Data}
	kind, data := p.MIMEType, p.Data
	for _, u := range []string{p.URL, p.Data} {
		if strings.HasPrefix(u, "data:") {
			kind, data, _ = item.DataURL(u)
		}
	}
	if data == "" || b.known[key] {
		return
	}
	head, err := io.ReadAll(io.LimitReader(Given{data: data}.Content(), HeadBytes))
	if err != nil {
		return // what the provider says of it is what the client is told
	}
	b.known[key] = true
	name := p.Name
	switch {
	case p.Kind == item.Image:
		b.images++
		name = fmt.Sprintf("image-%d%s", b.images, extensionOf(kind))
	case plainName(name) == "":
		name = "file" + extensionOf(kind)
	}
	if kind, _, err = mime.ParseMediaType(kind); err != nil || kind == "application/octet-stream" {
		kind, _, _ = mime.ParseMediaType(mime.TypeByExtension(path.Ext(name)))
	}
	b.add(Given{Name: name, MediaType: kind, Bytes: decodedLen(data), data: data}, name)
	if p.Kind != item.File || kind == "application/pdf" || strings.HasPrefix(string(head), "%PDF-") || strings.HasPrefix(kind, "image/") {
		return
	}
	text, isText := Preview(head)
	b.notes = append(b.notes, note{of: key, index: len(b.set.Files) - 1, begin: text, whole: isText && int64(len(text)) == decodedLen(data), text: isText})
}

// preview decides what the model reads of the text files: as much as there is room for, those that came last first.
func (b *builder) preview() {
	left := MaxPreviewTotal - b.previewed
	for i := len(b.notes) - 1; i >= 0; i-- {
		n := b.notes[i]
		g := b.set.Files[n.index]
		said := fmt.Sprintf("[The file %q%s, %d bytes, is in the working directory of code.", g.Name, typed(g.MediaType), g.Bytes)
		begin := firstOf(n.begin, left)
		left -= utf8.RuneCountInString(begin)
		switch {
		case !n.text || begin == "":
			said += " Its content is not shown; read it with code.]"
		case n.whole && begin == n.begin:
			said += " This is its content:]\n" + begin
		default:
			said += fmt.Sprintf(" These are its first %d characters; read the rest with code:]\n%s", utf8.RuneCountInString(begin), begin)
		}
		b.set.shown[n.of] = said
	}
}

func typed(kind string) string {
	if kind == "" {
		return ""
	}
	return ", " + kind
}

// firstOf returns at most n characters of a text.
func firstOf(text string, n int) string {
	if n <= 0 {
		return ""
	}
	for i := range text {
		if n--; n < 0 {
			return text[:i]
		}
	}
	return text
}

// Preview returns the first MaxPreview characters of a file that is text, by its begin, which may end within a character. It returns false
// if the file is not text.
func Preview(head []byte) (string, bool) {
	for i := 1; i < utf8.UTFMax && !utf8.Valid(head) && len(head) > 0; i++ {
		head = head[:len(head)-1]
	}
	text := firstOf(string(head), MaxPreview)
	control := func(r rune) bool { return r < ' ' && !strings.ContainsRune("\t\n\r\f\x1b", r) || r == 0x7f }
	if !utf8.ValidString(text) || strings.HasPrefix(text, "%PDF-") || strings.ContainsFunc(text, control) {
		return "", false
	}
	return text, true
}

// Begin returns at most n characters of a file that is text, as Preview does; "" = it is not text.
func Begin(head []byte, n int) string {
	text, _ := Preview(head)
	return firstOf(text, n)
}

// HeadBytes is how many bytes of a file Preview needs at most.
const HeadBytes = (MaxPreview + 1) * utf8.UTFMax

// plainName returns a name that is a file of the directory itself; "" = nothing is left of it.
func plainName(name string) string {
	name = strings.ToValidUTF8(strings.ReplaceAll(name, "\\", "/"), "")
	name = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || strings.ContainsRune(`:*?"<>|`, r) {
			return '_'
		}
		return r
	}, path.Base("/"+name))
	name = strings.Trim(strings.TrimLeft(name, "./ "), " ")
	if len(name) > MaxName-8 { // room for a number
		ext := path.Ext(name)
		if len(ext) > 16 {
			ext = ""
		}
		name = strings.ToValidUTF8(name[:MaxName-8-len(ext)], "") + ext
	}
	return name
}

// extensionOf returns the usual ending of the names of files of a media type; "" = none is known.
func extensionOf(kind string) string {
	kind, _, _ = mime.ParseMediaType(kind)
	switch kind {
	case "image/png", "image/gif", "image/webp", "image/bmp", "application/pdf", "text/csv", "application/json":
		return "." + path.Base(kind)
	case "image/jpeg", "image/jpg":
		return ".jpg"
	case "image/svg+xml":
		return ".svg"
	case "text/plain":
		return ".txt"
	}
	return ""
}

// decodedLen returns how many bytes base64 holds. It may have ends of lines.
func decodedLen(data string) int64 {
	none := strings.Count(data, "\n") + strings.Count(data, "\r")
	padding := strings.Count(data[max(0, len(data)-8):], "=") // ends of lines may be after it
	return int64(len(data)-none-padding) * 3 / 4
}
