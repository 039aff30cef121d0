package run_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/window"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

// library is a town whose model reads pages of 1,600 bytes until it has read enough, in a window of 4,000 tokens. Its provider
// counts a token for four bytes, and refuses a prompt that does not fit.
type library struct {
	*town
	pages  int // to be read
	window int64

	mu        sync.Mutex
	prompts   []int64 // sizes of the prompts of the turns, in tokens
	summaries int
	lost      string // a prompt that was not answered, because it has lost the order of the user
	summarize func(n int, transcript []item.Item) (*model.Turn, error)
}

func newLibrary() *library {
	w := &library{town: &town{}, pages: 30, window: 4_000}
	w.tools = tools{"read_page": func(_ context.Context, c tool.Call) (tool.Result, error) {
		return tool.Text("page " + strings.Repeat("words ", 260)), nil
	}}
	w.think = w.answer
	w.summarize = func(n int, transcript []item.Item) (*model.Turn, error) {
		return says(fmt.Sprintf("summary %d: %s", n, secretOf(transcript))), nil
	}
	return w
}

// secretOf returns the word that the user has said once, if the prompt has it.
func secretOf(transcript []item.Item) string {
	for _, it := range transcript {
		if strings.Contains(it.Text(), "xyzzy") {
			return "the word is xyzzy"
		}
	}
	return ""
}

func (w *library) answer(_ context.Context, transcript []item.Item) (*model.Turn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	tokens := window.Bytes(transcript) / 4
	if tokens > w.window {
		return nil, &model.Error{Class: model.TooLong, Status: 400, Message: fmt.Sprintf("This model's maximum context length is %d tokens", w.window)}
	}
	if last := transcript[len(transcript)-1]; last.Kind == item.Message && strings.Contains(last.Text(), "Write a summary") {
		w.summaries++
		return w.summarize(w.summaries, transcript)
	}
	w.prompts = append(w.prompts, tokens)
	if secretOf(transcript) == "" {
		w.lost = fmt.Sprintf("prompt %d", len(w.prompts))
	}
	turn := asks("read_page")
	if len(w.prompts) > w.pages {
		turn = says("I have read them; " + secretOf(transcript))
	}
	turn.Calls = nil
	for i := range turn.Items {
		if it := &turn.Items[i]; it.Kind == item.ToolCall {
			it.CallID, it.Arguments = fmt.Sprint("p", len(w.prompts)), fmt.Sprintf(`{"page":%d}`, len(w.prompts))
			turn.Calls = append(turn.Calls, model.Call{ID: it.CallID, Name: it.Name, Arguments: it.Arguments, Complete: true})
		}
	}
	turn.Usage = model.Usage{Input: tokens, Output: 10}
	return turn, nil
}

// request is one whose run keeps its prompts within the window.
func (w *library) request(change ...func(*run.Request)) *run.Request {
	req := w.wants("p", "k", "h")
	req.Items = []item.Item{item.NewText(item.User, "Read the pages. The word is xyzzy. "+strings.Repeat("note ", 100))}
	req.Policy.Limits.Rounds, req.Policy.Limits.Calls = 50, 50
	req.Policy.Context = loop.ContextPolicy{Mode: loop.ContextAuto}
	req.Targets[0].Window = window.Size{Window: w.window}
	for _, c := range change {
		c(req)
	}
	return req
}

func compactions(d *diary) (out []event.Compacted) {
	for _, e := range d.events {
		if c, ok := e.(event.Compacted); ok {
			out = append(out, c)
		}
	}
	return out
}

