package openairesponses

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// begins has the members that the item of each of the provider's own tools has when it begins,
// beside its id, type and status. OpenAI's document requires them, and OpenAI leaves some out.
var begins = map[string]string{
	"web_search_call":       `{"action":{"type":"search","query":""}}`,
	"file_search_call":      `{"queries":[]}`,
	"code_interpreter_call": `{"container_id":"","code":"","outputs":null}`,
	"image_generation_call": `{"result":null}`,
}

// beginTool reports that a tool of the provider's own begins.
func (a *answer) beginTool(o *output, raw []byte) error {
	defaults, is := begins[o.kind]
	if !a.native || !is || o.open || o.item != nil || o.id == "" {
		return nil
	}
	object := append([]byte(nil), raw[:len(raw)-1]...)
	for name, v := range jsonscan.Members([]byte(defaults)) {
		if jsonscan.Member(raw, string(name)) == nil {
			object = jsonscan.AppendMember(object, name, v)
		}
	}
	o.open = true
	a.count(o, len(raw))
	return a.Report(model.Delta{Kind: model.ProgressDelta, Item: o.number, Text: `{"type":"response.output_item.added","item":` + string(object) + `}}`})
}

// progress reports a step of a tool of the provider's own. Other events have no effect.
func (a *answer) progress(e event, data []byte) error {
	o := a.byID[e.itemID]
	if o == nil || !o.open || o.item != nil {
		return nil
	}
	step, is := strings.CutPrefix(e.kind, "response."+o.kind)
	if !is || step == "" || step[0] != '.' && step[0] != '_' {
		return nil
	}
	text := jsonscan.AppendString([]byte(`{"type":`), e.kind)
	for name, v := range jsonscan.Members(data) {
		switch string(name) {
		case "type", "sequence_number", "output_index", "item_id", "obfuscation":
			continue
		}
		text = jsonscan.AppendMember(text, name, v)
	}
	a.count(o, len(text))
	return a.Report(model.Delta{Kind: model.ProgressDelta, Item: o.number, Text: string(append(text, '}'))})
}

// annotation is a citation of a text.
type annotation struct {
	Type        string `json:"type"`
	URL         string `json:"url"`
	Title       string `json:"title"`
	FileID      string `json:"file_id"`
	Filename    string `json:"filename"`
	ContainerID string `json:"container_id"`
	Start       int64  `json:"start_index"`
	End         int64  `json:"end_index"`
	Index       int64  `json:"index"`
}

// citationKinds are the types of annotations.
var citationKinds = map[string]item.CitationKind{
	"url_citation": item.CitesURL, "file_citation": item.CitesFile, "container_file_citation": item.CitesContainerFile, "file_path": item.CitesFilePath,
}

// annotate takes an annotation of a text. One that comes before the text is taken from the end
// of the item.
func (a *answer) annotate(e event) error {
	o, err := a.pieceOf(e, "message")
	if err != nil || o == nil || o.item != nil {
		return err
	}
	i, ok := o.partAt[place{kind: model.TextDelta, index: e.part}]
	if !ok {
		return nil
	}
	return a.cite(o, i, e.annotation)
}

// annotateWhole takes the annotations of the whole item that have not come.
func (a *answer) annotateWhole(o *output, i int, list []byte) error {
	for n, v := range jsonscan.Elements(list) {
		if n < o.parts[i].annotated {
			continue
		}
		if err := a.cite(o, i, v); err != nil {
			return err
		}
	}
	return nil
}

// cite reports an annotation of a part. One of a type that is not known is left out.
func (a *answer) cite(o *output, i int, raw []byte) error {
	if a.citations++; a.citations > maxItems {
		return wire.Broken(fmt.Sprintf("sent a turn with more than %d annotations", maxItems), nil)
	}
	o.parts[i].annotated++
	var w annotation
	_ = json.Unmarshal(raw, &w) // what cannot be read is not known
	kind, known := citationKinds[w.Type]
	if !known {
		return nil
	}
	c := item.Citation{
		Kind: kind, Part: i, URL: w.URL, Title: w.Title, FileID: w.FileID, Filename: w.Filename, ContainerID: w.ContainerID, Start: w.Start, End: w.End, Index: w.Index,
	}
	o.citations = append(o.citations, c)
	a.count(o, len(raw))
	return a.Cite(o.number, c)
}
