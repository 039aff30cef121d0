package run_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/resulttool"
	"github.com/turnpike-gateway/turnpike/internal/route"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/store/memory"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// town is a store that several gateways share, with a model and tools.
type town struct {
	journal       memory.Journal
	conversations memory.Conversations
	think         func(ctx context.Context, transcript []item.Item) (*model.Turn, error)
	watch         run.Observer // nil = nobody does
	log           *slog.Logger // nil = nobody reads it
	build         string
	pace          time.Duration // between the characters of a text, which come one by one; 0 = it comes at once
	piece         int           // bytes of which a text comes at a time; 0 = as pace says

	mu    sync.Mutex
	tools map[string]func(context.Context, tool.Call) (tool.Result, error)
	calls []tool.Call // in the order in which they arrived

	read atomic.Int64 // journals that were loaded
}

// archive counts the journals that are loaded.
type archive struct {
	journal.Archive
	read *atomic.Int64
}

func (a archive) Load(ctx context.Context, org, runID string) (*journal.Story, error) {
	a.read.Add(1)
	return a.Archive.Load(ctx, org, runID)
}

func (w *town) loads() int { return int(w.read.Load()) }

// gateway is one process. Its runs go on until the test stops it.
func (w *town) gateway(t *testing.T) *run.Runner {
	t.Helper()
	return w.gatewayWith(t, func(*run.Options) {})
}

// gatewayWith is a gateway whose options the test changes.
func (w *town) gatewayWith(t *testing.T, change func(*run.Options)) *run.Runner {
	t.Helper()
	c := catalog.New(catalog.Options{})
	o := run.Options{
		Results: resulttool.Reader{},
		Catalog: c, Journal: &w.journal, Conversations: &w.conversations, Leases: &w.journal, Archive: archive{&w.journal, &w.read}, Resources: w, Observer: w.watch,
		Log: w.log, Build: w.build,
		Jitter: func(time.Duration) time.Duration { return 0 },
	}
	change(&o)
	r := run.New(o)
	t.Cleanup(func() {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		r.Close(now, 0)
		c.Close()
	})
	return r
}

// For implements run.Resources.
func (w *town) For(context.Context, *loop.Accepted) ([]route.Target, []catalog.Server, error) {
	target := loop.Target{Provider: "up", Model: "m", Images: true}
	return []route.Target{{Target: target, Client: w}}, []catalog.Server{{Name: "s", Source: w}}, nil
}

// Stream implements model.Model.
func (w *town) Stream(ctx context.Context, req *model.Request, emit func(model.Delta) error) (*model.Turn, error) {
	turn, err := w.think(ctx, req.Items)
	if turn != nil {
		item.SetTurn(turn.Items, item.LastTurn(req.Items)+1)
	}
	if turn != nil && turn.Text() != "" {
		pieces := []string{turn.Text()}
		switch {
		case w.piece > 0:
			pieces = nil
			for piece := range slices.Chunk([]byte(turn.Text()), w.piece) {
				pieces = append(pieces, string(piece))
			}
		case w.pace > 0:
			pieces = strings.Split(turn.Text(), "")
		}
		for _, text := range pieces {
			if err := emit(model.Delta{Text: text}); err != nil {
				return nil, err
			}
			time.Sleep(w.pace)
		}
		if err := emit(model.Delta{Kind: model.DoneDelta}); err != nil {
			return nil, err
		}
	}
	if turn != nil {
		for i, c := range turn.Calls {
			if err := emit(model.Delta{Kind: model.CallDelta, Item: i, CallID: c.ID, Name: c.Name, Text: c.Arguments}); err != nil {
				return nil, err
			}
		}
	}
	return turn, err
}

// List implements tool.Source.
func (w *town) List(context.Context) ([]tool.Tool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []tool.Tool
	for name := range w.tools {
		out = append(out, booth{w, name})
	}
	return out, nil
}

// booth is one of the tools: what its name begins with is its class.
type booth struct {
	town *town
	name string
}

func (b booth) Definition() tool.Definition {
	return tool.Definition{Name: b.name, InputSchema: json.RawMessage(`{"type":"object"}`)}
}

