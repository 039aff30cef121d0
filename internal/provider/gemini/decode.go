package gemini

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/internal/sse"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

// maxParts is how many parts one turn may have, after adjacent pieces of one text are
// joined.
const maxParts = 4096

// decode reads one answer, streamed or whole, reports its deltas and returns the turn,
// which has the given number. names has the names of functions by their aliases. The turn stands beside an error where something had come
// before it. What the turn takes is charged to memory, if there is one. The error is a
// *model.Error, a [wire.Stopped], or what reading returned.
func decode(src io.Reader, number int, names map[string]string, memory tool.Memory, emit func(model.Delta) error) (*model.Turn, error) {
	a := &answer{emit: emit, number: number, names: names}
	err := wire.Decode(src, memory, sse.ReaderOptions{}, a)
	if err == nil {
		err = a.failure()
	}
	if err != nil {
		a.ended = false
		if a.id == "" && len(a.runs) == 0 {
			return nil, err
		}
	}
	return a.turn(), err
}

// answer puts a turn together.
type answer struct {
	emit   func(model.Delta) error
	number int               // of the turn
	names  map[string]string // of functions, by their aliases; nil = none has one

	id, model string
	runs      []*run // in the order in which they began
	calls     int
	parts     int
	content   int // bytes of text, thoughts and arguments
	others    int // bytes of native forms
	usage     usage
	counted   bool   // the usage is that of the end, and not a sum so far
	raw       string // the finish reason
	message   string // what the provider says of it
	ended     bool
}

// runKind is what a run is.
type runKind int

const (
	texts    runKind = iota // visible texts and images
	thoughts                // thoughts, and signatures that stand alone
	call                    // one function call
	other                   // one part that only the dialect knows
)

// run is one item of the turn: adjacent parts of the same kind.
type run struct {
	kind   runKind
	number int // of its item
	text   []byte
	parts  []part

	id, name  string // of a call
	arguments []byte // of a call
	open      bool   // the call is not complete
}

// part is a part as it goes back to the provider.
type part struct {
	text []byte // of a part that has nothing but its text
	raw  []byte // any other; nil for a plain text
}

// chunk is a piece of an answer, or all of it.
type chunk struct {
	Candidates []struct {
		Content struct {
			Parts []json.RawMessage `json:"parts"`
		} `json:"content"`
		FinishReason  string `json:"finishReason"`
		FinishMessage string `json:"finishMessage"`
		Index         int    `json:"index"`
	} `json:"candidates"`
	PromptFeedback struct {
		BlockReason        string `json:"blockReason"`
		BlockReasonMessage string `json:"blockReasonMessage"`
	} `json:"promptFeedback"`
	Usage        json.RawMessage `json:"usageMetadata"`
	ModelVersion string          `json:"modelVersion"`
	ResponseID   string          `json:"responseId"`
	Error        json.RawMessage `json:"error"`
}

// partFields are the fields of a part that are read.
type partFields struct {
	Text         *string         `json:"text"`
	Thought      bool            `json:"thought"`
	Signature    string          `json:"thoughtSignature"`
	FunctionCall *callFields     `json:"functionCall"`
	InlineData   json.RawMessage `json:"inlineData"`
	FileData     json.RawMessage `json:"fileData"`
}

type callFields struct {
	ID           string          `json:"id"`
	Name         string          `json:"name"`
	Args         json.RawMessage `json:"args"`
	PartialArgs  json.RawMessage `json:"partialArgs"`
	WillContinue bool            `json:"willContinue"`
}

// usage counts tokens as the provider reports them. Later chunks repeat what has grown.
type usage struct {
	Prompt     int64 `json:"promptTokenCount"` // including cached tokens
	Candidates int64 `json:"candidatesTokenCount"`
	Thoughts   int64 `json:"thoughtsTokenCount"`
	Cached     int64 `json:"cachedContentTokenCount"`
	ToolUse    int64 `json:"toolUsePromptTokenCount"` // results of tools that the provider ran

	Tier    string `json:"serviceTier"` // of the Gemini API
	Traffic string `json:"trafficType"` // of Vertex AI
}

// Ends implements wire.Decoder. The dialect has no last event.
func (a *answer) Ends(sse.Event) bool { return false }

// Ended implements wire.Decoder. The dialect has no last event: a stream is complete
// once it has said why it ends.
func (a *answer) Ended() bool { return a.ended }

// Size implements wire.Decoder.
func (a *answer) Size() (content, others int) { return a.content, a.others }

// Event implements wire.Decoder.
func (a *answer) Event(ev sse.Event) (last bool, err error) {
	switch {
	case wire.Truncated(ev):
		return false, nil
	case string(ev.Data) == "[DONE]": // which compatible providers send
		return false, a.close()
	}
	return false, a.take(ev.Data)
}

