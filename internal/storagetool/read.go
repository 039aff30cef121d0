package storagetool

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"path"
	"time"
	"unicode/utf8"

	"github.com/turnpike-gateway/turnpike/internal/blob"
	"github.com/turnpike-gateway/turnpike/internal/builtin"
	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/tool"
)

// reader is the tool storage_read.
type reader struct{ o Options }

var readSchema = json.RawMessage(`{"type":"object","properties":{` +
	`"operation":{"type":"string","enum":["list","download"]},` +
	`"bucket":{"type":"string","description":"Name of the bucket. Needed only if there are several."},` +
	`"prefix":{"type":"string","description":"For list: only files whose paths begin with it, such as reports/."},` +
	`"limit":{"type":"integer","minimum":1,"maximum":1000,"description":"For list: how many files, 100 by default."},` +
	`"path":{"type":"string","description":"For download: path of the file, such as reports/january.txt."},` +
	`"offset":{"type":"integer","minimum":0,"description":"For list: how many files to skip. For download: the byte to begin at. 0 by default."}},` +
	`"required":["operation"],"additionalProperties":false}`)

// Definition implements [tool.Tool].
func (reader) Definition() tool.Definition {
	return tool.Definition{
		Name: builtin.StorageRead,
		Description: "List the files in a storage bucket, or download one. " +
			"A text is returned as it is, at most 50,000 characters at a time. For a file that is not text the result has a signed_url instead, which expires.",
		InputSchema: readSchema,
		Annotations: tool.Annotations{ReadOnly: new(true), OpenWorld: new(false)},
	}
}

// Class implements [tool.Classed].
func (reader) Class() tool.Class { return tool.Read }

type readArguments struct {
	Operation string `json:"operation"`
	Bucket    string `json:"bucket"`
	Prefix    string `json:"prefix"`
	Path      string `json:"path"`
	Limit     int    `json:"limit"`
	Offset    int    `json:"offset"`
}

// Call implements [tool.Tool]. Files and their names may come from strangers, so what succeeds is untrusted.
func (r reader) Call(ctx context.Context, c tool.Call) (tool.Result, error) {
	result, err := r.call(ctx, c)
	if err == nil && !result.IsError {
		result.Label = item.Untrusted
	}
	return result, err
}

func (r reader) call(ctx context.Context, c tool.Call) (tool.Result, error) {
	var args readArguments
	if err := jsonscan.Decode(c.Arguments, &args); err != nil {
		return failed("the arguments are not valid: "+err.Error(), ""), nil
	}
	name, bucket, err := open(ctx, r.o, args.Bucket)
	if err != nil {
		return r.o.result(ctx, err)
	}
	switch args.Operation {
	case "list":
		return r.list(ctx, name, bucket, args)
	case "download":
		return r.download(ctx, c.Memory, name, bucket, args)
	}
	return failed("operation must be list or download", ""), nil
}

// listed is a file of a list.
type listed struct {
	Path       string `json:"path"`
	Size       int64  `json:"size"`
	ModifiedAt string `json:"modified_at"`
}

// list returns a part of the list that has at most MaxCharacters bytes.
func (r reader) list(ctx context.Context, name string, b blob.Bucket, args readArguments) (tool.Result, error) {
	const usual = 100
	if args.Limit == 0 {
		args.Limit = usual
	}
	page, err := b.List(ctx, blob.Query{Prefix: args.Prefix, Offset: args.Offset, Limit: args.Limit})
	if err != nil {
		return r.o.result(ctx, err)
	}
	answer := struct {
		Bucket     string   `json:"bucket"`
		Files      []listed `json:"files"`
		More       bool     `json:"more"`
		NextOffset int      `json:"next_offset,omitempty"`
	}{name, []listed{}, page.More, 0}
	room := MaxCharacters - 200
	for _, f := range page.Files {
		one := listed{f.Path, f.Size, f.Modified.UTC().Format(time.RFC3339)}
		text, err := encode(one)
		if err != nil {
			return tool.Result{}, err
		}
		if room -= len(text) + 1; room < 0 {
			answer.More = true
			break
		}
		answer.Files = append(answer.Files, one)
	}
	if answer.More {
		answer.NextOffset = args.Offset + len(answer.Files)
	}
	return succeeded(answer)
}