func (b booth) Class() tool.Class {
	class, _, _ := strings.Cut(b.name, "_")
	return tool.Class(class)
}

func (b booth) Call(ctx context.Context, c tool.Call) (tool.Result, error) {
	b.town.mu.Lock()
	b.town.calls = append(b.town.calls, c)
	work := b.town.tools[b.name]
	b.town.mu.Unlock()
	return work(ctx, c)
}

// offer changes what a tool does, also while gateways work.
func (w *town) offer(name string, work func(context.Context, tool.Call) (tool.Result, error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tools[name] = work
}

func (w *town) made() []tool.Call {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.calls)
}

// wants is a request with a key.
func (w *town) wants(principal, key, hash string) *run.Request {
	targets, servers, _ := w.For(context.Background(), nil)
	return &run.Request{
		Who: run.Who{Org: "o", Principal: principal, Surface: "test"},
		Input: run.Input{
			Conversation: run.Conversation{Items: []item.Item{item.NewText(item.User, "go")}}, Model: "m", Targets: targets, Servers: servers,
		},
		Reply:  run.Reply{Key: &journal.SubmitKey{Principal: principal, Key: key, Hash: hash}},
		Policy: loop.Policy{Grade: loop.Durable, Limits: budget.Limits{}.Clamp(budget.MaxRounds), Slots: 16, Parallelism: loop.Parallel, ResultMaxBytes: 1 << 16},
	}
}

func says(text string) *model.Turn {
	return &model.Turn{Items: []item.Item{item.NewText(item.Assistant, text)}, Stop: model.StopEnd, Usage: model.Usage{Input: 10, Output: 5}}
}

func asks(names ...string) *model.Turn {
	turn := &model.Turn{Stop: model.StopCalls, Usage: model.Usage{Input: 10, Output: 5}}
	for i, name := range names {
		c := model.Call{ID: fmt.Sprint("p", i), Name: name, Arguments: "{}", Complete: true}
		turn.Calls, turn.Items = append(turn.Calls, c), append(turn.Items, c.Item())
	}
	return turn
}

func results(transcript []item.Item) []string {
	var out []string
	for _, it := range transcript {
		if it.Kind == item.ToolResult {
			out = append(out, it.Text())
		}
	}
	return out
}

// script asks for the named tools, then says what they have answered.
func script(names ...string) func(context.Context, []item.Item) (*model.Turn, error) {
	return func(_ context.Context, transcript []item.Item) (*model.Turn, error) {
		if got := results(transcript); got != nil {
			return says(strings.Join(got, " ")), nil
		}
		return asks(names...), nil
	}
}

// diary is a Sink.
type diary struct {
	mu     sync.Mutex
	events []event.Event
	at     []event.Position
	heard  func(event.Position, event.Event) // nil = nothing is done
}

func (d *diary) Emit(at event.Position, e event.Event) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.events, d.at = append(d.events, e), append(d.at, at)
	if d.heard != nil {
		d.heard(at, e)
	}
	return nil
}

// said returns the text of the last round and how the run ended.
func (d *diary) said() (text string, end event.Finished) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, e := range d.events {
		switch e := e.(type) {
		case event.RoundStarted:
			text = ""
		case event.TextDelta:
			text += e.Text
		case event.Finished:
			end = e
		}
	}
	return text, end
}

func refusal(t *testing.T, err error, want string) *fault.Error {
	t.Helper()
	var f *fault.Error
	if !errors.As(err, &f) || f.Reason != want {
		t.Fatalf("got %v, want the reason %s", err, want)
	}
	return f
}

