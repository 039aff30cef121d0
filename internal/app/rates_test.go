package app_test

import (
	"bytes"
	"database/sql"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/app"
)

// limited returns a configuration in which a key of a site has a limit.
func limited(yaml, key, limit string) string {
	return strings.Replace(yaml, "key: "+key+",", "key: "+key+", "+limit+",", 1)
}

// A key and its org have limits of their own, for streams, answers and
// the list of models alike; a refusal by one is not held against the other, and
// nothing of a refused request reaches the model. // K08 K07
func TestKeysAndOrgsHaveRates(t *testing.T) {
	noLeaks(t)
	up := newUpstream(t, script(says("done")))
	tools := newMCP(t, map[string]handler{"echo": echo})
	yaml := limited(site{upstream: up.URL, runtime: "requests_per_minute: 1, burst: 4", servers: []string{server("s", tools.URL)}}.yaml(), "member-key", "requests_per_minute: 1, burst: 2")
	g := MustRun(t, yaml+"  - {id: other, keys: [{name: c, key: other-key}]}\n")
	as := func(key, body string) answer { return g.post(body, "Authorization", "Bearer "+key) }

	first := as("member-key", question)
	if text, _ := first.completion(t); text != "done" || first.header.Get("X-Ratelimit-Limit-Requests") != "2" || first.header.Get("X-Ratelimit-Remaining-Requests") != "1" {
		t.Errorf("the first answer is %q with %v", text, first.header)
	}
	second := as("member-key", streamedQuestion)
	if s := second.stream(t); s.text != "done" || second.header.Get("X-Ratelimit-Remaining-Requests") != "0" {
		t.Errorf("the first stream is %+v with %v", s, second.header)
	}
	for range 3 {
		a := as("member-key", streamedQuestion)
		if code := a.fault(t).Error.Code; a.status != 429 || *code != "rate_limit_exceeded" || !bytes.Contains(a.body, []byte("of the key is used up")) {
			t.Errorf("the key over its limit got %d: %s", a.status, a.body)
		}
	}
	as("owner-key", question).completion(t)
	if a := g.send("GET", "/v1/models", nil); a.status != 200 || a.header.Get("X-Ratelimit-Remaining-Requests") != "0" {
		t.Errorf("the org's last request got %d with %v", a.status, a.header)
	}
	a := as("admin-key", question)
	if retry := a.header.Get("Retry-After"); a.status != 429 || retry == "" || !bytes.Contains(a.body, []byte(`of the org is used up`)) || !bytes.Contains(a.body, []byte(`"retry_after_secs":`+retry)) {
		t.Errorf("the org over its limit got %d, Retry-After %q: %s", a.status, retry, a.body)
	}
	if a := g.send("GET", "/api/org", nil); a.status != 200 {
		t.Errorf("who manages the org got %d", a.status)
	}
	if a := as("other-key", question); a.status != 200 || a.header.Get("X-Ratelimit-Limit-Requests") != "" {
		t.Errorf("another org got %d with %v", a.status, a.header)
	}
	asked := slices.DeleteFunc(up.requests(), func(r received) bool { return r.path == "/v1/models" })
	if n := len(asked); n != 4 {
		t.Errorf("%d requests have reached the model, want 4", n)
	}
}

// Limits are set over the management API and hold for the next request; the
// limit of a key is there after a restart, too. // K08
func TestRatesAreManaged(t *testing.T) {
	noLeaks(t)
	up := newUpstream(t, script(says("done")))
	data, yaml := t.TempDir(), strings.Replace(site{upstream: up.URL}.yaml(), "    runtime: {}\n", "", 1)
	d := manage(mustRunIn(t, data, yaml, environment()))
	made := d.do("POST", "/api/keys", "owner-key", `{"name":"ci","role":"member","requests_per_minute":1,"burst":2}`, 201)
	key := made["key"].(string)
	status := func(key string) int { return d.post(question, "Authorization", "Bearer "+key).status }
	if a, b, c := status(key), status(key), status(key); a != 200 || b != 200 || c != 429 {
		t.Errorf("with two at once the key got %d, %d, %d", a, b, c)
	}
	for body, param := range map[string]string{
		`{"name":"x","role":"member","requests_per_minute":-1}`:      "requests_per_minute",
		`{"name":"x","role":"member","requests_per_minute":1000001}`: "requests_per_minute",
		`{"name":"x","role":"member","burst":2}`:                     "burst",
	} {
		if e := d.do("POST", "/api/keys", "owner-key", body, 400)["error"].(map[string]any); e["param"] != param {
			t.Errorf("%s is refused with %v", body, e)
		}
	}
	runtime := d.do("PATCH", "/api/org/runtime", "owner-key", `{"requests_per_minute":1,"burst":1}`, 200)["runtime"].(map[string]any)
	if runtime["requests_per_minute"] != 1.0 || runtime["burst"] != 1.0 {
		t.Errorf("the runtime is %v", runtime)
	}
	if a, b := status("owner-key"), status("owner-key"); a != 200 || b != 429 {
		t.Errorf("under the org's limit: %d, %d", a, b)
	}
	d.do("PATCH", "/api/org/runtime", "owner-key", `{"requests_per_minute":null,"burst":null}`, 200)
	if a := status("owner-key"); a != 200 {
		t.Errorf("after the org's limit was taken away: %d", a)
	}
	d.do("PATCH", "/api/org/runtime", "owner-key", `{"burst":3}`, 422)
	if err := d.stop(); err != nil {
		t.Fatal(err)
	}
	d = manage(mustRunIn(t, data, yaml, environment()))
	for _, k := range d.do("GET", "/api/keys", "owner-key", "", 200)["data"].([]any) {
		if k := k.(map[string]any); k["id"] == made["id"] && (k["requests_per_minute"] != 1.0 || k["burst"] != 2.0) {
			t.Errorf("after a restart the key is %v", k)
		}
	}
	if a, b, c := status(key), status(key), status(key); a != 200 || b != 200 || c != 429 {
		t.Errorf("after a restart the key got %d, %d, %d", a, b, c)
	}
}

