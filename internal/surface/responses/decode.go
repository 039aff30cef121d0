package responses

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/turnpike-gateway/turnpike/internal/builtin"
	"github.com/turnpike-gateway/turnpike/internal/conversation"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/surface"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// decoder reads a request.
type decoder struct {
	req   *run.Request
	tools clientTools
	echo  echo

	// find finds a stored item by its id; nil for none. dropFound drops what was read for that.
	find      func(itemID string) (json.RawMessage, error)
	dropFound func()
	charge    func(kept, passing int) error // see surface.Charge

	declared map[string]int    // the places of the client's tools in those of the run, by the name for the model
	provided map[string]bool   // the types of the tools that the provider executes
	hosted   []loop.HostedTool // the tools of MCP servers that answer hosted tools of the request

	code       []*codeTool // what runs the code of the request; nil = nothing of the gateway's own
	containers containers  // nil = none is looked for
	container  *container  // of code; nil = none

	approvals approvalInput

	seal     compactionSeal
	compacts bool     // the request asks for a compaction
	alone    bool     // with POST /v1/responses/compact
	kept     []string // the texts that a compaction keeps

	replaces  bool // a tool replaces an earlier one with its name
	stream    bool
	dropped   []string          // members that a run cannot carry
	lost      lostItem          // the first input item that the model does not get
	orphan    orphan            // the first output without a call
	context   surface.Context   // what it says of prompts that are too long
	native    string            // the place of the first value that only a provider of this dialect can get; "" = none
	input     []json.RawMessage // as the client sent it, if it is stored
	maxTokens int64             // of one model call's output; 0 = no limit
	calls     int               // tool calls of the gateway; 0 = no limit of the client's
}

func newDecoder(req *run.Request) *decoder {
	return &decoder{
		dropFound: func() {}, charge: func(int, int) error { return nil }, req: req, tools: clientTools{sent: map[string]clientTool{}}, echo: newEcho(), declared: map[string]int{}, provided: map[string]bool{},
	}
}

// drop notes that the value at a place has no effect.
func (d *decoder) drop(place string) { d.dropped = append(d.dropped, place) }

// dropOthers notes the members of an object that have other names than these. null and false
// ask for nothing.
func (d *decoder) dropOthers(at string, object json.RawMessage, known ...string) {
	members := map[string]json.RawMessage{}
	_ = json.Unmarshal(object, &members) // the caller decodes it, too
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if v := string(members[name]); !slices.Contains(known, name) && v != "null" && v != "false" {
			d.drop(at + "." + name)
		}
	}
}

// needs notes that the value at a place cannot be translated: only a provider of this
// dialect can get it.
func (d *decoder) needs(place string) {
	if d.native == "" {
		d.native = place
	}
}

// decode fills the request from a body's members; of a repeated member the last counts.
// Tools are read before what names them.
func (d *decoder) decode(members []surface.Member) error {
	d.echo.Store = !d.relayed()
	values := make(map[string]json.RawMessage, len(members))
	for _, m := range members {
		values[m.Name] = m.Value
	}
	if v := values["prompt"]; v != nil && string(v) != "null" { // such a request often has no input
		return d.decodeMember("prompt", v)
	}
	ordered := []string{"tools", "instructions", "input", "tool_choice"}
	for _, name := range ordered {
		if err := d.decodeMember(name, values[name]); err != nil {
			return err
		}
	}
	for _, m := range members {
		value, is := values[m.Name]
		if !is || slices.Contains(ordered, m.Name) {
			continue
		}
		delete(values, m.Name)
		if string(value) == "null" {
			continue
		}
		if err := d.decodeMember(m.Name, value); err != nil {
			return err
		}
	}
	if err := d.decideApprovals(); err != nil {
		return err
	}
	if err := d.checkLost(); err != nil {
		return err
	}
	if err := d.checkOrphan(); err != nil {
		return err
	}
	if d.compacts {
		if err := d.checkCompaction(); err != nil {
			return err
		}
	}
	if err := d.checkBackground(); err != nil {
		return err
	}
	d.req.Settings = d.settings(members)
	if err := d.setContainer(); err != nil {
		return err
	}
	if err := d.keep(); err != nil {
		return err
	}
	if d.native == "" {
		return nil
	}
	return surface.KeepRelaying(d.req, model.DialectResponses, d.native, "the Responses API")
}