// One request, one run. // P24
func TestARequestThatIsRepeatedGetsTheRunThatItHas(t *testing.T) {
	w := &town{think: script("once_pay"), tools: map[string]func(context.Context, tool.Call) (tool.Result, error){
		"once_pay": func(context.Context, tool.Call) (tool.Result, error) { return tool.Text("paid"), nil },
	}}
	r := w.gateway(t)
	var first, second diary
	for _, d := range []*diary{&first, &second} {
		if err := r.Run(t.Context(), w.wants("p", "k", "h"), d); err != nil {
			t.Fatal(err)
		}
	}
	a, aEnd := first.said()
	b, bEnd := second.said()
	if a != "paid" || b != a || aEnd.Usage != bEnd.Usage || aEnd.Reason != bEnd.Reason || len(w.made()) != 1 {
		t.Errorf("%q %+v, then %q %+v; %d calls", a, aEnd, b, bEnd, len(w.made()))
	}
	if a, b := first.events[0].(event.Started), second.events[0].(event.Started); a.RunID != b.RunID || !a.At.Equal(b.At) {
		t.Errorf("%+v, then %+v", a, b)
	}
	_ = refusal(t, r.Run(t.Context(), w.wants("p", "k", "other"), &diary{}), "idempotency_key_reused")
	if err := r.Run(t.Context(), w.wants("somebody else", "k", "other"), &diary{}); err != nil {
		t.Error(err)
	}
	if len(w.made()) != 2 {
		t.Errorf("%d calls: another principal's key is another key", len(w.made()))
	}
}

func TestARunUnderWayIsFollowedByThoseWhoMay(t *testing.T) { // P24
	synctest.Test(t, func(t *testing.T) {
		w := &town{think: script("read_slowly"), tools: map[string]func(context.Context, tool.Call) (tool.Result, error){
			"read_slowly": func(ctx context.Context, _ tool.Call) (tool.Result, error) {
				time.Sleep(10 * time.Second)
				return tool.Text("read"), nil
			},
		}}
		r := w.gateway(t)
		leaving, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		if err := r.Run(leaving, w.wants("p", "k", "h"), &diary{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the caller left, and was told %v", err)
		}
		f := refusal(t, r.Run(t.Context(), w.wants("p", "k", "h"), &diary{}), "run_in_progress")
		if f.Code != fault.Conflict || f.RetryAfter <= 0 {
			t.Errorf("%+v", f)
		}
		stream := w.wants("p", "k", "h")
		stream.Attach = true
		var d diary
		if err := r.Run(t.Context(), stream, &d); err != nil {
			t.Fatal(err)
		}
		text, end := d.said()
		if text != "read" || end.Reason != event.Complete || len(w.made()) != 1 {
			t.Errorf("%q %+v, %d calls", text, end, len(w.made()))
		}
		if _, ok := d.events[0].(event.Started); !ok {
			t.Errorf("a follower is told everything from the beginning, not from %T", d.events[0])
		}
	})
}

// The owner stops renewing its lease in the middle of a turn's calls; the
// next one goes on. Reading and keyed calls are made again, with the same key;
// the others are not, and the model is told. // P01
func TestAnotherGatewayGoesOnWithARunWhoseOwnerIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &town{think: script("read_a", "keyed_b", "once_c")}
		hangs := func(ctx context.Context, c tool.Call) (tool.Result, error) {
			if c.Attempt == 1 {
				<-ctx.Done()
				return tool.Result{}, context.Cause(ctx)
			}
			return tool.Text("done"), nil
		}
		w.tools = map[string]func(context.Context, tool.Call) (tool.Result, error){"read_a": hangs, "keyed_b": hangs, "once_c": hangs}
		first, second := w.gateway(t), w.gateway(t)
		leaving, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		_ = first.Run(leaving, w.wants("p", "k", "h"), &diary{}) // it was never started: it renews nothing
		time.Sleep(journal.LeaseTTL)
		if err := second.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		text, end := w.attached(t, second)
		if !strings.HasPrefix(text, "done done outcome_unknown") || end.Reason != event.Complete {
			t.Errorf("%q %+v", text, end)
		}
		keys := map[string]int{}
		for _, c := range w.made() {
			if c.Class == tool.Keyed {
				keys[c.IdempotencyKey]++
			}
		}
		if len(w.made()) != 5 || len(keys) != 1 {
			t.Errorf("%d calls, keys %v", len(w.made()), keys)
		}
	})
}

