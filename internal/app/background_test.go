package app_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/surface/spectest"
)

// inBackground sends a request for a response in the background, and returns its answer.
func (g *gateway) inBackground(t *testing.T, body string) (id, status string) {
	t.Helper()
	a := g.send("POST", "/v1/responses", strings.NewReader(body), "Authorization", "Bearer owner-key")
	var r struct {
		ID         string
		Status     string
		Background bool
	}
	if err := json.Unmarshal(a.body, &r); err != nil || a.status != 200 || !r.Background || a.header.Get("Turnpike-Run-Id") != strings.Replace(r.ID, "resp_", "run_", 1) {
		t.Fatalf("%s: %d %s", body, a.status, a.body)
	}
	return r.ID, r.Status
}

// becomes asks for the response until it has the status.
func (g *gateway) becomes(t *testing.T, id, status string) string {
	t.Helper()
	until := time.Now().Add(20 * time.Second)
	for {
		a := g.send("GET", "/v1/responses/"+id, nil, "Authorization", "Bearer owner-key")
		if strings.Contains(string(a.body), fmt.Sprintf(`"status":%q,"background"`, status)) {
			return string(a.body)
		}
		if time.Now().After(until) {
			t.Fatalf("the response does not become %s: %d %s", status, a.status, a.body)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// heldModel is a model that says a part of its answer, and the rest when it is released. called gets
// an element for each call.
func heldModel(t *testing.T) (g *gateway, called chan struct{}, release func()) {
	t.Helper()
	up, called, release := heldUpstream(t)
	return MustRun(t, site{upstream: up, runtime: "concurrency: 1"}.yaml()), called, release
}

// heldUpstream is the provider of heldModel.
func heldUpstream(t *testing.T) (url string, called chan struct{}, release func()) {
	t.Helper()
	noLeaks(t)
	held := make(chan struct{})
	release = sync.OnceFunc(func() { close(held) })
	t.Cleanup(release)
	called = make(chan struct{}, 100)
	up := newUpstream(t, func(w http.ResponseWriter, r *http.Request, _ received) {
		w.Header().Set("Content-Type", "text/event-stream")
		frame(w, `{"choices":[{"index":0,"delta":{"content":"Do"}}]}`)
		_ = http.NewResponseController(w).Flush()
		called <- struct{}{}
		select {
		case <-held:
		case <-r.Context().Done():
			return
		}
		frame(w, `{"choices":[{"index":0,"delta":{"content":"ne."}}]}`)
		frame(w, `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}`)
		frame(w, "[DONE]")
	})
	return up.URL, called, release
}

const backgroundBody = `{"model":"m","input":"x","background":true}`

func TestResponsesInTheBackground(t *testing.T) { // P20, J22
	specs := spectest.Find(t)
	g, called, release := heldModel(t)
	first, _ := g.inBackground(t, backgroundBody)
	<-called
	specs.Check(t, "GET /v1/responses", g.becomes(t, first, "in_progress"))
	second, status := g.inBackground(t, backgroundBody)
	third, _ := g.inBackground(t, backgroundBody)
	if status != "queued" {
		t.Errorf("the second response is %s", status)
	}
	specs.Check(t, "GET /v1/responses", g.becomes(t, second, "queued"))
	for range 2 {
		if a := g.send("POST", "/v1/responses/"+second+"/cancel", nil, "Authorization", "Bearer owner-key"); a.status != 200 || !strings.Contains(string(a.body), `"status":"cancelled","background":true`) {
			t.Errorf("cancelled while it is queued: %d %s", a.status, a.body)
		}
	}
	if a := g.send("DELETE", "/v1/responses/"+third, nil, "Authorization", "Bearer owner-key"); a.status != 200 {
		t.Errorf("deleted while it is queued: %d %s", a.status, a.body)
	}
	if a := g.send("GET", "/v1/responses/"+third, nil, "Authorization", "Bearer owner-key"); a.status != 404 {
		t.Errorf("deleted, and there: %d %s", a.status, a.body)
	}
	release()
	g.becomes(t, first, "completed")
	if a := g.send("POST", "/v1/responses/"+first+"/cancel", nil, "Authorization", "Bearer owner-key"); a.status != 200 || !strings.Contains(string(a.body), `"status":"completed"`) {
		t.Errorf("cancelled when it has ended: %d %s", a.status, a.body)
	}
	whole := string(g.replayed(first, "").body)
	all := cutEvents([]byte(whole))
	if !strings.Contains(all[0], `"status":"queued"`) || !strings.Contains(all[1], "event: response.queued\n") || !strings.Contains(all[2], "event: response.in_progress\n") {
		t.Errorf("the stream begins with\n%s", strings.Join(all[:3], ""))
	}
	specs.Check(t, "GET /v1/responses", whole)
	for n := range len(all) - 1 {
		if got, want := string(g.replayed(first, fmt.Sprint("&starting_after=", n)).body), strings.Join(all[n+1:], ""); got != want {
			t.Errorf("after %d:\n%s\nwant\n%s", n, got, want)
		}
	}
	streamed := g.send("POST", "/v1/responses", strings.NewReader(`{"model":"m","input":"x","background":true,"stream":true}`), "Authorization", "Bearer owner-key")
	id := strings.Replace(streamed.header.Get("Turnpike-Run-Id"), "run_", "resp_", 1)
	if again := string(g.replayed(id, "").body); again != string(streamed.body) || !strings.Contains(again, "event: response.completed\n") {
		t.Errorf("the stream was\n%s\nand is\n%s", streamed.body, again)
	}
	foreground := g.send("POST", "/v1/responses", strings.NewReader(`{"model":"m","input":"x"}`), "Authorization", "Bearer owner-key")
	id = strings.Replace(foreground.header.Get("Turnpike-Run-Id"), "run_", "resp_", 1)
	if a := g.send("POST", "/v1/responses/"+id+"/cancel", nil, "Authorization", "Bearer owner-key"); a.status != 400 || !strings.Contains(string(a.body), "not_in_background") {
		t.Errorf("a response that is not in the background is cancelled: %d %s", a.status, a.body)
	}
}

func TestAResponseInProgressIsCancelledAndDeleted(t *testing.T) { // P20, J22
	g, called, _ := heldModel(t)
	id, _ := g.inBackground(t, backgroundBody)
	<-called
	if a := g.send("POST", "/v1/responses/"+id+"/cancel", nil, "Authorization", "Bearer owner-key"); a.status != 200 || !strings.Contains(string(a.body), `"status":"cancelled"`) {
		t.Errorf("cancelled during a model call: %d %s", a.status, a.body)
	}
	id, _ = g.inBackground(t, backgroundBody)
	<-called
	if a := g.send("DELETE", "/v1/responses/"+id, nil, "Authorization", "Bearer owner-key"); a.status != 200 {
		t.Errorf("deleted during a model call: %d %s", a.status, a.body)
	}
	until := time.Now().Add(20 * time.Second)
	for runID := strings.Replace(id, "resp_", "run_", 1); ; time.Sleep(5 * time.Millisecond) {
		a := g.send("GET", "/v1/runs/"+runID, nil, "Authorization", "Bearer owner-key")
		if strings.Contains(string(a.body), `"state":"cancelled"`) {
			break
		}
		if time.Now().After(until) {
			t.Fatalf("the run of a deleted response goes on: %d %s", a.status, a.body)
		}
	}
	if a := g.send("GET", "/v1/responses/"+id, nil, "Authorization", "Bearer owner-key"); a.status != 404 {
		t.Errorf("deleted, and there: %d %s", a.status, a.body)
	}
}

// continued sends a request that continues the response.
func (g *gateway) continued(id, more string) answer {
	return g.send("POST", "/v1/responses", strings.NewReader(fmt.Sprintf(`{"model":"m","input":"y","previous_response_id":%q%s}`, id, more)), "Authorization", "Bearer owner-key")
}

// A response that has not ended cannot be continued, and the answer says so. // P20, G18
func TestAResponseThatHasNotEndedIsNotContinued(t *testing.T) {
	g, called, release := heldModel(t)
	first, _ := g.inBackground(t, backgroundBody)
	<-called
	second, _ := g.inBackground(t, backgroundBody)
	third, _ := g.inBackground(t, backgroundBody)
	for id, status := range map[string]string{first: "in progress", second: "queued"} {
		for _, more := range []string{"", `,"background":true`, `,"stream":true`} {
			a := g.continued(id, more)
			if text := string(a.body); a.status != 409 || !strings.Contains(text, "previous_response_not_ended") || !strings.Contains(text, status) || !strings.Contains(text, `"param":"previous_response_id"`) {
				t.Errorf("a response that is %s is continued: %d %s", status, a.status, a.body)
			}
			if a.header.Get("Retry-After") != "1" {
				t.Errorf("Retry-After is %q", a.header.Get("Retry-After"))
			}
		}
	}
	if a := g.send("DELETE", "/v1/responses/"+third, nil, "Authorization", "Bearer owner-key"); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	for _, gone := range []string{third, "resp_unknown"} {
		if a := g.continued(gone, ""); a.status != 400 || !strings.Contains(string(a.body), "previous_response_not_found") {
			t.Errorf("%s is continued: %d %s", gone, a.status, a.body)
		}
	}
	release()
	g.becomes(t, second, "completed")
	for _, id := range []string{first, second} {
		if a := g.continued(id, ""); a.status != 200 {
			t.Errorf("a response that has ended is not continued: %d %s", a.status, a.body)
		}
	}
}

// Operators see how many runs are queued, and that runs are refused because the queue is full.
func TestQueuedRunsAreMeasured(t *testing.T) { // P20
	up, called, release := heldUpstream(t)
	yaml := site{upstream: up, runtime: "concurrency: 1, max_queued_runs: 2"}.yaml() + "\ntelemetry: {metrics_listen: \"127.0.0.1:0\"}\n"
	g := MustRun(t, yaml)
	queued := func(want float64) {
		t.Helper()
		if got, there := scrape(t, g)["turnpike_runs_queued{}"]; got != want || !there {
			t.Errorf("turnpike_runs_queued is %v, want %v", got, want)
		}
	}
	queued(0)
	g.inBackground(t, backgroundBody)
	<-called
	queued(0)
	g.inBackground(t, backgroundBody)
	last, _ := g.inBackground(t, backgroundBody)
	queued(2)
	a := g.send("POST", "/v1/responses", strings.NewReader(backgroundBody), "Authorization", "Bearer owner-key")
	if a.status != 429 || !strings.Contains(string(a.body), "queue_full") {
		t.Errorf("one more than fits is answered with %d %s", a.status, a.body)
	}
	if line := `level=WARN msg="a background run was refused: the queue of its org is full"`; !strings.Contains(g.log.String(), line) {
		t.Errorf("the log has no %s", line)
	}
	release()
	g.becomes(t, last, "completed")
	queued(0)
}
