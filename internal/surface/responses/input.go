package responses

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"reflect"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/surface"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// wireItem is what the gateway needs to know of an input item. The type of a message may
// be missing.
type wireItem struct {
	Type      string          `json:"type"`
	ID        string          `json:"id"`
	Role      item.Role       `json:"role"`
	Content   json.RawMessage `json:"content"`
	CallID    string          `json:"call_id"`
	Name      string          `json:"name"`
	Namespace string          `json:"namespace"`
	Arguments *string         `json:"arguments"`
	Input     *string         `json:"input"`
	Output    json.RawMessage `json:"output"`
	Summary   []wirePart      `json:"summary"`
}

// wirePart is a part of a message, of reasoning, or of the output of a tool.
type wirePart struct {
	Type     string `json:"type"`
	Text     string `json:"text"`
	Refusal  string `json:"refusal"`
	ImageURL string `json:"image_url"`
	FileID   string `json:"file_id"`
	FileURL  string `json:"file_url"`
	FileData string `json:"file_data"`
	Filename string `json:"filename"`
	Detail   string `json:"detail"`
}

// decodeInput reads the input: a text, or a list of items.
func (d *decoder) decodeInput(value json.RawMessage) error {
	if value == nil || string(value) == "null" {
		if d.compacts { // the conversation that it continues is compacted
			return nil
		}
		return fault.New(fault.Invalid, "missing_required_parameter", "the request has no input").In("input")
	}
	if isText(value) {
		var text string
		if err := into("input", value, &text); err != nil {
			return err
		}
		d.req.Items = append(d.req.Items, item.NewText(item.User, text))
		part, err := surface.Marshal(map[string]any{"role": item.User, "content": text})
		d.input = []json.RawMessage{part}
		return err
	}
	var list []json.RawMessage
	if err := json.Unmarshal(value, &list); err != nil {
		return fault.New(fault.Invalid, "invalid_type", "input must be a string or an array of items").In("input")
	}
	d.input = list
	in := newInputReader(d)
	defer d.dropFound()
	if err := in.addAll("input", list); err != nil {
		return err
	}
	if len(list) == 0 {
		return fault.New(fault.Invalid, "missing_required_parameter", "input must have at least one item").In("input")
	}
	return nil
}

// inputReader reads a list of items.
type inputReader struct {
	*decoder
	turn    int               // the number of the latest answer of a model
	open    bool              // the latest item belongs to it
	waiting map[string]int    // how many calls with an id have no result
	results map[string]result // the latest one for an id

	size   int                    // bytes of the items that were read, with those in the place of references
	shared map[string][]item.Part // content of the messages that were referred to, by their ids
	at     string                 // the place of the item that is read now
	id     string                 // of the message that is referred to now; "" = none
}

// result is the result of a call.
type result struct {
	at     int             // its index among the items
	output json.RawMessage // as the client wrote it
	custom bool            // of a custom tool
}

func newInputReader(d *decoder) inputReader {
	return inputReader{decoder: d, waiting: map[string]int{}, results: map[string]result{}, shared: map[string][]item.Part{}}
}

// said returns the number of the answer that an item of the model belongs to: items
// without another item between them are one answer.
func (in *inputReader) said() int {
	in.modelSpoke()
	return in.ofTurn()
}

// ofTurn is said for an item that the gateway puts in the place of another one.
func (in *inputReader) ofTurn() int {
	if !in.open {
		in.turn++
		in.open = true
	}
	return in.turn
}

// append appends an item, and its JSON if every provider of this dialect understands it.
func (in *inputReader) append(it item.Item, native json.RawMessage) {
	if native != nil {
		it.Native = item.Native{Dialect: model.DialectResponses, JSON: native}
	}
	if it.Turn == 0 {
		in.open = false
	}
	in.req.Items, in.req.Places = append(in.req.Items, it), append(in.req.Places, in.at)
}

