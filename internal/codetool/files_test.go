package codetool_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/codetool"
	"github.com/turnpike-gateway/turnpike/internal/file"
	"github.com/turnpike-gateway/turnpike/internal/sandbox"
	"github.com/turnpike-gateway/turnpike/internal/toolexec"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/tool"
)

// made are the files that code has made.
type made struct{}

func (made) List(context.Context, tool.Call) ([]file.File, error) {
	return []file.File{{ID: "file-1", Name: "report.txt"}}, nil
}

func (made) Open(_ context.Context, _ tool.Call, id string) (io.ReadCloser, file.File, error) {
	if id != "file-1" {
		return nil, file.File{}, codetool.ErrNoFile
	}
	return io.NopCloser(strings.NewReader("made")), file.File{ID: id, Name: "report.txt"}, nil
}

// The files of the user are read and listed as those that code has made are: what is in the conversation, and uploads.
func TestTheFilesOfTheUserAreRead(t *testing.T) {
	message := item.Item{Kind: item.Message, Role: item.User, Parts: []item.Part{
		{Kind: item.File, Name: "a.csv", Data: "data:text/csv;base64,b25l"},
		{Kind: item.File, Name: "a.csv", Data: "data:text/csv;base64,dHdv"},
	}}
	inputs := []file.Input{{ID: "file-up", Name: "up.txt", Bytes: 8}, {ID: "file-gone", Name: "gone.txt"}}
	set, err := file.NewSet(inputs, []item.Item{message})
	if err != nil {
		t.Fatal(err)
	}
	o := codetool.Options{Sandbox: &fake{}, Files: made{}}
	o.Open = func(_ context.Context, _ tool.Call, in file.Input) (io.ReadCloser, error) {
		if in.ID == "file-gone" {
			return nil, errors.New("the upload was deleted")
		}
		return io.NopCloser(strings.NewReader("uploaded")), nil
	}
	forms := map[string]tool.Tool{}
	for _, f := range codetool.Forms(o, []sandbox.Language{sandbox.Python}, "") {
		forms[f.As] = toolexec.WithFiles(f.Tool, set)
	}
	for id, want := range map[string]string{
		"a.csv": `"text":"one"`, "a-2.csv": `"text":"two"`, "up.txt": `"text":"uploaded"`, "file-up": `"text":"uploaded"`,
		"file-1":   `"text":"made"`,
		"gone.txt": "the upload was deleted", "none": "has no file with the id",
	} {
		r, err := forms["read_file"].Call(t.Context(), tool.Call{Arguments: json.RawMessage(`{"file_id":"` + id + `"}`)})
		if err != nil || !strings.Contains(string(r.Structured), want) {
			t.Errorf("%s: %s, %v", id, r.Structured, err)
		}
	}
	r, err := forms["list_files"].Call(t.Context(), tool.Call{Arguments: json.RawMessage(`{}`)})
	for _, want := range []string{`"file_id":"a-2.csv"`, `"file_id":"up.txt"`, `"file_id":"file-1"`} {
		if err != nil || !strings.Contains(string(r.Structured), want) {
			t.Errorf("%s, %v", r.Structured, err)
		}
	}
}
