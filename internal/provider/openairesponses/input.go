package openairesponses

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// maxCallID is how many characters the dialect allows in a call id.
const maxCallID = 64

// appendInput appends the transcript, one input item for each item, in its order.
// Reasoning and other items that only another dialect understands are left out,
// and so is reasoning after which the model said nothing, which the API refuses.
func appendInput(dst []byte, items []item.Item) []byte {
	w := writer{dst: append(dst, '['), ids: wire.CallIDs{MaxLength: maxCallID}}
	reasoning := len(w.dst) // where the reasoning begins that came last; the end without it
	for i := range items {
		it := &items[i]
		if !said(it) {
			w.dst = w.dst[:reasoning]
		}
		begin := len(w.dst)
		if w.add(it); len(w.dst) > begin {
			w.dst = append(w.dst, ',')
		}
		if it.Kind != item.Reasoning && len(w.dst) > begin {
			reasoning = len(w.dst)
		}
	}
	w.dst = w.dst[:reasoning]
	if n := len(w.dst) - 1; w.dst[n] == ',' {
		w.dst = w.dst[:n]
	}
	return append(w.dst, ']')
}

// said reports whether a model wrote the item.
func said(it *item.Item) bool {
	return it.Kind != item.ToolResult && (it.Kind != item.Message || it.Role == item.Assistant)
}

// writer writes input items.
type writer struct {
	dst []byte
	ids wire.CallIDs
}

// native returns the item as this dialect wrote it; nil if it did not. What is of another type
// than the item was read as is not taken.
func native(it *item.Item) []byte {
	raw := it.Native.JSON
	if it.Native.Dialect != model.DialectResponses || !jsonscan.IsKind(raw, '{') || kindOf(raw) != it.Kind {
		return nil
	}
	return raw
}

// kindOf returns the kind of an input item; "" for a reference to what the provider stores.
func kindOf(raw []byte) item.Kind {
	switch jsonscan.Text(jsonscan.Member(raw, "type")) {
	case "", "message":
		return item.Message
	case "function_call":
		return item.ToolCall
	case "function_call_output":
		return item.ToolResult
	case "reasoning":
		return item.Reasoning
	case "item_reference":
		return ""
	}
	return item.Other
}

func (w *writer) add(it *item.Item) {
	raw := native(it)
	switch it.Kind {
	case item.ToolCall:
		if id := w.ids.Call(it.CallID); raw == nil || id != it.CallID {
			w.call(id, it)
			return
		}
	case item.ToolResult:
		if id := w.ids.Result(it.CallID); raw == nil || id != it.CallID {
			w.result(id, it)
			return
		}
	case item.Message:
		if raw == nil {
			w.message(it)
			return
		}
	case item.Reasoning:
		if raw == nil || !usable(raw) {
			return
		}
	}
	w.unchanged(raw, it.Native.Provider == "")
}

// usable reports whether the provider can do something with its reasoning: it
// stores none, so an item without content is only an id that it refuses.
func usable(reasoning []byte) bool {
	return jsonscan.HasText(jsonscan.Member(reasoning, "encrypted_content")) || !isEmpty(jsonscan.Member(reasoning, "content"))
}

func isEmpty(array []byte) bool {
	for range jsonscan.Elements(array) {
		return false
	}
	return true
}

// unchanged appends an item as the provider wrote it, each member once: the last of its name.
// The ids under which a provider stores items are not for it, which has one key for all orgs:
// an id of a message, a call or reasoning is left out with the status. The record of a
// provider's tool must have an id: one that a client sent gets another id. Members that another
// reader could take for these are left out, too.
func (w *writer) unchanged(raw []byte, isClients bool) {
	if raw == nil {
		return
	}
	kind := kindOf(raw)
	last, n := map[string]int{}, 0
	for name := range jsonscan.Members(raw) {
		last[string(name)] = n
		n++
	}
	begin := len(w.dst)
	w.dst = append(w.dst, '{')
	n = -1
	for name, v := range jsonscan.Members(raw) {
		n++
		if last[string(name)] != n || jsonscan.Respelled(name, exactNames) != "" {
			continue
		}
		switch string(name) {
		case "id":
			if kind != item.Other {
				continue
			}
			if isClients {
				v = jsonscan.AppendString(nil, otherID(jsonscan.Text(v)))
			}
		case "status":
			if kind != item.Other {
				continue
			}
		case "content", "encrypted_content":
			if kind == item.Message {
				v = annotated(v)
			}
			if kind == item.Reasoning && (jsonscan.IsNull(v) || isEmpty(v) && !jsonscan.HasText(v)) {
				continue // the API refuses null, and empty content of some models
			}
		}
		w.dst = jsonscan.AppendMember(w.dst, name, v)
	}
	if w.dst = append(w.dst, '}'); len(w.dst) == begin+len("{}") {
		w.dst = w.dst[:begin]
	}
}

