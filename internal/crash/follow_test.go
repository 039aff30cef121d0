//go:build unix

package crash_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/crash"
)

// frame is one event of GET /v1/runs/{id}/events, as it was sent.
type frame struct{ id, bytes string }

// events reads the events of a run after a position, until the stream ends.
func (w *world) events(ctx context.Context, id, after string) (frames []frame, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.base()+"/v1/runs/"+id+"/events", nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+ownKey)
	if after != "" {
		req.Header.Set("Last-Event-ID", after)
	}
	resp, err := w.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusNoContent: // nothing follows the position
		return nil, nil
	default:
		return nil, fmt.Errorf("status %s", resp.Status)
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	var next frame
	for lines.Scan() {
		line := lines.Text()
		if strings.HasPrefix(line, ":") { // a heartbeat
			continue
		}
		next.bytes += line + "\n"
		if id, ok := strings.CutPrefix(line, "id: "); ok {
			next.id = id
		}
		if line == "" {
			if next.id != "" {
				frames = append(frames, next)
			}
			next = frame{}
		}
	}
	return frames, lines.Err()
}

// ended reports whether the last event is that of the end.
func ended(frames []frame) bool {
	return len(frames) > 0 && strings.Contains(frames[len(frames)-1].bytes, "event: finished\n")
}

// keepFollowing follows a run to its end, in a goroutine: it comes back with the position
// of its last event when its stream breaks.
func (w *world) keepFollowing(id string) <-chan []frame {
	got := make(chan []frame, 1)
	ctx, cancel := context.WithTimeout(w.Context(), 2*patience)
	go func() {
		defer cancel()
		var all []frame
		for after := ""; !ended(all); {
			more, err := w.events(ctx, id, after)
			if all = append(all, more...); len(all) > 0 {
				after = all[len(all)-1].id
			}
			if err != nil && pause(ctx, 25*time.Millisecond) != nil {
				break
			}
		}
		got <- all
	}()
	return got
}

// repeat sends a request with a key once more and returns the bytes of its answer,
// without heartbeats.
func (w *world) repeat(body []byte, key string) string {
	w.Helper()
	req, err := http.NewRequestWithContext(w.Context(), http.MethodPost, w.base()+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		w.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+ownKey)
	req.Header.Set("Idempotency-Key", key)
	for {
		resp, err := w.http.Do(req.Clone(w.Context()))
		if err != nil {
			w.Fatal(err)
		}
		var text strings.Builder
		lines := bufio.NewScanner(resp.Body)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			if !strings.HasPrefix(lines.Text(), ":") {
				text.WriteString(lines.Text() + "\n")
			}
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusServiceUnavailable && resp.StatusCode != http.StatusConflict {
			return text.String()
		}
		req.Body, _ = req.GetBody()
		if err := pause(w.Context(), 25*time.Millisecond); err != nil {
			w.Fatal(err)
		}
	}
}

// A durable run is told with the same bytes to all clients: to its first one while it
// happens, to one that repeats the request, and to followers from every position, live,
// after a crash, after its end and after another start.
func TestARunIsToldWithTheSameBytes(t *testing.T) { // P05 L05
	t.Parallel()
	points := []string{"", nth(crash.AfterDeltaStored, 2), nth(crash.AfterDelta, 1), nth(crash.AfterCallSend, 2), nth(crash.AfterTurn, 2), nth(crash.AfterFinish, 1)}
	type told struct {
		point  string
		stream bool
	}
	var cases []told
	for _, point := range points {
		cases = append(cases, told{point, false}, told{point, true})
	}
	for _, c := range sampled(t, cases, func(c told) string { return fmt.Sprint(c.point == "") }) {
		t.Run(fmt.Sprintf("%s stream=%v", c.point, c.stream), func(t *testing.T) {
			t.Parallel()
			sameBytes(t, c.point, c.stream)
		})
	}
}

func sameBytes(t *testing.T, point string, stream bool) {
	w, release := newErrand(t, "model", "")
	p := w.start(point)
	eventually(t, "the gateway takes work", w.ready)
	body, err := json.Marshal(map[string]any{
		"model": "m", "stream": stream, "messages": []any{map[string]any{"role": "user", "content": "Run the errand."}},
	})
	if err != nil {
		t.Fatal(err)
	}
	const key = "errand-1"
	first := make(chan string, 1)
	if point == "" {
		go func() { first <- w.repeat(body, key) }()
	} else {
		go w.post(t.Context(), body, key, nil)
	}
	eventually(t, "the run is stored", func() bool { return len(w.runs()) == 1 })
	id := w.onlyRun()
	live := w.keepFollowing(id)
	if point != "" {
		if !strings.HasPrefix(point, string(crash.AfterDelta)) {
			release()
		}
		p.wantKilled(t, "which passes "+point)
		p = w.start("")
	}
	release()
	whole := await(t, "the end of the run", live)
	if !ended(whole) {
		t.Fatalf("the follower got %v", whole)
	}
	answer := ""
	if point == "" {
		answer = await(t, "the first answer", first)
	}
	for _, when := range []string{"after its end", "after another start"} {
		if when == "after another start" {
			p.kill()
			w.serve()
		}
		for i := 0; i <= len(whole); i++ {
			after := ""
			if i > 0 {
				after = whole[i-1].id
			}
			got, err := w.events(t.Context(), id, after)
			if err != nil || !slices.Equal(got, whole[i:]) {
				t.Fatalf("%s, after the position %q: %v\n got %q\nwant %q", when, after, err, got, whole[i:])
			}
		}
		said := w.repeat(body, key)
		if answer == "" {
			answer = said
		}
		if said != answer || !strings.Contains(said, "Done: ") {
			t.Errorf("%s, a client that repeats the request got\n%s\nand not\n%s", when, said, answer)
		}
	}
}
