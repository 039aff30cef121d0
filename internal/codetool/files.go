package codetool

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/turnpike-gateway/turnpike/internal/builtin"
	"github.com/turnpike-gateway/turnpike/internal/file"
	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/tool"
)

// MaxListed is how many files a call lists.
const MaxListed = 100

// maxSlice is how many characters of a file a call returns: that of mistral.rs.
const maxSlice = 65_536

// listFiles lists the files of the session.
type listFiles struct {
	o     Options
	given *file.Set // of the conversation; nil = none
}

// WithFiles implements [toolexec.Receiver].
func (t *listFiles) WithFiles(files *file.Set) tool.Tool { return &listFiles{t.o, files} }

// Definition implements [tool.Tool].
func (t *listFiles) Definition() tool.Definition {
	yes, no := true, false
	return tool.Definition{
		Name: builtin.CodeExecute, Title: "List files",
		Description: "List the files of this conversation, those of the user and those that were handed over or stored: " +
			"id, name, media type and size. Read the text of one with read_file.",
		InputSchema: json.RawMessage(`{"type":"object","properties":{},"additionalProperties":false}`),
		Annotations: tool.Annotations{ReadOnly: &yes, OpenWorld: &no},
	}
}

// Class implements [tool.Classed].
func (t *listFiles) Class() tool.Class { return tool.Read }

// listedFile is a file in the result.
type listedFile struct {
	ID        string `json:"file_id"`
	Name      string `json:"name"`
	Path      string `json:"path,omitempty"` // in the working directory
	MediaType string `json:"mime_type,omitempty"`
	Bytes     int64  `json:"bytes"`
}

// Call implements [tool.Tool].
func (t *listFiles) Call(ctx context.Context, c tool.Call) (tool.Result, error) {
	found, err := t.o.Files.List(ctx, c)
	if err != nil {
		return refused(err.Error(), ""), nil
	}
	out := struct {
		Files []listedFile `json:"files"`
		More  bool         `json:"more,omitempty"` // there are older ones
	}{Files: []listedFile{}, More: len(found) > MaxListed}
	if t.given != nil {
		for _, g := range t.given.Files {
			out.Files = append(out.Files, listedFile{g.Name, g.Name, g.Name, g.MediaType, g.Bytes})
		}
	}
	for _, f := range found[:min(len(found), MaxListed)] {
		out.Files = append(out.Files, listedFile{f.ID, f.Name, f.Path, f.MediaType, f.Bytes})
	}
	return asJSON(out), nil
}

// readFile reads a part of a file that is text.
type readFile struct {
	o     Options
	given *file.Set // of the conversation; nil = none
}

// WithFiles implements [toolexec.Receiver].
func (t *readFile) WithFiles(files *file.Set) tool.Tool { return &readFile{t.o, files} }

// open opens a file of the user, by its name in the working directory or its id, or one that code has made.
func (t *readFile) open(ctx context.Context, c tool.Call, id string) (io.ReadCloser, file.File, error) {
	var all []file.Given
	if t.given != nil {
		all = t.given.Files
	}
	for _, g := range all {
		switch named := (file.File{ID: g.Name, Name: g.Name}); {
		case g.Name != id && (g.Input == nil || g.Input.ID != id):
		case g.Input == nil:
			return io.NopCloser(g.Content()), named, nil
		default:
			content, err := t.o.Open(ctx, c, *g.Input)
			return content, named, err
		}
	}
	return t.o.Files.Open(ctx, c, id)
}

const readSchema = `{"type":"object","properties":{` +
	`"file_id":{"type":"string","minLength":1,"maxLength":200,` +
	`"description":"An id of list_files, or of the files of a result, or the name of a file of the user."},` +
	`"start":{"type":"integer","minimum":0,"description":"First character, 0 by default."},` +
	`"end":{"type":"integer","minimum":0,"description":"Character after the last. At most 65536 characters are returned."}},` +
	`"required":["file_id"],"additionalProperties":false}`

// Definition implements [tool.Tool].
func (t *readFile) Definition() tool.Definition {
	yes, no := true, false
	return tool.Definition{
		Name: builtin.CodeExecute, Title: "Read a file", InputSchema: json.RawMessage(readSchema),
		Annotations: tool.Annotations{ReadOnly: &yes, OpenWorld: &no},
		Description: fmt.Sprintf("Read the text of a file of this conversation, at most %d characters at once. total_chars says how long it is.", maxSlice),
	}
}

// Class implements [tool.Classed].
func (t *readFile) Class() tool.Class { return tool.Read }

// slice is a part of a text.
type slice struct {
	ID       string `json:"file_id"`
	Name     string `json:"name"`
	Format   string `json:"format,omitempty"` // the ending of the name
	Start    int    `json:"start"`            // in characters
	End      int    `json:"end"`
	Total    int    `json:"total_chars"`
	MaxSlice int    `json:"max_slice_chars"`
	Text     string `json:"text"`
}

// Call implements [tool.Tool].
func (t *readFile) Call(ctx context.Context, c tool.Call) (tool.Result, error) {
	var args struct {
		FileID string `json:"file_id"`
		Start  int    `json:"start"`
		End    *int   `json:"end"`
	}
	if err := jsonscan.Decode(c.Arguments, &args); err != nil {
		return refused(err.Error(), ""), nil
	}
	end := args.Start + maxSlice
	if args.End != nil {
		end = min(end, *args.End)
	}
	if args.Start < 0 || end < args.Start {
		return refused(fmt.Sprintf("start is %d and end is %d; use 0 <= start <= end", args.Start, end), ""), nil
	}
	if c.Memory != nil {
		const most = 2 * maxSlice * utf8.UTFMax // the text, and the JSON with it
		if err := c.Memory.Acquire(most); err != nil {
			return tool.Result{}, fmt.Errorf("%w: the text of a file needs more memory than the run may retain: %w", tool.ErrNotSent, err)
		}
		defer c.Memory.Release(most)
	}
	content, f, err := t.open(ctx, c, args.FileID)
	if err != nil {
		return refused(err.Error(), ""), nil
	}
	defer content.Close()
	s := slice{ID: f.ID, Name: f.Name, Format: strings.TrimPrefix(path.Ext(f.Name), "."), Start: args.Start, MaxSlice: maxSlice}
	if err := s.read(ctx, content, end); err != nil {
		return refused(fmt.Sprintf("file %s: %v", f.ID, err), ""), nil
	}
	return asJSON(s), nil
}

// read reads the text, and counts its characters.
func (s *slice) read(ctx context.Context, from io.Reader, end int) error {
	var text strings.Builder
	r := bufio.NewReaderSize(from, 64<<10)
	for s.Total = 0; ; s.Total++ {
		if s.Total%(64<<10) == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		c, size, err := r.ReadRune()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return errors.New("the gateway could not read it")
		}
		if c == utf8.RuneError && size == 1 || c == 0 {
			return errors.New("it is not text in UTF-8; read it with code")
		}
		if s.Total >= s.Start && s.Total < end {
			text.WriteRune(c)
		}
	}
	s.Start = min(s.Start, s.Total)
	s.End, s.Text = max(s.Start, min(end, s.Total)), text.String()
	return nil
}

// asJSON returns a result that is JSON, for the model to read.
func asJSON(v any) tool.Result {
	e, err := builtin.Encode(v)
	if err != nil {
		return refused(err.Error(), "")
	}
	r := tool.Text(string(e.JSON))
	r.Structured = e.JSON
	return r
}

// ErrNoFile is the error of a file that the session does not have.
var ErrNoFile = errors.New("this conversation has no file with the id; list_files lists those it has")
