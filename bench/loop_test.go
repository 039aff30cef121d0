package main

import (
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/bench/fake"
)

func TestOverlap(t *testing.T) {
	for _, tt := range []struct {
		name           string
		calls          []fake.ToolCall
		peak, overlaps int
	}{
		{"nothing overlaps with nothing", nil, 0, 0},
		{"one after another", []fake.ToolCall{{ID: 0, Start: 0, End: 5}, {ID: 1, Start: 5, End: 9}}, 1, 0},
		{"a ledger in order of the ends", []fake.ToolCall{{ID: 1, Start: 10, End: 20}, {ID: 0, Start: 0, End: 30}}, 2, 1},
		{"a short one inside a long one", []fake.ToolCall{{Start: 0, End: 9}, {Start: 2, End: 3}, {Start: 4, End: 5}}, 2, 2},
		{"all at the same time", []fake.ToolCall{{Start: 0, End: 9}, {Start: 1, End: 9}, {Start: 2, End: 9}}, 3, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if peak, overlaps := overlap(tt.calls); peak != tt.peak || overlaps != tt.overlaps {
				t.Errorf("overlap = %d, %d, want %d, %d", peak, overlaps, tt.peak, tt.overlaps)
			}
		})
	}
}

// result is the tool message for the call of that id.
func result(id int) fake.ToolResult {
	return fake.ToolResult{CallID: fake.ProviderID(id), Text: fake.Result(id)}
}

func TestVerify(t *testing.T) {
	s := fake.Script{Run: 2, Rounds: [][]int{{50, 50}}}
	calls := []fake.ToolCall{{ID: 2001, Start: 0, End: 9}, {ID: 2000, Start: 1, End: 9}}
	turns := func(results ...fake.ToolResult) []fake.ModelCall {
		return []fake.ModelCall{{Run: 2, Round: 0}, {Run: 2, Round: 1, Results: results}}
	}
	good := turns(result(2000), result(2001))
	for _, tt := range []struct {
		name     string
		calls    []fake.ToolCall
		turns    []fake.ModelCall
		fails    string
		disorder string
	}{
		{"a run as scripted", calls, good, "", ""},
		{"results in finishing order", calls, turns(result(2001), result(2000)), "", "result 0"},
		{"a result under another's id", calls, turns(result(2000), fake.ToolResult{CallID: "call_2001", Text: fake.Result(2000)}), "", "result 1"},
		{"a result too few", calls, turns(result(2000)), "", "1 tool results, want 2"},
		{"a call that was not made", calls[:1], good, "the tool was called for [2001]", ""},
		{"a call made twice", append(calls[:2:2], calls[0]), good, "[2000 2001 2001]", ""},
		{"a model call too many", calls, append(good[:2:2], fake.ModelCall{Run: 2, Round: 2}), "3 model calls", ""},
		{"a model call of another run", calls, []fake.ModelCall{{Run: 1}, good[1]}, "for run 1", ""},
		{"no model call", calls, nil, "0 model calls", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got loopResult
			err := got.verify(s, tt.calls, tt.turns)
			switch {
			case tt.fails == "" && err != nil:
				t.Fatal(err)
			case tt.fails != "" && (err == nil || !strings.Contains(err.Error(), tt.fails)):
				t.Fatalf("error %v, want one with %q", err, tt.fails)
			case tt.fails != "":
				return
			}
			if (got.outOfOrder > 0) != (tt.disorder != "") || !strings.Contains(got.firstOutOfOrder, tt.disorder) {
				t.Errorf("%d disorders, first %q; want %q", got.outOfOrder, got.firstOutOfOrder, tt.disorder)
			}
			if got.peak != 2 || got.overlaps != 1 {
				t.Errorf("peak %d, overlaps %d", got.peak, got.overlaps)
			}
		})
	}
}

