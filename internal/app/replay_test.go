package app_test

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/surface/spectest"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// replayed gets the stream of a stored response again.
func (g *gateway) replayed(id, query string) answer {
	g.t.Helper()
	return g.send("GET", "/v1/responses/"+id+"?stream=true"+query, nil, "Authorization", "Bearer owner-key")
}

// cutEvents cuts a stream into its events, without comments.
func cutEvents(body []byte) (list []string) {
	for text := range strings.SplitAfterSeq(string(body), "\n\n") {
		if text != "" && !strings.HasPrefix(text, ":") {
			list = append(list, text)
		}
	}
	return list
}

// A durable response is streamed again with the same bytes, from any of its events on, while it
// runs and after its end.
func TestAResponseIsStreamedAgain(t *testing.T) { // L05 P05
	noLeaks(t)
	specs := spectest.Find(t)
	held := make(chan struct{})
	release := sync.OnceFunc(func() { close(held) })
	t.Cleanup(release)
	called := make(chan struct{})
	up := newUpstream(t, func(w http.ResponseWriter, r *http.Request, got received) {
		if got.number == 0 {
			asks(call{"echo", `{"n":1}`}).saying("Looking.").write(w)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		frame(w, `{"choices":[{"index":0,"delta":{"reasoning_content":"Hm."}}]}`)
		frame(w, `{"choices":[{"index":0,"delta":{"content":"Do"}}]}`)
		_ = http.NewResponseController(w).Flush()
		close(called)
		select {
		case <-held:
		case <-r.Context().Done():
			return
		}
		frame(w, `{"choices":[{"index":0,"delta":{"content":"ne."}}]}`)
		frame(w, `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}`)
		frame(w, "[DONE]")
	})
	tools := newMCP(t, map[string]handler{"echo": echo})
	g := MustRun(t, site{upstream: up.URL, servers: []string{server("tools", tools.URL)}}.yaml()+"  - {id: other, keys: [{name: a, key: other-key, role: owner}]}\n")
	bodies := make(chan []byte, 2)
	read := func(r *http.Request) (id string) {
		resp, err := g.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			defer resp.Body.Close()
			body, _ := io.ReadAll(resp.Body)
			bodies <- body
		}()
		return strings.Replace(resp.Header.Get("Turnpike-Run-Id"), "run_", "resp_", 1)
	}
	id := read(g.request(t.Context(), "POST", "/v1/responses", strings.NewReader(`{"model":"m","input":"x","stream":true}`), "Authorization", "Bearer owner-key", "Idempotency-Key", "k"))
	<-called
	if during := read(g.request(t.Context(), "GET", "/v1/responses/"+id+"?stream=true", nil, "Authorization", "Bearer owner-key")); during != id {
		t.Errorf("while it runs, the response is %q, not %q", during, id)
	}
	for request, want := range map[string]string{"GET /v1/responses/" + id: `"status":"in_progress"`, "GET /v1/responses/" + id + "/input_items": `"text":"x"`} { // P20
		method, path, _ := strings.Cut(request, " ")
		if a := g.send(method, path, nil, "Authorization", "Bearer owner-key"); a.status != 200 || !strings.Contains(string(a.body), want) {
			t.Errorf("%s while it runs: %d %s", request, a.status, a.body)
		}
		if a := g.send(method, path, nil, "Authorization", "Bearer other-key"); a.status != 404 || !strings.Contains(string(a.body), "response_not_found") {
			t.Errorf("%s of another org: %d %s", request, a.status, a.body)
		}
	}
	release()
	original, during := string(<-bodies), string(<-bodies)
	if original != during || !strings.Contains(original, "response.completed") {
		t.Errorf("while it runs, the stream is\n%s\nand\n%s", original, during)
	}
	all := cutEvents([]byte(original))
	whole := g.replayed(id, "")
	specs.Check(t, "GET /v1/responses", string(whole.body))
	if string(whole.body) != original || whole.header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("streamed again:\n%s\nnot\n%s", whole.body, original)
	}
	for n := range len(all) + 1 {
		if got, want := string(g.replayed(id, "&starting_after="+strconv.Itoa(n)).body), strings.Join(all[min(n+1, len(all)-1):], ""); got != want {
			t.Errorf("after %d:\n%s\nwant\n%s", n, got, want)
		}
	}
	for query, status := range map[string]int{
		"?stream=true&starting_after=-1": 400, "?stream=true&starting_after=x": 400, "?starting_after=1": 400, "?stream=false&starting_after=1": 400, "?stream=1": 400, "?stream=false": 200,
	} {
		if a := g.send("GET", "/v1/responses/"+id+query, nil, "Authorization", "Bearer owner-key"); a.status != status {
			t.Errorf("%s: %d %s", query, a.status, a.body)
		}
	}
	for key, id := range map[string]string{"other-key": id, "owner-key": "resp_none"} {
		if a := g.send("GET", "/v1/responses/"+id+"?stream=true", nil, "Authorization", "Bearer "+key); a.status != 404 || !strings.Contains(string(a.body), "response_not_found") {
			t.Errorf("%s, %s: %d %s", key, id, a.status, a.body)
		}
	}
	if a := g.send("DELETE", "/v1/responses/"+id, nil, "Authorization", "Bearer owner-key"); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if a := g.replayed(id, ""); a.status != 404 {
		t.Errorf("deleted: %d %s", a.status, a.body)
	}
}

// The pieces of a run that is not durable are not stored. Its stream has each text as one piece,
// and its events have other numbers: it cannot be continued in the middle.
func TestAResponseThatIsNotDurableIsStreamedAgain(t *testing.T) { // L05
	noLeaks(t)
	up := turnpiketest.NewUpstream(turnpiketest.NewScript(t, "text Do\ntext ne.\n\ntext Done."), turnpiketest.UpstreamOptions{})
	t.Cleanup(up.Close)
	g := MustRun(t, site{upstream: up.URL, feature: "none"}.yaml())
	for _, stored := range []string{"true", "false"} {
		a := g.send("POST", "/v1/responses", strings.NewReader(`{"model":"m","input":"x","stream":true,"store":`+stored+`}`), "Authorization", "Bearer owner-key")
		id := last(a.events(t)).ID
		if stored == "false" {
			if again := g.replayed(id, ""); again.status != 404 {
				t.Errorf("not stored: %d %s", again.status, again.body)
			}
			continue
		}
		all := g.replayed(id, "").events(t)
		wantNumbered(t, all)
		wantOpened(t, all)
		wantWhole(t, all)
		wantEnded(t, all)
		if deltas := typed(all, "response.output_text", ".delta"); len(deltas) != 1 || deltas[0].Delta != "Done." || last(all).ID != id {
			t.Errorf("%+v", all)
		}
		if again := g.replayed(id, "&starting_after=2"); again.status != 400 || !strings.Contains(string(again.body), "Idempotency-Key") {
			t.Errorf("in the middle: %d %s", again.status, again.body)
		}
	}
}
