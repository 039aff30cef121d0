package app_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Messages come while their session, or its agent, is deleted. Whatever is first: every request is answered, and no run
// outlives the deletion. The model never answers, so that a run that is not ended would not end. // J03
func TestNoRunOutlivesADeletionAtTheSameTime(t *testing.T) {
	noLeaks(t)
	up := newUpstream(t, func(_ http.ResponseWriter, r *http.Request, _ received) { <-r.Context().Done() })
	d := manage(MustRun(t, site{upstream: up.URL}.yaml()))
	for i := range 12 {
		id := d.newAgent("")
		session := d.asOwner("POST", "/api/agents/"+id+"/sessions", "", 201)["id"].(string)
		var sent []chan answer
		for n := range 4 {
			in := session
			if n == 3 {
				in = "" // a session that comes into being meanwhile
			}
			sent = append(sent, d.sendTo(id, in, fmt.Sprint("message ", n)))
		}
		paths := []string{"/api/agents/" + id}
		if i%2 == 1 { // the session first
			paths = []string{"/api/sessions/" + session, "/api/agents/" + id}
		}
		for _, path := range paths {
			d.asOwner("DELETE", path, "", 200)
		}
		for _, one := range sent {
			a := wait(t, one, "the answer to a message")
			if a.status == 200 && !strings.Contains(string(a.body), `"status":"cancelled"`) || a.status != 200 && a.status != 404 && a.status != 409 {
				t.Errorf("a message got %d %s", a.status, a.body)
			}
		}
	}
	for {
		states := map[string]int{}
		for _, v := range elements(d.asOwner("GET", "/v1/runs?limit=100", "", 200)["data"]) {
			states[v.(map[string]any)["state"].(string)]++
		}
		if states["running"]+states["queued"] == 0 {
			return
		}
	}
}

// sendTo enqueues a message in the background; session "" begins a new one.
func (d documented) sendTo(id, session, message string) chan answer {
	out := make(chan answer, 1)
	body := fmt.Sprintf(`{"message":%q,"when_busy":"enqueue","detached":true}`, message)
	if session != "" {
		body = fmt.Sprintf(`{"message":%q,"session_id":%q,"when_busy":"enqueue","detached":true}`, message, session)
	}
	go func() {
		defer close(out)
		out <- d.send("POST", "/api/agents/"+id+"/run/stream", strings.NewReader(body), "Authorization", "Bearer owner-key")
	}()
	return out
}

// A message that a busy session refuses is no failure of the store: the next request of anybody is accepted. // P25
func TestABusySessionIsNoFailureOfTheStore(t *testing.T) {
	noLeaks(t)
	b := newBusySession(t, says("Hi."), says("Done."))
	for range 3 {
		a := b.send("POST", "/api/agents/"+b.id+"/run/stream", strings.NewReader(fmt.Sprintf(`{"message":"two","session_id":%q}`, b.session)), "Authorization", "Bearer owner-key")
		if a.status != 409 || !strings.Contains(string(a.body), "session_busy") {
			t.Fatalf("a second message got %d %s", a.status, a.body)
		}
		if ready := b.send("GET", "/readyz", nil); ready.status != 200 {
			t.Fatalf("not ready: %d %s", ready.status, ready.body)
		}
	}
	if a := b.send("POST", "/v1/chat/completions", strings.NewReader(`{"model":"m","messages":[{"role":"user","content":"hi"}]}`), "Authorization", "Bearer owner-key"); a.status != 200 {
		t.Errorf("another request got %d %s", a.status, a.body)
	}
	b.resume <- true
	<-b.first
}

// A session has the sums of what its runs have used, which each adds with its end.
func TestASessionHasTheSumsOfItsRuns(t *testing.T) {
	noLeaks(t)
	up := newUpstream(t, script(says("One."), says("Two.")))
	file := filepath.Join(t.TempDir(), "rates.yaml")
	if err := os.WriteFile(file, []byte("- {model: m, provider: up, from: 2020-01-01, input: 1000, output: 2000}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d := manage(MustRun(t, "rates: "+file+"\n"+site{upstream: up.URL}.yaml()))
	id := d.newAgent("")
	session := d.asOwner("POST", "/api/agents/"+id+"/sessions", "", 201)
	if session["active_seconds"] != 0.0 || session["cost_usd"] != 0.0 {
		t.Errorf("a new session is %v", session)
	}
	path := "/api/sessions/" + session["id"].(string)
	for range 2 {
		d.streamAgent(id, fmt.Sprintf(`{"message":"go","session_id":%q}`, session["id"]))
	}
	cost := 0.0
	for _, v := range elements(d.asOwner("GET", path+"/runs", "", 200)["runs"]) {
		cost += v.(map[string]any)["usage"].(map[string]any)["cost_usd"].(float64)
	}
	s := d.asOwner("GET", path, "", 200)
	if got := s["cost_usd"].(float64); cost <= 0 || got < cost*0.999 || got > cost*1.001 || s["active_seconds"].(float64) < 0 {
		t.Errorf("the runs cost %v, and the session is %v", cost, s)
	}
	if listed := elements(d.asOwner("GET", "/api/agents/"+id+"/sessions", "", 200)["sessions"]); listed[0].(map[string]any)["cost_usd"] != s["cost_usd"] {
		t.Errorf("listed are %v", listed)
	}
}