// annotated returns the content of a message with a list of annotations in each text of the model: strict servers require
// one, and not every client sends it.
func annotated(content []byte) []byte {
	var out []byte
	missing := false
	for _, part := range jsonscan.Elements(content) {
		part = jsonscan.TrimSpace(part)
		if jsonscan.Text(jsonscan.Member(part, "type")) == "output_text" && jsonscan.Member(part, "annotations") == nil {
			out, missing = append(append(out, `,{"annotations":[],`...), part[1:]...), true
			continue
		}
		out = append(append(out, ','), part...)
	}
	if !missing {
		return content
	}
	out[0] = '['
	return append(out, ']')
}

// exactNames are members that decide what an item is. Some readers ignore the case of names.
var exactNames = []string{"type", "id", "status", "role", "content", "encrypted_content", "summary", "call_id", "name", "arguments", "output"}

// otherID returns an id that no provider has stored anything under, always the same one. It
// has the prefix of id, which providers check. An id of a call is no id of an item, and stays.
func otherID(id string) string {
	prefix, _, found := strings.Cut(id, "_")
	switch {
	case prefix == "call":
		return id
	case !found || len(prefix) > len("image"):
		prefix = "item"
	}
	sum := sha256.Sum256([]byte(id))
	return prefix + "_" + hex.EncodeToString(sum[:16])
}

func (w *writer) call(id string, it *item.Item) {
	w.dst = jsonscan.AppendString(append(w.dst, `{"type":"function_call","call_id":`...), id)
	w.dst = jsonscan.AppendString(append(w.dst, `,"name":`...), it.Name)
	w.dst = jsonscan.AppendString(append(w.dst, `,"arguments":`...), it.Arguments)
	w.dst = append(w.dst, '}')
}

// result appends a tool's result: text where there is nothing else, otherwise
// parts.
func (w *writer) result(id string, it *item.Item) {
	w.dst = jsonscan.AppendString(append(w.dst, `{"type":"function_call_output","call_id":`...), id)
	w.dst = append(w.dst, `,"output":`...)
	if slices.ContainsFunc(it.Parts, func(p item.Part) bool { return mediaType(p) != "" }) {
		w.parts(it.Parts)
	} else {
		w.dst = jsonscan.AppendString(w.dst, item.PlainText(it.Parts))
	}
	w.dst = append(w.dst, '}')
}

func (w *writer) message(it *item.Item) {
	if it.Role == item.Assistant {
		w.answer(it)
		return
	}
	role := it.Role
	if role != item.System && role != item.Developer {
		role = item.User
	}
	w.dst = jsonscan.AppendString(append(w.dst, `{"type":"message","role":`...), role)
	w.dst = append(w.dst, `,"content":`...)
	w.parts(it.Parts)
	w.dst = append(w.dst, '}')
}

