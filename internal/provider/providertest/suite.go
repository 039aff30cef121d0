package providertest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/internal/upstreamtest"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// Adapter is an adapter that [Run] tests.
type Adapter struct {
	// Column names the adapter in [Features].
	Column Column

	// Model is the model of the requests: one that reasons.
	Model string

	// New returns the adapter for the fake provider.
	New func(wire.Endpoint) model.Model

	// Lenient makes the fake provider accept members that OpenAI refuses. It is for
	// compatible servers, which have members of their own.
	Lenient bool

	// TooLong is how the provider words that the context is too long.
	TooLong string
}

// Run tests an adapter against a fake provider of its dialect that refuses what
// the real one would refuse: what it reads, what it sends, how it fails, and that
// every row of [Features] is true.
func Run(t *testing.T, a Adapter) {
	t.Run("answers", a.answers)
	t.Run("loop", a.loop)
	t.Run("failures", a.failures)
	t.Run("interruptions", a.interruptions)
	t.Run("features", a.features)
}

// start starts a fake provider that plays a story, and an adapter that talks to it.
func (a Adapter) start(t *testing.T, story string, o upstreamtest.Options, silence time.Duration) (*upstreamtest.Upstream, model.Model) {
	t.Helper()
	o.Strict = !a.Lenient
	u := upstreamtest.New(turnpiketest.NewScript(t, story), o)
	t.Cleanup(u.Close)
	return u, a.New(wire.Endpoint{BaseURL: u.URL, Transport: u.Transport(), Silence: silence})
}

// request returns a request with one message.
func (a Adapter) request() *model.Request {
	return &model.Request{Model: a.Model, Items: []item.Item{item.NewText(item.User, "hi")}}
}

