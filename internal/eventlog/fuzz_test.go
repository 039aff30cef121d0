package eventlog

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
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

// notes is a Sink that remembers.
type notes struct {
	events []event.Event
	at     []event.Position
}

// Emit implements Sink.
func (n *notes) Emit(at event.Position, e event.Event) error {
	n.events, n.at = append(n.events, e), append(n.at, at)
	return nil
}

// retold returns what a story tells.
func retold(t testing.TB, story *journal.Story) ([]event.Event, error) {
	told := &notes{}
	s := newReader(storyArchive{Archive: nil, story: story}, Follow{}, &emitter{sink: told})
	var err error
	for more := true; more && err == nil; {
		more, err = s.advance(t.Context())
	}
	if err == nil {
		err = NewWriter(told, nil, nil).Recover(story, func(loop.Body) error { return nil })
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
