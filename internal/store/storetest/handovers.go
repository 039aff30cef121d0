package storetest

import (
	"encoding/json"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/item"
)

func handoverCases() []rule {
	return []rule{
		{"a handover is found by each of its ids", "it is returned as it was saved", func(b *testBench) {
			h := handover("r", "id 1", "id 2")
			b.ok(b.Handovers.Save(b.Context(), "a", "p", h))
			b.handover("a", "p", "id 1", &h)
			b.handover("a", "p", "id 2", &h)
			b.handover("a", "p", "id 3", nil)
			b.handover("a", "p", "provider's id 1", nil)
		}},
		{"a handover belongs to its principal", "for another key of the org, its ids are unknown", func(b *testBench) {
			h := handover("r", "id 1")
			b.ok(b.Handovers.Save(b.Context(), "a", "p", h))
			b.handover("a", "q", "id 1", nil)
			b.handover("b", "p", "id 1", nil)
			b.handover("", "", "id 1", nil)
		}},
		{"two principals may have the same id", "each finds its own handover", func(b *testBench) {
			mine, theirs, others := handover("mine", "id 1"), handover("theirs", "id 1"), handover("others", "id 1")
			b.ok(b.Handovers.Save(b.Context(), "a", "p", mine))
			b.ok(b.Handovers.Save(b.Context(), "a", "q", theirs))
			b.ok(b.Handovers.Save(b.Context(), "b", "p", others))
			b.handover("a", "p", "id 1", &mine)
			b.handover("a", "q", "id 1", &theirs)
			b.handover("b", "p", "id 1", &others)
		}},
		{"a handover is never overwritten", "an id is used once: ErrExists, and nothing is stored", func(b *testBench) {
			first := handover("first", "id 1", "id 2")
			b.ok(b.Handovers.Save(b.Context(), "a", "p", first))
			b.checkError(b.Handovers.Save(b.Context(), "a", "p", handover("second", "id 2", "id 3")), org.ErrExists)
			b.checkError(b.Handovers.Save(b.Context(), "a", "p", handover("second", "id 1")), org.ErrExists)
			b.handover("a", "p", "id 1", &first)
			b.handover("a", "p", "id 2", &first)
			b.handover("a", "p", "id 3", nil)
		}},
		{"a handover expires", "after HandoverTTL and not before", func(b *testBench) {
			old, young := handover("old", "id 1"), handover("young", "id 2")
			b.ok(b.Handovers.Save(b.Context(), "a", "p", old))
			b.advance(run.HandoverTTL / 2)
			b.ok(b.Handovers.Save(b.Context(), "a", "p", young))
			b.advance(run.HandoverTTL/2 - time.Millisecond)
			b.handover("a", "p", "id 1", &old)
			b.advance(time.Millisecond)
			b.handover("a", "p", "id 1", nil)
			b.ok(b.Handovers.Save(b.Context(), "a", "p", handover("new", "id 3")))
			b.handover("a", "p", "id 1", nil)
			b.handover("a", "p", "id 2", &young)
		}},
		{"a caller may modify a handover", "Save and Find copy", func(b *testBench) {
			h, want := handover("r", "id 1"), handover("r", "id 1")
			b.ok(b.Handovers.Save(b.Context(), "a", "p", h))
			h.CallIDs["id 1"], h.Items[0] = "changed", item.Item{}
			got, err := b.Handovers.Find(b.Context(), "a", "p", "id 1")
			b.ok(err)
			got.CallIDs["id 1"], got.Items[0] = "changed", item.Item{}
			b.handover("a", "p", "id 1", &want)
		}},
	}
}

func handover(runID string, ids ...string) run.Handover {
	h := run.Handover{RunID: runID, CallIDs: map[string]string{}}
	h.Items = item.List{{Kind: item.Message, Turn: 1, Role: item.Assistant, Native: item.Native{Dialect: "d", JSON: json.RawMessage(`{"signature":"<&>=="}`)}}}
	for _, id := range ids {
		h.CallIDs[id] = "provider's " + id
		call := item.NewCall("provider's "+id, "t", `{ "a" : "<&>" }`)
		call.Turn = 1
		h.Items = append(h.Items, call)
	}
	h.Items = append(h.Items, item.NewResult("hidden", runID, false))
	return h
}

// handover fails the case unless Find returns want.
func (b *testBench) handover(orgID, principal, callID string, want *run.Handover) {
	b.Helper()
	got, err := b.Handovers.Find(b.Context(), orgID, principal, callID)
	b.ok(err)
	b.equal(got, want)
}
