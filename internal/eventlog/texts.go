package eventlog

import (
	"encoding/json"
	"slices"

	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
)

// textsRef refers to the row with the texts that were withheld from facts.
const textsRef = "texts"

// WithheldTexts are the texts of one fact.
type WithheldTexts struct {
	Seq int64 `json:"seq"`
	*loop.Texts
}

// TextsRow returns the row with the texts.
func TextsRow(texts []WithheldTexts) journal.Row { return journal.Row{Ref: textsRef, Value: texts} }

// factTexts are the texts that were withheld from facts, by the number of the fact.
type factTexts map[int64]*loop.Texts

// recallTexts returns the texts of a row; nil for the journal of a run that has withheld none.
func recallTexts(row json.RawMessage) (factTexts, error) {
	if row == nil {
		return nil, nil
	}
	var list []WithheldTexts
	if err := json.Unmarshal(row, &list); err != nil {
		return nil, journal.Damaged(textsRef, err)
	}
	all := factTexts{}
	for _, one := range list {
		all[one.Seq] = one.Texts
	}
	return all, nil
}

// Parks reports whether the run waits after the facts.
func Parks(facts []loop.Fact) bool {
	return slices.ContainsFunc(facts, func(f loop.Fact) bool {
		return f.Body.Kind() == loop.KindParked || f.Body.Kind() == loop.KindPaused
	})
}
