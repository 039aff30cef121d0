package run

import (
	"encoding/json"
	"slices"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/eventlog"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/item"
)

// withheld is what the journal of a run does not get, because the texts of the run are not stored
// while it is light: see [loop.Policy.StoresNoTexts]. A run that may have to wait for approval keeps
// it in memory. It is stored with the fact that parks the run, and not before: the next owner needs
// it.
type withheld struct {
	rows  []journal.Row
	texts []eventlog.WithheldTexts
	bytes int // that the run is charged with
}

// add adds what another batch does not store. It is charged to the run, which keeps the items
// themselves anyway.
func (w *withheld) add(more withheld, account *memlimit.Account) {
	w.rows, w.texts = append(w.rows, more.rows...), append(w.texts, more.texts...)
	n := 0
	for _, r := range more.rows {
		n += rowBytes(r)
	}
	for _, t := range more.texts {
		n += len(t.Answer)
		for _, text := range slices.Concat(t.Arguments, t.Names) {
			n += len(text)
		}
	}
	w.bytes += n
	account.Add(n)
}

// renumber gives facts other numbers, by their old ones.
func (w *withheld) renumber(moved map[int64]int64) {
	for i, t := range w.texts {
		if seq, ok := moved[t.Seq]; ok {
			w.texts[i].Seq = seq
		}
	}
}

// rowBytes returns the memory that a row occupies beside what the run keeps for itself.
func rowBytes(r journal.Row) int {
	switch v := r.Value.(type) {
	case item.List, journal.Prompt: // charged by Writer.Store
		return 0
	case string:
		return len(v)
	case json.RawMessage:
		return len(v)
	case []event.ListedServer:
		return eventlog.EventSize(event.ToolsListed{Servers: v})
	}
	text, _ := r.JSON() // the store reports the error
	return len(text)
}

// all returns the rows, with one for the texts.
func (w *withheld) all() []journal.Row {
	if len(w.texts) == 0 {
		return slices.Clip(w.rows)
	}
	return append(slices.Clip(w.rows), eventlog.TextsRow(w.texts))
}

// withoutBodies returns the batch without rows, and without the texts of a model or a tool
// in its facts, and what is withheld.
func withoutBodies(b journal.Batch) (journal.Batch, withheld) {
	w := withheld{rows: b.Rows}
	b.Rows = nil
	b.Facts = slices.Clone(b.Facts)
	for i, f := range b.Facts {
		var texts *loop.Texts
		if b.Facts[i].Body, texts = loop.WithoutTexts(f.Body); texts != nil {
			w.texts = append(w.texts, eventlog.WithheldTexts{Seq: f.Seq, Texts: texts})
		}
	}
	return b, w
}