// A run whose results exceed the window goes on, with what the user has said first, and no prompt is too long.
// I06 I11 P51
func TestALongRunFits(t *testing.T) {
	for name, tt := range map[string]struct {
		change     func(*library, *run.Request)
		summarized bool
	}{
		"old results are left out":     {func(*library, *run.Request) {}, false},
		"the older part is summarised": {func(_ *library, r *run.Request) { r.Policy.Context.ExcludeTools = []string{"read_page"} }, true},
		"the window is in the refusal": {func(w *library, r *run.Request) { r.Targets[0].Window = window.Size{} }, false},
		"a light run":                  {func(_ *library, r *run.Request) { r.Policy.Grade, r.Key = loop.Light, nil }, false},
		"a light run that summarises": {func(_ *library, r *run.Request) {
			r.Policy.Grade, r.Key, r.Policy.Context.ExcludeTools = loop.Light, nil, []string{"read_page"}
		}, true},
		"a run of which nothing stays": {func(_ *library, r *run.Request) { r.Policy.NoStore = true }, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newLibrary()
				req := w.request()
				tt.change(w, req)
				var d diary
				r := w.gateway(t)
				if err := r.Open(t.Context()); err != nil {
					t.Fatal(err)
				}
				if err := r.Run(t.Context(), req, &d); err != nil {
					t.Fatal(err)
				}
				text, end := d.said()
				if end.Reason != event.Complete || !strings.HasSuffix(text, "the word is xyzzy") || w.lost != "" {
					t.Fatalf("%q, %s %+v; lost in %q", text, end.Reason, end.Failure, w.lost)
				}
				done := compactions(&d)
				if len(done) < 2 || (w.summaries > 0) != tt.summarized {
					t.Errorf("%d summaries, compactions %+v", w.summaries, done)
				}
				for _, c := range done {
					if c.Failed || c.After >= c.Before || c.Summarized != tt.summarized {
						t.Errorf("%+v", c)
					}
				}
				if n := len(w.prompts); n != w.pages+1 {
					t.Errorf("%d turns, want %d", n, w.pages+1)
				}
				if end.Rounds != w.pages+1 {
					t.Errorf("%d rounds: a summary is none", end.Rounds)
				}
			})
		})
	}
}

// A summary that fails ends nothing; after three the run goes on until its provider refuses. // I05 P51
func TestSummariesThatFail(t *testing.T) {
	for name, summarize := range map[string]func(int, []item.Item) (*model.Turn, error){
		"an error":        func(int, []item.Item) (*model.Turn, error) { return nil, errors.New("down") },
		"an empty answer": func(int, []item.Item) (*model.Turn, error) { return says(" "), nil },
	} {
		t.Run(name, func(t *testing.T) { summariesFail(t, summarize) })
	}
}

func summariesFail(t *testing.T, summarize func(int, []item.Item) (*model.Turn, error)) {
	synctest.Test(t, func(t *testing.T) {
		w := newLibrary()
		w.summarize = summarize
		req := w.request(func(r *run.Request) { r.Policy.Context.ExcludeTools = []string{"read_page"} })
		req.Policy.Context.Threshold = 1_500 // so that it is tried often before the window is full
		var d diary
		r := w.gateway(t)
		if err := r.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := r.Run(t.Context(), req, &d); err != nil {
			t.Fatal(err)
		}
		_, end := d.said()
		if w.summaries > 3 || w.summaries == 0 || end.Reason != event.TooLong {
			t.Errorf("%d summaries, %s, %+v", w.summaries, end.Reason, compactions(&d))
		}
	})
}

// A prompt of which nothing can be left out ends the run with the names of its largest parts.
func TestAPromptThatCannotBeMadeShorter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLibrary()
		req := w.request()
		req.Items = []item.Item{item.NewText(item.User, "xyzzy "+strings.Repeat("long ", 6_000))}
		var d diary
		r := w.gateway(t)
		if err := r.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := r.Run(t.Context(), req, &d); err != nil {
			t.Fatal(err)
		}
		_, end := d.said()
		if end.Reason != event.TooLong || end.Failure == nil || end.Failure.Code != "context_length_exceeded" || !strings.Contains(end.Failure.Message, "user messages (about 7") {
			t.Errorf("%s %+v", end.Reason, end.Failure)
		}
	})
}

// Another process goes on with the prompt as the compaction left it.
func TestACompactedRunIsTakenOver(t *testing.T) { // I07
	synctest.Test(t, func(t *testing.T) {
		w := newLibrary()
		first := w.gateway(t)
		if err := first.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		stopped := make(chan struct{})
		read := w.tools["read_page"]
		calls := 0
		w.tools["read_page"] = func(ctx context.Context, c tool.Call) (tool.Result, error) {
			if calls++; calls == 16 { // after a compaction
				close(stopped)
				<-ctx.Done()
				return tool.Result{}, ctx.Err()
			}
			return read(ctx, c)
		}
		go func() {
			var d diary
			_ = first.Run(t.Context(), w.request(), &d)
		}()
		<-stopped
		now, cancel := context.WithCancel(context.Background())
		cancel()
		first.Close(now, 0)
		second := w.gateway(t)
		if err := second.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour) // the run is over
		var d diary
		if err := second.Run(t.Context(), w.request(), &d); err != nil {
			t.Fatal(err)
		}
		text, end := d.said()
		if end.Reason != event.Complete || !strings.HasSuffix(text, "the word is xyzzy") || w.lost != "" || len(compactions(&d)) < 2 {
			t.Errorf("%q, %s %+v; %+v; lost in %q", text, end.Reason, end.Failure, compactions(&d), w.lost)
		}
	})
}
