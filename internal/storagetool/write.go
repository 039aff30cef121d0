package storagetool

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/builtin"
	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/tool"
)

// writer is the tool storage_write.
type writer struct{ o Options }

var writeSchema = json.RawMessage(`{"type":"object","properties":{` +
	`"bucket":{"type":"string","description":"Name of the bucket. Needed only if there are several."},` +
	`"path":{"type":"string","description":"Path of the file, such as reports/january.txt."},` +
	`"content":{"type":"string","description":"The text."}},` +
	`"required":["path","content"],"additionalProperties":false}`)

// Definition implements [tool.Tool].
func (writer) Definition() tool.Definition {
	return tool.Definition{
		Name:        builtin.StorageWrite,
		Description: "Write a text to a file in a storage bucket. A file that exists is replaced. The result has the path and the size of the file.",
		InputSchema: writeSchema,
		Annotations: tool.Annotations{ReadOnly: new(false), Destructive: new(true), OpenWorld: new(false)},
	}
}

// Class implements [tool.Classed].
func (writer) Class() tool.Class { return tool.Once }

// Call implements [tool.Tool].
func (w writer) Call(ctx context.Context, c tool.Call) (tool.Result, error) {
	var args struct {
		Bucket  string  `json:"bucket"`
		Path    string  `json:"path"`
		Content *string `json:"content"`
	}
	if err := jsonscan.Decode(c.Arguments, &args); err != nil {
		return failed("the arguments are not valid: "+err.Error(), ""), nil
	}
	if args.Content == nil {
		return failed("content is missing", ""), nil
	}
	name, bucket, err := open(ctx, w.o, args.Bucket)
	if err != nil {
		return w.o.result(ctx, err)
	}
	info, err := bucket.Put(ctx, args.Path, strings.NewReader(*args.Content))
	if err != nil {
		return w.o.result(ctx, err)
	}
	return succeeded(struct {
		Bucket string `json:"bucket"`
		Path   string `json:"path"`
		Size   int64  `json:"size"`
	}{name, info.Path, info.Size})
}
