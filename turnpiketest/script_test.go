package turnpiketest_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// stream plays the next turn and returns it with the deltas.
func stream(ctx context.Context, m model.Model) (*model.Turn, []model.Delta, error) {
	var deltas []model.Delta
	turn, err := m.Stream(ctx, &model.Request{Model: "scripted", Items: []item.Item{item.NewText(item.User, "hi")}}, func(d model.Delta) error {
		deltas = append(deltas, d)
		return nil
	})
	return turn, deltas, err
}

func TestATurnSaysWhatItsLinesSay(t *testing.T) {
	s := turnpiketest.NewScript(t, `
reasoning Hm.
text Looking
text " it up.\n"
call c1 search {"q":"go"}
call - read {broken
usage 12 5
`)
	turn, deltas, err := stream(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	search := model.Call{ID: "c1", Name: "search", Arguments: `{"q":"go"}`, Complete: true}
	read := model.Call{Name: "read", Arguments: `{broken`, Complete: true}
	want := &model.Turn{
		ID: "chatcmpl-script-1", Model: "scripted", Stop: model.StopCalls, RawStop: "tool_calls",
		Items: []item.Item{
			{Kind: item.Reasoning, Turn: 1, Parts: []item.Part{{Kind: item.Text, Text: "Hm."}}},
			{Kind: item.Message, Turn: 1, Role: item.Assistant, Parts: []item.Part{{Kind: item.Text, Text: "Looking it up.\n"}}},
			{Kind: item.ToolCall, Turn: 1, CallID: "c1", Name: "search", Arguments: `{"q":"go"}`},
			{Kind: item.ToolCall, Turn: 1, Name: "read", Arguments: `{broken`},
		},
		Calls: []model.Call{search, read},
		Usage: model.Usage{Input: 12, Output: 5, Total: 17},
	}
	if d := cmp.Diff(want, turn); d != "" {
		t.Error(d)
	}
	said := []model.Delta{
		{Kind: model.ReasoningDelta, Text: "Hm."}, {Kind: model.TextDelta, Item: 1, Text: "Looking"}, {Kind: model.TextDelta, Item: 1, Text: " it up.\n"},
		{Kind: model.CallDelta, Item: 2, CallID: "c1", Name: "search", Text: `{"q":`}, {Kind: model.CallDelta, Item: 2, Text: `"go"}`},
		{Kind: model.CallDelta, Item: 3, Name: "read", Text: "{br"}, {Kind: model.CallDelta, Item: 3, Text: "oken"},
	}
	if d := cmp.Diff(said, deltas); d != "" {
		t.Error(d)
	}
	if r := s.Requests(); len(r) != 1 || r[0].Items[0].Text() != "hi" {
		t.Errorf("requests %+v", r)
	}
}

func TestWhichCallsAreComplete(t *testing.T) { // G07
	for name, row := range map[string]struct {
		story string
		want  []bool
		fails bool
	}{
		"those of a whole turn":                       {"call a x {}\ncall b x {}", []bool{true, true}, false},
		"not the one that the stream was cut after":   {"call a x {}\ncall b x {}\ncut", []bool{true, false}, true},
		"not the only one before a cut":               {"call a x {}\ncut", []bool{false}, true},
		"not the last one of a turn out of length":    {"call a x {}\ncall b x {}\nstop length", []bool{true, false}, false},
		"not the last one before a failure in stream": {"call a x {}\ncall b x {}\nfail 500", []bool{true, false}, true},
	} {
		t.Run(name, func(t *testing.T) {
			turn, _, err := stream(t.Context(), turnpiketest.NewScript(t, row.story))
			if (err != nil) != row.fails {
				t.Fatal(err)
			}
			var got []bool
			complete := 0
			for _, c := range turn.Calls {
				got = append(got, c.Complete)
				if c.Complete {
					complete++
				}
			}
			if !cmp.Equal(got, row.want) || len(turn.Items) != complete {
				t.Errorf("complete: %v, want %v; %d items", got, row.want, len(turn.Items))
			}
		})
	}
}

func TestFailuresAreThoseOfAnAdapter(t *testing.T) {
	s := turnpiketest.NewScript(t, `
fail 429 retry-after 7 slow down

fail 401

fail 400 no

text a
fail 503

cut
`)
	want := []model.Error{
		{Class: model.Transient, Status: 429, RetryAfter: 7 * time.Second, Message: "slow down"},
		{Class: model.Target, Status: 401, Message: "unauthorized"},
		{Class: model.Invalid, Status: 400, Message: "no"},
		{Class: model.Transient, Status: http.StatusOK, Message: "service unavailable"},
		{Class: model.Transient, Status: http.StatusOK, Message: "the stream ended before the turn did"},
		{Class: model.Invalid, Message: "the script has no turn 6"},
	}
	for i, w := range want {
		turn, _, err := stream(t.Context(), s)
		var got *model.Error
		if !errors.As(err, &got) {
			t.Fatalf("call %d: %v", i+1, err)
		}
		if got.Class != w.Class || got.Status != w.Status || got.RetryAfter != w.RetryAfter || got.Message != w.Message {
			t.Errorf("call %d: %+v, want %+v", i+1, got, w)
		}
		if (turn != nil) != (i == 3) {
			t.Errorf("call %d: a partial turn %v", i+1, turn)
		}
		if i == 0 && (http.Header(got.Header).Get("Retry-After") != "7" || got.Dialect != "openai-chat" || !strings.Contains(string(got.Body), "slow down")) {
			t.Errorf("header %v, body %s", got.Header, got.Body)
		}
		if i == 4 && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Error(err)
		}
	}
	if s.Played() != len(want) {
		t.Errorf("%d turns played", s.Played())
	}
}

func TestATurnCanAnswerManyCalls(t *testing.T) {
	s := turnpiketest.NewScript(t, "text a\nagain 1\n\ntext b\nagain\n")
	got := ""
	for range 5 {
		_, deltas, err := stream(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		got += deltas[0].Text
	}
	if got != "aabbb" || s.Left() != 0 {
		t.Errorf("said %q, %d left", got, s.Left())
	}
}

func TestTheCallerEndsWhatHangs(t *testing.T) {
	for name, story := range map[string]string{"a model that hangs": "text a\nhang", "a model that waits": "text a\nwait 1h\ntext b"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				turn, _, err := stream(ctx, turnpiketest.NewScript(t, story))
				var got *model.Error
				if !errors.As(err, &got) || got.Class != model.Gone || turn == nil || turn.Text() != "a" {
					t.Errorf("%v beside %v", turn, err)
				}
			})
		})
	}
}

func TestAnErrorOfEmitEndsTheTurn(t *testing.T) {
	full := errors.New("full")
	s := turnpiketest.NewScript(t, "text a\ntext b")
	_, err := s.Stream(t.Context(), &model.Request{}, func(model.Delta) error { return full })
	if !errors.Is(err, full) {
		t.Error(err)
	}
}
