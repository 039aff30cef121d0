package surface

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/eventlog"
	"github.com/turnpike-gateway/turnpike/internal/file"
)

// ErrorMark begins the results for the model of calls that have failed.
const ErrorMark = "Error: "

// MadeFile is a file of an answer: one that a tool has made, or one that the request requires and no tool has made.
type MadeFile struct {
	ID        string      `json:"id,omitempty"`
	Object    string      `json:"object,omitempty"` // "file"
	Name      string      `json:"name"`
	Filename  string      `json:"filename,omitempty"` // = Name
	Path      string      `json:"path,omitempty"`     // in the working directory of the code
	Format    string      `json:"format,omitempty"`   // the ending of the name; of a required file what the request says
	MimeType  string      `json:"mime_type,omitempty"`
	Bytes     *int64      `json:"bytes,omitempty"`
	SHA256    string      `json:"sha256,omitempty"`
	CreatedAt int64       `json:"created_at,omitempty"` // in seconds
	ExpiresAt int64       `json:"expires_at,omitempty"` // in seconds; at the earliest
	Purpose   string      `json:"purpose,omitempty"`    // agent_output
	Source    *MadeSource `json:"source,omitempty"`

	// Preview is the begin of a file that is text, and Text the whole text where the preview has it. The content of others is at
	// GET /v1/files/{id}/content.
	Text    *string `json:"text,omitempty"`
	Preview string  `json:"preview,omitempty"`

	// Code says why there is no file: not_produced. Message says it in words.
	Code    string `json:"code,omitempty"`
	Message string `json:"message,omitempty"`

	key string // of the call; "" = no call has made it
}

// MadeSource is where a file comes from.
type MadeSource struct {
	Tool  string `json:"tool"` // as the model called it
	Key   string `json:"call_key"`
	Round int    `json:"round"`
	Turn  *int   `json:"turn,omitempty"` // how many messages of the user were before the last one
}

// madeFile returns a file on the wire.
func madeFile(e event.ToolDone, f event.File, turn *int) MadeFile {
	out := MadeFile{
		ID: f.ID, Object: "file", Name: f.Name, Filename: f.Name, Path: f.Path, Format: FormatOf(f.Name), MimeType: f.MediaType, Bytes: &f.Bytes, SHA256: f.SHA256,
		Purpose: "agent_output", Source: &MadeSource{Tool: e.Name, Key: e.Key, Round: e.Round, Turn: turn}, Preview: f.Preview, key: e.Key,
	}
	if int64(len(f.Preview)) == f.Bytes && f.Preview != "" {
		out.Text = &f.Preview
	}
	if !f.CreatedAt.IsZero() {
		out.CreatedAt = f.CreatedAt.Unix()
	}
	if !f.ExpiresAt.IsZero() {
		out.ExpiresAt = f.ExpiresAt.Unix()
	}
	return out
}

// FormatOf returns the ending of the name of a file, without the dot; "" = it has none.
func FormatOf(name string) string { return strings.TrimPrefix(path.Ext(name), ".") }

// FileIDs returns the ids of the files that a call has made.
func FileIDs(e event.ToolDone) (ids []string) {
	for _, f := range e.Files {
		ids = append(ids, f.ID)
	}
	return ids
}

// make notes the files that a call has made. The error is that of the account.
func (a *Answer) make(e event.ToolDone) error {
	if !a.Extensions.Files && !a.Extensions.Progress || slices.ContainsFunc(a.files, func(f MadeFile) bool { return f.key == e.Key }) {
		return nil
	}
	for _, f := range e.Files {
		if err := a.Charge(eventlog.FileSize(f) + len(f.Preview)); err != nil {
			return err
		}
		a.files = append(a.files, madeFile(e, f, a.turn))
	}
	return nil
}

// MadeBy returns the files of the answer that a call has made.
func (a *Answer) MadeBy(key string) (out []MadeFile) {
	for _, f := range a.files {
		if f.key == key {
			out = append(out, f)
		}
	}
	return out
}

// notProduced returns the files that a run which has ended was to make and has not made.
func (a *Answer) notProduced() (out []MadeFile) {
	if a.End.Reason == "" {
		return nil
	}
	for i, r := range a.required {
		at := r.Path()
		if slices.ContainsFunc(a.files, func(f MadeFile) bool { return f.Path == at }) {
			continue
		}
		out = append(out, MadeFile{
			ID: file.MissingID(a.Started.RunID, i), Object: "file", Name: r.Name, Path: at, Format: cmp.Or(r.Format, FormatOf(at)), Code: "not_produced",
			Message: fmt.Sprintf("no code has made the file %q", r.Name),
		})
	}
	return out
}