// add reads one item.
func (in *inputReader) add(at string, raw json.RawMessage) error {
	var w wireItem
	if err := json.Unmarshal(raw, &w); err != nil {
		return fault.New(fault.Invalid, "invalid_type", "%s: %s", at, plain(err)).In(at)
	}
	switch w.Type {
	case "", "message":
		return in.addMessage(at, w, raw)
	case "function_call", "custom_tool_call":
		return in.addCall(at, w, raw)
	case "function_call_output", "custom_tool_call_output":
		return in.addResult(at, w, raw)
	case "reasoning":
		it := item.Item{Kind: item.Reasoning, Turn: in.said()}
		for _, p := range w.Summary {
			it.Parts = append(it.Parts, item.Part{Kind: item.Text, Text: p.Text})
		}
		in.append(it, raw)
		return nil
	case "mcp_call":
		items, err := replayMCPCall(at, raw, in.said())
		for _, it := range items {
			in.append(it, nil)
		}
		return err
	case "mcp_list_tools":
		return replayMCPListTools(in.req, at, raw)
	case "additional_tools":
		return in.addTools(at, raw)
	case "compaction":
		return in.addCompaction(at, raw)
	case "compaction_trigger":
		in.compacts = true
		return nil
	case "mcp_approval_request":
		return in.addApprovalRequest(at, raw)
	case "mcp_approval_response":
		return in.addApprovalResponse(at, raw)
	}
	if i := slices.IndexFunc(in.code, func(c *codeTool) bool { return c.replays(w.Type) }); i >= 0 && !isOnlyID(raw) {
		items, err := in.code[i].replay(at, raw, in.said())
		for _, it := range items {
			in.append(it, nil)
		}
		return err
	}
	// A record of a tool that a provider executed. Providers of this dialect read their own.
	// One of a hosted tool that an MCP server answers is the gateway's own: no provider has it.
	// One that only has an id says nothing to a provider that does not look it up.
	own := in.answers(strings.TrimSuffix(w.Type, "_call")) || isOnlyID(raw)
	if !own {
		in.append(item.Item{Kind: item.Other, Turn: in.said()}, raw)
	}
	if own || !in.relays() {
		in.drop(at)
		if in.lost.at == "" {
			in.lost = lostItem{at, w.Type}
		}
	}
	return nil
}

// lostItem is an input item that the model does not get. The zero value is none.
type lostItem struct{ at, kind string }

// checkLost refuses a request whose model would see nothing of its input, because its items
// are of types that the provider cannot get. Called when all members are read.
func (d *decoder) checkLost() error {
	seen := func(it item.Item) bool { return it.Kind != item.Other }
	continues := d.req.Continues.ID != "" || len(d.approvals.answers) > 0
	if d.lost.at == "" || continues || slices.ContainsFunc(d.req.Items, seen) {
		return nil
	}
	return fault.New(fault.Invalid, "invalid_value", "%s: an item of the type %.100q cannot be carried to the provider %s, and the input has no other item for the model; "+
		"correct the type, or add a message", d.lost.at, d.lost.kind, d.req.Targets[0].Provider).In(d.lost.at)
}

// addAll reads the items of a list, and puts the stored items in the place of references. All
// items together may be as large as a body.
func (in *inputReader) addAll(at string, list []json.RawMessage) error {
	ids, err := in.resolve(at, list)
	if err != nil {
		return err
	}
	for i := range list {
		at := path(at, i)
		if in.at, in.id = at, ""; ids != nil {
			in.id = ids[i]
		}
		if in.compacts && !in.alone {
			return fault.New(fault.Invalid, "invalid_value", "%s: an item follows the compaction_trigger, which must be the last", at).In(at)
		}
		if err := in.add(at, list[i]); err != nil {
			return err
		}
	}
	return nil
}

// requestsOfItem is how often the request to a provider has an item while it is made.
const requestsOfItem = 3

// resolve checks the items of a list and puts the stored items in the place of references. It returns the ids of the
// references by their index; nil = there are none. The memory of all of them is charged before the first is read,
// and so is, for a moment, that of the request to the provider: what does not fit is refused here.
func (in *inputReader) resolve(at string, list []json.RawMessage) (ids []string, err error) {
	size, decoded := 0, 0
	for i, raw := range list {
		at := path(at, i)
		if err := checkItem(at, raw); err != nil {
			return nil, err
		}
		if r := referenceOf(raw); r.is() {
			if list[i], err = in.referenced(at, r.ID, raw); err != nil {
				return nil, err
			}
			if ids == nil {
				ids = make([]string, len(list))
			}
			ids[i] = r.ID
			size += len(list[i])
			decoded += surface.DecodedBytes(list[i])
		}
		if in.size += len(list[i]); in.size > surface.MaxBody {
			return nil, fault.New(fault.TooLarge, "request_too_large", "%s: with the stored items to which it refers, the input is larger than %d bytes; send fewer references", at, surface.MaxBody).In(at)
		}
	}
	return ids, in.charge(decoded, requestsOfItem*size)
}

