package responses_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/internal/surface/spectest"
)

// heldModel is a model that says a part of its answer, and the rest when it is released. called gets
// an element for each call.
func heldModel(t *testing.T) (g *Gateway, called chan struct{}, release func()) {
	t.Helper()
	up, called, release := heldUpstream(t)
	return MustRun(t, Site{Upstream: up, Runtime: "concurrency: 1"}.Yaml()), called, release
}

// heldUpstream is the provider of heldModel.
func heldUpstream(t *testing.T) (url string, called chan struct{}, release func()) {
	t.Helper()
	NoLeaks(t)
	held := make(chan struct{})
	release = sync.OnceFunc(func() { close(held) })
	t.Cleanup(release)
	called = make(chan struct{}, 100)
	up := NewUpstream(t, func(w http.ResponseWriter, r *http.Request, _ Received) {
		w.Header().Set("Content-Type", "text/event-stream")
		Frame(w, `{"choices":[{"index":0,"delta":{"content":"Do"}}]}`)
		_ = http.NewResponseController(w).Flush()
		called <- struct{}{}
		select {
		case <-held:
		case <-r.Context().Done():
			return
		}
		Frame(w, `{"choices":[{"index":0,"delta":{"content":"ne."}}]}`)
		Frame(w, `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}`)
		Frame(w, "[DONE]")
	})
	return up.URL, called, release
}

const backgroundBody = `{"model":"m","input":"x","background":true}`

func TestResponsesInTheBackground(t *testing.T) { // P20, J22
	specs := spectest.Find(t)
	g, called, release := heldModel(t)
	first, _ := inBackground(t, g, backgroundBody)
	<-called
	specs.Check(t, "GET /v1/responses", becomes(t, g, first, "in_progress"))
	second, status := inBackground(t, g, backgroundBody)
	third, _ := inBackground(t, g, backgroundBody)
	if status != "queued" {
		t.Errorf("the second response is %s", status)
	}
	specs.Check(t, "GET /v1/responses", becomes(t, g, second, "queued"))
	for range 2 {
		if a := g.Send("POST", "/v1/responses/"+second+"/cancel", nil, "Authorization", "Bearer owner-key"); a.Status != 200 || !strings.Contains(string(a.Body), `"status":"cancelled","background":true`) {
			t.Errorf("cancelled while it is queued: %d %s", a.Status, a.Body)
		}
	}
	if a := g.Send("DELETE", "/v1/responses/"+third, nil, "Authorization", "Bearer owner-key"); a.Status != 200 {
		t.Errorf("deleted while it is queued: %d %s", a.Status, a.Body)
	}
	if a := g.Send("GET", "/v1/responses/"+third, nil, "Authorization", "Bearer owner-key"); a.Status != 404 {
		t.Errorf("deleted, and there: %d %s", a.Status, a.Body)
	}
	release()
	becomes(t, g, first, "completed")
	if a := g.Send("POST", "/v1/responses/"+first+"/cancel", nil, "Authorization", "Bearer owner-key"); a.Status != 200 || !strings.Contains(string(a.Body), `"status":"completed"`) {
		t.Errorf("cancelled when it has ended: %d %s", a.Status, a.Body)
	}
	whole := string(replayed(g, first, "").Body)
	all := cutEvents([]byte(whole))
	if !strings.Contains(all[0], `"status":"queued"`) || !strings.Contains(all[1], "event: response.queued\n") || !strings.Contains(all[2], "event: response.in_progress\n") {
		t.Errorf("the stream begins with\n%s", strings.Join(all[:3], ""))
	}
	specs.Check(t, "GET /v1/responses", whole)
	for n := range len(all) - 1 {
		if got, want := string(replayed(g, first, fmt.Sprint("&starting_after=", n)).Body), strings.Join(all[n+1:], ""); got != want {
			t.Errorf("after %d:\n%s\nwant\n%s", n, got, want)
		}
	}
	streamed := g.Send("POST", "/v1/responses", strings.NewReader(`{"model":"m","input":"x","background":true,"stream":true}`), "Authorization", "Bearer owner-key")
	id := strings.Replace(streamed.Header.Get("Turnpike-Run-Id"), "run_", "resp_", 1)
	again := string(replayed(g, id, "").Body)
	if again != string(streamed.Body) || !strings.Contains(again, "event: response.completed\n") {
		t.Errorf("the stream was\n%s\nand is\n%s", streamed.Body, again)
	}
	foreground := g.Send("POST", "/v1/responses", strings.NewReader(`{"model":"m","input":"x"}`), "Authorization", "Bearer owner-key")
	id = strings.Replace(foreground.Header.Get("Turnpike-Run-Id"), "run_", "resp_", 1)
	if a := g.Send("POST", "/v1/responses/"+id+"/cancel", nil, "Authorization", "Bearer owner-key"); a.Status != 400 || !strings.Contains(string(a.Body), "not_in_background") {
		t.Errorf("a response that is not in the background is cancelled: %d %s", a.Status, a.Body)
	}
}

