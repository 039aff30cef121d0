package openai

import (
	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/model"
)

// Providers send reasoning in one of these members, and some send the same text in
// two of them. The first that has text is the readable reasoning of the whole turn.
// All of them go back to the provider.
const (
	unknownSource = iota
	reasoningContent
	reasoningPlain
	reasoningDetails
	sources
)

// reasoningMembers are the reasoning members of one delta.
type reasoningMembers [sources]struct {
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

// addOther keeps a member that is neither text nor a call for the provider. If it
// is reasoning, it is also stored in t.
func (a *assembly) addOther(name, v []byte, t *reasoningMembers) {
	source := sourceOf(name)
	if source != unknownSource && source != reasoningDetails && jsonscan.HasText(v) {
		if i := a.extra.textField(name); i < maxFields {
			t[source].v, t[source].field = v, i
		}
		return // addReasoning adds its text
	}
	if a.extra.add(name, v) {
		a.others += len(v)
		a.pieces += 2
		t[source].v = v
	}
}

// addReasoning adds the reasoning of one delta, and reports its text once.
func (a *assembly) addReasoning(t reasoningMembers) error {
	for source := reasoningContent; source < sources; source++ {
		v := t[source].v
		if v == nil {
			continue
		}
		details := detailText(v)
		if a.source == unknownSource && (jsonscan.HasText(v) || len(details) > 0) {
			a.source = source
		}
		readable := a.source == source
		if !jsonscan.IsKind(v, '"') {
			if err := a.addDetails(details, readable); err != nil {
				return err
			}
			continue
		}
		a.pieces++
		a.piece, a.into = v, target{kind: model.ReasoningDelta, field: t[source].field, reported: readable}
		if err := a.add(a.into, v); err != nil {
			return err
		}
	}
	return nil
}

func (a *assembly) addDetails(piece []byte, readable bool) error {
	if !readable {
		return nil
	}
	a.reasoning = append(a.reasoning, piece...)
	return a.reportText(model.ReasoningDelta, piece)
}

// detailText returns the readable text of reasoning_details.
func detailText(v []byte) []byte {
	var piece []byte
	for _, e := range jsonscan.Elements(v) {
		for name, value := range jsonscan.Members(e) {
			if string(name) == "text" || string(name) == "summary" {
				piece = jsonscan.AppendText(piece, value)
			}
		}
	}
	return piece
}