// answer appends a message of the model. One that says nothing is left out.
func (w *writer) answer(it *item.Item) {
	begin, none := len(w.dst), true
	w.dst = append(w.dst, `{"type":"message","role":"assistant",`...)
	if it.Phase != "" {
		w.dst = append(jsonscan.AppendString(append(w.dst, `"phase":`...), it.Phase), ',')
	}
	w.dst = append(w.dst, `"content":[`...)
	for _, p := range it.Parts {
		switch {
		case p.Text == "":
			continue
		case p.Kind == item.Text:
			w.dst = jsonscan.AppendString(append(w.dst, `{"type":"output_text","annotations":[],"text":`...), p.Text)
		case p.Kind == item.Refusal:
			w.dst = jsonscan.AppendString(append(w.dst, `{"type":"refusal","refusal":`...), p.Text)
		default:
			continue
		}
		w.dst = append(w.dst, `},`...)
		none = false
	}
	if none {
		w.dst = w.dst[:begin]
		return
	}
	w.dst[len(w.dst)-1] = ']' // in place of the last comma
	w.dst = append(w.dst, '}')
}

// parts appends the content of a user's message or of a result.
func (w *writer) parts(parts []item.Part) {
	begin := len(w.dst)
	for _, p := range parts {
		kind := mediaType(p)
		if kind == "" && p.Describe() == "" {
			continue
		}
		w.dst = append(w.dst, "[,"[min(len(w.dst)-begin, 1)])
		switch kind {
		case "input_image":
			w.image(p)
		case "input_file":
			w.file(p)
		default:
			w.dst = jsonscan.AppendString(append(w.dst, `{"type":"input_text","text":`...), p.Describe())
		}
		w.dst = append(w.dst, '}')
	}
	if len(w.dst) == begin {
		w.dst = append(w.dst, `""`...)
		return
	}
	w.dst = append(w.dst, ']')
}

// mediaType returns how the dialect takes a part that is not text; "" for one that
// is shown as text.
func mediaType(p item.Part) string {
	switch {
	case p.Kind == item.Image && (p.Data == "" || isImage(p.MIMEType)):
		return "input_image"
	case p.Kind == item.File && p.Text == "":
		return "input_file"
	case p.Kind == item.Resource && p.Text == "" && p.Data != "":
		if isImage(p.MIMEType) {
			return "input_image"
		}
		if p.MIMEType == "application/pdf" {
			return "input_file"
		}
	}
	return ""
}

// isImage reports whether the dialect takes images of a media type.
func isImage(mime string) bool {
	switch mime {
	case "image/png", "image/jpeg", "image/gif", "image/webp":
		return true
	}
	return false
}

func (w *writer) image(p item.Part) {
	p = wire.Embedded(p)
	w.dst = append(w.dst, `{"type":"input_image"`...)
	switch {
	case p.FileID != "":
		w.dst = jsonscan.AppendString(append(w.dst, `,"file_id":`...), p.FileID)
	case p.Data != "":
		w.dst = jsonscan.AppendString(append(w.dst, `,"image_url":`...), dataURL(p))
	default:
		w.dst = jsonscan.AppendString(append(w.dst, `,"image_url":`...), p.URL)
	}
	detail := p.Detail
	if detail == "" {
		detail = "auto"
	}
	w.dst = jsonscan.AppendString(append(w.dst, `,"detail":`...), detail)
}

func (w *writer) file(p item.Part) {
	w.dst = append(w.dst, `{"type":"input_file"`...)
	switch {
	case p.FileID != "":
		w.dst = jsonscan.AppendString(append(w.dst, `,"file_id":`...), p.FileID)
		return
	case p.Data == "" && !strings.HasPrefix(p.URL, "data:"):
		w.dst = jsonscan.AppendString(append(w.dst, `,"file_url":`...), p.URL)
		return
	}
	name := p.Name
	if name == "" {
		name = "file.pdf" // the dialect demands a name, and PDF is what it takes everywhere
	}
	w.dst = jsonscan.AppendString(append(w.dst, `,"filename":`...), name)
	w.dst = jsonscan.AppendString(append(w.dst, `,"file_data":`...), dataURL(p))
}

// dataURL returns the bytes of a part as a data URL. The chat dialect's are one
// already.
func dataURL(p item.Part) string {
	mime := p.MIMEType
	switch {
	case p.Data == "":
		return p.URL
	case strings.HasPrefix(p.Data, "data:"):
		return p.Data
	case mime == "":
		mime = "application/pdf" // of a file; as its name
	}
	return "data:" + mime + ";base64," + p.Data
}
