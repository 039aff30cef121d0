package run_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

// onlooker is an Observer that writes down what begins and ends, and what is
// wrong with the order of it.
type onlooker struct {
	t *testing.T

	mu       sync.Mutex
	ended    []string // in the order of their ends: what it was, below what, how it ended
	open     map[*watch]bool
	recorded map[audit.Kind]int
}

type watch struct {
	name  string
	above *watch
}

type watchKey struct{}

func (o *onlooker) begins(ctx context.Context, name string) (context.Context, func(how string)) {
	above, _ := ctx.Value(watchKey{}).(*watch)
	w := &watch{name, above}
	o.mu.Lock()
	defer o.mu.Unlock()
	if above != nil && !o.open[above] {
		o.t.Errorf("%s begins within %s, which is over", name, above.name)
	}
	o.open[w] = true
	return context.WithValue(ctx, watchKey{}, w), func(how string) { o.ends(w, how) }
}

func (o *onlooker) ends(w *watch, how string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.open[w] {
		o.t.Errorf("%s ends twice", w.name)
	}
	delete(o.open, w)
	line := w.name
	for other := range o.open {
		if other.above == w {
			o.t.Errorf("%s ends before %s, which is within it", w.name, other.name)
		}
	}
	for above := w.above; above != nil; above = above.above {
		line = above.name + " > " + line
	}
	o.ended = append(o.ended, strings.TrimSpace(line+" "+how))
}

func (o *onlooker) Compacted(loop.Compacted) {}

func (o *onlooker) Carry(to, from context.Context) context.Context {
	return context.WithValue(to, callerKey{}, from.Value(callerKey{}))
}

type callerKey struct{}

// Trace returns the caller as the trace of a run, also of one that was taken over.
func (o *onlooker) Trace(ctx context.Context) map[string]string {
	caller, ok := ctx.Value(callerKey{}).(string)
	if !ok {
		return nil
	}
	return map[string]string{"caller": caller}
}

func (o *onlooker) WithTrace(ctx context.Context, stored map[string]string) context.Context {
	return context.WithValue(ctx, callerKey{}, stored["caller"])
}

func (o *onlooker) Run(ctx context.Context, b run.Begun) (context.Context, func(run.End)) {
	name := fmt.Sprint("run of ", ctx.Value(callerKey{}))
	if b.TakenOver {
		name = "taken over from " + fmt.Sprint(ctx.Value(callerKey{}))
	}
	if ctx.Value(callerKey{}) == nil {
		ctx = context.WithValue(ctx, callerKey{}, "nobody")
	}
	ctx, end := o.begins(ctx, name)
	return ctx, func(e run.End) {
		end(fmt.Sprintf("%s %d rounds %d calls %d tokens", e.Reason, e.Rounds, e.Calls, e.Usage.Input+e.Usage.Output))
	}
}

func (o *onlooker) Round(ctx context.Context, n int) (context.Context, func()) {
	ctx, end := o.begins(ctx, fmt.Sprint("round ", n))
	return ctx, func() { end("") }
}

func (o *onlooker) ModelCall(ctx context.Context, c run.ModelCall) (context.Context, func(run.ModelEnd)) {
	ctx, end := o.begins(ctx, fmt.Sprint("model ", c.Attempt))
	return ctx, func(e run.ModelEnd) { end(fmt.Sprint(e.Err == nil)) }
}

func (o *onlooker) ToolCall(ctx context.Context, c run.ToolCall) (context.Context, func(run.ToolEnd)) {
	ctx, end := o.begins(ctx, fmt.Sprintf("%s %d", c.Name, c.Attempt))
	return ctx, func(e run.ToolEnd) { end(string(e.Outcome)) }
}

func (o *onlooker) HookRan(context.Context, loop.HookType, loop.HookRan) {}

func (o *onlooker) Recorded(_ string, e audit.Entry) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.recorded[e.Kind]++
}

