package openai

import (
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/model"
)

// Providers say their reasoning in one of these members, and some in two of
// them at once. The first that has text is read for the whole turn; all go
// back to the provider.
const (
	unknownSource = iota
	reasoningContent
	reasoningPlain
	reasoningDetails
	sources
)

// thoughts are the reasoning members of one delta.
type thoughts [sources]struct {
	v     []byte
	field int
}

func sourceOf(name []byte) int {
	switch string(name) {
	case "reasoning_content":
		return reasoningContent
	case "reasoning":
		return reasoningPlain
	case "reasoning_details":
		return reasoningDetails
	}
	return unknownSource
}

// other takes a member that is neither text nor a call: kept for the
// provider, and noted where it is reasoning.
func (a *assembly) other(name, v []byte, t *thoughts) {
	source := sourceOf(name)
	if source != unknownSource && source != reasoningDetails && wire.HasText(v) {
		if i := a.extra.textField(name); i < maxFields {
			t[source].v, t[source].field = v, i
		}
		return // its text is added by think
	}
	if a.extra.add(name, v) {
		a.pieces += 2
		t[source].v = v
	}
}

// think adds the reasoning of one delta and says it once.
func (a *assembly) think(t thoughts) error {
	for source := reasoningContent; source < sources; source++ {
		v := t[source].v
		if v == nil {
			continue
		}
		details := detailText(v)
		if a.source == unknownSource && (wire.HasText(v) || len(details) > 0) {
			a.source = source
		}
		said := a.source == source
		if !wire.IsKind(v, '"') {
			if err := a.thinkDetails(details, said); err != nil {
				return err
			}
			continue
		}
		a.pieces++
		a.piece, a.into = v, target{kind: model.ReasoningDelta, field: t[source].field, said: said}
		if err := a.add(a.into, v); err != nil {
			return err
		}
	}
	return nil
}

func (a *assembly) thinkDetails(piece []byte, said bool) error {
	if !said {
		return nil
	}
	a.reasoning = append(a.reasoning, piece...)
	return a.say(model.ReasoningDelta, piece)
}

// detailText returns the readable text of reasoning_details.
func detailText(v []byte) []byte {
	var piece []byte
	for _, e := range wire.Elements(v) {
		for name, value := range wire.Members(e) {
			if string(name) == "text" || string(name) == "summary" {
				piece = wire.AppendText(piece, value)
			}
		}
	}
	return piece
}
