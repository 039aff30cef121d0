package surface

import (
	"errors"
	"io"
	"mime/multipart"
	"net/textproto"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/internal/spool"
)

// The limits of forms.
const (
	maxParts      = 256
	maxPartHeader = 64 << 10 // bytes read at once, with the buffer of the reader
)

// What the files of a form cost, as bytes of text: see relayedBody. A picture has at most 5,000
// tokens, and a minute of speech at 16 kbit/s, of 120 KB, fewer than 2,000.
const (
	bytesOfPicture = 15_000
	audioPerByte   = 20
)

// readForm reads a form into the spool. It is written anew, with the fields of each part that count,
// so that a provider cannot read another model in it than the gateway.
func readForm(from io.Reader, boundary string, body *spool.Body) (*relayedBody, error) {
	out := &relayedBody{body: body, boundary: boundary}
	to := multipart.NewWriter(body)
	if err := to.SetBoundary(boundary); err != nil {
		return nil, BrokenForm(err)
	}
	for parts := NewFormReader(from, boundary); ; {
		part, err := parts.Next(maxParts)
		if errors.Is(err, io.EOF) {
			return out, to.Close()
		}
		if err != nil {
			return nil, err
		}
		if err := out.addPart(part, to); err != nil {
			return nil, BrokenForm(err)
		}
	}
}

// FormReader reads the parts of a form. It bounds how many there are and how long their headers are.
type FormReader struct {
	parts   *multipart.Reader
	limited *headerLimit
	n       int
}

// NewFormReader returns a FormReader.
func NewFormReader(from io.Reader, boundary string) *FormReader {
	limited := &headerLimit{r: from}
	return &FormReader{parts: multipart.NewReader(limited, boundary), limited: limited}
}

// Next returns the next part; the one before it is not read further. It returns io.EOF after the last one, and a
// [fault.Error] for a form that cannot be read or has more than most parts.
func (f *FormReader) Next(most int) (*multipart.Part, error) {
	f.limited.begin()
	part, err := f.parts.NextPart()
	switch {
	case errors.Is(err, io.EOF) && f.n > 0:
		return nil, io.EOF
	case err != nil:
		return nil, BrokenForm(err)
	case f.n == most:
		return nil, fault.New(fault.Invalid, "form_too_complex", "the form has more than %d parts", most)
	}
	f.limited.end()
	f.n++
	return part, nil
}

// addPart writes a part and reads what the gateway needs of it.
func (b *relayedBody) addPart(part *multipart.Part, to *multipart.Writer) error {
	name, file := part.FormName(), part.FileName()
	if name == "" {
		return fault.New(fault.Invalid, "invalid_form", "a part of the form has no name")
	}
	if err := checkName("", name, relayedMembers()); err != nil {
		return err
	}
	known := slices.Contains(relayedMembers(), name)
	if known && file != "" {
		return InvalidValue(name, "%s is a file; send it as a text", name)
	}
	head := textproto.MIMEHeader{"Content-Disposition": {disposition(name, file)}}
	kind := part.Header.Get("Content-Type")
	if kind != "" {
		head.Set("Content-Type", kind)
	}
	out, err := to.CreatePart(head)
	if err != nil {
		return err
	}
	at := b.body.Len()
	if !known {
		size, err := io.Copy(out, part)
		b.promptBytes += costOfPart(file, kind, size)
		return err
	}
	text, err := io.ReadAll(io.LimitReader(part, maxRelayedMember+1))
	if err != nil {
		return err
	}
	if len(text) > maxRelayedMember || len(b.members) == maxRepeated {
		return InvalidValue(name, "%s is longer than %d bytes, or repeated too often", name, maxRelayedMember)
	}
	if _, err := out.Write(text); err != nil {
		return err
	}
	b.promptBytes += int64(len(text))
	value := jsonscan.AppendString(nil, text)
	switch name {
	case "model":
		b.models = append(b.models, spool.Cut{From: at, To: b.body.Len()})
	case "n", "best_of", "max_tokens":
		value = text
	case "metadata":
		if value = text; !jsonscan.Valid(text) {
			return InvalidValue(name, "metadata is not valid JSON")
		}
	}
	b.members = append(b.members, Member{Name: name, Value: value})
	return nil
}

// costOfPart returns about how many bytes of text cost as much as a part.
func costOfPart(file, kind string, size int64) int64 {
	switch {
	case file == "":
		return size
	case strings.HasPrefix(kind, "image/"):
		return bytesOfPicture
	}
	return (size + audioPerByte - 1) / audioPerByte
}

// disposition returns the Content-Disposition of a part.
func disposition(name, file string) string {
	escape := strings.NewReplacer("\\", "\\\\", `"`, `\"`, "\r", "%0D", "\n", "%0A")
	out := `form-data; name="` + escape.Replace(name) + `"`
	if file != "" {
		out += `; filename="` + escape.Replace(file) + `"`
	}
	return out
}

// BrokenForm returns the error for the client of a form that cannot be read: err itself if it is a [fault.Error].
func BrokenForm(err error) error {
	if known := (*fault.Error)(nil); errors.As(err, &known) {
		return known
	}
	return fault.New(fault.Invalid, "invalid_form", "the request body is not a valid form (multipart/form-data): %v", err)
}

// headerLimit refuses a part of a form whose header is too long: package multipart holds up to
// 10 MiB of it in memory.
type headerLimit struct {
	r       io.Reader
	limited bool // the header of a part is being read
	left    int
}

func (h *headerLimit) begin() { h.limited, h.left = true, maxPartHeader }
func (h *headerLimit) end()   { h.limited = false }

// Read implements io.Reader.
func (h *headerLimit) Read(p []byte) (int, error) {
	if h.limited && h.left <= 0 {
		return 0, fault.New(fault.Invalid, "form_too_complex", "the header of a part of the form is longer than %d bytes", maxPartHeader)
	}
	n, err := h.r.Read(p)
	if h.limited {
		h.left -= n
	}
	return n, err
}
