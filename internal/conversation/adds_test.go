package conversation

import (
	"slices"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/item"
)

// turnItems returns the items of words: u a message of the user, t a text of the model, c a call, w its result, and n, d,
// b and e results of calls that were not made, were denied, were blocked by a hook and have failed. ? is the result of a call that waits.
func turnItems(words string) (out []item.Item) {
	for _, word := range words {
		var it item.Item
		switch word {
		case 'u':
			it = item.NewText(item.User, "u")
		case 't':
			it = item.NewText(item.Assistant, "t")
			it.Turn = 1
		case 'c':
			it = item.NewCall("call", "pay", "{}")
			it.Turn = 1
		case 'w':
			it = item.NewResult("call", "paid", false)
		case 'n':
			it = item.NewResult("call", "Not run: the run ended (cancelled).", true)
		case 'm':
			it = item.NewResult("call", "Error: Not running any more: 3 of 5 payments were made.", true)
		case 'd':
			it = item.NewResult("call", "Tool call denied by user.", true)
		case 'b':
			it = item.NewResult("call", "Error: Blocked by hook — not today", true)
		case 'e':
			it = item.NewResult("call", "no money", true)
		case '?':
			it = item.NewResult("call", NotApproved, true)
		}
		out = append(out, it)
	}
	return out
}

// asWords is the inverse of turnItems, without the words of results. A line of the gateway is what it says about calls.
func asWords(items []item.Item) string {
	var b strings.Builder
	for _, it := range items {
		switch {
		case it.Kind == item.ToolCall:
			b.WriteString("c")
		case it.Kind == item.ToolResult:
			b.WriteString("r")
		case it.Role == item.Developer:
			_, calls, _ := strings.Cut(it.Text(), "remains: ")
			b.WriteString("[" + calls + "]")
		default:
			b.WriteString(it.Text())
		}
	}
	return b.String()
}

// What each turn adds, for each reason for which a run can end.
func TestWhatASegmentAdds(t *testing.T) {
	// The turns, and what they add to the conversation if the run was cut off, and if it has failed.
	turns := []struct{ stored, cut, failed string }{
		{"u", "", ""},
		{"ut", "ut", "ut"},
		{"ucw", "ucr", "[pay.]"},
		{"ucwcw", "ucrcr", "[pay (2 times).]"},
		{"uce", "ucr", "[pay (with an error).]"},
		{"ucn", "ucr", ""},
		{"ucm", "ucr", "[pay (with an error).]"},
		{"ucd", "ucr", ""},
		{"ucb", "ucr", ""},
		{"utcw", "utcr", "[pay.]"},
		{"ucwt", "ucrt", "ucrt"},
		{"ucwu", "ucru", "[pay.]"},
		{"utu", "utu", "ut"},
		{"utc", "[pay (without a result).]", "[pay (without a result).]"},
		{"uc?", "ucr", "ucr"},
		{"uc?u", "ucru", "ucru"},
	}
	cut := []event.Reason{event.Cancelled, event.CallerGone, event.Lost}
	for _, reason := range append(event.Reasons(), "") {
		for _, turn := range turns {
			want := turn.failed
			switch {
			case reason == event.Complete, reason == event.ClientCalls, reason == event.OutputCut, reason.Limit():
				want = asWords(turnItems(turn.stored))
			case slices.Contains(cut, reason):
				want = turn.cut
				if turn.stored == "u" && reason == event.Cancelled {
					want = "u"
				}
			case reason == "" && turn.stored == "utc":
				want = "utc"
			}
			got := addedBy(&journal.Conversation{RunID: "run_1", Items: turnItems(turn.stored)}, reason)
			if words := asWords(got.Items); words != want || got.Aside != (want == "" || want[0] == '[') {
				t.Errorf("%q, %s: adds %q, aside %v; want %q", turn.stored, reason, words, got.Aside, want)
			}
		}
	}
	if got := addedBy(&journal.Conversation{Items: turnItems("u")}, ""); asWords(got.Items) != "u" || got.Aside {
		t.Errorf("items of a client: %+v", got)
	}
}