// Whole implements wire.Decoder. An array has the chunks of a stream: providers send it
// where they do not support alt=sse.
func (a *answer) Whole(data []byte) error {
	if !jsonscan.IsKind(data, '[') {
		if err := a.take(data); err != nil {
			return err
		}
	}
	for _, e := range jsonscan.Elements(data) {
		if err := a.take(e); err != nil {
			return err
		}
	}
	if !a.ended && len(a.runs) == 0 {
		return wire.Foreign(data, "the answer has no candidates")
	}
	return a.close()
}

// close ends an answer that is whole and does not say why it ends. One that stops within a call, or has nothing, is
// not whole.
func (a *answer) close() error {
	if last := a.last(); last != nil && last.open && !a.ended {
		return wire.Broken("sent an answer that ends within a call", nil)
	}
	a.ended, a.counted = a.ended || len(a.runs) > 0, true
	return nil
}

// take reads one chunk.
func (a *answer) take(data []byte) error {
	var c chunk
	if !jsonscan.IsKind(data, '{') || json.Unmarshal(data, &c) != nil {
		return wire.Garbage(data)
	}
	if wire.SaysError(jsonscan.TrimSpace(c.Error)) {
		return wire.AnswerError(data)
	}
	if c.ResponseID != "" && a.id == "" {
		a.id = c.ResponseID
	}
	if c.ModelVersion != "" {
		a.model = c.ModelVersion
	}
	_ = json.Unmarshal(c.Usage, &a.usage) // what cannot be read was not reported
	if reason := c.PromptFeedback.BlockReason; reason != "" {
		return blocked(data, reason, c.PromptFeedback.BlockReasonMessage)
	}
	for _, candidate := range c.Candidates {
		if candidate.Index != 0 {
			continue // no request asks for more than one
		}
		for _, raw := range candidate.Content.Parts {
			if err := a.addPart(raw); err != nil {
				return err
			}
			if a.parts > maxParts {
				return wire.Broken(fmt.Sprintf("sent a turn with more than %d parts", maxParts), nil)
			}
		}
		if candidate.FinishReason != "" {
			a.raw, a.message, a.ended = candidate.FinishReason, candidate.FinishMessage, true
			if stopOf(a.raw) == model.StopLength {
				continue // within the call
			}
			if err := a.endCall(); err != nil {
				return err
			}
		}
	}
	if len(c.Usage) > 0 {
		a.counted = a.ended
	}
	return nil
}

// blocked returns the error of a prompt that the provider refuses.
func blocked(data []byte, reason, message string) error {
	if message == "" {
		message = "the provider blocked the prompt: " + reason
	}
	err := wire.AnswerError(data)
	err.Class, err.Code, err.Message = model.Filtered, reason, message
	return err
}

// addPart adds a part to the run that it continues, or begins one.
func (a *answer) addPart(raw json.RawMessage) error {
	var p partFields
	if !jsonscan.IsKind(raw, '{') || json.Unmarshal(raw, &p) != nil {
		return wire.Garbage(raw)
	}
	switch {
	case p.FunctionCall != nil:
		return a.addCall(raw, p.FunctionCall)
	case p.InlineData != nil || p.FileData != nil:
		return a.addMedia(raw, p)
	case p.Text != nil:
		return a.addText(raw, p)
	case onlySignature(raw):
		return a.append(thoughts, "", compact(raw))
	case len(raw) <= 2:
		return nil // {} says nothing
	}
	return a.append(other, "", compact(raw))
}

// addText adds text, or a thought. An empty text that carries a signature continues
// what is before it, and is a thought without words if nothing is.
func (a *answer) addText(raw json.RawMessage, p partFields) error {
	kind, plain := texts, isPlain(raw)
	if p.Thought {
		kind = thoughts
	}
	if *p.Text == "" {
		if plain {
			return nil
		}
		if last := a.last(); last == nil || last.kind != kind {
			kind = thoughts
		}
	}
	if plain {
		return a.append(kind, *p.Text, nil)
	}
	return a.append(kind, *p.Text, compact(raw))
}

// addMedia adds an image or another file that the model made. A client reads an image
// as Markdown, and of anything else what it is.
func (a *answer) addMedia(raw json.RawMessage, p partFields) error {
	kind := texts
	var text string
	media := mediaOf(p.InlineData, p.FileData)
	switch {
	case p.Thought:
		kind, text = thoughts, media.Describe()
	case slices.Contains(imageTypes, media.MIMEType) && media.Data != "":
		text = markdownImage(media)
	default:
		text = media.Describe()
	}
	if last := a.last(); last != nil && last.kind == kind && len(last.text) > 0 && !bytes.HasSuffix(last.text, []byte("\n")) {
		text = "\n\n" + text
	}
	return a.append(kind, text, compact(raw))
}

// last returns the run that a part can continue; nil = there is none.
func (a *answer) last() *run {
	if len(a.runs) == 0 {
		return nil
	}
	return a.runs[len(a.runs)-1]
}

