package responses_test

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/internal/surface/spectest"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

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
	NoLeaks(t)
	specs := spectest.Find(t)
	held := make(chan struct{})
	release := sync.OnceFunc(func() { close(held) })
	t.Cleanup(release)
	called := make(chan struct{})
	up := NewUpstream(t, func(w http.ResponseWriter, r *http.Request, got Received) {
		if got.Number == 0 {
			Asks(Use("echo", `{"n":1}`)).Saying("Looking.").Write(w)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		Frame(w, `{"choices":[{"index":0,"delta":{"reasoning_content":"Hm."}}]}`)
		Frame(w, `{"choices":[{"index":0,"delta":{"content":"Do"}}]}`)
		_ = http.NewResponseController(w).Flush()
		close(called)
		select {
		case <-held:
		case <-r.Context().Done():
			return
		}
		Frame(w, `{"choices":[{"index":0,"delta":{"content":"ne."}}]}`)
		Frame(w, `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}`)
		Frame(w, "[DONE]")
	})
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	g := MustRun(t, Site{Upstream: up.URL, Servers: []string{Server("tools", tools.URL)}}.Yaml()+"  - {id: other, keys: [{name: a, key: other-key, role: owner}]}\n")
	bodies := make(chan []byte, 2)
	read := func(r *http.Request) (id string) {
		resp, err := g.Client.Do(r)
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
	id := read(g.Request(t.Context(), "POST", "/v1/responses", strings.NewReader(`{"model":"m","input":"x","stream":true}`), "Authorization", "Bearer owner-key", "Idempotency-Key", "k"))
	<-called
	if during := read(g.Request(t.Context(), "GET", "/v1/responses/"+id+"?stream=true", nil, "Authorization", "Bearer owner-key")); during != id {
		t.Errorf("while it runs, the response is %q, not %q", during, id)
	}
	for request, want := range map[string]string{"GET /v1/responses/" + id: `"status":"in_progress"`, "GET /v1/responses/" + id + "/input_items": `"text":"x"`} { // P20
		method, path, _ := strings.Cut(request, " ")
		if a := g.Send(method, path, nil, "Authorization", "Bearer owner-key"); a.Status != 200 || !strings.Contains(string(a.Body), want) {
			t.Errorf("%s while it runs: %d %s", request, a.Status, a.Body)
		}
		if a := g.Send(method, path, nil, "Authorization", "Bearer other-key"); a.Status != 404 || !strings.Contains(string(a.Body), "response_not_found") {
			t.Errorf("%s of another org: %d %s", request, a.Status, a.Body)
		}
	}
	release()
	original, during := string(<-bodies), string(<-bodies)
	if original != during || !strings.Contains(original, "response.completed") {
		t.Errorf("while it runs, the stream is\n%s\nand\n%s", original, during)
	}
	all := cutEvents([]byte(original))
	whole := replayed(g, id, "")
	specs.Check(t, "GET /v1/responses", string(whole.Body))
	if string(whole.Body) != original || whole.Header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("streamed again:\n%s\nnot\n%s", whole.Body, original)
	}
	for n := range len(all) + 1 {
		if got, want := string(replayed(g, id, "&starting_after="+strconv.Itoa(n)).Body), strings.Join(all[min(n+1, len(all)-1):], ""); got != want {
			t.Errorf("after %d:\n%s\nwant\n%s", n, got, want)
		}
	}
	for query, status := range map[string]int{
		"?stream=true&starting_after=-1": 400, "?stream=true&starting_after=x": 400, "?starting_after=1": 400, "?stream=false&starting_after=1": 400, "?stream=1": 400, "?stream=false": 200,
	} {
		if a := g.Send("GET", "/v1/responses/"+id+query, nil, "Authorization", "Bearer owner-key"); a.Status != status {
			t.Errorf("%s: %d %s", query, a.Status, a.Body)
		}
	}
	for key, id := range map[string]string{"other-key": id, "owner-key": "resp_none"} {
		if a := g.Send("GET", "/v1/responses/"+id+"?stream=true", nil, "Authorization", "Bearer "+key); a.Status != 404 || !strings.Contains(string(a.Body), "response_not_found") {
			t.Errorf("%s, %s: %d %s", key, id, a.Status, a.Body)
		}
	}
	if a := g.Send("DELETE", "/v1/responses/"+id, nil, "Authorization", "Bearer owner-key"); a.Status != 200 {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	if a := replayed(g, id, ""); a.Status != 404 {
		t.Errorf("deleted: %d %s", a.Status, a.Body)
	}
}

// The pieces of a run that is not durable are not stored. Its stream has each text as one piece,
// and its events have other numbers: it cannot be continued in the middle.
func TestAResponseThatIsNotDurableIsStreamedAgain(t *testing.T) { // L05
	NoLeaks(t)
	up := turnpiketest.NewUpstream(turnpiketest.NewScript(t, "text Do\ntext ne.\n\ntext Done."), turnpiketest.UpstreamOptions{})
	t.Cleanup(up.Close)
	g := MustRun(t, Site{Upstream: up.URL, Feature: "none"}.Yaml())
	for _, stored := range []string{"true", "false"} {
		a := g.Send("POST", "/v1/responses", strings.NewReader(`{"model":"m","input":"x","stream":true,"store":`+stored+`}`), "Authorization", "Bearer owner-key")
		id := last(a.Events(t)).ID
		if stored == "false" {
			if again := replayed(g, id, ""); again.Status != 404 {
				t.Errorf("not stored: %d %s", again.Status, again.Body)
			}
			continue
		}
		all := replayed(g, id, "").Events(t)
		WantNumbered(t, all)
		wantOpened(t, all)
		wantWhole(t, all)
		wantEnded(t, all)
		if deltas := typed(all, "response.output_text", ".delta"); len(deltas) != 1 || deltas[0].Delta != "Done." || last(all).ID != id {
			t.Errorf("%+v", all)
		}
		if again := replayed(g, id, "&starting_after=2"); again.Status != 400 || !strings.Contains(string(again.Body), "Idempotency-Key") {
			t.Errorf("in the middle: %d %s", again.Status, again.Body)
		}
	}
}

// replayed gets the stream of a stored response again.
func replayed(g *Gateway, id, query string) Answer {
	g.T.Helper()
	return g.Send("GET", "/v1/responses/"+id+"?stream=true"+query, nil, "Authorization", "Bearer owner-key")
}