// checkBackground refuses a response in the background that could not be read later.
func (d *decoder) checkBackground() error {
	var why string
	switch {
	case !d.echo.background:
		return nil
	case d.relayed():
		why = "the agent loop is switched off for this request, and nothing of it is stored; leave out background, or the header turnpike-mcp-disabled"
	case !d.echo.Store:
		why = "a response in the background is read later, so it must be stored; leave out store: false, or background"
	case d.compacts:
		why = "a compaction is answered at once; leave it out"
	case len(d.req.Answers) > 0:
		why = "a response that continues with approvals is not queued again, and goes on if you disconnect; leave it out"
	default:
		return nil
	}
	return fault.New(fault.Invalid, "unsupported_value", "background: %s", why).In("background")
}

// settings returns the hashes of the members that a request which continues this one must not
// change. The credentials of servers may be new ones.
func (d *decoder) settings(members []surface.Member) map[string]string {
	out := map[string]string{"model": surface.Hash([]byte(d.req.Model)), "store": surface.Hash(strconv.AppendBool(nil, d.echo.Store))}
	for _, m := range members {
		switch m.Name {
		case "model", "store", "input", "stream", "stream_options", "previous_response_id", "conversation", "metadata", "background":
			continue
		case "tools":
			if bare, err := surface.Marshal(d.echo.Tools); err == nil {
				out[m.Name] = surface.Hash(append(bare, d.addresses()...))
			}
			continue
		}
		if string(m.Value) != "null" {
			out[m.Name] = surface.Hash(m.Value)
		}
	}
	return out
}

// addresses returns the addresses of the declared servers, of which the response repeats only a
// part.
func (d *decoder) addresses() (out []byte) {
	for _, s := range d.req.RequestServers {
		out = append(append(out, 0), s.URL.Reveal()...)
	}
	return out
}

// relayed reports whether the loop is off. Then nothing is stored.
func (d *decoder) relayed() bool { return d.req.Relay != nil }

// keep says that the response is stored, unless the client does not want it.
func (d *decoder) keep() error {
	if !d.echo.Store {
		return nil
	}
	kept, err := surface.Marshal(stored{Response: d.echo, Encrypted: d.echo.encrypted, Plain: d.echo.plain, Background: d.echo.background, Model: d.req.Model, Container: d.container, Outputs: d.echo.outputs})
	d.req.Store = &run.StoreOptions{RequestJSON: kept, Input: entriesOf(d.input)}
	return err
}

// decodeMember reads a member. value is nil for one of the first four that is absent.
func (d *decoder) decodeMember(name string, value json.RawMessage) error {
	switch name {
	case "model":
		return nil
	case "tools":
		return d.decodeTools(value)
	case "tool_choice":
		return d.decodeToolChoice(value)
	case "instructions":
		return d.decodeInstructions(value)
	case "input":
		return d.decodeInput(value)
	case "stream":
		return into(name, value, &d.stream)
	case "stream_options":
		return d.decodeStreamOptions(value)
	case "max_tool_calls":
		return d.decodeMaxToolCalls(value)
	case "max_output_tokens":
		return d.decodeMaxOutputTokens(value)
	case "metadata":
		return d.decodeMetadata(value)
	case "include":
		return d.decodeInclude(value)
	case "store":
		return d.decodeStore(value)
	case "previous_response_id":
		return d.decodePrevious(value)
	case "background":
		return into(name, value, &d.echo.background)
	case "conversation":
		return d.decodeConversation(value)
	case "truncation":
		return d.decodeTruncation(value)
	case surface.ContextMember:
		return d.decodeContext(value)
	case "prompt":
		return fault.New(fault.Invalid, "unsupported_parameter", "prompt: the gateway has no stored prompts; send instructions and input").In(name)
	}
	typed, err := d.decodeOption(name, value)
	if err != nil {
		return err
	}
	d.req.Params = append(d.req.Params, model.Param{Name: name, Value: value, Typed: typed})
	return nil
}

// maxLogprobs is the most tokens of which a client can have the probabilities at each place.
const maxLogprobs = 20

