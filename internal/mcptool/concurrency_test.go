package mcptool

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-gateway/turnpike/tool"
)

// near is a way to a handler without a network, for tests in a time of their own.
type near struct{ http.HandlerFunc }

// RoundTrip implements [http.RoundTripper].
func (n near) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	n.ServeHTTP(w, r)
	if r.Context().Err() != nil {
		return nil, r.Context().Err()
	}
	return w.Result(), nil
}

// crowd is a server whose tool slow takes its time and counts who is there.
type crowd struct {
	*Client
	mu        sync.Mutex // guards what follows
	now, peak int
	came      []string // the arguments of the calls, in order
}

func newCrowd(t *testing.T, s Server, each time.Duration) *crowd {
	k := &crowd{}
	f := &fake{t: t, override: map[string]http.HandlerFunc{"slow": func(w http.ResponseWriter, r *http.Request) {
		k.mu.Lock()
		k.now++
		k.peak = max(k.peak, k.now)
		k.came = append(k.came, string(asked(r).params))
		k.mu.Unlock()
		_ = sleep(r.Context(), each)
		k.mu.Lock()
		k.now--
		k.mu.Unlock()
		say("done")(w, r)
	}}}
	s.Name, s.URL = "crowd", "http://crowd.test/mcp"
	k.Client = New(s, &http.Client{Transport: near{f.serve}}, nil)
	return k
}

func TestAServerGetsSoManyCallsAtATime(t *testing.T) { // D11
	synctest.Test(t, func(t *testing.T) {
		k := newCrowd(t, Server{Timeout: 30 * time.Second}, 20*time.Second)
		defer k.Close()
		begin := time.Now()
		var callers sync.WaitGroup
		for range 300 {
			callers.Go(func() {
				// The last 44 are back after 40 seconds: waiting is no part of the timeout.
				if r, err := named(k.Client, "slow").Call(t.Context(), toolCall()); err != nil || textOf(r) != "done" {
					t.Error(r, err)
				}
			})
		}
		callers.Wait()
		if k.peak != 256 || len(k.came) != 300 || time.Since(begin) != 40*time.Second {
			t.Errorf("peak %d, %d calls, after %v", k.peak, len(k.came), time.Since(begin))
		}
	})
}

func TestCallsThatWaitTakeTheirTurns(t *testing.T) { // D11
	synctest.Test(t, func(t *testing.T) {
		k := newCrowd(t, Server{MaxConcurrent: 1}, time.Second)
		defer k.Close()
		var callers sync.WaitGroup
		for _, n := range []string{"1", "2", "3", "4"} {
			callers.Go(func() {
				_, _ = named(k.Client, "slow").Call(t.Context(), tool.Call{Arguments: []byte(n)})
			})
			synctest.Wait()
		}
		callers.Wait()
		for i, params := range k.came {
			if want := `{"name":"slow","arguments":` + string(rune('1'+i)) + `}`; params != want {
				t.Errorf("call %d is %s, want %s", i, params, want)
			}
		}
		if k.peak != 1 || len(k.came) != 4 {
			t.Errorf("peak %d, calls %q", k.peak, k.came)
		}
	})
}

func TestAWaitingCallLeavesWithItsRun(t *testing.T) { // D11
	synctest.Test(t, func(t *testing.T) {
		k := newCrowd(t, Server{MaxConcurrent: 1}, 10*time.Second)
		defer k.Close()
		var callers sync.WaitGroup
		callers.Go(func() { _, _ = named(k.Client, "slow").Call(t.Context(), toolCall()) })
		synctest.Wait()
		begin := time.Now()
		over := errors.New("the run is over")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, over)
		defer cancel()
		callers.Go(func() {
			_, err := named(k.Client, "slow").Call(ctx, toolCall())
			if !errors.Is(err, over) || !errors.Is(err, tool.ErrNotSent) || time.Since(begin) != time.Second {
				t.Errorf("%v after %v", err, time.Since(begin))
			}
		})
		callers.Wait()
		if r, err := named(k.Client, "slow").Call(t.Context(), toolCall()); err != nil || textOf(r) != "done" || len(k.came) != 2 {
			t.Error(r, err, len(k.came))
		}
	})
}

func TestClosingSendsWaitingCallsAway(t *testing.T) { // D11
	synctest.Test(t, func(t *testing.T) {
		k := newCrowd(t, Server{MaxConcurrent: 1}, time.Hour)
		var callers sync.WaitGroup
		for range 3 {
			callers.Go(func() {
				if _, err := named(k.Client, "slow").Call(t.Context(), toolCall()); !errors.Is(err, errClosed) {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		_ = k.Close()
		callers.Wait()
		if len(k.came) != 1 {
			t.Errorf("%d calls came", len(k.came))
		}
	})
}
