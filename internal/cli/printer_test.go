package cli

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// `runs show` prints the facts of a run and `runs follow` its events: what both say, they
// say with the same words.
func TestFactsAndEventsArePrintedAlike(t *testing.T) {
	const at = 1_750_000_000_000
	facts := []loop.Body{
		loop.Turn{Round: 0, Calls: []loop.TurnCall{
			{Name: "pay", Arguments: `{"invoice":7}`, Complete: true}, {Name: "drop", Arguments: `{}`, Complete: true},
		}},
		loop.CallPrepared{Key: "0.0", Server: "bank"},
		loop.CallPrepared{Key: "0.1", Server: "bank"},
		loop.CallWaiting{Key: "0.0", WaitID: "apr_1", On: loop.OnApproval},
		loop.CallWaiting{Key: "0.1", WaitID: "apr_2", On: loop.OnApproval},
		loop.CallResolved{WaitID: "apr_1", Approved: true, By: "key_a", Message: "go on"},
		loop.Expired{WaitID: "apr_2"},
		loop.CallStarted{Key: "0.0", Attempt: 1},
		loop.CallDone{Key: "0.0", Attempt: 1, Outcome: loop.OK, ResultRef: "paid", Micros: 2500},
		loop.CallDone{Key: "0.1", Outcome: loop.Denied, ResultRef: "late"},
		loop.TurnStarted{Round: 1, Attempt: 2},
		loop.Finished{Reason: event.MaxRounds},
	}
	events := []event.Event{
		event.RoundDone{Round: 0},
		event.Waiting{Approvals: []event.Approval{
			{ID: "apr_1", Key: "0.0", Name: "pay", Arguments: json.RawMessage(`{"invoice":7}`)},
			{ID: "apr_2", Key: "0.1", Name: "drop", Arguments: json.RawMessage(`{}`)},
		}},
		event.ApprovalDecided{ID: "apr_1", Key: "0.0", Decision: "approved", By: "key_a", Reason: "go on"},
		event.ApprovalDecided{ID: "apr_2", Key: "0.1", Decision: "expired"},
		event.ToolStarted{Key: "0.0", Name: "pay", Server: "bank", Arguments: json.RawMessage(`{"invoice":7}`)},
		event.ToolDone{Key: "0.0", Name: "pay", Server: "bank", Outcome: event.CallOK, Text: "paid", Duration: 2500 * time.Microsecond},
		event.ToolDone{Key: "0.1", Name: "drop", Server: "bank", Outcome: event.CallDenied, Text: "too late"},
		event.RoundStarted{Round: 1, Attempt: 2},
		event.Finished{Reason: event.MaxRounds, Usage: model.Usage{}},
	}

	var shown, followed bytes.Buffer
	story := &journal.Story{Rows: map[string]json.RawMessage{"paid": resultRow(t, "paid"), "late": resultRow(t, "too late")}}
	p := newFactPrinter(&shown, false, story)
	for i, body := range facts {
		f := loop.Fact{Seq: int64(i + 1), At: at, Body: body}
		story.Facts = append(story.Facts, f)
		p.print(f)
	}
	e := newEventPrinter(&followed)
	for _, ev := range events {
		if err := e.Emit(event.Position{}, ev); err != nil {
			t.Fatal(err)
		}
	}

	// A story adds times, and a follower the totals.
	want := `           0.0      pay({"invoice":7})
           0.1      drop({})
           0.0      waits for a human: apr_1
           0.1      waits for a human: apr_2
           0.0      apr_1 is approved by key_a: go on
           0.1      apr_2 is expired
           0.0      ok: paid   (bank, 2.5 ms)
           0.1      not executed, denied: too late
round 1    model    attempt 2
`
	for name, printed := range map[string]string{"show": shown.String(), "follow": followed.String()} {
		_, got, _ := strings.Cut(printed, " tokens)\n")
		got, _, _ = strings.Cut(got, "finished ")
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s\n%s", name, diff, printed)
		}
	}
}

// resultRow is the stored form of a result with the text.
func resultRow(t *testing.T, text string) json.RawMessage {
	row, err := json.Marshal(item.List{{Kind: item.ToolResult, Parts: []item.Part{{Kind: item.Text, Text: text}}}})
	if err != nil {
		t.Fatal(err)
	}
	return row
}

// A journal counts whole milliseconds: 0 is a time that is known.
func TestUsageOfACallThatTookLessThanAMillisecond(t *testing.T) {
	if got, want := usage(3, 4, 0), "   (0 ms, 3 + 4 tokens)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := usage(3, 4, -1), "   (3 + 4 tokens)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