// reference is what the gateway reads of an input item that may name a stored one. Its type
// may be missing.
type reference struct{ Type, Role, ID string }

func (r reference) is() bool {
	return r.Type == "item_reference" || r.Type == "" && r.Role == "" && r.ID != ""
}

// referenceOf returns the reference that an item may be.
func referenceOf(raw []byte) reference {
	t := surface.Texts(raw, "type", "role", "id")
	return reference{t[0], t[1], t[2]}
}

// referenced returns the stored item with the id, to which the item raw refers.
func (in *inputReader) referenced(at, id string, raw json.RawMessage) (json.RawMessage, error) {
	if id == "" {
		var w struct{ ID *string }
		if err := json.Unmarshal(raw, &w); err != nil {
			return nil, fault.New(fault.Invalid, "invalid_type", "%s.id must be a string", at).In(at + ".id")
		}
		return nil, fault.New(fault.Invalid, "missing_required_parameter", "%s has no id", at).In(at + ".id")
	}
	raw, err := in.find(id)
	if err == nil && raw == nil {
		err = fault.New(fault.NotFound, "item_not_found", "%s: no stored item has the id %.100q; send the item itself", at, id).In(at)
	}
	return raw, err
}

func (in *inputReader) addMessage(at string, w wireItem, raw json.RawMessage) error {
	it := item.Item{Kind: item.Message, Role: w.Role}
	switch w.Role {
	case item.System, item.Developer, item.User:
	case item.Assistant:
		it.Turn = in.said()
	case "":
		if w.Type == "" {
			return fault.New(fault.Invalid, "missing_required_parameter", "%s has neither a type nor a role", at).In(at + ".type")
		}
		return fault.New(fault.Invalid, "missing_required_parameter", "%s has no role", at).In(at + ".role")
	default:
		return fault.New(fault.Invalid, "invalid_value", "%s.role must be user, assistant, system or developer", at).In(at + ".role")
	}
	var err error
	if it.Parts, err = in.content(at+".content", w.Content); err != nil {
		return err
	}
	in.append(it, raw)
	return nil
}

// content reads the content of a message. Messages with the same reference share it.
func (in *inputReader) content(at string, raw json.RawMessage) ([]item.Part, error) {
	if parts, is := in.shared[in.id]; is && in.id != "" {
		return parts, nil
	}
	parts, err := in.parts(at, raw)
	if err == nil && in.id != "" {
		in.shared[in.id] = slices.Clip(parts)
	}
	return parts, err
}

func (in *inputReader) addCall(at string, w wireItem, raw json.RawMessage) error {
	if w.CallID == "" {
		return fault.New(fault.Invalid, "missing_required_parameter", "%s has no call_id", at).In(at + ".call_id")
	}
	if w.Name == "" {
		return fault.New(fault.Invalid, "missing_required_parameter", "%s has no name", at).In(at + ".name")
	}
	native := raw
	arguments := deref(w.Arguments)
	if w.Type == "custom_tool_call" {
		arguments, native = customArguments(deref(w.Input)), nil
	}
	if w.Namespace != "" {
		native = nil
	}
	call := item.NewCall(w.CallID, flatName(w.Namespace, w.Name), cmp.Or(arguments, "{}"))
	call.Turn = in.said()
	in.waiting[w.CallID]++ // ids can repeat
	in.append(call, native)
	return nil
}

