package chat_test

import (
	"bytes"
	"net/http"
	"slices"
	"strings"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

// limited returns a configuration in which a key of a site has a limit.
func limited(yaml, key, limit string) string {
	return strings.Replace(yaml, "key: "+key+",", "key: "+key+", "+limit+",", 1)
}

// A key and its org have limits of their own, for streams, answers and
// the list of models alike; a refusal by one is not held against the other, and
// nothing of a refused request reaches the model. // K08 K07
func TestKeysAndOrgsHaveRates(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, Script(Says("done")))
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	yaml := limited(Site{Upstream: up.URL, Runtime: "requests_per_minute: 1, burst: 4", Servers: []string{Server("s", tools.URL)}}.Yaml(), "member-key", "requests_per_minute: 1, burst: 2")
	g := MustRun(t, yaml+"  - {id: other, keys: [{name: c, key: other-key}]}\n")
	as := func(key, body string) Answer { return g.Post(body, "Authorization", "Bearer "+key) }

	first := as("member-key", Question)
	if text, _ := first.Completion(t); text != "done" || first.Header.Get("X-Ratelimit-Limit-Requests") != "2" || first.Header.Get("X-Ratelimit-Remaining-Requests") != "1" {
		t.Errorf("the first answer is %q with %v", text, first.Header)
	}
	second := as("member-key", StreamedQuestion)
	if s := second.Stream(t); s.Text != "done" || second.Header.Get("X-Ratelimit-Remaining-Requests") != "0" {
		t.Errorf("the first stream is %+v with %v", s, second.Header)
	}
	for range 3 {
		a := as("member-key", StreamedQuestion)
		if code := a.Fault(t).Error.Code; a.Status != 429 || *code != "rate_limit_exceeded" || !bytes.Contains(a.Body, []byte("of the key is used up")) {
			t.Errorf("the key over its limit got %d: %s", a.Status, a.Body)
		}
	}
	as("owner-key", Question).Completion(t)
	if a := g.Send("GET", "/v1/models", nil); a.Status != 200 || a.Header.Get("X-Ratelimit-Remaining-Requests") != "0" {
		t.Errorf("the org's last request got %d with %v", a.Status, a.Header)
	}
	a := as("admin-key", Question)
	if retry := a.Header.Get("Retry-After"); a.Status != 429 || retry == "" || !bytes.Contains(a.Body, []byte(`of the org is used up`)) || !bytes.Contains(a.Body, []byte(`"retry_after_secs":`+retry)) {
		t.Errorf("the org over its limit got %d, Retry-After %q: %s", a.Status, retry, a.Body)
	}
	if a := g.Send("GET", "/api/org", nil); a.Status != 200 {
		t.Errorf("who manages the org got %d", a.Status)
	}
	if a := as("other-key", Question); a.Status != 200 || a.Header.Get("X-Ratelimit-Limit-Requests") != "" {
		t.Errorf("another org got %d with %v", a.Status, a.Header)
	}
	asked := slices.DeleteFunc(up.Requests(), func(r Received) bool { return r.Path == "/v1/models" })
	if n := len(asked); n != 4 {
		t.Errorf("%d requests have reached the model, want 4", n)
	}
}

