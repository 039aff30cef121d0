package gemini

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// contentPart is a part that the gateway writes. It has one of the fields, and may have
// a signature.
type contentPart struct {
	Text             string            `json:"text,omitempty"`
	InlineData       *blob             `json:"inlineData,omitempty"`
	FileData         *fileData         `json:"fileData,omitempty"`
	FunctionCall     *functionCall     `json:"functionCall,omitempty"`
	FunctionResponse *functionResponse `json:"functionResponse,omitempty"`
	ThoughtSignature string            `json:"thoughtSignature,omitempty"`
}

type functionCall struct {
	ID   string          `json:"id,omitempty"`
	Name string          `json:"name"`
	Args json.RawMessage `json:"args"`
}

type functionResponse struct {
	ID       string            `json:"id,omitempty"`
	Name     string            `json:"name"`
	Response map[string]string `json:"response"`
	Parts    []*contentPart    `json:"parts,omitempty"`
}

const (
	user, modelRole = "user", "model"

	// noSignature stands for the signature of a call that another model made, or whose
	// signature was lost: https://ai.google.dev/gemini-api/docs/thought-signatures.
	noSignature = "skip_thought_signature_validator"

	// maxRequestData is the base64 of a request, which may have 20 MB in all. What
	// earlier tool results hold beyond it is sent as text.
	maxRequestData = 16 << 20
)

// contents sets the system instruction and the contents of the transcript. Adjacent
// items of one side become one content. The results of a turn's calls are a content of
// their own, in the order of the calls.
func (t *translation) contents() {
	w := writer{translation: t, firstShown: firstShown(t.req.Items)}
	for i := range t.req.Items {
		it := &t.req.Items[i]
		if wire.BeginsMessage(t.req.Items, i) {
			w.unit++
		}
		t.DropItem(t.req, it)
		if it.Kind == item.ToolResult {
			w.result(it, i >= w.firstShown)
			continue
		}
		w.endResults()
		switch {
		case it.Kind == item.Message && (it.Role == item.System || it.Role == item.Developer):
			w.system(it)
		case it.Kind == item.Message && it.Role != item.Assistant:
			w.add(user, w.asked(it)...)
		default:
			w.add(modelRole, w.said(it)...)
		}
	}
	w.endResults()
	if len(w.out) == 0 || w.out[0].Role == modelRole {
		w.out = append([]content{{user, []any{&contentPart{Text: wire.Begin}}}}, w.out...)
		w.lastAsked++
	}
	if t.rules.signed {
		w.sign()
	}
	t.Contents = w.out
}

// writer collects contents.
type writer struct {
	*translation
	unit int // the number of the message in the client's request, from 1
	out  []content

	lastAsked  int // index of the last content in which the user said something
	closed     bool
	firstShown int // index of the first item whose result is sent with binary content

	calls   []sentCall
	results []sentResult
}

// sentCall is a call that has no result yet.
type sentCall struct {
	of       string // the id in the transcript
	id, name string // in the request; id "" = it has none there
	answered bool
}

// sentResult is a result with the number of its call.
type sentResult struct {
	at       int
	response *functionResponse
	media    []*contentPart
}

// add appends parts to the last content, or begins another one.
func (w *writer) add(role string, parts ...any) {
	if len(parts) == 0 {
		return
	}
	n := len(w.out)
	if n == 0 || w.out[n-1].Role != role || w.closed {
		w.out = append(w.out, content{Role: role})
		n++
	}
	w.closed = false
	w.out[n-1].Parts = append(w.out[n-1].Parts, parts...)
	if role == user {
		w.lastAsked = n - 1
	}
}

func (w *writer) system(it *item.Item) {
	for _, p := range it.Parts {
		text := p.Kind == item.Text || p.Kind == item.Refusal
		w.Drop(wire.NameOfPart(w.req, it, p.Kind), !text)
		if !text || p.Text == "" {
			continue
		}
		if w.SystemInstruction == nil {
			w.SystemInstruction = &content{}
		}
		w.SystemInstruction.Parts = append(w.SystemInstruction.Parts, &contentPart{Text: p.Text})
	}
}

// said returns the parts of what the model said. Reasoning and other items that only
// another dialect understands have no place here.
func (w *writer) said(it *item.Item) []any {
	native := nativeParts(it)
	switch {
	case it.Kind == item.ToolCall:
		return []any{w.call(it, native)}
	case native != nil:
		return native
	case it.Kind != item.Message:
		return nil
	}
	var parts []any
	for _, p := range it.Parts {
		if p.Kind == item.Text || p.Kind == item.Refusal {
			parts = append(parts, splitImages(p.Text)...)
			continue
		}
		part, problem := w.partOf(p)
		w.Drop(wire.NameOfPart(w.req, it, p.Kind), problem != "")
		if problem == "" && part != nil {
			parts = append(parts, part)
		}
	}
	return parts
}

// nativeParts returns the parts as this dialect wrote them; nil if it did not.
func nativeParts(it *item.Item) []any {
	var parts []any
	for _, v := range jsonscan.Elements(wire.NativeOf(it, model.DialectGemini)) {
		parts = append(parts, json.RawMessage(v))
	}
	return parts
}

