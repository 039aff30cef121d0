package agents_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

// Messages come while their session, or its agent, is deleted. Whatever is first: every request is answered, and no run
// outlives the deletion. The model never answers, so that a run that is not ended would not end. // J03
func TestNoRunOutlivesADeletionAtTheSameTime(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, func(_ http.ResponseWriter, r *http.Request, _ Received) { <-r.Context().Done() })
	d := Manage(MustRun(t, Site{Upstream: up.URL}.Yaml()))
	for i := range 12 {
		id := d.NewAgent("")
		session := d.AsOwner("POST", "/api/agents/"+id+"/sessions", "", 201)["id"].(string)
		var sent []chan Answer
		for n := range 4 {
			in := session
			if n == 3 {
				in = "" // a session that comes into being meanwhile
			}
			sent = append(sent, sendTo(d, id, in, fmt.Sprint("message ", n)))
		}
		paths := []string{"/api/agents/" + id}
		if i%2 == 1 { // the session first
			paths = []string{"/api/sessions/" + session, "/api/agents/" + id}
		}
		for _, path := range paths {
			d.AsOwner("DELETE", path, "", 200)
		}
		for _, one := range sent {
			a := Wait(t, one, "the answer to a message")
			if a.Status == 200 && !strings.Contains(string(a.Body), `"status":"cancelled"`) || a.Status != 200 && a.Status != 404 && a.Status != 409 {
				t.Errorf("a message got %d %s", a.Status, a.Body)
			}
		}
	}
	for {
		states := map[string]int{}
		for _, v := range Elements(d.AsOwner("GET", "/v1/runs?limit=100", "", 200)["data"]) {
			states[v.(map[string]any)["state"].(string)]++
		}
		if states["running"]+states["queued"] == 0 {
			return
		}
	}
}

// A message that a busy session refuses is no failure of the store: the next request of anybody is accepted. // P25
func TestABusySessionIsNoFailureOfTheStore(t *testing.T) {
	NoLeaks(t)
	b := newBusySession(t, Says("Hi."), Says("Done."))
	for range 3 {
		a := b.Send("POST", "/api/agents/"+b.id+"/run/stream", strings.NewReader(fmt.Sprintf(`{"message":"two","session_id":%q}`, b.session)), "Authorization", "Bearer owner-key")
		if a.Status != 409 || !strings.Contains(string(a.Body), "session_busy") {
			t.Fatalf("a second message got %d %s", a.Status, a.Body)
		}
		if ready := b.Send("GET", "/readyz", nil); ready.Status != 200 {
			t.Fatalf("not ready: %d %s", ready.Status, ready.Body)
		}
	}
	if a := b.Send("POST", "/v1/chat/completions", strings.NewReader(`{"model":"m","messages":[{"role":"user","content":"hi"}]}`), "Authorization", "Bearer owner-key"); a.Status != 200 {
		t.Errorf("another request got %d %s", a.Status, a.Body)
	}
	b.resume <- true
	<-b.first
}

// A session has the sums of what its runs have used, which each adds with its end.
func TestASessionHasTheSumsOfItsRuns(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, Script(Says("One."), Says("Two.")))
	file := filepath.Join(t.TempDir(), "rates.yaml")
	if err := os.WriteFile(file, []byte("- {model: m, provider: up, from: 2020-01-01, input: 1000, output: 2000}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d := Manage(MustRun(t, "rates: "+file+"\n"+Site{Upstream: up.URL}.Yaml()))
	id := d.NewAgent("")
	session := d.AsOwner("POST", "/api/agents/"+id+"/sessions", "", 201)
	if session["active_seconds"] != 0.0 || session["cost_usd"] != 0.0 {
		t.Errorf("a new session is %v", session)
	}
	path := "/api/sessions/" + session["id"].(string)
	for range 2 {
		d.StreamAgent(id, fmt.Sprintf(`{"message":"go","session_id":%q}`, session["id"]))
	}
	cost := 0.0
	for _, v := range Elements(d.AsOwner("GET", path+"/runs", "", 200)["runs"]) {
		cost += v.(map[string]any)["usage"].(map[string]any)["cost_usd"].(float64)
	}
	s := d.AsOwner("GET", path, "", 200)
	if got := s["cost_usd"].(float64); cost <= 0 || got < cost*0.999 || got > cost*1.001 || s["active_seconds"].(float64) < 0 {
		t.Errorf("the runs cost %v, and the session is %v", cost, s)
	}
	if listed := Elements(d.AsOwner("GET", "/api/agents/"+id+"/sessions", "", 200)["sessions"]); listed[0].(map[string]any)["cost_usd"] != s["cost_usd"] {
		t.Errorf("listed are %v", listed)
	}
}

// sendTo enqueues a message in the background; session "" begins a new one.
func sendTo(d Documented, id, session, message string) chan Answer {
	out := make(chan Answer, 1)
	body := fmt.Sprintf(`{"message":%q,"when_busy":"enqueue","detached":true}`, message)
	if session != "" {
		body = fmt.Sprintf(`{"message":%q,"session_id":%q,"when_busy":"enqueue","detached":true}`, message, session)
	}
	go func() {
		defer close(out)
		out <- d.Send("POST", "/api/agents/"+id+"/run/stream", strings.NewReader(body), "Authorization", "Bearer owner-key")
	}()
	return out
}
