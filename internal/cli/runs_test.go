package cli

import (
	"encoding/json"
	"testing"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/model"
)

// Who cancelled a run, and that a client has left, is shown.
func TestRunsShowSaysWhoEndedARun(t *testing.T) {
	for reason, want := range map[event.Reason]string{
		event.Cancelled:  "The key key_7 cancelled the run.",
		event.CallerGone: "The client closed the connection before the answer was complete.",
		event.Lost:       "The gateway stopped or crashed while the run was in progress, and the run could not be continued.",
		event.NoProgress: "The model repeated itself (doom_loop).",
		event.OutputCut:  "The model reached its own output limit.",
		event.Refused:    "The provider's content filter refused the request or the answer.",
	} {
		story := &journal.Story{Facts: []loop.Fact{
			{Seq: 1, Body: loop.Accepted{RunID: "r", Org: "o"}},
			{Seq: 2, Body: loop.CancelRequested{By: "key_7", Cause: reason}},
			{Seq: 3, Body: loop.Finished{Reason: reason}},
		}, Summary: journal.Summary{Status: journal.Done, Reason: reason}}
		if got := newStoryObject(story, nil, nil).Why; got != want {
			t.Errorf("%s: %q, want %q", reason, got, want)
		}
	}
}

// A shared budget that is used up is named.
func TestRunsShowNamesTheBudgetThatIsUsedUp(t *testing.T) {
	story := &journal.Story{Facts: []loop.Fact{
		{Seq: 1, Body: loop.Accepted{RunID: "r", Org: "o"}},
		{Seq: 2, Body: loop.ReserveRefused{Scope: "org:2026-11-21", Reason: event.Tokens}},
		{Seq: 3, Body: loop.Finished{Reason: event.Tokens}},
	}, Summary: journal.Summary{Status: journal.Done, Reason: event.Tokens}}
	if got := newStoryObject(story, nil, nil).Why; got != "The budget org:2026-11-21 has no room for another model call." {
		t.Error(got)
	}
}

// A row that is damaged does not keep the rest from being shown.
func TestRunsShowSurvivesDamagedRows(t *testing.T) {
	story := &journal.Story{Summary: journal.Summary{Status: journal.Done, Reason: event.ModelError}, Rows: map[string]json.RawMessage{"e": json.RawMessage("{")}, Facts: []loop.Fact{
		{Seq: 1, Body: loop.Accepted{RunID: "r", Org: "o"}},
		{Seq: 2, Body: loop.TurnFailed{Attempt: 1, Class: model.Target, ErrorRef: "e"}},
		{Seq: 3, Body: loop.Finished{Reason: event.ModelError}},
	}}
	got := newStoryObject(story, nil, nil)
	if _, err := json.Marshal(got); err != nil || got.Why != "" || string(got.Rows["e"]) != `"{"` {
		t.Errorf("%v: %+v", err, got)
	}
}