// most is how many bytes of a file are read: MaxCharacters and a sign that there are more.
const most = utf8.UTFMax*MaxCharacters + 1

func (r reader) download(ctx context.Context, memory tool.Memory, name string, b blob.Bucket, args readArguments) (tool.Result, error) {
	content, info, err := b.Open(ctx, args.Path)
	if err != nil {
		return r.o.result(ctx, err)
	}
	defer content.Close()
	offset := int64(args.Offset)
	if offset < 0 || offset > 0 && offset >= info.Size {
		return failed(fmt.Sprintf("offset must be less than the size of the file, which is %d bytes", info.Size), ""), nil
	}
	if _, err := io.CopyN(io.Discard, content, offset); err != nil {
		return r.o.result(ctx, err)
	}
	size := int(min(info.Size-offset, most))
	if memory != nil {
		if err := memory.Acquire(size); err != nil {
			return tool.Result{}, fmt.Errorf("the file needs more memory than the run may retain: %w", err)
		}
	}
	data := make([]byte, size)
	if _, err := io.ReadFull(content, data); err != nil {
		return r.o.result(ctx, err)
	}
	whole := offset+int64(size) == info.Size
	if whole { // the digest is compared at the end
		if _, err := content.Read(make([]byte, 1)); err != io.EOF {
			return r.o.result(ctx, err)
		}
	}
	data, offset = fromCharacter(data, offset)
	text, ok := textOf(data, whole)
	if !ok {
		return r.link(ctx, name, info, data)
	}
	if memory != nil {
		memory.Release(max(0, size-len(text)))
	}
	if end := offset + int64(len(text)); end < info.Size {
		text += fmt.Sprintf("\n\n[Truncated: these are the bytes %d to %d of %d; call again with offset %d for more]", offset, end, info.Size, end)
	}
	return tool.Text(text), nil
}

// fromCharacter leaves out the rest of a character at the beginning of a part of a file that begins in it.
func fromCharacter(data []byte, offset int64) ([]byte, int64) {
	if offset == 0 {
		return data, offset
	}
	for n := 0; n < utf8.UTFMax-1 && len(data) > 1 && !utf8.RuneStart(data[0]); n++ {
		data, offset = data[1:], offset+1
	}
	return data, offset
}

// textOf returns at most MaxCharacters of a text; false if it is none. The last character may be incomplete unless it is
// the end of the file.
func textOf(data []byte, whole bool) (string, bool) {
	if bytes.IndexByte(data, 0) >= 0 {
		return "", false
	}
	at := 0
	for n := 0; n < MaxCharacters && at < len(data); n++ {
		r, size := utf8.DecodeRune(data[at:])
		if r == utf8.RuneError && size == 1 {
			if !whole && !utf8.FullRune(data[at:]) {
				break
			}
			return "", false
		}
		at += size
	}
	return string(data[:at]), true
}

// link answers with a signed URL.
func (r reader) link(ctx context.Context, bucket string, info blob.Info, begin []byte) (tool.Result, error) {
	link, err := r.o.Link(ctx, bucket, info.Path)
	if err != nil {
		return r.o.result(ctx, err)
	}
	return succeeded(struct {
		Bucket    string `json:"bucket"`
		Path      string `json:"path"`
		Size      int64  `json:"size"`
		MediaType string `json:"media_type"`
		SignedURL string `json:"signed_url"`
		ExpiresAt string `json:"expires_at"`
	}{bucket, info.Path, info.Size, mediaType(info.Path, begin), link.URL, link.ExpiresAt.UTC().Format(time.RFC3339)})
}

// mediaType returns the media type of a file that is not text.
func mediaType(name string, begin []byte) string {
	if found := http.DetectContentType(begin); found != "application/octet-stream" {
		return found
	}
	if kind, _, err := mime.ParseMediaType(mime.TypeByExtension(path.Ext(name))); err == nil {
		return kind
	}
	return "application/octet-stream"
}
