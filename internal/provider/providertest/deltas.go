package providertest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// Heard is what deltas said. The zero value heard nothing.
type Heard struct {
	Deltas                   []model.Delta
	Text, Reasoning, Refusal string
}

// Emit adds a delta.
func (h *Heard) Emit(d model.Delta) error {
	h.Deltas = append(h.Deltas, d)
	switch d.Kind {
	case model.TextDelta:
		h.Text += d.Text
	case model.ReasoningDelta:
		h.Reasoning += d.Text
	case model.RefusalDelta:
		h.Refusal += d.Text
	}
	return nil
}

// Deltas fails the test if the deltas of a recorded answer do not tell its turn.
func Deltas(t *testing.T, all []Recording, decode Decode) {
	for _, r := range all {
		if r.Response.Status != http.StatusOK || r.Expected.Error != nil {
			continue
		}
		t.Run(r.Name, func(t *testing.T) { CheckDeltas(t, decode.Run(bytes.NewReader(r.Body))) })
	}
}

// Told is an answer, and the deltas that tell it.
type Told = struct {
	Name, Answer string
	Want         []model.Delta
}

// Tells fails the test if the deltas of an answer are others.
func (d Decode) Tells(t *testing.T, answers []Told) {
	t.Helper()
	for _, a := range answers {
		t.Run(a.Name, func(t *testing.T) {
			got := d.Run(strings.NewReader(a.Answer))
			if diff := gocmp.Diff(a.Want, got.Deltas); diff != "" || got.Err != fmt.Sprint(error(nil)) {
				t.Errorf("%s\n%s", got.Err, diff)
			}
			CheckDeltas(t, got)
		})
	}
}

// Counts fails the test if one of the answers has another usage.
func (d Decode) Counts(t testing.TB, want model.Usage, answers ...string) {
	t.Helper()
	for _, a := range answers {
		got := d.Run(strings.NewReader(a))
		if got.Err != fmt.Sprint(error(nil)) || got.Turn.Usage != want {
			t.Errorf("%s: %s %+v, want %+v", a, got.Err, got.Turn, want)
		}
	}
}

// Failure is an answer that fails.
type Failure = struct {
	Name    string
	Status  int
	Body    string
	Class   model.ErrorClass
	Message string
}

// Fails fails the test if the adapter that open returns reads another error from an answer.
func Fails(t *testing.T, dialect string, open func(wire.Endpoint) model.Model, failures []Failure) {
	t.Helper()
	for _, f := range failures {
		t.Run(f.Name, func(t *testing.T) {
			m := open(Serve(t, Answer(f.Status, nil, f.Body)))
			_, err := m.Stream(t.Context(), &model.Request{Model: "m"}, new(Heard).Emit)
			e, is := errors.AsType[*model.Error](err)
			if !is || e.Class != f.Class || e.Message != f.Message || e.Status != f.Status {
				t.Fatalf("%#v", err)
			}
			if (e.Dialect == dialect) != (len(e.Body) > 0) {
				t.Errorf("the dialect of the body %q is %q", e.Body, e.Dialect)
			}
		})
	}
}

// CheckDeltas fails the test if the deltas of a turn do not tell it: every call
// with its id, name and arguments, and every item with its text, in the order of
// the turn. A turn that broke is not checked.
func CheckDeltas(t testing.TB, o Outcome) {
	t.Helper()
	if o.Err != fmt.Sprint(error(nil)) {
		return
	}
	heard := joined(t, o.Deltas)
	var calls, wantCalls, want []string
	for _, h := range heard {
		if h.isCall {
			calls = append(calls, h.String())
		}
	}
	for _, c := range o.Turn.Calls {
		wantCalls = append(wantCalls, callText(c.ID, c.Name, c.Arguments))
	}
	if !slices.Equal(calls, wantCalls) {
		t.Errorf("the deltas tell the calls %q, the turn has %q", calls, wantCalls)
	}
	for _, it := range o.Turn.Items {
		if s := itemText(it); s != "" {
			want = append(want, s)
		}
	}
	checkCitations(t, heard, o.Turn.Items)
	for _, h := range heard {
		if len(want) > 0 && h.String() == want[0] {
			want = want[1:]
		} else if !h.isCall && h.kind != model.ReasoningDelta { // a call or a thought that was cut off is no item
			t.Errorf("the deltas tell %q, the turn has %q", h, itemTexts(o.Turn.Items))
			return
		}
	}
	if len(want) > 0 {
		t.Errorf("the deltas do not tell %q of the turn %q", want, itemTexts(o.Turn.Items))
	}
}