// What cannot be gone on with is lost, and says so; its slot is free. // P01 O05
func TestALightRunEndsWithItsOwner(t *testing.T) { // B07
	synctest.Test(t, func(t *testing.T) {
		w := &town{think: func(ctx context.Context, _ []item.Item) (*model.Turn, error) {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}}
		first, second := w.gateway(t), w.gateway(t)
		light := w.wants("p", "", "")
		light.Policy.Grade, light.Key, light.Policy.Slots = loop.Light, nil, 1
		go func() { _ = first.Run(t.Context(), light, &diary{}) }()
		synctest.Wait()
		again := *light
		f := refusal(t, second.Run(t.Context(), &again, &diary{}), "concurrency_limit")
		if f.RetryAfter != 60*time.Second {
			t.Errorf("%+v", f)
		}
		time.Sleep(journal.LeaseTTL)
		if err := second.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		runs, err := w.journal.Runs(t.Context(), "o", journal.Query{Limit: 10})
		if err != nil || len(runs) != 1 || runs[0].Reason != event.Lost {
			t.Errorf("%+v %v", runs, err)
		}
		w.think = script()
		if err := second.Run(t.Context(), &again, &diary{}); err != nil {
			t.Errorf("the slot is free: %v", err)
		}
	})
}

// Input that somebody adds while the model answers is seen by it before the run ends.
func TestInputOfOthersIsSeenByTheNextTurn(t *testing.T) {
	var w *town
	var seen []string
	w = &town{think: func(_ context.Context, transcript []item.Item) (*model.Turn, error) {
		seen = nil
		for _, it := range transcript {
			seen = append(seen, it.Text())
		}
		if len(seen) > 1 {
			return says("both"), nil
		}
		runs, err := w.journal.Runs(t.Context(), "o", journal.Query{Limit: 1})
		if err != nil {
			return nil, err
		}
		story, err := w.journal.Load(t.Context(), "o", runs[0].RunID)
		if err != nil {
			return nil, err
		}
		last := story.Facts[len(story.Facts)-1]
		return says("one"), w.journal.Append(t.Context(), journal.Lease{Org: "o", RunID: runs[0].RunID}, last.Seq, journal.Batch{
			Sync: true, Rows: []journal.Row{{Ref: "more", Value: item.List{item.NewText(item.User, "and that")}}},
			Facts: []loop.Fact{{Seq: last.Seq + 1, At: last.At, Version: loop.Version, Body: loop.InputAdded{ItemsRef: "more", By: loop.ByOther, Who: "bob"}}},
		})
	}}
	var d diary
	if err := w.gateway(t).Run(t.Context(), w.wants("p", "k", "h"), &d); err != nil {
		t.Fatal(err)
	}
	if want := []string{"go", "one", "and that"}; !slices.Equal(seen, want) {
		t.Errorf("the last call saw %q, want %q", seen, want)
	}
	if end := d.events[len(d.events)-1].(event.Finished); end.Reason != event.Complete || end.Rounds != 2 {
		t.Errorf("%+v", end)
	}
}

func TestACancelledRunEndsAtOnceAndAccountsForItsCalls(t *testing.T) { // P01
	synctest.Test(t, func(t *testing.T) {
		w := &town{think: script("once_c"), tools: map[string]func(context.Context, tool.Call) (tool.Result, error){
			"once_c": func(ctx context.Context, _ tool.Call) (tool.Result, error) {
				<-ctx.Done()
				return tool.Result{}, context.Cause(ctx)
			},
		}}
		r := w.gateway(t)
		var d diary
		ended := make(chan error, 1)
		go func() { ended <- r.Run(t.Context(), w.wants("p", "k", "h"), &d) }()
		synctest.Wait()
		runID := d.events[0].(event.Started).RunID
		begin := time.Now()
		if err := r.Cancel(t.Context(), "o", runID, org.Author{Principal: "admin"}); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took != 0 {
			t.Errorf("the run ended %v after the cancel", took)
		}
		story, err := w.journal.Load(t.Context(), "o", runID)
		if err != nil || story.Summary.Reason != event.Cancelled {
			t.Fatalf("%+v %v", story.Summary, err)
		}
		if done, ok := story.Facts[len(story.Facts)-2].Body.(loop.CallDone); !ok || done.Outcome != loop.Unknown {
			t.Errorf("%+v", story.Facts[len(story.Facts)-2])
		}
		_ = refusal(t, r.Cancel(t.Context(), "o", runID, org.Author{Principal: "admin"}), "run_finished")
		if err := r.Cancel(t.Context(), "other", runID, org.Author{Principal: "admin"}); err == nil || errors.As(err, new(*fault.Error)) {
			t.Errorf("another org's run is one that is not there, not %v", err)
		}
	})
}