// call returns the part of a call. An id that the gateway made is not sent with a call
// that came without one.
func (w *writer) call(it *item.Item, native []any) any {
	if len(native) == 1 {
		f := jsonscan.Member(native[0].(json.RawMessage), "functionCall")
		w.calls = append(w.calls, sentCall{of: it.CallID, id: jsonscan.Text(jsonscan.Member(f, "id")), name: alias(it.Name)})
		return native[0]
	}
	w.calls = append(w.calls, sentCall{of: it.CallID, id: it.CallID, name: alias(it.Name)})
	return &contentPart{FunctionCall: &functionCall{ID: it.CallID, Name: alias(it.Name), Args: wire.Input(it.Arguments).Object()}}
}

// asked returns the parts of a user's message. What the dialect cannot take is refused.
func (w *writer) asked(it *item.Item) []any {
	var parts []any
	for i, p := range it.Parts {
		part, problem := w.partOf(p)
		switch {
		case problem != "":
			w.Refuse(wire.PlaceOf(w.req, w.unit-1, it, i), problem)
		case part != nil:
			parts = append(parts, part)
			w.Drop(wire.NameOf(w.req, wire.MemberDetail), p.Kind == item.Image && p.Detail != "" && p.Detail != "auto")
			w.Drop(wire.NameOfPart(w.req, it, p.Kind)+".filename", p.Kind == item.File && p.Name != "" && part.Text == "")
		}
	}
	return parts
}

// result keeps the result of a call until all results of its turn are there.
func (w *writer) result(it *item.Item, shown bool) {
	r := sentResult{at: len(w.calls), response: &functionResponse{ID: it.CallID, Name: alias(it.Name)}}
	if i := slices.IndexFunc(w.calls, func(c sentCall) bool { return !c.answered && c.of == it.CallID }); i >= 0 {
		r.at, r.response.ID, r.response.Name = i, w.calls[i].id, w.calls[i].name
		w.calls[i].answered = true
	}
	var rest []item.Part // what is sent as text
	var lines []string   // of what came before the media
	for _, p := range it.Parts {
		media := w.resultMedia(p)
		if media == nil || !shown {
			rest = append(rest, p)
			text := p.Kind == item.Text || p.Kind == item.Refusal || p.Text != ""
			w.Drop(wire.NameOfPart(w.req, it, p.Kind), !text && shown && it.Native.Dialect != "") // the client's own
			continue
		}
		r.media = append(r.media, media)
		if text := item.PlainText(rest); text != "" {
			lines = append(lines, text)
		}
		rest = nil
		if p.Data, p.MIMEType = "", media.InlineData.MimeType; p.Name != "" || p.URL != "" && !strings.HasPrefix(p.URL, "data:") { // which the media have no place for
			rest = append(rest, p)
		}
	}
	if text := item.PlainText(rest); text != "" {
		lines = append(lines, text)
	}
	if lines == nil && r.media != nil {
		lines = []string{"(attached)"}
	}
	text := strings.Join(lines, "\n")
	key := "output"
	if it.IsError {
		key = "error"
	}
	r.response.Response = map[string]string{key: text}
	w.results = append(w.results, r)
}

// endResults writes the results of a turn. Models that take no media in them get the
// media in a content of the user after them.
func (w *writer) endResults() {
	if len(w.results) == 0 {
		return
	}
	slices.SortStableFunc(w.results, func(a, b sentResult) int { return a.at - b.at })
	responses := content{Role: user}
	var media []any
	for _, r := range w.results {
		if w.rules.media {
			r.response.Parts = r.media
		} else if len(r.media) > 0 {
			media = append(media, &contentPart{Text: "The result of " + r.response.Name + " has:"})
			for _, m := range r.media {
				media = append(media, m)
			}
		}
		responses.Parts = append(responses.Parts, &contentPart{FunctionResponse: r.response})
	}
	w.out = append(w.out, responses)
	w.results, w.closed = nil, true
	if media != nil {
		w.out = append(w.out, content{Role: user, Parts: media})
	}
}

// sign marks the calls of the turn that the request continues, whose signature is not
// there: the first call of each content needs one.
func (w *writer) sign() {
	for i := w.lastAsked; i < len(w.out); i++ {
		if w.out[i].Role != modelRole {
			continue
		}
		for j, p := range w.out[i].Parts {
			signed, isCall := withSignature(p)
			if isCall {
				w.out[i].Parts[j] = signed
				break
			}
		}
	}
}

// withSignature returns a part with a signature, and whether it is a call.
func withSignature(p any) (signed any, isCall bool) {
	switch p := p.(type) {
	case *contentPart:
		if p.FunctionCall == nil {
			return p, false
		}
		p.ThoughtSignature = noSignature
		return p, true
	case json.RawMessage:
		if jsonscan.Member(p, "functionCall") == nil {
			return p, false
		}
		if jsonscan.HasText(jsonscan.Member(p, "thoughtSignature")) {
			return p, true
		}
		out := bytes.TrimSuffix(bytes.Clone(p), []byte("}"))
		return json.RawMessage(append(out, `,"thoughtSignature":"`+noSignature+`"}`...)), true
	}
	return p, false
}

// firstShown returns the index of the first item whose binary content is sent: as much
// of the latest as a request can hold. What earlier tool results hold is shown as text.
func firstShown(items []item.Item) int {
	data := 0
	for i := len(items) - 1; i >= 0; i-- {
		for _, p := range items[i].Parts {
			data += len(p.Data)
			if strings.HasPrefix(p.URL, "data:") {
				data += len(p.URL)
			}
		}
		if data > maxRequestData {
			return i + 1
		}
	}
	return 0
}
