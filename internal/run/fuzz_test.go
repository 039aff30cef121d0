package run

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/tool"
)

// FuzzRetell: a stored run that somebody has written into is told or refused,
// the same both times, with rising positions, and its end at most once. // P01 L05
func FuzzRetell(f *testing.F) {
	const head = `accepted {"run_id":"run_1","grade":"durable","parallelism":"parallel","targets":[{}],"limits":{"rounds":3,"calls":9,"calls_per_turn":4,"active_ms":60000}}
input [{"role":"user","parts":[{"kind":"text","text":"go"}]}]
input_added {"items_ref":"input","by":"client"}
catalogued {}
turn_started {"round":0,"attempt":1,"purpose":"turn"}
t0 [{"role":"assistant","parts":[{"kind":"text","text":"Looking."},{"kind":"reasoning","text":"hm"}]}]
`
	f.Add(head + `turn {"purpose":"turn","items_ref":"t0","calls":[{"name":"a","arguments":"{}","complete":true}],"stop":"tool_calls","usage":{"input":3,"output":2}}
args {"n":1}
call_prepared {"call_key":"0.0","owner":"gateway","class":"once","verdict":"run","args_ref":"args"}
call_started {"call_key":"0.0","attempt":1}
r0 [{"role":"tool","call_id":"c","parts":[{"kind":"text","text":"5"}]}]
full "5 and more"
call_done {"call_key":"0.0","attempt":1,"outcome":"ok","result_ref":"r0","full_ref":"full"}
turn_started {"round":1,"attempt":1,"purpose":"turn"}
t1 [{"role":"assistant","parts":[{"kind":"text","text":"5."}]}]
turn {"round":1,"purpose":"turn","items_ref":"t1","stop":"stop"}
finished {"reason":"complete"}`)
	f.Add(head + `e0 {"class":"transient","status":503,"header":{"A":["b"]},"body":"eA==","error":"x"}
turn_failed {"attempt":1,"class":"invalid","error_ref":"e0","partial_ref":"t0"}
finished {"reason":"model_error"}`)
	f.Add(head + `turn {"purpose":"turn","calls":[{"name":"a","complete":true}],"stop":"tool_calls"}
call_done {"call_key":"0.0","outcome":"ok","result_ref":"none"}
none []
finished {"reason":"client_calls","handed":[{"call_key":"7.7","id":"x"}]}`)
	f.Add(`finished {"reason":"invalid"}`)
	f.Add(head + `turn {"purpose":"turn","items_ref":"t0","calls":[{"name":"a","complete":true}],"stop":"tool_calls"}
turn_started {"round":1,"attempt":1,"purpose":"turn"}
r0 [{"role":"tool","call_id":"c","parts":[{"kind":"text","text":"5"}]}]
call_done {"call_key":"0.0","outcome":"ok","result_ref":"r0"}
turn {"round":1,"purpose":"turn","items_ref":"t0","stop":"stop"}
turn {"round":2,"purpose":"turn","items_ref":"t0","stop":"stop"}`)
	f.Add(head + `finished {"reason":"lost","handed":[{"call_key":"7.7","id":"x"}]}`)
	f.Fuzz(func(t *testing.T, stored string) {
		story := storyOf(stored)
		first, err := retold(t, story)
		second, errAgain := retold(t, story)
		if diff := cmp.Diff(first, second); diff != "" || (err == nil) != (errAgain == nil) {
			t.Fatalf("%v, then %v:\n%s", err, errAgain, diff)
		}
		for i, e := range first {
			if _, end := e.(event.Finished); end && i != len(first)-1 {
				t.Fatalf("told after its end: %+v", first)
			}
		}
	})
}

// retold returns what a story tells.
func retold(t testing.TB, story *journal.Story) ([]event.Event, error) {
	told := &notes{}
	s := newReader(storyArchive{Archive: nil, story: story}, Follow{}, &teller{sink: told})
	var err error
	for more := true; more && err == nil; {
		more, err = s.advance(t.Context())
	}
	w := NewWriter(told, nil, nil)
	if err == nil {
		err = w.Recover(story, func(body loop.Body) error { return new(results).recall("run_1", body, story.Rows) })
	}
	if s := w.State(); err == nil && s.Accepted != nil {
		_, err = requestOf(s.Accepted, s.Parks, story.Rows)
	}
	for i, at := range told.at[min(1, len(told.at)):] {
		if at.Compare(told.at[i]) <= 0 {
			t.Fatalf("the event at %v follows the one at %v: %+v", at, told.at[i], told.events)
		}
	}
	return told.events, err
}

// storyArchive has one run.
type storyArchive struct {
	journal.Archive
	story *journal.Story
}

// Head implements Archive.
func (a storyArchive) Head(context.Context, string, string) (journal.Head, error) {
	var h journal.Head
	for _, f := range a.story.Facts {
		h.Summary = h.Summary.After(f)
	}
	return h, nil
}

// Load implements Archive.
func (a storyArchive) Load(context.Context, string, string) (*journal.Story, error) {
	return a.story, nil
}

// Facts implements Archive.
func (a storyArchive) Facts(_ context.Context, _, _ string, after int64, _ int) ([]loop.Fact, error) {
	return a.story.Facts[after:min(after+2, int64(len(a.story.Facts)))], nil
}