// addResult reads the output of a call. One that is sent again is the same; another one for
// the same call is refused. A further output of a custom tool, such as Codex sends of a tool
// that reports before its end, is added to the first one: other dialects have one result for
// each call. An output of a custom tool that only this dialect has stays as it is.
func (in *inputReader) addResult(at string, w wireItem, raw json.RawMessage) error {
	if w.CallID == "" {
		return fault.New(fault.Invalid, "missing_required_parameter", "%s has no call_id", at).In(at + ".call_id")
	}
	if w.Output == nil {
		return fault.New(fault.Invalid, "missing_required_parameter", "%s has no output", at).In(at + ".output")
	}
	parts, err := in.parts(at+".output", w.Output)
	if err != nil {
		return err
	}
	custom := w.Type == "custom_tool_call_output"
	first, is := in.results[w.CallID]
	switch {
	case in.waiting[w.CallID] > 0:
		in.waiting[w.CallID]--
	case !is: // the call is in the conversation that the request continues, or in what is left out
		if in.orphan.at == "" && !slices.ContainsFunc(in.req.Items, func(it item.Item) bool { return it.Kind == item.Other }) {
			in.orphan = orphan{at + ".call_id", w.CallID}
		}
	case !custom && !first.custom:
		if bytes.Equal(first.output, w.Output) || in.native == "" && reflect.DeepEqual(in.req.Items[first.at].Parts, parts) {
			return nil
		}
		return fault.New(fault.Invalid, "invalid_value", "%s: the call with the call_id %.100q has another output before this one; "+
			"send one output for each call", at, w.CallID).In(at)
	case in.native == "":
		it := &in.req.Items[first.at]
		it.Parts, it.Native = append(it.Parts, parts...), item.Native{}
		return nil
	}
	in.results[w.CallID] = result{len(in.req.Items), w.Output, custom}
	native := raw
	if custom {
		native = nil
	}
	in.append(item.Item{Kind: item.ToolResult, CallID: w.CallID, Parts: parts}, native)
	return nil
}

// orphan is an output whose call the input does not have. The zero value is none.
type orphan struct{ at, id string }

// checkOrphan refuses an output whose call is nowhere. Called when all members are read: a request
// that continues a conversation may answer its calls.
func (d *decoder) checkOrphan() error {
	if d.orphan.at == "" || d.req.Continues.ID != "" {
		return nil
	}
	return fault.New(fault.Invalid, "invalid_value", "%s: the input before it has no call with the call_id %.100q; send the function_call before its output, "+
		"or continue its response with previous_response_id", d.orphan.at, d.orphan.id).In(d.orphan.at)
}

// parts reads content that is a text or a list of parts.
func (in *inputReader) parts(at string, raw json.RawMessage) ([]item.Part, error) {
	if isText(raw) {
		var text string
		err := into(at, raw, &text)
		return []item.Part{{Kind: item.Text, Text: text}}, err
	}
	var wire []wirePart
	if len(raw) > 0 {
		if err := into(at, raw, &wire); err != nil {
			return nil, err
		}
	}
	for i, p := range surface.Elements(raw) {
		if err := surface.CheckNames(path(at, i), p, partNames); err != nil {
			return nil, err
		}
	}
	var parts []item.Part
	for i, p := range wire {
		place := path(at, i)
		switch p.Type {
		case "input_text", "output_text", "text", "summary_text", "reasoning_text":
			parts = append(parts, item.Part{Kind: item.Text, Text: p.Text})
		case "refusal":
			parts = append(parts, item.Part{Kind: item.Refusal, Text: p.Refusal})
		case "input_image":
			if p.ImageURL == "" && p.FileID == "" {
				return nil, fault.New(fault.Invalid, "missing_required_parameter", "%s has neither image_url nor file_id", place).In(place + ".image_url")
			}
			parts = append(parts, item.Part{Kind: item.Image, URL: p.ImageURL, FileID: p.FileID, Detail: p.Detail})
		case "input_file":
			if p.FileData == "" && p.FileURL == "" && p.FileID == "" {
				return nil, fault.New(fault.Invalid, "missing_required_parameter", "%s has neither file_data, file_url nor file_id", place).In(place + ".file_data")
			}
			parts = append(parts, item.Part{Kind: item.File, Data: p.FileData, URL: p.FileURL, FileID: p.FileID, Name: p.Filename})
		case "":
			return nil, fault.New(fault.Invalid, "missing_required_parameter", "%s has no type", place).In(place + ".type")
		default:
			in.needs(place)
		}
	}
	return parts, nil
}

// flatName is the name of a tool of a namespace among the tools of a model. A name that providers
// would refuse as too long is cut, and ends with a hash of the whole.
func flatName(namespace, name string) string {
	if namespace == "" {
		return name
	}
	const longest = 64 // what the OpenAI dialect allows for a function's name
	full := strings.TrimSuffix(namespace, "__") + "__" + name
	if len(full) <= longest {
		return full
	}
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(full)) // never fails
	suffix := fmt.Sprintf("_%016x", sum.Sum64())
	return full[:longest-len(suffix)] + suffix
}