// A relay is limited as a run is; its answer says of limits what the
// provider says, because it is the provider's to the byte. // K08 A01
func TestARelayIsLimitedAndKeepsItsProvidersHeader(t *testing.T) {
	noLeaks(t)
	up := newUpstream(t, func(w http.ResponseWriter, _ *http.Request, got received) {
		if got.number == 0 {
			w.Header().Set("X-Ratelimit-Remaining-Requests", "41")
		}
		says("done").write(w)
	})
	g := MustRun(t, site{upstream: up.URL, feature: "none", runtime: "requests_per_minute: 1, burst: 2"}.yaml())
	for _, want := range []string{"41", ""} {
		if a := g.post(streamedQuestion); a.status != 200 || a.header.Get("X-Ratelimit-Remaining-Requests") != want || a.header.Get("X-Ratelimit-Limit-Requests") != "" {
			t.Errorf("the relay answers %d with %v, want %q left", a.status, a.header, want)
		}
	}
	if a := g.post(streamedQuestion); a.status != 429 || a.header.Get("X-Ratelimit-Limit-Requests") != "2" {
		t.Errorf("over the limit a relay is answered %d with %v", a.status, a.header)
	}
	if n := len(up.requests()); n != 2 {
		t.Errorf("%d requests have reached the provider, want 2", n)
	}
}

// As many requests as max_requests says are under way at a time, relays as
// well; one more is refused, and the others end as they would have. // R11
func TestRequestsForAModelAreBounded(t *testing.T) {
	noLeaks(t)
	begun, release := make(chan struct{}, 2), make(chan struct{})
	up := newUpstream(t, func(w http.ResponseWriter, _ *http.Request, _ received) {
		begun <- struct{}{}
		<-release
		says("done").write(w)
	})
	g := MustRun(t, "max_requests: 3\n"+site{upstream: up.URL, feature: "none"}.yaml())
	answers := make(chan answer, 2)
	for range 2 {
		go func() { answers <- g.post(streamedQuestion) }()
		wait(t, begun, "a relay that reached the provider")
	}
	if a := g.post(streamedQuestion); a.status != 503 || a.header.Get("Retry-After") == "" || *a.fault(t).Error.Code != "overloaded" {
		t.Errorf("the org's third request of three got %d: %s", a.status, a.body)
	}
	if a := g.send("GET", "/v1/models", nil); a.status != 200 {
		t.Errorf("meanwhile the list of models got %d", a.status)
	}
	close(release)
	for range 2 {
		if s := wait(t, answers, "an answer").stream(t); s.text != "done" {
			t.Errorf("a request that was under way ended with %+v", s)
		}
	}
	if a := g.post(streamedQuestion); a.status != 200 {
		t.Errorf("afterwards: %d", a.status)
	}
}

// While nothing can be stored, relays are let in for a second and then
// refused; they are let in again when all is stored. Each that was let in has
// its answer and its row in the audit, and the others have reached nobody. // R11
func TestAStoreThatIsBehindClosesTheDoor(t *testing.T) {
	noLeaks(t)
	up := newUpstream(t, script(says("done")))
	data := t.TempDir()
	d := manage(mustRunWith(t, data, site{upstream: up.URL, feature: "none"}.yaml(), environment(), app.Options{SlowStore: app.SlowStore}))
	db, err := sql.Open("sqlite", filepath.Join(data, app.DatabaseFile)+"?_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	other := func(statement string) {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	letIn := 0
	// askUntil asks until the answer is that one.
	askUntil := func(status int) (a answer) {
		t.Helper()
		pace := time.NewTicker(25 * time.Millisecond)
		defer pace.Stop()
		for end := time.Now().Add(patience); time.Now().Before(end); <-pace.C {
			a = d.post(streamedQuestion)
			if a.status == 200 {
				letIn++
				a.stream(t)
			}
			if a.status == status {
				return a
			}
		}
		t.Errorf("nobody was answered %d", status)
		return a
	}
	askUntil(200)
	other("BEGIN IMMEDIATE") // nobody else writes now
	began := time.Now()
	a := askUntil(503)
	if took := time.Since(began); took < app.SlowStore || !bytes.Contains(a.body, []byte("overloaded")) || !bytes.Contains(a.body, []byte("its store is slow")) {
		t.Errorf("after %v the answer is %s", took, a.body)
	}
	other("ROLLBACK")
	askUntil(200)
	if n := len(up.requests()); n != letIn {
		t.Errorf("%d requests have reached the provider, want the %d that were let in", n, letIn)
	}
	rows := 0
	for end := time.Now().Add(patience); rows != letIn && time.Now().Before(end); {
		rows = len(d.do("GET", "/api/audit?limit=100", "owner-key", "", 200)["data"].([]any))
	}
	if rows != letIn {
		t.Errorf("%d rows are in the audit, want %d", rows, letIn)
	}
}
