package run_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/tool"
)

// suspicious makes runs whose owners die while each is in its call of read_slowly,
// first the one that began it and then as many as deaths says.
func (w *town) suspicious(t *testing.T, runs, deaths int) {
	t.Helper()
	first := w.gateway(t) // it is never started: it renews nothing
	for i := range runs {
		leaving, leave := context.WithTimeout(t.Context(), time.Second)
		_ = first.Run(leaving, w.wants("p", fmt.Sprint("key ", i), "h"), &diary{})
		leave()
	}
	for n := range deaths {
		time.Sleep(journal.LeaseTTL)
		leases, err := w.journal.Claim(t.Context(), fmt.Sprint("dies ", n), runs)
		if err != nil || len(leases) != runs {
			t.Fatalf("%d leases, %v", len(leases), err)
		}
		for _, l := range leases {
			story, err := w.journal.Load(t.Context(), l.Org, l.RunID)
			if err != nil {
				t.Fatal(err)
			}
			s := loop.Fold(story.Facts)
			resumed := loop.Fact{Seq: s.Seq + 1, Epoch: l.Epoch, At: s.At, Version: loop.Version, Body: loop.Resumed{By: l.Owner}}
			s = loop.Apply(s, resumed)
			call := loop.CallStarted{Key: "0.0", Attempt: s.Calls[0].Attempt + 1}
			made := loop.Fact{Seq: s.Seq + 1, Epoch: l.Epoch, At: s.At, Version: loop.Version, Body: call}
			if err := w.journal.Append(t.Context(), l, s.Seq-1, journal.Batch{Facts: []loop.Fact{resumed, made}, Sync: true}); err != nil {
				t.Fatal(err)
			}
		}
	}
	time.Sleep(journal.LeaseTTL)
}

// Runs whose owners died again and again are gone on with one after the other. // R14
func TestSuspectsAreGoneOnWithOneAfterTheOther(t *testing.T) {
	for _, tt := range []struct {
		deaths int
		most   int32 // calls at the same time
	}{{1, 4}, {2, 1}} {
		t.Run(fmt.Sprint(tt.deaths, " deaths"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const runs = 4
				var dying atomic.Bool
				var now, most atomic.Int32
				dying.Store(true)
				w := &town{think: script("read_slowly"), tools: map[string]func(context.Context, tool.Call) (tool.Result, error){
					"read_slowly": func(ctx context.Context, _ tool.Call) (tool.Result, error) {
						if dying.Load() {
							<-ctx.Done()
							return tool.Result{}, context.Cause(ctx)
						}
						most.Store(max(most.Load(), now.Add(1)))
						defer now.Add(-1)
						time.Sleep(2 * time.Second)
						return tool.Text("read"), nil
					},
				}}
				w.suspicious(t, runs, tt.deaths)
				dying.Store(false)
				if err := w.gateway(t).Open(t.Context()); err != nil {
					t.Fatal(err)
				}
				time.Sleep(runs*2*time.Second + time.Second)
				w.wantEnds(t, runs, event.Complete)
				if most.Load() != tt.most {
					t.Errorf("%d calls at the same time, want %d", most.Load(), tt.most)
				}
			})
		})
	}
}

// wantEnds fails the test unless so many runs have ended for the reason.
func (w *town) wantEnds(t *testing.T, want int, reason event.Reason) {
	t.Helper()
	list, err := w.journal.Runs(t.Context(), "o", journal.Query{Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, s := range list {
		if s.Reason == reason {
			n++
		}
	}
	if n != want {
		t.Errorf("%d runs have ended as %q, want %d: %+v", n, reason, want, list)
	}
}

// A suspect that does not get further, and ends no process either, does not
// keep the others waiting. Those that still wait when the gateway stops are given
// back at once, and that is not held against them. // R14
func TestASuspectThatHangsKeepsTheOthersOnlyForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		w := &town{think: script("read_slowly"), tools: map[string]func(context.Context, tool.Call) (tool.Result, error){
			"read_slowly": func(ctx context.Context, _ tool.Call) (tool.Result, error) {
				calls.Add(1)
				<-ctx.Done()
				return tool.Result{}, context.Cause(ctx)
			},
		}}
		w.suspicious(t, 3, 2)
		calls.Store(0)
		r := w.gateway(t)
		if err := r.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := calls.Load(); n != 1 {
			t.Errorf("%d calls were made at once, want 1", n)
		}
		time.Sleep(31 * time.Second)
		if n := calls.Load(); n != 2 {
			t.Errorf("%d calls were made after 31 s, want 2", n)
		}
		hard, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r.Close(hard, 0)
		leases, err := w.journal.Claim(t.Context(), "next", 10)
		if err != nil || len(leases) != 3 {
			t.Fatalf("%+v %v", leases, err)
		}
		for _, l := range leases {
			if !l.Handed {
				t.Errorf("%+v was not given back", l)
			}
		}
		if n := calls.Load(); n != 2 {
			t.Errorf("%d calls were made, want 2: the third run was given back without one", n)
		}
	})
}

// A call during which five owners died ends its run, and is accounted for. // R14
func TestACallDuringWhichItsOwnersDiedEndsItsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &town{think: script("read_slowly"), tools: map[string]func(context.Context, tool.Call) (tool.Result, error){
			"read_slowly": func(ctx context.Context, _ tool.Call) (tool.Result, error) {
				<-ctx.Done()
				return tool.Result{}, context.Cause(ctx)
			},
		}}
		w.suspicious(t, 1, loop.MaxDeadOwnersPerCall-1)
		made := len(w.made())
		if err := w.gateway(t).Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		list, err := w.journal.Runs(t.Context(), "o", journal.Query{Limit: 10})
		if err != nil || len(list) != 1 || list[0].Reason != event.Lost {
			t.Fatalf("%+v %v", list, err)
		}
		story, err := w.journal.Load(t.Context(), "o", list[0].RunID)
		if err != nil {
			t.Fatal(err)
		}
		done, _ := story.Facts[len(story.Facts)-2].Body.(loop.CallDone)
		end, _ := story.Facts[len(story.Facts)-1].Body.(loop.Finished)
		const want = `the gateway died 5 times while the call 0.0 of the tool "read_slowly" was under way; it is not made again`
		if done.Outcome != loop.Error || end.Detail != want || len(w.made()) != made {
			t.Errorf("%+v, then %+v after %d more calls", done, end, len(w.made())-made)
		}
	})
}