// Runs of a pass overlap, so the ledgers have all of them at once.
func TestVerifyAllSeparatesRuns(t *testing.T) {
	s := func(run int) fake.Script { return fake.Script{Run: run, Rounds: [][]int{{0}}} }
	calls := []fake.ToolCall{{ID: 2000, Start: 0, End: 5}, {ID: 1000, Start: 1, End: 4}}
	turns := []fake.ModelCall{{Run: 1}, {Run: 2}, {Run: 2, Round: 1, Results: []fake.ToolResult{result(2000)}},
		{Run: 1, Round: 1, Results: []fake.ToolResult{result(1000)}}}
	var got loopResult
	if err := got.verifyAll([]fake.Script{s(1), s(2)}, calls, turns); err != nil || got.peak != 1 || got.overlaps+got.outOfOrder != 0 {
		t.Errorf("%+v, error %v", got, err)
	}
	if err := got.verifyAll([]fake.Script{s(2)}, calls, turns); err == nil || !strings.Contains(err.Error(), "outside of this pass") {
		t.Errorf("error %v for a run that continued after its end", err)
	}
}

func TestPercentile(t *testing.T) {
	for _, tt := range []struct {
		xs   []float64
		p    int
		want float64
	}{
		{[]float64{7}, 99, 7},
		{[]float64{3, 1, 2, 4}, 50, 2},
		{[]float64{3, 1, 2, 4}, 99, 4},
	} {
		if got := percentile(tt.xs, tt.p); got != tt.want {
			t.Errorf("percentile(%v, %d) = %v, want %v", tt.xs, tt.p, got, tt.want)
		}
	}
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[99-i] = float64(i + 1)
	}
	if got := percentile(hundred, 99); got != 99 {
		t.Errorf("p99 of 1 to 100 is %v", got)
	}
}

func TestCollect(t *testing.T) {
	const (
		word = "data: {\"choices\":[{\"delta\":{\"content\":\"Run 1 is done.\"}}]}\n\n"
		call = "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0}]}}]}\n\n"
		stop = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"
		long = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"length\"}]}\n\n"
		done = "data: [DONE]\n\n"

		respWord = "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"Run 1 is done.\"}\n\n"
		respCall = "event: response.output_item.added\ndata: {\"type\":\"response.output_item.added\",\"item\":{\"type\":\"function_call\"}}\n\n"
		respStop = "event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"error\":null}}\n\n"
	)
	for _, tt := range []struct {
		name, stream, fails string
	}{
		{"the scripted answer", ": keep-alive\n\n" + word + stop + done, ""},
		{"no end", word + stop, "without [DONE]"},
		{"another text", word + word + stop + done, "want"},
		{"the gateway's calls leak", call + word + stop + done, "tool call deltas"},
		{"a limit", word + long + done, `finish reason "length"`},
		{"an error inside", word + "data: {\"error\":{\"message\":\"no\"}}\n\n" + done, "error inside the stream"},
		{"no JSON", "data: {\n\n", "chunk"},
		{"the scripted response", respWord + respStop + done, ""},
		{"a response without its end", respWord + done, `finish reason ""`},
		{"the gateway's calls leak into a response", respCall + respWord + respStop + done, "tool call deltas"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, err := collect(strings.NewReader(tt.stream))
			if err == nil {
				err = a.check("Run 1 is done.")
			}
			if tt.fails == "" && err != nil || tt.fails != "" && (err == nil || !strings.Contains(err.Error(), tt.fails)) {
				t.Errorf("error %v, want %q", err, tt.fails)
			}
		})
	}
}

func FuzzCollect(f *testing.F) {
	f.Add("data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\ndata: [DONE]\n\n")
	f.Add("data:[DONE]\r\n")
	f.Fuzz(func(t *testing.T, stream string) {
		a, err := collect(strings.NewReader(stream))
		if err == nil && a.done && !strings.Contains(stream, "[DONE]") {
			t.Error("an end out of nothing")
		}
	})
}
