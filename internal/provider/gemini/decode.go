package gemini

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/internal/sse"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

// maxParts is how many parts one turn may have, after adjacent pieces of one text are
// joined.
const maxParts = 4096

// decode reads one answer, streamed or whole, reports its deltas and returns the turn,
// which has the given number. names has the names of functions by their aliases. The turn stands
// beside an error where something had come before it. What the turn takes is charged to memory, if
// there is one. The error is a *model.Error, a [wire.Stopped], or what reading returned.
func decode(src io.Reader, number int, names map[string]string, memory tool.Memory, emit func(model.Delta) error) (*model.Turn, error) {
	a := &answer{Turn: wire.Turn{Emit: emit}, number: number, names: names}
	err := wire.Decode(src, memory, sse.ReaderOptions{}, a)
	if err == nil {
		err = a.failure()
	}
	if err != nil {
		a.Over = false
		if a.IsEmpty() {
			return nil, err
		}
	}
	return a.turn(), err
}

// answer puts a turn together.
type answer struct {
	wire.Turn
	number int               // of the turn
	names  map[string]string // of functions, by their aliases; nil = none has one

	last    *run // that a part can continue; nil = there is none
	parts   int
	usage   usage
	counted bool   // the usage is that of the end, and not a sum so far
	message string // what the provider says of the finish reason
}

// run is one item of the turn: adjacent parts of the same kind. Visible texts and images are a
// message; thoughts, and signatures that stand alone, are reasoning; each function call, and each part
// that only the dialect knows, is a run of its own.
type run struct {
	wire.Entry
	parts []part
}

// isOpen reports whether the run is a call that is not complete.
func (r *run) isOpen() bool { return r != nil && r.Kind == item.ToolCall && !r.Done }

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

// Ends implements wire.Decoder. The dialect has no last event: a stream is complete once it has said why
// it ends.
func (a *answer) Ends(sse.Event) bool { return false }

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
	if !a.Over && a.last == nil {
		return wire.Foreign(data, "the answer has no candidates")
	}
	return a.close()
}

// close ends an answer that is whole and does not say why it ends. One that stops within a call, or has nothing, is
// not whole.
func (a *answer) close() error {
	if a.last.isOpen() && !a.Over {
		return wire.Broken("sent an answer that ends within a call", nil)
	}
	a.Over, a.counted = a.Over || a.last != nil, true
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
	a.ID, a.Model = cmp.Or(a.ID, c.ResponseID), cmp.Or(c.ModelVersion, a.Model)
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
			a.Raw, a.message, a.Over = candidate.FinishReason, candidate.FinishMessage, true
			if stopOf(a.Raw) == model.StopLength {
				continue // within the call
			}
			if err := a.endCall(); err != nil {
				return err
			}
		}
	}
	if len(c.Usage) > 0 {
		a.counted = a.Over
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
	case jsonscan.Member(raw, "thoughtSignature") != nil && !wire.HasMore(raw, "thoughtSignature", "thought"):
		return a.append(item.Reasoning, "", compact(raw))
	case len(raw) <= 2:
		return nil // {} says nothing
	}
	return a.append(item.Other, "", compact(raw))
}

// addText adds text, or a thought. An empty text that carries a signature continues
// what is before it, and is a thought without words if nothing is.
func (a *answer) addText(raw json.RawMessage, p partFields) error {
	kind, plain := item.Message, !wire.HasMore(raw, "text", "thought")
	if p.Thought {
		kind = item.Reasoning
	}
	if *p.Text == "" {
		if plain {
			return nil
		}
		if a.last == nil || a.last.Kind != kind {
			kind = item.Reasoning
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
	kind := item.Message
	var text string
	media := mediaOf(p.InlineData, p.FileData)
	switch {
	case p.Thought:
		kind, text = item.Reasoning, media.Describe()
	case slices.Contains(imageTypes, media.MIMEType) && media.Data != "":
		text = markdownImage(media)
	default:
		text = media.Describe()
	}
	if last := a.last; last != nil && last.Kind == kind && len(last.Text) > 0 && !bytes.HasSuffix(last.Text, []byte("\n")) {
		text = "\n\n" + text
	}
	return a.append(kind, text, compact(raw))
}

// begin begins a run.
func (a *answer) begin(r *run) error {
	if err := a.endCall(); err != nil {
		return err
	}
	a.last = r
	return a.Add(r)
}

// append adds a part to a run of the kind, and reports its text. raw is the part as it
// goes back; nil for one that is nothing but text.
func (a *answer) append(kind item.Kind, text string, raw []byte) error {
	if a.last == nil || a.last.Kind != kind || kind == item.Other {
		if err := a.begin(&run{Entry: wire.Entry{Kind: kind}}); err != nil {
			return err
		}
	}
	r := a.last
	a.Content += len(text)
	if n := len(r.parts); raw == nil && n > 0 && r.parts[n-1].raw == nil {
		r.parts[n-1].text = append(r.parts[n-1].text, text...)
	} else {
		a.keep(r, part{text: []byte(text), raw: raw})
	}
	return a.Say(&r.Entry, text)
}

// keep adds a part to a run.
func (a *answer) keep(r *run, p part) {
	a.parts++
	a.Others += len(p.raw)
	r.parts = append(r.parts, p)
}

// addCall adds a call, or completes one that was to be continued.
func (a *answer) addCall(raw json.RawMessage, f *callFields) error {
	if len(f.PartialArgs) > 0 {
		return wire.Broken("sent the arguments of a call in pieces, which the request does not ask for", nil)
	}
	r := a.last
	if !r.isOpen() || f.Name != "" {
		r = &run{Entry: wire.Entry{Kind: item.ToolCall, ID: f.ID, Name: cmp.Or(a.names[f.Name], f.Name), Whole: true}}
		if err := a.begin(r); err != nil {
			return err
		}
		if r.ID == "" {
			r.ID = a.callID()
		}
		a.keep(r, part{raw: compact(raw)})
		if err := a.Call(&r.Entry); err != nil {
			return err
		}
	}
	r.setArguments(f.Args)
	a.Content += len(r.Input)
	if f.WillContinue {
		return nil
	}
	return a.endCall()
}

// setArguments takes the arguments of a call. The dialect has an object; any other
// value is an answer that is not valid, which the model has to hear of: it goes back as
// the member of an object.
func (r *run) setArguments(args json.RawMessage) {
	switch args = jsonscan.TrimSpace(args); {
	case len(args) == 0 || jsonscan.IsKind(args, 'n'):
		return
	case jsonscan.IsKind(args, '{'):
		r.Input = compact(args)
	case jsonscan.HasText(args):
		r.Input = []byte(jsonscan.Text(args))
	default:
		r.Input = compact(args)
	}
}

// endCall completes a call whose continuation did not come: something else came, or
// the turn ended without reaching its limit.
func (a *answer) endCall() error {
	if !a.last.isOpen() {
		return nil
	}
	return a.End(&a.last.Entry)
}

// callID returns an id for a call that has none. It is not sent to the provider. Of
// two calls of a conversation it is not the same.
func (a *answer) callID() string {
	const most = 24 // so that other dialects take it, too
	of := wire.Word(a.ID[:min(len(a.ID), most)])
	return fmt.Sprintf("call_%s_%d", cmp.Or(of, fmt.Sprint(a.number)), a.Calls())
}

// compact returns a copy of JSON without white space.
func compact(raw []byte) []byte {
	var b bytes.Buffer
	b.Grow(len(raw))
	_ = json.Compact(&b, raw) // was parsed before
	return b.Bytes()
}
