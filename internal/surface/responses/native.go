package responses

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/surface"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// nativeEvent is a step of a tool that a provider executes: an event of the provider, in its
// place in the response.
type nativeEvent struct {
	head
	at
	more []surface.Member
}

// MarshalJSON implements json.Marshaler.
func (n *nativeEvent) MarshalJSON() ([]byte, error) {
	out, err := surface.Marshal(stepEvent{n.head, n.at})
	if err != nil {
		return nil, err
	}
	out = out[:len(out)-1]
	for _, m := range n.more {
		name, err := surface.Marshal(m.Name)
		if err != nil {
			return nil, err
		}
		out = append(append(append(append(out, ','), name...), ':'), m.Value...)
	}
	return append(out, '}'), nil
}

// addProgress adds a step of a tool that a provider executes. The first one begins its item.
func (e *encoder) addProgress(ev event.NativeProgress) error {
	members, err := surface.Scan(nil, ev.JSON)
	if err != nil {
		return fmt.Errorf("step of a provider's tool: %w", err)
	}
	var w struct {
		Type string          `json:"type"`
		Item json.RawMessage `json:"item"`
	}
	if err := json.Unmarshal(ev.JSON, &w); err != nil {
		return fmt.Errorf("step of a provider's tool: %w", err)
	}
	o := e.openNative(ev.Item)
	switch {
	case o == nil && w.Item != nil:
		return e.beginNative(ev.Item, w.Item)
	case o == nil, w.Item != nil:
		return nil
	}
	step := &nativeEvent{at: o.at()}
	for _, m := range members {
		if m.Name != "type" {
			step.more = append(step.more, m)
		}
	}
	e.send(w.Type, step)
	return nil
}

// openNative returns the item of a provider's tool that has begun; nil = none with the number.
func (e *encoder) openNative(number int) *openItem {
	i := slices.IndexFunc(e.open, func(o *openItem) bool { return o.kind == model.NativeDelta && o.item == number && !o.closed })
	if i < 0 {
		return nil
	}
	return e.open[i]
}

// beginNative begins an item of a provider's tool.
func (e *encoder) beginNative(number int, raw json.RawMessage) error {
	var w struct{ ID string }
	if err := json.Unmarshal(raw, &w); err != nil {
		return fmt.Errorf("item of a provider: %w", err)
	}
	if err := e.charge(len(raw)); err != nil {
		return err
	}
	e.native += len(raw)
	e.closeEnded()
	e.open = append(e.open, &openItem{kind: model.NativeDelta, item: number, id: w.ID, index: e.addItem(raw), native: raw})
	return nil
}

// endNative ends an item of a provider's tool, as the provider wrote it.
func (e *encoder) endNative(ev event.NativeItem) {
	if o := e.openNative(ev.Item); o != nil {
		o.closed = true
		e.doneItem(o.index, ev.JSON)
		return
	}
	e.closeEnded()
	e.doneItem(e.addItem(ev.JSON), ev.JSON)
}

// cutOff returns an item of a provider's tool whose end did not come. Not all of these items
// can be incomplete.
func cutOff(raw json.RawMessage) json.RawMessage {
	members := map[string]json.RawMessage{}
	_ = json.Unmarshal(raw, &members) // it was decoded before
	status := "incomplete"
	if kind := kindOf(raw); kind == "web_search_call" || kind == "image_generation_call" {
		status = "failed"
	}
	members["status"], _ = json.Marshal(status) // a string: cannot fail
	out, err := surface.Marshal(members)
	if err != nil {
		return raw // unreachable: the members were decoded from JSON
	}
	return out
}

// cite adds a source of a text.
func (e *encoder) cite(ev event.Citation) error {
	if err := e.charge(citationBytes(ev.Citation)); err != nil {
		return err
	}
	e.native += citationBytes(ev.Citation)
	annotation := newAnnotation(ev.Citation)
	for _, o := range e.open {
		if o.item != ev.Item || o.kind != model.TextDelta || o.closed || ev.Citation.Part >= len(o.parts) {
			continue
		}
		e.annotate(o, ev.Citation.Part, annotation)
	}
	return nil
}

// annotate adds an annotation to a part of a message.
func (e *encoder) annotate(o *openItem, part int, annotation any) {
	p := &o.parts[part]
	e.send("response.output_text.annotation.added", &annotationEvent{at: o.at(), ContentIndex: part, AnnotationIndex: len(p.annotations), Annotation: annotation})
	p.annotations = append(p.annotations, annotation)
}

// citeMade adds the files that the code of the run has made to the text of the answer, which is the latest message. An answer
// without a text does not have them.
func (e *encoder) citeMade() {
	for _, o := range slices.Backward(e.open) {
		if o.kind != model.TextDelta || o.closed {
			continue
		}
		for part := range slices.Backward(o.parts) {
			if o.parts[part].kind != model.TextDelta {
				continue
			}
			for _, f := range e.made {
				e.annotate(o, part, e.citationOf(f, o.parts[part].text.String()))
			}
			e.made = nil
			return
		}
	}
}

// citationOf returns the annotation for a file of code. Its place is where the text first names the file, or else the end of the
// text, in characters.
func (e *encoder) citationOf(f event.File, text string) containerFileCitation {
	before, _, named := strings.Cut(text, f.Name)
	start := utf8.RuneCountInString(before)
	end := start
	if named {
		end += utf8.RuneCountInString(f.Name)
	}
	return containerFileCitation{"container_file_citation", e.hosted.container, f.ID, int64(start), int64(end), f.Name}
}

// citationBytes is about how many bytes a citation retains.
func citationBytes(c item.Citation) int {
	const own = 128
	return own + len(c.URL) + len(c.Title) + len(c.FileID) + len(c.Filename) + len(c.ContainerID)
}

// The annotations of a text, by their type.
type (
	urlCitation struct {
		Type  string `json:"type"`
		URL   string `json:"url"`
		Start int64  `json:"start_index"`
		End   int64  `json:"end_index"`
		Title string `json:"title"`
	}
	fileCitation struct {
		Type     string `json:"type"`
		FileID   string `json:"file_id"`
		Index    int64  `json:"index"`
		Filename string `json:"filename"`
	}
	containerFileCitation struct {
		Type        string `json:"type"`
		ContainerID string `json:"container_id"`
		FileID      string `json:"file_id"`
		Start       int64  `json:"start_index"`
		End         int64  `json:"end_index"`
		Filename    string `json:"filename"`
	}
	filePath struct {
		Type   string `json:"type"`
		FileID string `json:"file_id"`
		Index  int64  `json:"index"`
	}
)

// newAnnotation returns a citation in the form of the API.
func newAnnotation(c item.Citation) any {
	switch c.Kind {
	case item.CitesFile:
		return fileCitation{"file_citation", c.FileID, c.Index, c.Filename}
	case item.CitesContainerFile:
		return containerFileCitation{"container_file_citation", c.ContainerID, c.FileID, c.Start, c.End, c.Filename}
	case item.CitesFilePath:
		return filePath{"file_path", c.FileID, c.Index}
	}
	return urlCitation{"url_citation", c.URL, c.Start, c.End, c.Title}
}
