package crash_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/store/database"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// TURNPIKE_TEST_WAITING is how many runs wait; a few without it.
const fewWaiting = 200

// accepts sends a request with the owner's key, and returns an error unless the status is 200.
func (w *world) accepts(ctx context.Context, path, body string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.base()+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+ownKey)
	resp, err := w.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: status %d: %s", path, resp.StatusCode, text)
	}
	return err
}

// Many runs wait at a time: they take no slot, next to no memory, and do not slow the start
// down. When they are decided, all go on within the slots of the org. // P02
func TestManyRunsWait(t *testing.T) {
	many := fewWaiting
	if n, err := strconv.Atoi(os.Getenv("TURNPIKE_TEST_WAITING")); err == nil {
		many = n
	}
	script := func(transcript []message) turn {
		if rounds, _, _ := follow(transcript); rounds > 0 {
			return turn{text: []string{"Done."}}
		}
		return turn{calls: []call{{"c1", "send", `{"n":7}`}}}
	}
	w := newWorld(t, options{script: script, tools: []turnpiketest.Tool{{Name: "send", Result: "sent"}}})
	p := w.start("")
	before := p.memory(t) >> 10
	ask := `{"model":"m","input":"Run the errand.","tools":[{"type":"mcp","server_label":"tools","require_approval":"always"}]}`
	begin := time.Now()
	w.each(many, func(ctx context.Context, _ int) error { return w.accepts(ctx, "/v1/responses", ask) })
	t.Logf("%d runs wait after %v; resident %d KiB before, %d KiB now", many, time.Since(begin).Round(time.Millisecond), before, p.memory(t)>>10)
	p.kill()

	begin = time.Now()
	p = w.start("")
	t.Logf("the start took %v; resident %d KiB, %d threads", time.Since(begin).Round(time.Millisecond), p.memory(t)>>10, threads(t, p))
	reader, err := database.OpenReader(t.Context(), w.data+"/turnpike.db")
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	var ids []string
	for last := ""; len(ids) < many; {
		found, err := reader.Approvals(t.Context(), "default", journal.ApprovalQuery{Statuses: []journal.ApprovalStatus{journal.ApprovalWaiting}, Before: last, Limit: 1000})
		if err != nil || len(found) == 0 {
			t.Fatalf("%d approvals wait, want %d: %v", len(ids), many, err)
		}
		for _, a := range found {
			ids = append(ids, a.ID)
		}
		last = ids[len(ids)-1]
	}
	begin = time.Now()
	w.each(many, func(ctx context.Context, i int) error {
		return w.accepts(ctx, "/v1/approvals/"+ids[i], `{"decision":"approve"}`)
	})
	decided := time.Since(begin)
	for rest := -1; rest != 0; { // every run ends
		left, err := reader.Runs(t.Context(), "default", journal.Query{States: []string{string(journal.Waiting), string(journal.Running)}, Limit: 1})
		if err != nil {
			t.Fatal(err)
		}
		if rest = len(left); rest > 0 && time.Since(begin) > time.Duration(many)*100*time.Millisecond+patience {
			t.Fatalf("run %s has not ended after %v", left[0].RunID, time.Since(begin))
		}
		_ = pause(t.Context(), 50*time.Millisecond)
	}
	t.Logf("all decided after %v, all ended after %v; resident %d KiB, at most %d calls at a time", decided.Round(time.Millisecond), time.Since(begin).Round(time.Millisecond), p.memory(t)>>10, w.tools.Peak())
	if n := len(w.tools.Calls()); n != many {
		t.Errorf("%d calls, want %d", n, many)
	}
	if peak := w.tools.Peak(); peak > 16 {
		t.Errorf("%d calls at a time, and the org has 16 slots", peak)
	}
}

// each calls do for 0 .. n-1, 16 at a time.
func (w *world) each(n int, do func(ctx context.Context, i int) error) {
	w.Helper()
	group, ctx := errgroup.WithContext(w.Context())
	var next atomic.Int64
	for range 16 {
		group.Go(func() error {
			for {
				i := int(next.Add(1)) - 1
				if i >= n {
					return nil
				}
				if err := do(ctx, i); err != nil {
					return err
				}
			}
		})
	}
	if err := group.Wait(); err != nil {
		w.Fatal(err)
	}
}

// threads returns how many threads the process has.
func threads(t *testing.T, p *process) int {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
