package surface

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/url"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/turnpike-gateway/turnpike/internal/builtin"
	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/file"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/tool"
)

// includeInputs says to a run whose request asks for code that its tools get the files of the conversation, and reads what is known of the
// files that the request names for them.
func (h *Handler) includeInputs(ctx context.Context, switched *Switched, caller caller.Caller, req *run.Request, reply *Reply) error {
	asked := switched == nil || !switched.Code || !RunsCode(req)
	for i := range reply.Hosted {
		if one := &reply.Hosted[i]; one.Type == builtin.HostedCode && one.Server == org.BuiltinTools {
			asked = true
			if err := h.readInputs(ctx, caller, req, reply.CodeAt, one); err != nil {
				return err
			}
		}
	}
	if code := CodeTool(nil); !asked && givesFiles(req, &code) {
		reply.Hosted = append(reply.Hosted, code)
	}
	for i := range reply.Hosted {
		if h.o.Fetch != nil && givesFiles(req, &reply.Hosted[i]) {
			return h.fetchFiles(ctx, caller, req.Items)
		}
	}
	return nil
}

// CodeTool returns the built-in tool that runs code, as a hosted tool with options.
func CodeTool(options json.RawMessage) loop.HostedTool {
	return loop.HostedTool{Type: builtin.HostedCode, Server: org.BuiltinTools, Tool: builtin.CodeExecute, Options: options}
}

// maxFetched is how many URLs of a request are fetched.
const maxFetched = 20

// fetchFiles puts the content of files in place of their URLs, so that code gets it.
func (h *Handler) fetchFiles(ctx context.Context, caller caller.Caller, items []item.Item) error {
	left := maxFetched
	for n := range items {
		it := &items[n]
		for i := range it.Parts {
			p := &it.Parts[i]
			if p.Kind != item.File || !strings.HasPrefix(p.URL, "https://") && !strings.HasPrefix(p.URL, "http://") {
				continue
			}
			if left--; left < 0 {
				return InvalidValue("file_url", "file_url: the gateway fetches at most %d URLs of a request", maxFetched)
			}
			if err := h.fetchFile(ctx, caller, p); err != nil {
				return err
			}
			it.Native.JSON = nil // it is written from its parts
		}
	}
	return nil
}

func (h *Handler) fetchFile(ctx context.Context, caller caller.Caller, p *item.Part) error {
	data, err := h.o.Fetch(ctx, p.URL, caller.Account)
	var refused *memlimit.Refused
	var blocked tool.Blocked
	switch {
	case errors.As(err, &refused):
		return refused
	case errors.As(err, &blocked):
		return fault.New(fault.Forbidden, "outbound_ssrf_blocked", "file_url: the outbound policy refuses the URL").In("file_url")
	case err != nil:
		return InvalidValue("file_url", "file_url: %v", err)
	}
	defer caller.Account.Release(cap(data))
	if err := caller.Account.Acquire(2 * base64.StdEncoding.EncodedLen(len(data))); err != nil {
		return err
	}
	if at, err := url.Parse(p.URL); err == nil && p.Name == "" && path.Base(at.Path) != "/" {
		p.Name = path.Base(at.Path)
	}
	p.Data = "data:" + typeOf(file.File{Name: p.Name}, data) + ";base64," + base64.StdEncoding.EncodeToString(data)
	p.URL = ""
	return nil
}

// readInputs adds to the options of a hosted tool what is known of the files that they name.
func (h *Handler) readInputs(ctx context.Context, caller caller.Caller, req *run.Request, at string, hosted *loop.HostedTool) error {
	inputs := file.InputsIn(hosted.Options)
	if len(inputs) == 0 {
		return nil
	}
	if h.o.Files == nil || !givesFiles(req, hosted) {
		return fault.New(fault.Invalid, "unsupported_value", "%s.container.file_ids: the sandbox of the gateway takes no files; leave it out", at).In(at + ".container.file_ids")
	}
	room := file.MaxPreviewTotal
	for i := range inputs {
		if err := h.readInput(ctx, caller, &inputs[i], &room); err != nil {
			return err
		}
	}
	members := map[string]json.RawMessage{}
	err := json.Unmarshal(hosted.Options, &members)
	if err == nil {
		members["inputs"], err = Marshal(inputs)
	}
	if err == nil {
		hosted.Options, err = Marshal(members)
	}
	return err
}

// givesFiles reports whether the tool of the run gets files.
func givesFiles(req *run.Request, hosted *loop.HostedTool) bool {
	for i := range req.Servers {
		if s := &req.Servers[i]; s.Name == hosted.Server && s.GivesFiles != nil && s.GivesFiles(hosted.Type) {
			return true
		}
	}
	return false
}

// readInput reads what is known of a file. room is how many characters of previews there may be yet.
func (h *Handler) readInput(ctx context.Context, caller caller.Caller, in *file.Input, room *int) error {
	if !file.IsID(in.ID) {
		return noSuchFile(in.ID)
	}
	content, f, err := openFile(ctx, h.o.Files, caller, in.ID)
	if err != nil {
		return err
	}
	defer content.Close()
	head, err := io.ReadAll(io.LimitReader(content, file.HeadBytes))
	if err != nil {
		return err
	}
	in.Name, in.MediaType, in.Bytes, in.SHA256 = f.Name, typeOf(f, head), f.Bytes, f.SHA256
	in.Preview = file.Begin(head, min(*room, file.MaxPreview))
	*room -= utf8.RuneCountInString(in.Preview)
	return nil
}