func TestAResponseInProgressIsCancelledAndDeleted(t *testing.T) { // P20, J22
	g, called, _ := heldModel(t)
	id, _ := inBackground(t, g, backgroundBody)
	<-called
	if a := g.Send("POST", "/v1/responses/"+id+"/cancel", nil, "Authorization", "Bearer owner-key"); a.Status != 200 || !strings.Contains(string(a.Body), `"status":"cancelled"`) {
		t.Errorf("cancelled during a model call: %d %s", a.Status, a.Body)
	}
	id, _ = inBackground(t, g, backgroundBody)
	<-called
	if a := g.Send("DELETE", "/v1/responses/"+id, nil, "Authorization", "Bearer owner-key"); a.Status != 200 {
		t.Errorf("deleted during a model call: %d %s", a.Status, a.Body)
	}
	until := time.Now().Add(20 * time.Second)
	for runID := strings.Replace(id, "resp_", "run_", 1); ; time.Sleep(5 * time.Millisecond) {
		a := g.Send("GET", "/v1/runs/"+runID, nil, "Authorization", "Bearer owner-key")
		if strings.Contains(string(a.Body), `"state":"cancelled"`) {
			break
		}
		if time.Now().After(until) {
			t.Fatalf("the run of a deleted response goes on: %d %s", a.Status, a.Body)
		}
	}
	if a := g.Send("GET", "/v1/responses/"+id, nil, "Authorization", "Bearer owner-key"); a.Status != 404 {
		t.Errorf("deleted, and there: %d %s", a.Status, a.Body)
	}
}

// A response that has not ended cannot be continued, and the answer says so. // P20, G18
func TestAResponseThatHasNotEndedIsNotContinued(t *testing.T) {
	g, called, release := heldModel(t)
	first, _ := inBackground(t, g, backgroundBody)
	<-called
	second, _ := inBackground(t, g, backgroundBody)
	third, _ := inBackground(t, g, backgroundBody)
	for id, status := range map[string]string{first: "in progress", second: "queued"} {
		for _, more := range []string{"", `,"background":true`, `,"stream":true`} {
			a := continued(g, id, more)
			if text := string(a.Body); a.Status != 409 || !strings.Contains(text, "previous_response_not_ended") || !strings.Contains(text, status) || !strings.Contains(text, `"param":"previous_response_id"`) {
				t.Errorf("a response that is %s is continued: %d %s", status, a.Status, a.Body)
			}
			if a.Header.Get("Retry-After") != "1" {
				t.Errorf("Retry-After is %q", a.Header.Get("Retry-After"))
			}
		}
	}
	if a := g.Send("DELETE", "/v1/responses/"+third, nil, "Authorization", "Bearer owner-key"); a.Status != 200 {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	for _, gone := range []string{third, "resp_unknown"} {
		if a := continued(g, gone, ""); a.Status != 400 || !strings.Contains(string(a.Body), "previous_response_not_found") {
			t.Errorf("%s is continued: %d %s", gone, a.Status, a.Body)
		}
	}
	release()
	becomes(t, g, second, "completed")
	for _, id := range []string{first, second} {
		if a := continued(g, id, ""); a.Status != 200 {
			t.Errorf("a response that has ended is not continued: %d %s", a.Status, a.Body)
		}
	}
}

// Operators see how many runs are queued, and that runs are refused because the queue is full.
func TestQueuedRunsAreMeasured(t *testing.T) { // P20
	up, called, release := heldUpstream(t)
	yaml := Site{Upstream: up, Runtime: "concurrency: 1, max_queued_runs: 2"}.Yaml() + "\ntelemetry: {metrics_listen: \"127.0.0.1:0\"}\n"
	g := MustRun(t, yaml)
	queued := func(want float64) {
		t.Helper()
		if got, there := Scrape(t, g)["turnpike_runs_queued{}"]; got != want || !there {
			t.Errorf("turnpike_runs_queued is %v, want %v", got, want)
		}
	}
	queued(0)
	inBackground(t, g, backgroundBody)
	<-called
	queued(0)
	inBackground(t, g, backgroundBody)
	last, _ := inBackground(t, g, backgroundBody)
	queued(2)
	a := g.Send("POST", "/v1/responses", strings.NewReader(backgroundBody), "Authorization", "Bearer owner-key")
	if a.Status != 429 || !strings.Contains(string(a.Body), "queue_full") {
		t.Errorf("one more than fits is answered with %d %s", a.Status, a.Body)
	}
	if line := `level=WARN msg="a background run was refused: the queue of its org is full"`; !strings.Contains(g.Log.String(), line) {
		t.Errorf("the log has no %s", line)
	}
	release()
	becomes(t, g, last, "completed")
	queued(0)
}

// inBackground sends a request for a response in the background, and returns its answer.
func inBackground(t *testing.T, g *Gateway, body string) (id, status string) {
	t.Helper()
	a := g.Send("POST", "/v1/responses", strings.NewReader(body), "Authorization", "Bearer owner-key")
	var r struct {
		ID         string
		Status     string
		Background bool
	}
	err := json.Unmarshal(a.Body, &r)
	runID := strings.Replace(r.ID, "resp_", "run_", 1)
	if err != nil || a.Status != 200 || !r.Background || a.Header.Get("Turnpike-Run-Id") != runID {
		t.Fatalf("%s: %d %s", body, a.Status, a.Body)
	}
	return r.ID, r.Status
}

// becomes asks for the response until it has the status.
func becomes(t *testing.T, g *Gateway, id, status string) string {
	t.Helper()
	until := time.Now().Add(20 * time.Second)
	for {
		a := g.Send("GET", "/v1/responses/"+id, nil, "Authorization", "Bearer owner-key")
		if strings.Contains(string(a.Body), fmt.Sprintf(`"status":%q,"background"`, status)) {
			return string(a.Body)
		}
		if time.Now().After(until) {
			t.Fatalf("the response does not become %s: %d %s", status, a.Status, a.Body)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// continued sends a request that continues the response.
func continued(g *Gateway, id, more string) Answer {
	body := fmt.Sprintf(`{"model":"m","input":"y","previous_response_id":%q%s}`, id, more)
	return g.Send("POST", "/v1/responses", strings.NewReader(body), "Authorization", "Bearer owner-key")
}