// Durable runs are left to the next process, light ones get their time. // O05
func TestAGatewayThatStopsHandsItsRunsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &town{tools: map[string]func(context.Context, tool.Call) (tool.Result, error){
			"read_on": func(context.Context, tool.Call) (tool.Result, error) {
				time.Sleep(2 * time.Second)
				return tool.Text("more"), nil
			},
		}}
		w.think = func(_ context.Context, transcript []item.Item) (*model.Turn, error) {
			time.Sleep(2 * time.Second)
			if len(results(transcript)) == 8 {
				return says("read"), nil
			}
			turn := asks("read_on")
			turn.Calls[0].Arguments = fmt.Sprintf(`{"page":%d}`, len(results(transcript)))
			turn.Items[0] = turn.Calls[0].Item()
			return turn, nil
		}
		first := w.gateway(t)
		if err := first.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- first.Run(t.Context(), w.wants("p", "k", "h"), &diary{}) }()
		synctest.Wait()
		hard, cancel := context.WithTimeout(t.Context(), 25*time.Second)
		defer cancel()
		begin := time.Now()
		first.Close(hard, 5*time.Second)
		if took := time.Since(begin); took > 8*time.Second {
			t.Errorf("stopping took %v: the next fact was nearer", took)
		}
		f := refusal(t, <-ended, "run_handed_over")
		if f.Code != fault.Unavailable || f.RetryAfter <= 0 {
			t.Errorf("%+v", f)
		}
		_ = refusal(t, first.Run(t.Context(), w.wants("p", "k2", "h"), &diary{}), "stopping")
		second := w.gateway(t)
		if err := second.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		if text, end := w.attached(t, second); text != "read" || end.Rounds != 9 || len(w.made()) != 8 {
			t.Errorf("%q %+v, %d calls", text, end, len(w.made()))
		}
	})
}

// Calls that wait for others are left to the next process, which makes them. // O05 D11
func TestWaitingCallsAreHandedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &town{tools: map[string]func(context.Context, tool.Call) (tool.Result, error){
			"once": func(context.Context, tool.Call) (tool.Result, error) {
				time.Sleep(10 * time.Second)
				return tool.Text("written"), nil
			},
		}}
		w.think = func(_ context.Context, transcript []item.Item) (*model.Turn, error) {
			if len(results(transcript)) > 0 {
				return says(fmt.Sprint(len(results(transcript)))), nil
			}
			return asks(slices.Repeat([]string{"once"}, 12)...), nil
		}
		first := w.gateway(t)
		if err := first.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- first.Run(t.Context(), w.wants("p", "k", "h"), &diary{}) }()
		synctest.Wait()
		hard, cancel := context.WithTimeout(t.Context(), 25*time.Second)
		defer cancel()
		first.Close(hard, time.Second)
		_ = refusal(t, <-ended, "run_handed_over")
		if n := len(w.made()); n != 10 {
			t.Errorf("the process that stops made %d calls, want the 10 that were in flight", n)
		}
		second := w.gateway(t)
		if err := second.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		if text, _ := w.attached(t, second); text != "12" || len(w.made()) != 12 {
			t.Errorf("%q, %d calls", text, len(w.made()))
		}
	})
}