// withTools adds the tools f and g.
func withTools(req *model.Request) {
	for _, name := range []string{"f", "g"} {
		req.Tools = append(req.Tools, model.Tool{Definition: tool.Definition{
			Name: name, Description: "a tool", InputSchema: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}}}`),
		}})
	}
}

// place is where a delta belongs: an item of the turn, and a part of it.
type place struct{ item, part int }

// heard collects deltas: their texts by kind and by place, and what they say of
// calls.
type heard struct {
	kinds  map[model.DeltaKind]string
	places map[place]string
	calls  map[int]model.Call // by item
	order  []string           // what is wrong with their order

	begun, ended map[int]bool // by item
}

func newHeard() *heard {
	return &heard{map[model.DeltaKind]string{}, map[place]string{}, map[int]model.Call{}, nil, map[int]bool{}, map[int]bool{}}
}

func (h *heard) emit(d model.Delta) error {
	at := place{d.Item, d.Part}
	switch {
	case h.ended[d.Item]:
		h.order = append(h.order, fmt.Sprintf("a delta after the end of its item %+v", d))
	case d.Kind == model.DoneDelta:
		if !h.begun[d.Item] || d != (model.Delta{Kind: d.Kind, Item: d.Item}) {
			h.order = append(h.order, fmt.Sprintf("an end without a begin, or with more than the end %+v", d))
		}
		h.ended[d.Item] = true
		return nil
	}
	h.begun[d.Item] = true
	if d.Kind == model.CitationDelta || d.Kind == model.ProgressDelta {
		return nil // checked by CheckDeltas
	}
	_, begun := h.places[at]
	call, named := h.calls[d.Item]
	switch {
	case d.Kind == model.CallDelta && !begun && (d.Name == "" || named):
		h.order = append(h.order, fmt.Sprintf("call %d begins with %+v", d.Item, d))
	case d.Kind == model.CallDelta && begun && (d.Name != "" || d.CallID != ""):
		h.order = append(h.order, fmt.Sprintf("call %d is named again in %+v", d.Item, d))
	case d.Text == "" && (d.Kind != model.CallDelta || begun):
		h.order = append(h.order, fmt.Sprintf("an empty delta %+v", d))
	}
	if d.Kind == model.CallDelta {
		call.ID, call.Name, call.Arguments = call.ID+d.CallID, call.Name+d.Name, call.Arguments+d.Text
		h.calls[d.Item] = call
	}
	h.kinds[d.Kind] += d.Text
	h.places[at] += d.Text
	return nil
}

// check compares the deltas with the turn that they were pieces of. It holds for
// turns whose calls are all complete.
func (h *heard) check(t *testing.T, turn *model.Turn) {
	t.Helper()
	for _, wrong := range h.order {
		t.Error(wrong)
	}
	places := 0
	for i, it := range turn.Items {
		if it.Kind == item.ToolCall {
			places++
			if c := h.calls[i]; c.ID != it.CallID || c.Name != it.Name || c.Arguments != it.Arguments && !(c.Arguments == "" && it.Arguments == "{}") {
				t.Errorf("item %d is %+v, and its deltas say %+v", i, it, c)
			}
		}
		for j, p := range it.Parts {
			if p.Text == "" {
				continue
			}
			places++
			if got := h.places[place{i, j}]; got != p.Text {
				t.Errorf("part %d of item %d is %q, and its deltas say %q", j, i, p.Text, got)
			}
		}
	}
	if len(h.places) != places {
		t.Errorf("deltas of %d parts and calls for a turn of %d: %v", len(h.places), places, h.places)
	}
}

// ask makes a call that must succeed.
func ask(t *testing.T, m model.Model, req *model.Request) (*model.Turn, *heard) {
	t.Helper()
	h := newHeard()
	turn, err := m.Stream(t.Context(), req, h.emit)
	if err != nil {
		t.Fatalf("the call failed: %v", err)
	}
	return turn, h
}

// readable returns the readable reasoning of a turn.
func readable(turn *model.Turn) string {
	var b strings.Builder
	for _, it := range turn.Items {
		if it.Kind == item.Reasoning {
			b.WriteString(it.Text())
		}
	}
	return b.String()
}

// refusals returns the refusals of a turn.
func refusals(turn *model.Turn) string {
	var b strings.Builder
	for _, it := range turn.Items {
		for _, p := range it.Parts {
			if p.Kind == item.Refusal {
				b.WriteString(p.Text)
			}
		}
	}
	return b.String()
}

// answers checks what an adapter reads, at any split. // M06
func (a Adapter) answers(t *testing.T) {
	for name, row := range map[string]struct {
		story string
		check func(t *testing.T, turn *model.Turn, h *heard)
	}{
		"text": {"text Looking 👋\ntext \" it\\nup.\"\nusage 12 5", func(t *testing.T, turn *model.Turn, h *heard) {
			const want = "Looking 👋 it\nup."
			if turn.Text() != want || h.kinds[model.TextDelta] != want || turn.Stop != model.StopEnd || len(turn.Items) != 1 {
				t.Errorf("%+v, deltas %v", turn, h.kinds)
			}
			if u := turn.Usage; u.Input != 12 || u.Output != 5 || u.Total != 17 {
				t.Errorf("usage %+v", u)
			}
		}},
		"parallel calls after text and reasoning": {"reasoning Hm.\ntext Let me see.\ncall c1 search {\"q\":\"日本\"}\ncall c2 list {}", func(t *testing.T, turn *model.Turn, h *heard) {
			want := []model.Call{{ID: "c1", Name: "search", Arguments: `{"q":"日本"}`, Complete: true}, {ID: "c2", Name: "list", Arguments: `{}`, Complete: true}}
			if len(turn.Calls) != 2 || turn.Calls[0] != want[0] || turn.Calls[1] != want[1] || turn.Stop != model.StopCalls {
				t.Errorf("%+v", turn)
			}
			kinds := ""
			for _, it := range turn.Items {
				kinds += string(it.Kind) + " "
			}
			if kinds != "reasoning message tool_call tool_call " || turn.Items[3].CallID != "c2" {
				t.Errorf("items %s", kinds)
			}
			if readable(turn) != "Hm." || h.kinds[model.ReasoningDelta] != "Hm." {
				t.Errorf("reasoning %q, deltas %v", readable(turn), h.kinds)
			}
		}},
		"text and a refusal": {"text Well,\nrefusal No.", func(t *testing.T, turn *model.Turn, h *heard) {
			if turn.Text()+refusals(turn) != "Well,No." || h.kinds[model.TextDelta]+h.kinds[model.RefusalDelta] != "Well,No." {
				t.Errorf("%+v, deltas %v", turn, h.kinds)
			}
		}},
		"a call without arguments between others": {"call c1 f {\"n\":1}\ncall c2 f\ncall c3 g {\"n\":3}", func(t *testing.T, turn *model.Turn, _ *heard) {
			if len(turn.Calls) != 3 || len(turn.Items) != 3 || turn.Calls[2].Arguments != `{"n":3}` || !turn.Calls[1].Complete {
				t.Errorf("%+v", turn)
			}
		}},
		"truncated text": {"text Once upon\nstop length", func(t *testing.T, turn *model.Turn, _ *heard) {
			if turn.Stop != model.StopLength || turn.Text() != "Once upon" {
				t.Errorf("%+v", turn)
			}
		}},
		"a truncated call": {"call c1 f {}\ncall c2 f {\"n\nstop length", func(t *testing.T, turn *model.Turn, _ *heard) {
			if turn.Stop != model.StopLength || len(turn.Calls) != 2 || !turn.Calls[0].Complete || turn.Calls[1].Complete || len(turn.Items) != 1 {
				t.Errorf("%+v", turn)
			}
		}},
		"stopped by a filter": {"text So\nstop content_filter", func(t *testing.T, turn *model.Turn, _ *heard) {
			if turn.Stop != model.StopFilter || turn.Text() != "So" {
				t.Errorf("%+v", turn)
			}
		}},
	} {
		for _, o := range []upstreamtest.Options{{}, {Piece: 1}, {Piece: 3}, {Piece: 7}, {Piece: 50, Gap: time.Millisecond}} {
			t.Run(fmt.Sprintf("%s in pieces of %d", name, o.Piece), func(t *testing.T) {
				_, m := a.start(t, row.story, o, 0)
				turn, h := ask(t, m, a.request())
				row.check(t, turn, h)
				if name != "a truncated call" {
					h.check(t, turn)
				}
			})
		}
	}
}

// numbered checks what every item of a turn has, beside what it says.
func numbered(t *testing.T, turn *model.Turn, number int) {
	t.Helper()
	for _, it := range turn.Items {
		if it.Turn != number || it.Native.Provider != "" || (it.Native.Dialect == "") != (it.Native.JSON == nil) {
			t.Errorf("an item of turn %d: %+v", number, it)
		}
	}
}

// loop checks that the requests of a tool loop are accepted.
func (a Adapter) loop(t *testing.T) {
	for name, story := range map[string]string{
		"two parallel calls in each round": "call a1 f {\"n\":1}\ncall a2 g {}\n\ntext More.\ncall b1 f {}\ncall b2 f {}\n\ntext Done.",
		"ids that repeat":                  "call c1 f {}\n\ncall c1 f {}\ncall c1 g {}\n\ncall c1 f {}\n\ntext Done.",
		"ids that are missing":             "call - f {}\ncall - g {}\n\ncall - f {}\n\ntext Done.",
		"arguments that are not JSON":      "call c1 f {broken\ncall c2 f\n\ntext Done.",
		"reasoning in every round":         "reasoning Thought 1.\ntext Look.\ncall c1 f {}\ncall c2 g {}\n\nreasoning Thought 2.\ncall c3 f {}\n\nreasoning\ncall c4 f {}\n\nreasoning Thought 3.\ntext Done.", // P08
		"reasoning in the first round":     "reasoning Thought 1.\ncall c1 f {}\n\ncall c2 f {}\n\ntext Done.",
		"text after the calls":             "call c1 f {}\ntext Wait.\n\ntext Done.",
	} {
		t.Run(name, func(t *testing.T) {
			u, m := a.start(t, story, upstreamtest.Options{Piece: 7}, 0)
			req := a.request()
			req.Effort = "low"
			withTools(req)
			for range 9 {
				turn, _ := ask(t, m, req)
				numbered(t, turn, item.LastTurn(req.Items)+1)
				req.Items = append(req.Items, turn.Items...)
				if turn.Stop != model.StopCalls {
					break
				}
				for i, c := range turn.Calls {
					req.Items = append(req.Items, item.NewResult(c.ID, fmt.Sprintf("result %d", i), i == 1))
				}
			}
			req.Items = append(req.Items, item.NewText(item.User, "and?"))
			requests := u.Requests()
			rounds := strings.Count(story, "\n\n") + 1
			if len(requests) != rounds || req.Items[len(req.Items)-2].Text() != "Done." {
				t.Fatalf("%d requests for %d rounds; the transcript is %+v", len(requests), rounds, req.Items)
			}
			last := string(requests[rounds-1].Body)
			calls := strings.Count("\n"+story, "\ncall ")
			if n := strings.Count(last, "result 0") + strings.Count(last, "result 1"); n != calls {
				t.Errorf("%d results of %d calls in the last request: %s", n, calls, last)
			}
		})
	}
	t.Run("the same request twice", func(t *testing.T) {
		u, m := a.start(t, "text a\nagain", upstreamtest.Options{}, 0)
		req := a.request()
		withTools(req)
		ask(t, m, req)
		ask(t, m, req)
		if r := u.Requests(); !bytes.Equal(r[0].Body, r[1].Body) {
			t.Errorf("%s\n%s", r[0].Body, r[1].Body)
		}
	})
	t.Run("reasoning of another provider is left out", a.change) // P08
}

// change checks that a transcript can be continued with another provider of the same
// dialect.
func (a Adapter) change(t *testing.T) {
	_, one := a.start(t, "reasoning Secret thought.\ntext Look.\ncall c1 f {}", upstreamtest.Options{}, 0)
	two, m := a.start(t, "text Done.", upstreamtest.Options{}, 0)
	req := a.request()
	withTools(req)
	turn, _ := ask(t, one, req)
	for _, it := range turn.Items {
		if it.Native.Dialect != "" {
			it.Native.Provider = "one"
		}
		req.Items = append(req.Items, it)
	}
	req.Items = item.For(append(req.Items, item.NewResult("c1", "ok", false)), "two")
	if turn, _ := ask(t, m, req); turn.Text() != "Done." {
		t.Errorf("%+v", turn)
	}
	if body := string(two.Requests()[0].Body); strings.Contains(body, "Secret thought.") || !strings.Contains(body, "Look.") {
		t.Error(body)
	}
}

// failures checks the classes of errors.
func (a Adapter) failures(t *testing.T) {
	for name, row := range map[string]struct {
		story string
		want  model.Error
		text  string // of the partial turn
	}{
		"401":                   {"fail 401 wrong key", model.Error{Class: model.Target, Status: 401, Message: "wrong key", Credential: true}, ""},
		"403":                   {"fail 403 not for you", model.Error{Class: model.Target, Status: 403, Message: "not for you"}, ""},
		"404":                   {"fail 404 no such model", model.Error{Class: model.Target, Status: 404, Message: "no such model"}, ""},
		"429":                   {"fail 429 retry-after 7 slow down", model.Error{Class: model.Transient, Status: 429, Message: "slow down", RetryAfter: 7 * time.Second}, ""},
		"400":                   {"fail 400 not like this", model.Error{Class: model.Invalid, Status: 400, Message: "not like this"}, ""},
		"context too long":      {"fail 400 " + a.TooLong, model.Error{Class: model.TooLong, Status: 400, Message: a.TooLong}, ""},
		"500":                   {"fail 500 broken", model.Error{Class: model.Transient, Status: 500, Message: "broken"}, ""},
		"529":                   {"fail 529 overloaded", model.Error{Class: model.Transient, Status: 529, Message: "overloaded"}, ""},
		"inside a stream":       {"text So\nfail 529 overloaded", model.Error{Class: model.Transient, Status: 200, Message: "overloaded"}, "So"},
		"cut before the answer": {"cut", model.Error{Class: model.Transient}, ""},
		"cut in the middle":     {"text So\ncut", model.Error{Class: model.Transient}, "So"},
		"cut in a call":         {"text So\ncall a f {}\ncall b f {\ncut", model.Error{Class: model.Transient}, "So"},
	} {
		t.Run(name, func(t *testing.T) {
			_, m := a.start(t, row.story, upstreamtest.Options{}, 0)
			turn, err := m.Stream(t.Context(), a.request(), newHeard().emit)
			var got *model.Error
			if !errors.As(err, &got) {
				t.Fatalf("error %v", err)
			}
			if got.Class != row.want.Class || got.RetryAfter != row.want.RetryAfter || got.Credential != row.want.Credential ||
				row.want.Status != 0 && (got.Status != row.want.Status || got.Message != row.want.Message) {
				t.Errorf("%+v, want %+v", got, row.want)
			}
			if got.Status >= 400 && len(got.Body) == 0 {
				t.Error("the body of the answer is lost")
			}
			if said := turn != nil && turn.Text() == row.text; row.text != "" && !said {
				t.Errorf("partial turn %+v, want %q", turn, row.text)
			}
			if turn != nil && turn.Stop != model.StopUnknown {
				t.Errorf("a partial turn ends with %q", turn.Stop)
			}
			if name == "cut in a call" && (len(turn.Calls) != 2 || !turn.Calls[0].Complete || turn.Calls[1].Complete) {
				t.Errorf("calls %+v", turn.Calls)
			}
		})
	}
}

// interruptions checks that calls end when they must, and no sooner.
func (a Adapter) interruptions(t *testing.T) {
	t.Run("the caller leaves", func(t *testing.T) {
		_, m := a.start(t, "text So\nhang", upstreamtest.Options{}, 0)
		ctx, cancel := context.WithCancel(t.Context())
		turn, err := m.Stream(ctx, a.request(), func(model.Delta) error { cancel(); return nil })
		var got *model.Error
		if !errors.As(err, &got) || got.Class != model.Gone || !errors.Is(err, context.Canceled) || turn == nil || turn.Text() != "So" {
			t.Errorf("%+v, %v", turn, err)
		}
	})
	t.Run("the receiver of deltas fails", func(t *testing.T) {
		_, m := a.start(t, "text So\nhang", upstreamtest.Options{}, 0)
		full := errors.New("the disk is full")
		if _, err := m.Stream(t.Context(), a.request(), func(model.Delta) error { return full }); !errors.Is(err, full) {
			t.Errorf("error %v", err)
		}
	})
	t.Run("silence", func(t *testing.T) {
		for _, story := range []string{"hang", "text So\nhang"} {
			_, m := a.start(t, story, upstreamtest.Options{}, 30*time.Millisecond)
			_, err := m.Stream(t.Context(), a.request(), newHeard().emit)
			var got *model.Error
			if !errors.As(err, &got) || got.Class != model.Transient || !errors.Is(err, wire.ErrSilent) {
				t.Errorf("error %v", err)
			}
		}
	})
	t.Run("slow, but not silent", func(t *testing.T) {
		story := strings.Repeat("text x\nwait 200ms\n", 6) // longer than the silence that is allowed
		_, m := a.start(t, story, upstreamtest.Options{}, time.Second)
		if turn, _ := ask(t, m, a.request()); turn.Text() != "xxxxxx" {
			t.Errorf("%+v", turn)
		}
	})
}