// Rows implements Archive.
func (a storyArchive) Rows(_ context.Context, _, _ string, refs []string, _ int) (rows []json.RawMessage, _ error) {
	for _, ref := range refs {
		row, ok := a.story.Rows[ref]
		if !ok {
			break
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// storyOf reads a line for each fact, kind and body, and one for each row, name
// and value.
func storyOf(text string) *journal.Story {
	story := &journal.Story{Rows: map[string]json.RawMessage{}}
	for line := range strings.SplitSeq(text, "\n") {
		name, data, _ := strings.Cut(line, " ")
		body, err := loop.Decode(loop.Version, loop.Kind(name), []byte(data))
		seq := int64(len(story.Facts)) + 1
		switch {
		case err == nil && seq < 100:
			story.Facts = append(story.Facts, loop.Fact{Seq: seq, Epoch: 1, At: seq * 10, Version: loop.Version, Body: body})
		case json.Valid([]byte(data)):
			story.Rows[name] = json.RawMessage(data)
		}
	}
	return story
}

// FuzzReread: whatever the model asks for, it is answered with a piece of the
// result where the answer says that it is from, in whole characters; and who
// goes on where a piece ended reads all of it. // P16
func FuzzReread(f *testing.F) {
	f.Add("hello", `{"id":"a.0.0"}`, 200)
	f.Add(strings.Repeat("é😀", 200), `{"id":"a.0.0","offset":3,"length":1}`, 200)
	f.Add("\x80\x80\xff", `{"id":"a.0.0","offset":1,"length":9223372036854775807}`, 0)
	f.Add("abc", `{"id":"a.0.0","offset":-1,"length":-5}`, 200)
	f.Fuzz(func(t *testing.T, text, args string, limit int) {
		if !json.Valid([]byte(args)) {
			return
		}
		limit %= 1 << 16
		text = strings.ToValidUTF8(text, "\ufffd") // results are mended before they are kept
		r := reread{full: map[string]string{"a.0.0": text}, limit: limit}
		got, err := r.Call(t.Context(), tool.Call{Arguments: json.RawMessage(args)})
		if err != nil || len(got.Parts) != 1 {
			t.Fatalf("%+v, %v", got, err)
		}
		if !got.IsError {
			checkPiece(t, text, got.Parts[0].Text, limit)
		}
		var all strings.Builder
		for at, n := 0, 0; at < len(text) && n < 200; n++ {
			got, err := r.Call(t.Context(), tool.Call{Arguments: fmt.Appendf(nil, `{"id":"a.0.0","offset":%d}`, at)})
			if err != nil || got.IsError {
				t.Fatalf("offset %d of %d: %+v, %v", at, len(text), got, err)
			}
			from, to := checkPiece(t, text, got.Parts[0].Text, limit)
			if from != at {
				t.Fatalf("offset %d begins at %d", at, from)
			}
			all.WriteString(text[from:to])
			at = to
		}
		if !strings.HasPrefix(text, all.String()) {
			t.Fatalf("%q was read as %q", text, all.String())
		}
	})
}

// checkPiece returns where the piece is from.
func checkPiece(t *testing.T, text, answer string, limit int) (from, to int) {
	t.Helper()
	var whole int
	if n, err := fmt.Sscanf(answer, "[bytes %d to %d of %d]\n", &from, &to, &whole); n != 3 || err != nil {
		t.Fatalf("%q: %v", answer, err)
	}
	_, piece, _ := strings.Cut(answer, "\n")
	switch {
	case whole != len(text) || from < 0 || from >= to || to > len(text) || text[from:to] != piece:
		t.Fatalf("%q is not a piece of %q", answer, text)
	case len(answer) > max(limit, 256+utf8.UTFMax):
		t.Fatalf("%d bytes, the limit is %d", len(answer), limit)
	case utf8.ValidString(text) && !utf8.ValidString(piece):
		t.Fatalf("%q has half a character", piece)
	}
	return from, to
}

// FuzzCallOrder: putting results into the order of their calls loses nothing,
// moves nothing but results, and has nothing to do the second time.
func FuzzCallOrder(f *testing.F) {
	f.Add("a:xyz rz ry rx")
	f.Add("a:xx rx ry rx u a: rx a:q rq")
	f.Add("rx ry a")
	f.Fuzz(func(t *testing.T, text string) {
		var items []item.Item
		for word := range strings.FieldsSeq(text) {
			switch rest, isCall := strings.CutPrefix(word, "a:"); {
			case isCall:
				said := item.NewText(item.Assistant, "")
				said.Turn = len(items) + 1
				items = append(items, said)
				for _, id := range rest {
					call := item.NewCall(string(id), "", "")
					call.Turn = said.Turn
					items = append(items, call)
				}
			case word[0] == 'r':
				items = append(items, item.NewResult(word[1:], fmt.Sprint(len(items)), false))
			default:
				items = append(items, item.NewText(item.User, word))
			}
		}
		sorted := slices.Clone(items)
		inCallOrder(sorted)
		for i := range items {
			if items[i].Kind != sorted[i].Kind || items[i].Kind != item.ToolResult && items[i].Text() != sorted[i].Text() {
				t.Fatalf("%d: %+v, was %+v", i, sorted[i], items[i])
			}
		}
		again := slices.Clone(sorted)
		inCallOrder(again)
		if fmt.Sprint(again) != fmt.Sprint(sorted) {
			t.Fatalf("%v, then %v", sorted, again)
		}
		byText := func(a, b item.Item) int {
			return strings.Compare(fmt.Sprint(a.Kind, a.CallID, a.Text()), fmt.Sprint(b.Kind, b.CallID, b.Text()))
		}
		slices.SortStableFunc(items, byText)
		slices.SortStableFunc(sorted, byText)
		if fmt.Sprint(items) != fmt.Sprint(sorted) {
			t.Fatalf("%v became %v", items, sorted)
		}
	})
}