// A model call sets the most that it may cost aside; what nobody counted is paid
// in full.
func TestASharedBudgetIsNeverOverspent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &town{think: func(context.Context, []item.Item) (*model.Turn, error) {
			time.Sleep(time.Second)
			turn := says("yes")
			turn.Usage = model.Usage{Input: 1, Output: 9}
			return turn, nil
		}}
		r := w.gateway(t)
		pot := []budget.Shared{{Scope: "pot", Limit: budget.Amount{Tokens: 100}}}
		var wg sync.WaitGroup
		outcomes := make([]event.Reason, 8)
		for i := range outcomes {
			wg.Go(func() {
				req := w.wants("p", fmt.Sprint(i), "h")
				req.Policy.Budgets, req.Policy.MaxTokens = pot, 30 // 31 with the prompt: three fit
				var d diary
				if err := r.Run(t.Context(), req, &d); err != nil {
					t.Error(err)
				}
				_, end := d.said()
				outcomes[i] = end.Reason
			})
		}
		wg.Wait()
		slices.Sort(outcomes)
		if got := fmt.Sprint(outcomes); got != "[budget_exceeded budget_exceeded budget_exceeded budget_exceeded budget_exceeded complete complete complete]" {
			t.Error(got)
		}
		if used, err := w.journal.Used(t.Context(), "o", "pot/total"); err != nil || used.Spent.Tokens != 30 || used.Reserved.Tokens != 0 {
			t.Errorf("%+v %v", used, err)
		}
	})
}

// What a call has done stays done, whatever becomes of the next one. // C19
func TestACallThatFailsTakesNothingBack(t *testing.T) {
	w := &town{think: func(_ context.Context, transcript []item.Item) (*model.Turn, error) {
		return asks("once_a", "once_b"), nil
	}}
	w.tools = map[string]func(context.Context, tool.Call) (tool.Result, error){
		"once_a": func(context.Context, tool.Call) (tool.Result, error) { return tool.Text("written"), nil },
		"once_b": func(context.Context, tool.Call) (tool.Result, error) { return tool.Error("no"), nil },
	}
	req := w.wants("p", "k", "h")
	req.Policy.Parallelism, req.Policy.AbortOnTool = loop.Serial, true
	var d diary
	if err := w.gateway(t).Run(t.Context(), req, &d); err != nil {
		t.Fatal(err)
	}
	_, end := d.said()
	story, err := w.journal.Load(t.Context(), "o", d.events[0].(event.Started).RunID)
	if err != nil {
		t.Fatal(err)
	}
	outcomes := map[loop.CallKey]loop.Outcome{}
	for _, f := range story.Facts {
		if done, ok := f.Body.(loop.CallDone); ok {
			outcomes[done.Key] = done.Outcome
		}
	}
	if end.Reason != event.ToolAbort || !end.SideEffects || outcomes["0.0"] != loop.OK || outcomes["0.1"] != loop.Error || len(w.made()) != 2 {
		t.Errorf("%+v, outcomes %v, %d calls", end, outcomes, len(w.made()))
	}
}

// A run has one end, and so one row. // B06
func TestARunThatUsesABudgetUpLeavesOneAuditRow(t *testing.T) {
	w := &town{think: func(context.Context, []item.Item) (*model.Turn, error) { return asks("read_on"), nil }, tools: map[string]func(context.Context, tool.Call) (tool.Result, error){
		"read_on": func(_ context.Context, c tool.Call) (tool.Result, error) { return tool.Text(c.Key), nil },
	}}
	req := w.wants("p", "k", "h")
	req.Policy.Limits.Rounds = 2
	var d diary
	if err := w.gateway(t).Run(t.Context(), req, &d); err != nil {
		t.Fatal(err)
	}
	_, end := d.said()
	rows, err := w.journal.AuditRows(t.Context(), "o", audit.Query{RunID: d.events[0].(event.Started).RunID})
	rows = slices.DeleteFunc(rows, func(r audit.Row) bool { return r.Kind != audit.KindBudgetExhausted })
	if err != nil || end.Reason != event.MaxRounds || len(rows) != 1 || !strings.Contains(string(rows[0].Body), `"max_rounds"`) {
		t.Errorf("%+v, rows %+v, %v", end, rows, err)
	}
}