// saw fails the test unless that is what ended, in any order, and nothing is open.
func (o *onlooker) saw(want ...string) {
	o.t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	got := slices.Sorted(slices.Values(o.ended))
	slices.Sort(want)
	if !slices.Equal(got, want) {
		o.t.Errorf("seen:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for w := range o.open {
		o.t.Errorf("%s never ends", w.name)
	}
}

func newOnlooker(t *testing.T) *onlooker {
	return &onlooker{t: t, open: map[*watch]bool{}, recorded: map[audit.Kind]int{}}
}

// A process dies with calls under way, so to speak, and another goes on: what the
// first has begun ends with it, what is done once is seen once, and the rest is
// that of the second.
func TestAnObserverSeesEveryBeginningAndItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOnlooker(t)
		failing := true
		w := &town{watch: o}
		w.think = func(ctx context.Context, transcript []item.Item) (*model.Turn, error) {
			if failing {
				failing = false
				return nil, &model.Error{Class: model.Transient, Err: errors.New("busy")}
			}
			return script("read_a", "once_b", "nobody")(ctx, transcript)
		}
		hangs := func(ctx context.Context, c tool.Call) (tool.Result, error) {
			if c.Attempt == 1 {
				<-ctx.Done()
				return tool.Result{}, context.Cause(ctx)
			}
			return tool.Text("done"), nil
		}
		w.tools = map[string]func(context.Context, tool.Call) (tool.Result, error){"read_a": hangs, "once_b": hangs}
		first, second := w.gateway(t), w.gateway(t)
		caller, leave := context.WithTimeout(context.WithValue(t.Context(), callerKey{}, "ann"), time.Second)
		defer leave()
		_ = first.Run(caller, w.wants("p", "k", "h"), &diary{})
		time.Sleep(journal.LeaseTTL)
		if err := second.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		now, cancel := context.WithCancel(t.Context())
		cancel()
		first.Close(now, 0)
		second.Close(t.Context(), time.Minute)
		o.saw(
			"run of ann > round 0 > model 1 false",
			"run of ann > round 0 > model 2 true",
			"run of ann > round 0 > once_b 1 unknown",
			"run of ann > round 0 > read_a 1 error",
			"run of ann > round 0",
			"run of ann  1 rounds 2 calls 15 tokens",
			"taken over from ann > round 0 > nobody 0 error",
			"taken over from ann > round 0 > once_b 0 unknown",
			"taken over from ann > round 0 > read_a 2 ok",
			"taken over from ann > round 0",
			"taken over from ann > round 1 > model 1 true",
			"taken over from ann > round 1",
			"taken over from ann complete 2 rounds 2 calls 30 tokens",
		)
		if n := o.recorded[audit.KindToolCall]; n != 3 || o.recorded[audit.KindRequest] != 2 {
			t.Errorf("the audit took %v, want 3 tool calls and 2 rounds", o.recorded)
		}
	})
}

// A run that changes its owner twice stays in one trace. Where the first owner had none,
// or was of a release that stored none, the second one starts a trace, which the third
// continues. A trace that cannot be read is ignored. // P17
func TestARunThatChangesItsOwnerStaysInItsTrace(t *testing.T) {
	for name, c := range map[string]struct {
		first  bool // the first owner has an observer
		stored any  // what the journal has instead of the first owner's trace; nil = nothing else
		want   []string
	}{
		"every owner observes":       {true, nil, []string{"run of ann", "taken over from ann", "taken over from ann"}},
		"the first does not":         {false, nil, []string{"taken over from <nil>", "taken over from nobody"}},
		"the trace cannot be read":   {false, 5, []string{"taken over from <nil>", "taken over from <nil>"}},
		"the trace came from others": {false, map[string]string{"caller": "bob"}, []string{"taken over from bob", "taken over from bob"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := newOnlooker(t)
				w := &town{}
				hangs := true
				w.think = func(ctx context.Context, _ []item.Item) (*model.Turn, error) {
					if hangs {
						<-ctx.Done()
						return nil, context.Cause(ctx)
					}
					return says("done"), nil
				}
				owner := func(watch run.Observer) *run.Runner {
					w.watch = watch
					return w.gateway(t)
				}
				first := owner(nil)
				if c.first {
					first = owner(o)
				}
				caller, leave := context.WithTimeout(context.WithValue(t.Context(), callerKey{}, "ann"), time.Second)
				defer leave()
				_ = first.Run(caller, w.wants("p", "k", "h"), &diary{})
				if c.stored != nil {
					runs, err := w.journal.Runs(t.Context(), "o", journal.Query{Limit: 1})
					if err != nil {
						t.Fatal(err)
					}
					head, err := w.journal.Head(t.Context(), "o", runs[0].RunID)
					if err != nil {
						t.Fatal(err)
					}
					row := journal.Batch{Rows: []journal.Row{{Ref: "trace", Value: c.stored}}}
					if err := w.journal.Append(t.Context(), journal.Lease{Org: "o", RunID: runs[0].RunID}, head.Seq, row); err != nil {
						t.Fatal(err)
					}
				}
				now, cancel := context.WithCancel(t.Context())
				cancel()
				synctest.Wait()
				first.Close(now, 0) // it hands the run over
				second, third := owner(o), owner(o)
				if err := second.Open(t.Context()); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				second.Close(now, 0)
				hangs = false
				if err := third.Open(t.Context()); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				third.Close(t.Context(), time.Minute)
				var got []string
				for _, line := range o.ended {
					if line, ends := strings.CutSuffix(line, " 0 calls 0 tokens"); ends {
						line, _, _ = strings.Cut(line, "  ")
						got = append(got, line)
					} else if line, ends := strings.CutSuffix(line, " complete 1 rounds 0 calls 15 tokens"); ends {
						got = append(got, line)
					}
				}
				if !slices.Equal(got, c.want) {
					t.Errorf("the runs were %q, want %q; all: %q", got, c.want, o.ended)
				}
			})
		})
	}
}