// begin begins a run.
func (a *answer) begin(kind runKind) (*run, error) {
	if err := a.endCall(); err != nil {
		return nil, err
	}
	r := &run{kind: kind, number: len(a.runs)}
	a.runs = append(a.runs, r)
	return r, nil
}

// append adds a part to a run of the kind, and reports its text. raw is the part as it
// goes back; nil for one that is nothing but text.
func (a *answer) append(kind runKind, text string, raw []byte) error {
	r := a.last()
	if r == nil || r.kind != kind || kind == other {
		var err error
		if r, err = a.begin(kind); err != nil {
			return err
		}
	}
	a.content += len(text)
	r.text = append(r.text, text...)
	if n := len(r.parts); raw == nil && n > 0 && r.parts[n-1].raw == nil {
		r.parts[n-1].text = append(r.parts[n-1].text, text...)
	} else {
		a.keep(r, part{text: []byte(text), raw: raw})
	}
	if text == "" {
		return nil
	}
	d := model.Delta{Kind: model.TextDelta, Item: r.number, Text: text}
	if kind == thoughts {
		d.Kind = model.ReasoningDelta
	}
	return a.report(d)
}

// keep adds a part to a run.
func (a *answer) keep(r *run, p part) {
	a.parts++
	a.others += len(p.raw)
	r.parts = append(r.parts, p)
}

// addCall adds a call, or completes one that was to be continued.
func (a *answer) addCall(raw json.RawMessage, f *callFields) error {
	if len(f.PartialArgs) > 0 {
		return wire.Broken("sent the arguments of a call in pieces, which the request does not ask for", nil)
	}
	r := a.last()
	if r == nil || !r.open || f.Name != "" {
		if a.calls++; a.calls > wire.MaxCalls {
			return wire.Broken(fmt.Sprintf("sent a turn with more than %d tool calls", wire.MaxCalls), nil)
		}
		var err error
		if r, err = a.begin(call); err != nil {
			return err
		}
		r.id, r.name, r.open = f.ID, cmp.Or(a.names[f.Name], f.Name), true
		if r.id == "" {
			r.id = a.callID()
		}
		a.keep(r, part{raw: compact(raw)})
		if err := a.report(model.Delta{Kind: model.CallDelta, Item: r.number, CallID: r.id, Name: r.name}); err != nil {
			return err
		}
	}
	r.open = f.WillContinue
	r.setArguments(f.Args)
	a.content += len(r.arguments)
	if r.open {
		return nil
	}
	return a.reportArguments(r)
}

// setArguments takes the arguments of a call. The dialect has an object; any other
// value is an answer that is not valid, which the model has to hear of: it goes back as
// the member of an object.
func (r *run) setArguments(args json.RawMessage) {
	switch args = jsonscan.TrimSpace(args); {
	case len(args) == 0 || jsonscan.IsKind(args, 'n'):
		return
	case jsonscan.IsKind(args, '{'):
		r.arguments = compact(args)
	case jsonscan.HasText(args):
		r.arguments = []byte(jsonscan.Text(args))
	default:
		r.arguments = compact(args)
	}
}

// endCall completes a call whose continuation did not come: something else came, or
// the turn ended without reaching its limit.
func (a *answer) endCall() error {
	r := a.last()
	if r == nil || !r.open {
		return nil
	}
	r.open = false
	return a.reportArguments(r)
}

// reportArguments reports the arguments of a complete call.
func (a *answer) reportArguments(r *run) error {
	if len(r.arguments) == 0 {
		r.arguments = []byte(`{}`)
	}
	return a.report(model.Delta{Kind: model.CallDelta, Item: r.number, Text: string(r.arguments)})
}

// callID returns an id for a call that has none. It is not sent to the provider. Of
// two calls of a conversation it is not the same.
func (a *answer) callID() string {
	const most = 24 // so that other dialects take it, too
	of := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return '_'
	}, a.id[:min(len(a.id), most)])
	if of == "" {
		of = fmt.Sprint(a.number)
	}
	return fmt.Sprintf("call_%s_%d", of, a.calls-1)
}

func (a *answer) report(d model.Delta) error {
	if err := a.emit(d); err != nil {
		return wire.Stopped{Err: err}
	}
	return nil
}

// isPlain reports whether a part has nothing but its text and whether it is a thought.
func isPlain(raw []byte) bool {
	for name := range jsonscan.Members(raw) {
		if string(name) != "text" && string(name) != "thought" {
			return false
		}
	}
	return true
}

// onlySignature reports whether a part is a signature without anything that it signs.
func onlySignature(raw []byte) bool {
	signed := false
	for name := range jsonscan.Members(raw) {
		switch string(name) {
		case "thoughtSignature":
			signed = true
		case "thought":
		default:
			return false
		}
	}
	return signed
}

// compact returns a copy of JSON without white space.
func compact(raw []byte) []byte {
	var b bytes.Buffer
	b.Grow(len(raw))
	_ = json.Compact(&b, raw) // was parsed before
	return b.Bytes()
}