// Limits are set over the management API and hold for the next request; the
// limit of a key is there after a restart, too. // K08
func TestRatesAreManaged(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, Script(Says("done")))
	data, yaml := NewData(t), strings.Replace(Site{Upstream: up.URL}.Yaml(), "    runtime: {}\n", "", 1)
	d := Manage(MustRunIn(t, data, yaml, Environment()))
	made := d.Do("POST", "/api/keys", "owner-key", `{"name":"ci","role":"member","requests_per_minute":1,"burst":2}`, 201)
	key := made["key"].(string)
	status := func(key string) int { return d.Post(Question, "Authorization", "Bearer "+key).Status }
	if a, b, c := status(key), status(key), status(key); a != 200 || b != 200 || c != 429 {
		t.Errorf("with two at once the key got %d, %d, %d", a, b, c)
	}
	for body, param := range map[string]string{
		`{"name":"x","role":"member","requests_per_minute":-1}`:      "requests_per_minute",
		`{"name":"x","role":"member","requests_per_minute":1000001}`: "requests_per_minute",
		`{"name":"x","role":"member","burst":2}`:                     "burst",
	} {
		if e := d.Do("POST", "/api/keys", "owner-key", body, 400)["error"].(map[string]any); e["param"] != param {
			t.Errorf("%s is refused with %v", body, e)
		}
	}
	runtime := d.Do("PATCH", "/api/org/runtime", "owner-key", `{"requests_per_minute":1,"burst":1}`, 200)["runtime"].(map[string]any)
	if runtime["requests_per_minute"] != 1.0 || runtime["burst"] != 1.0 {
		t.Errorf("the runtime is %v", runtime)
	}
	if a, b := status("owner-key"), status("owner-key"); a != 200 || b != 429 {
		t.Errorf("under the org's limit: %d, %d", a, b)
	}
	d.Do("PATCH", "/api/org/runtime", "owner-key", `{"requests_per_minute":null,"burst":null}`, 200)
	if a := status("owner-key"); a != 200 {
		t.Errorf("after the org's limit was taken away: %d", a)
	}
	d.Do("PATCH", "/api/org/runtime", "owner-key", `{"burst":3}`, 422)
	if err := d.Stop(); err != nil {
		t.Fatal(err)
	}
	d = Manage(MustRunIn(t, data, yaml, Environment()))
	for _, k := range d.Do("GET", "/api/keys", "owner-key", "", 200)["data"].([]any) {
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
	NoLeaks(t)
	up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, got Received) {
		if got.Number == 0 {
			w.Header().Set("X-Ratelimit-Remaining-Requests", "41")
		}
		Says("done").Write(w)
	})
	g := MustRun(t, Site{Upstream: up.URL, Feature: "none", Runtime: "requests_per_minute: 1, burst: 2"}.Yaml())
	for _, want := range []string{"41", ""} {
		if a := g.Post(StreamedQuestion); a.Status != 200 || a.Header.Get("X-Ratelimit-Remaining-Requests") != want || a.Header.Get("X-Ratelimit-Limit-Requests") != "" {
			t.Errorf("the relay answers %d with %v, want %q left", a.Status, a.Header, want)
		}
	}
	if a := g.Post(StreamedQuestion); a.Status != 429 || a.Header.Get("X-Ratelimit-Limit-Requests") != "2" {
		t.Errorf("over the limit a relay is answered %d with %v", a.Status, a.Header)
	}
	if n := len(up.Requests()); n != 2 {
		t.Errorf("%d requests have reached the provider, want 2", n)
	}
}

// As many requests as max_requests says are under way at a time, relays as
// well; one more is refused, and the others end as they would have. // R11
func TestRequestsForAModelAreBounded(t *testing.T) {
	NoLeaks(t)
	begun, release := make(chan struct{}, 2), make(chan struct{})
	up := NewUpstream(t, func(w http.ResponseWriter, r *http.Request, _ Received) {
		if r.Method == http.MethodGet { // its list of models
			http.NotFound(w, r)
			return
		}
		begun <- struct{}{}
		<-release
		Says("done").Write(w)
	})
	g := MustRun(t, "max_requests: 3\n"+Site{Upstream: up.URL, Feature: "none"}.Yaml())
	answers := make(chan Answer, 2)
	for range 2 {
		go func() { answers <- g.Post(StreamedQuestion) }()
		Wait(t, begun, "a relay that reached the provider")
	}
	if a := g.Post(StreamedQuestion); a.Status != 503 || a.Header.Get("Retry-After") == "" || *a.Fault(t).Error.Code != "overloaded" {
		t.Errorf("the org's third request of three got %d: %s", a.Status, a.Body)
	}
	if a := g.Send("GET", "/v1/models", nil); a.Status != 200 {
		t.Errorf("meanwhile the list of models got %d", a.Status)
	}
	close(release)
	for range 2 {
		if s := Wait(t, answers, "an answer").Stream(t); s.Text != "done" {
			t.Errorf("a request that was under way ended with %+v", s)
		}
	}
	if a := g.Post(StreamedQuestion); a.Status != 200 {
		t.Errorf("afterwards: %d", a.Status)
	}
}
