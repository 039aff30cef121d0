package surface

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"path"
	"regexp"
	"slices"

	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/file"
	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/item"
)

// Files opens the files of keys. *file.Library implements it.
type Files interface {
	Open(ctx context.Context, orgID, principal, id string) (io.ReadCloser, file.File, error)
}

// FilesOf returns the key whose files a caller may use; "" = of every key of the org.
func FilesOf(caller caller.Caller) (principal string) {
	if caller.Principal.Role.MayManage() {
		return ""
	}
	return caller.Principal.ID
}

// maxIncluded is how many bytes the files that a request names may have together: as many as fit into a request.
const maxIncluded = MaxBody / 4 * 3

// IncludeFiles puts the content of files that the caller may use in place of their ids. Ids that are not of the gateway are left as
// they are: they are those of a provider.
func IncludeFiles(ctx context.Context, files Files, caller caller.Caller, items []item.Item) error {
	if files == nil {
		return nil
	}
	left := int64(maxIncluded)
	for n := range items {
		it := &items[n]
		for i := range it.Parts {
			p := &it.Parts[i]
			if id := p.FileID; file.IsID(id) {
				if err := include(ctx, files, caller, p, &left); err != nil {
					return err
				}
				it.Native.JSON = withContent(it.Native.JSON, id, p)
			}
		}
		if namedFile.Match(it.Native.JSON) { // in a part of another form: the provider would get an id that it does not know
			return fault.New(fault.Invalid, "invalid_value", "a message names a file of the gateway in a part that cannot have one; "+
				`use {"type": "file", "file": {"file_id": …}} in chat, and input_file or input_image in Responses`).In("file_id")
		}
	}
	return nil
}

// withContent returns the client's own JSON of an item with the content of a file in place of its id. The members have the
// same names in the dialects of chat and of Responses.
func withContent(native json.RawMessage, id string, p *item.Part) json.RawMessage {
	member := regexp.MustCompile(`"file_id"\s*:\s*"` + id + `"`).FindIndex(native)
	if member == nil { // there is none, or it is written in another way: the item is written from its parts
		return nil
	}
	out := slices.Clone(native[:member[0]])
	switch {
	case p.Kind == item.Image:
		out = jsonscan.AppendString(append(out, `"image_url":`...), p.URL)
	default:
		if !bytes.Contains(native, []byte(`"filename"`)) {
			out = append(jsonscan.AppendString(append(out, `"filename":`...), p.Name), ',')
		}
		out = jsonscan.AppendString(append(out, `"file_data":`...), p.Data)
	}
	return append(out, native[member[1]:]...)
}

// openFile opens a file that the caller may use.
func openFile(ctx context.Context, files Files, caller caller.Caller, id string) (io.ReadCloser, file.File, error) {
	content, f, err := files.Open(ctx, caller.Org.ID, FilesOf(caller), id)
	switch {
	case errors.Is(err, file.ErrNotFound):
		return nil, f, noSuchFile(id)
	case errors.Is(err, file.ErrExpired):
		return nil, f, fault.New(fault.Gone, "file_expired", "the file %s has expired, and its content was deleted; upload it again", id).In("file_id")
	}
	return content, f, err
}

func noSuchFile(id string) error {
	return fault.New(fault.NotFound, "file_not_found", "no such file: %.100s", id).In("file_id")
}

// include replaces the id in a part. left is how many bytes there may be yet.
func include(ctx context.Context, files Files, caller caller.Caller, p *item.Part, left *int64) error {
	content, f, err := openFile(ctx, files, caller, p.FileID)
	if err != nil {
		return err
	}
	defer content.Close()
	if *left -= f.Bytes; *left < 0 {
		return fault.New(fault.TooLarge, "request_too_large", "the files that the request names have more than %d bytes together", int64(maxIncluded)).In("file_id")
	}
	// what is held of it: the content while it is read, and its text, in the part and in the JSON
	if err := caller.Account.Acquire(int(f.Bytes) + 2*base64.StdEncoding.EncodedLen(int(f.Bytes))); err != nil {
		return err
	}
	data, err := io.ReadAll(content)
	if err != nil {
		return err
	}
	url := "data:" + typeOf(f, data) + ";base64," + base64.StdEncoding.EncodeToString(data)
	caller.Account.Release(int(f.Bytes))
	p.FileID = ""
	if p.Kind == item.Image {
		p.URL = url
		return nil
	}
	if p.Data = url; p.Name == "" {
		p.Name = f.Name
	}
	return nil
}

// typeOf returns the media type of a file: what the client said of it, or what its name or content says.
func typeOf(f file.File, data []byte) string {
	const unknown = "application/octet-stream"
	for _, said := range []string{f.MediaType, mime.TypeByExtension(path.Ext(f.Name)), http.DetectContentType(data)} {
		if kind, _, err := mime.ParseMediaType(said); err == nil && kind != unknown {
			return kind
		}
	}
	return unknown
}

var namedFile = regexp.MustCompile(`"file_id"\s*:\s*"` + file.IDPattern + `"`)

// namesFile reports whether a member of the body names a file of the gateway. A provider does not know it, so the request is
// not passed on as it is.
func namesFile(members []Member) bool {
	for _, m := range members {
		if bytes.Contains(m.Value, []byte(`"file_id"`)) && namedFile.Match(m.Value) {
			return true
		}
	}
	return false
}