// decodeOption reads a member that goes on to the provider, and reports whether its
// meaning is in the typed options of the request, or is the default.
func (d *decoder) decodeOption(name string, value json.RawMessage) (typed bool, err error) {
	o, e := &d.req.Options, &d.echo
	switch name {
	case "temperature":
		err = numberUpTo(2, name, value, &o.Temperature, &e.Temperature)
	case "top_p":
		err = numberUpTo(1, name, value, &o.TopP, &e.TopP)
	case "presence_penalty":
		err = number(name, value, &o.PresencePenalty, &e.PresencePenalty)
	case "frequency_penalty":
		err = number(name, value, &o.FrequencyPenalty, &e.FrequencyPenalty)
	case "parallel_tool_calls":
		if err = into(name, value, &e.ParallelToolCalls); err == nil {
			o.ParallelCalls = &e.ParallelToolCalls
		}
	case "text":
		err = d.decodeText(value)
		return hasOnly(value, "format", "verbosity") && d.hasKnownFormat(value), err
	case "reasoning":
		return hasOnly(value, "effort", "summary"), d.decodeReasoning(value)
	case "user":
		err = into(name, value, &e.User)
		o.User = deref(e.User)
	case "safety_identifier":
		err = into(name, value, &e.SafetyIdentifier)
		return deref(e.SafetyIdentifier) == "", err
	case "prompt_cache_key":
		err = into(name, value, &e.PromptCacheKey)
		return deref(e.PromptCacheKey) == "", err
	case "service_tier":
		err = into(name, value, &e.ServiceTier)
		return e.ServiceTier == "auto" || e.ServiceTier == "default", err
	case "top_logprobs":
		if e.TopLogprobs, err = integer(name, value, 0); err == nil && e.TopLogprobs > maxLogprobs {
			err = fault.New(fault.Invalid, "integer_above_max_value", "top_logprobs must be at most %d", maxLogprobs).In(name)
		}
		return e.TopLogprobs == 0, err
	default:
		return surface.SaysNothing(surface.Member{Name: name, Value: value}), nil
	}
	return true, err
}

// into decodes a member.
func into[T any](name string, value json.RawMessage, v *T) error {
	if err := json.Unmarshal(value, v); err != nil {
		return fault.New(fault.Invalid, "invalid_type", "%s: %s", name, plain(err)).In(name)
	}
	return nil
}

// number decodes a member that is a number.
func number(name string, value json.RawMessage, option **float64, echoed *float64) error {
	if err := into(name, value, echoed); err != nil {
		return err
	}
	*option = echoed
	return nil
}

// numberUpTo decodes a member that is a number from 0 to most.
func numberUpTo(most float64, name string, value json.RawMessage, option **float64, echoed *float64) error {
	if err := number(name, value, option, echoed); err != nil {
		return err
	}
	switch {
	case *echoed < 0:
		return fault.New(fault.Invalid, "decimal_below_min_value", "%s must be at least 0", name).In(name)
	case *echoed > most:
		return fault.New(fault.Invalid, "decimal_above_max_value", "%s must be at most %v", name, most).In(name)
	}
	return nil
}