// checkCitations fails the test if the deltas do not tell the citations of the turn's messages.
func checkCitations(t testing.TB, heard []*told, items []item.Item) {
	t.Helper()
	var got, want []item.Citation
	for _, h := range heard {
		got = append(got, h.citations...)
	}
	for _, it := range items {
		want = append(want, it.Citations...)
	}
	if !slices.Equal(got, want) {
		t.Errorf("the deltas tell the citations %+v, the turn has %+v", got, want)
	}
}

// told is one item, put together from its deltas.
type told struct {
	number   int
	kind     model.DeltaKind // of its first delta
	isCall   bool
	id, name string
	parts    map[int]string
	done     bool

	citations []item.Citation
}

// joined returns the items of the deltas in their order.
func joined(t testing.TB, deltas []model.Delta) []*told {
	t.Helper()
	items := map[int]*told{}
	for _, d := range deltas {
		h := items[d.Item]
		switch {
		case h != nil && h.done:
			t.Errorf("item %d: a delta follows its end: %+v", d.Item, d)
		case d.Kind == model.ProgressDelta:
			t.Errorf("item %d: a step of a provider's own tool, which nobody has asked for: %+v", d.Item, d)
			continue
		case d.Kind == model.CitationDelta:
			var c item.Citation
			if err := json.Unmarshal([]byte(d.Text), &c); err != nil || h == nil || h.parts[d.Part] == "" || c.Part != d.Part {
				t.Errorf("item %d: a citation without a text, or not one: %+v, %v", d.Item, d, err)
				continue
			}
			h.citations = append(h.citations, c)
			continue
		case d.Kind == model.DoneDelta:
			if h == nil || d.Text != "" || d.Part != 0 {
				t.Errorf("item %d: an end without a begin, or with more than the end: %+v", d.Item, d)
				continue
			}
			h.done = true
			continue
		case h == nil:
			h = &told{number: d.Item, kind: d.Kind, isCall: d.Kind == model.CallDelta, id: d.CallID, name: d.Name, parts: map[int]string{}}
			items[d.Item] = h
		case d.CallID != "" || d.Name != "":
			t.Errorf("item %d: a delta that is not the first has an id or a name: %+v", d.Item, d)
		case h.isCall != (d.Kind == model.CallDelta) || (h.kind == model.ReasoningDelta) != (d.Kind == model.ReasoningDelta):
			t.Errorf("item %d is of two kinds: %v and %v", d.Item, h.kind, d.Kind)
		case d.Text == "":
			t.Errorf("item %d: a delta says nothing", d.Item)
		}
		if d.Kind == model.RefusalDelta && h.parts[d.Part] == "" {
			h.parts[d.Part] = "refusal "
		}
		h.parts[d.Part] += d.Text
	}
	return slices.SortedFunc(maps.Values(items), func(a, b *told) int { return cmp.Compare(a.number, b.number) })
}

func (h *told) String() string {
	if h.isCall {
		return callText(h.id, h.name, h.parts[0])
	}
	var parts []string
	for _, i := range slices.Sorted(maps.Keys(h.parts)) {
		parts = append(parts, h.parts[i])
	}
	return strings.Join(parts, "\x00")
}

func callText(id, name, arguments string) string {
	return fmt.Sprintf("%s: %s(%s)", id, name, arguments)
}

// itemText returns the text that the deltas of an item must have; "" = the item has
// none.
func itemText(it item.Item) string {
	if it.Kind == item.ToolCall {
		return callText(it.CallID, it.Name, it.Arguments)
	}
	var parts []string
	for _, p := range it.Parts {
		switch {
		case p.Text == "":
		case p.Kind == item.Refusal:
			parts = append(parts, "refusal "+p.Text)
		default:
			parts = append(parts, p.Text)
		}
	}
	return strings.Join(parts, "\x00")
}

func itemTexts(items []item.Item) []string {
	var all []string
	for _, it := range items {
		all = append(all, itemText(it))
	}
	return all
}