// A tool that has changed while nobody performed the run is not executed.
func TestATakenOverRunKeepsTheToolsThatItBeganWith(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &town{think: func(ctx context.Context, transcript []item.Item) (*model.Turn, error) {
			if got := results(transcript); got != nil {
				return says(got[0]), nil
			}
			return asks("read_a"), nil
		}}
		w.tools = map[string]func(context.Context, tool.Call) (tool.Result, error){"read_a": func(ctx context.Context, _ tool.Call) (tool.Result, error) {
			<-ctx.Done()
			return tool.Result{}, context.Cause(ctx)
		}}
		first, second := w.gateway(t), w.gateway(t)
		leaving, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		_ = first.Run(leaving, w.wants("p", "k", "h"), &diary{})
		w.mu.Lock()
		w.tools = map[string]func(context.Context, tool.Call) (tool.Result, error){"read_b": nil}
		w.mu.Unlock()
		time.Sleep(journal.LeaseTTL)
		if err := second.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		if text, _ := w.attached(t, second); !strings.Contains(text, "was removed or changed after the run started") {
			t.Error(text)
		}
	})
}

// piece is what the deltas of one part or call say together.
type piece struct {
	Kind              model.DeltaKind
	Round, Item, Part int
	Call              string // its id and name
}

// pieces returns the texts of deltas by what they are of, and the order in which
// each of these began.
func (d *diary) pieces() (order []piece, texts map[piece]string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	texts = map[piece]string{}
	calls := map[[2]int]string{}
	add := func(p piece, text string) {
		if _, ok := texts[p]; !ok {
			order = append(order, p)
		}
		texts[p] += text
	}
	for _, e := range d.events {
		switch e := e.(type) {
		case event.TextDelta:
			add(piece{model.TextDelta, e.Round, e.Item, e.Part, ""}, e.Text)
		case event.ReasoningDelta:
			add(piece{model.ReasoningDelta, e.Round, e.Item, e.Part, ""}, e.Text)
		case event.RefusalDelta:
			add(piece{model.RefusalDelta, e.Round, e.Item, e.Part, ""}, e.Text)
		case event.CallDelta:
			at := [2]int{e.Round, e.Item}
			calls[at] += e.CallID + e.Name
			add(piece{model.CallDelta, e.Round, e.Item, 0, calls[at]}, e.Arguments)
		}
	}
	return order, texts
}

// Who follows a run that is over is told the same of each item as who was there,
// under the same numbers; calls only where the surface sends them as they come.
func TestAReplayNumbersItemsAsTheyWereNumberedLive(t *testing.T) {
	const story = `reasoning Hm.
call c1 read_a {"n":1}
text In between
text " it."
refusal Half.
call c2 read_a {"n":2}

call c3 read_a {"n":3}
call c4 read_a {"n":
stop length

text Done.
`
	texts := []model.DeltaKind{model.TextDelta, model.ReasoningDelta, model.RefusalDelta}
	for name, live := range map[string][]model.DeltaKind{"text alone": texts, "calls too": append(texts, model.CallDelta)} {
		t.Run(name, func(t *testing.T) {
			w := &town{tools: map[string]func(context.Context, tool.Call) (tool.Result, error){
				"read_a": func(context.Context, tool.Call) (tool.Result, error) { return tool.Text("ok"), nil },
			}}
			r, script := w.gateway(t), turnpiketest.NewScript(t, story)
			var first, second diary
			for _, d := range []*diary{&first, &second} {
				req := w.wants("p", "k", "h")
				req.Targets[0].Client, req.Policy.Live = script, live
				if err := r.Run(t.Context(), req, d); err != nil {
					t.Fatal(err)
				}
			}
			order, said := first.pieces()
			again, saidAgain := second.pieces()
			if diff := cmp.Diff(order, again); diff != "" {
				t.Error("live (-), replayed (+):", diff)
			}
			if diff := cmp.Diff(said, saidAgain); diff != "" {
				t.Error("live (-), replayed (+):", diff)
			}
			want := 4 // reasoning, text and refusal of the first round, text of the last
			if len(live) == 4 {
				want = 8
			}
			if _, end := second.said(); len(order) != want || end.Reason != event.Complete {
				t.Errorf("%d parts and calls, want %d; %+v", len(order), want, end)
			}
		})
	}
}