// hasOnly reports whether an object has no other members than these, apart from null.
func hasOnly(object json.RawMessage, names ...string) bool {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(object, &members); err != nil {
		return false
	}
	for name, v := range members {
		if !slices.Contains(names, name) && string(v) != "null" {
			return false
		}
	}
	return true
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// plain words a decoding error for somebody who does not know our types.
func plain(err error) string {
	var t *json.UnmarshalTypeError
	if errors.As(err, &t) {
		where := ""
		if t.Field != "" {
			where = t.Field + ": "
		}
		return fmt.Sprintf("%sthe value must not be of the JSON type %s", where, t.Value)
	}
	return err.Error()
}

func (d *decoder) decodeStreamOptions(value json.RawMessage) error {
	var w struct {
		IncludeObfuscation *bool `json:"include_obfuscation"`
	}
	err := into("stream_options", value, &w)
	d.dropOthers("stream_options", value, "include_obfuscation")
	d.echo.plain = w.IncludeObfuscation != nil && !*w.IncludeObfuscation
	return err
}

var isInteger = regexp.MustCompile(`^-?[0-9]+$`)

// decodeMaxToolCalls reads the most tool calls that the gateway makes for the response. The
// limit of the org applies in addition. A provider applies it to its own tools, in each model
// call.
func (d *decoder) decodeMaxToolCalls(value json.RawMessage) error {
	n, err := integer("max_tool_calls", value, 1)
	if len(d.req.Hosted) > 0 {
		d.req.Params = append(d.req.Params, model.Param{Name: "max_tool_calls", Value: value, Typed: true})
	}
	d.echo.MaxToolCalls, d.calls = &n, int(min(n, math.MaxInt32))
	return err
}

func (d *decoder) decodeMaxOutputTokens(value json.RawMessage) error {
	n, err := integer("max_output_tokens", value, 1)
	d.echo.MaxOutputTokens, d.maxTokens = &n, n
	d.req.Params = append(d.req.Params, model.Param{Name: "max_output_tokens", Value: value, Typed: true})
	return err
}

// integer reads an integer that is at least atLeast. One that is too large for the type is
// the largest.
func integer(name string, value json.RawMessage, atLeast int64) (int64, error) {
	if !isInteger.Match(value) {
		return 0, fault.New(fault.Invalid, "invalid_type", "%s must be an integer", name).In(name)
	}
	n, err := strconv.ParseInt(string(value), 10, 64)
	switch {
	case value[0] == '-' || err == nil && n < atLeast:
		return 0, fault.New(fault.Invalid, "integer_below_min_value", "%s must be at least %d", name, atLeast).In(name)
	case err != nil:
		return math.MaxInt64, nil
	}
	return n, nil
}

// The limits on metadata, from the OpenAI document.
const (
	maxMetadata      = 16  // pairs
	maxMetadataKey   = 64  // characters
	maxMetadataValue = 512 // characters
)

func (d *decoder) decodeMetadata(value json.RawMessage) error {
	m, err := decodeMetadata(value)
	if err != nil {
		return err
	}
	d.echo.Metadata, d.req.Options.Metadata = m, m
	d.req.Params = append(d.req.Params, model.Param{Name: "metadata", Value: value, Typed: true})
	return nil
}

// decodeMetadata reads pairs of strings within the limits of the API.
func decodeMetadata(value json.RawMessage) (map[string]string, error) {
	var pairs map[string]*string
	if err := into("metadata", value, &pairs); err != nil {
		return nil, err
	}
	if len(pairs) > maxMetadata {
		return nil, fault.New(fault.Invalid, "invalid_value", "metadata has %d pairs, and at most %d are allowed", len(pairs), maxMetadata).In("metadata")
	}
	m := make(map[string]string, len(pairs))
	for name, text := range pairs {
		if text == nil {
			return nil, fault.New(fault.Invalid, "invalid_type", "metadata: each value must be a string, and one is null").In("metadata")
		}
		v := *text
		m[name] = v
		if utf8.RuneCountInString(name) > maxMetadataKey || utf8.RuneCountInString(v) > maxMetadataValue {
			return nil, fault.New(fault.Invalid, "invalid_value", "metadata: a key may have %d characters and a value %d", maxMetadataKey, maxMetadataValue).In("metadata")
		}
	}
	return m, nil
}

// decodeInclude reads what the client wants to have included. Only a provider of this dialect
// has it, apart from the images of the input, which are always included.
func (d *decoder) decodeInclude(value json.RawMessage) error {
	var names []string
	if err := into("include", value, &names); err != nil {
		return err
	}
	typed := true // it means nothing to a provider of another dialect
	for _, name := range names {
		typed = typed && name == includeInputImage
		switch {
		case name == includeInputImage:
		case name == includeCodeOutputs && d.answers(builtin.HostedCode):
			d.echo.outputs = true
		case !d.relays(), name == includeOutputLogprobs:
			d.drop("include")
		case name == includeEncrypted:
			d.echo.encrypted = true
		}
	}
	if d.relays() {
		d.req.Params = append(d.req.Params, model.Param{Name: "include", Value: value, Typed: typed})
	}
	return nil
}

// decodeStore reads whether the response can be retrieved later.
func (d *decoder) decodeStore(value json.RawMessage) error {
	var store bool
	if err := into("store", value, &store); err != nil {
		return err
	}
	if store && d.relayed() {
		d.drop("store")
		return nil
	}
	d.echo.Store = store
	return nil
}

// decodePrevious reads which response the input follows.
func (d *decoder) decodePrevious(value json.RawMessage) error {
	const name = "previous_response_id"
	var id string
	if err := into(name, value, &id); err != nil || id == "" {
		return err
	}
	if d.relayed() {
		return onlyTheLoop(name)
	}
	if d.req.Continues.ID != "" {
		return exclusive()
	}
	d.req.Continues = conversation.Ref{ID: id, Member: name, Code: "previous_response_not_found"}
	d.echo.PreviousResponseID = &id
	return nil
}

// decodeConversation reads which conversation the input continues: its id, or an object with
// the id.
func (d *decoder) decodeConversation(value json.RawMessage) error {
	const name = "conversation"
	var w struct {
		ID string `json:"id"`
	}
	var err error
	if isText(value) {
		err = into(name, value, &w.ID)
	} else {
		err = into(name, value, &w)
	}
	if err != nil || w.ID == "" && isText(value) {
		return err
	}
	switch {
	case w.ID == "":
		return fault.New(fault.Invalid, "missing_required_parameter", "conversation has no id").In(name)
	case d.relayed():
		return onlyTheLoop(name)
	case !strings.HasPrefix(w.ID, conversationPrefix):
		return noConversation(w.ID, name)
	}
	if d.req.Continues.ID != "" {
		return exclusive()
	}
	d.req.Continues = conversation.Ref{ID: w.ID, Named: true, Member: name, Code: "conversation_not_found"}
	d.echo.Conversation = &echoConversation{w.ID}
	return nil
}

// exclusive refuses a request that continues two conversations.
func exclusive() error {
	return fault.New(fault.Invalid, "mutually_exclusive_parameters", "previous_response_id and conversation exclude each other; send one of them").In("previous_response_id")
}

// onlyTheLoop refuses a member that continues something stored, for a request with the loop
// off.
func onlyTheLoop(name string) error {
	return fault.New(fault.Invalid, "unsupported_parameter", "%s: the agent loop is switched off for this request, and only the loop continues what is stored; "+
		"leave out the header turnpike-mcp-disabled, or send the conversation as input", name).In(name)
}

func (d *decoder) decodeText(value json.RawMessage) error {
	var w struct {
		Format *struct {
			Type        string          `json:"type"`
			Name        string          `json:"name"`
			Description *string         `json:"description"`
			Schema      json.RawMessage `json:"schema"`
			Strict      *bool           `json:"strict"`
		} `json:"format"`
		Verbosity string `json:"verbosity"`
	}
	if err := into("text", value, &w); err != nil {
		return err
	}
	d.req.Options.Verbosity, d.echo.Text.Verbosity = w.Verbosity, w.Verbosity
	if w.Format == nil {
		return nil
	}
	f := w.Format
	switch f.Type {
	case "text", "json_object":
		d.req.Options.Format = model.Format{Type: f.Type}
		d.echo.Text.Format = textFormat{f.Type}
	case "json_schema":
		if f.Name == "" || f.Schema == nil {
			return fault.New(fault.Invalid, "missing_required_parameter", "text.format of the type json_schema needs a name and a schema").In("text.format")
		}
		if !isObject(f.Schema) {
			return fault.New(fault.Invalid, "invalid_type", "text.format.schema must be an object").In("text.format.schema")
		}
		d.req.Options.Format = model.Format{Type: f.Type, Name: f.Name, Description: deref(f.Description), Schema: f.Schema, Strict: f.Strict}
		d.echo.Text.Format = schemaFormat{f.Type, f.Name, deref(f.Description), f.Schema, f.Strict != nil && *f.Strict}
	default:
		return fault.New(fault.Invalid, "invalid_value", "text.format.type must be text, json_object or json_schema").In("text.format.type")
	}
	return nil
}

// hasKnownFormat reports whether a provider of another dialect loses no member of text.format
// without naming it. For such a provider the members are noted here.
func (d *decoder) hasKnownFormat(text json.RawMessage) bool {
	var w struct {
		Format json.RawMessage `json:"format"`
	}
	if json.Unmarshal(text, &w) != nil || w.Format == nil {
		return true
	}
	known := []string{"type", "name", "description", "schema", "strict"}
	if d.relays() {
		return hasOnly(w.Format, known...)
	}
	d.dropOthers("text.format", w.Format, known...)
	return true
}

func (d *decoder) decodeReasoning(value json.RawMessage) error {
	if err := into("reasoning", value, &d.echo.Reasoning); err != nil {
		return err
	}
	d.req.Options.Effort = deref(d.echo.Reasoning.Effort)
	return nil
}

// decodeInstructions puts the instructions in front of the conversation.
func (d *decoder) decodeInstructions(value json.RawMessage) error {
	if value == nil {
		return nil
	}
	if err := into("instructions", value, &d.echo.Instructions); err != nil {
		return err
	}
	if text := deref(d.echo.Instructions); text != "" {
		d.req.System = []item.Item{item.NewText(item.System, text)}
	}
	return nil
}

// path returns the place of an element of an array.
func path(of string, index int) string { return of + "[" + strconv.Itoa(index) + "]" }

// isText reports whether the value is a JSON string.
func isText(value json.RawMessage) bool { return strings.HasPrefix(string(value), `"`) }

// isObject reports whether the value is a JSON object.
func isObject(value json.RawMessage) bool { return strings.HasPrefix(string(value), "{") }
