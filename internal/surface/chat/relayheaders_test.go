package chat_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

// What the official SDKs and Codex send reaches a provider, and what its relay_headers name.
// All else is dropped, and the log names it once for each key.
func TestOnlyListedHeadersAreRelayed(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, _ Received) { fmt.Fprint(w, "{}") })
	file := strings.Replace(Site{Upstream: up.URL}.Yaml(), "{name: up,", "{name: up, relay_headers: [x-title],", 1)
	g := MustRun(t, file)
	listed := []string{
		"Accept", "application/json", "Accept-Encoding", "gzip", "Accept-Language", "*", "User-Agent", "OpenAI/JS 6.49.0",
		"Idempotency-Key", "i1", "Openai-Beta", "assistants=v2", "Sec-Fetch-Mode", "cors",
		"X-Stainless-Lang", "js", "X-Stainless-Helper-Method", "stream",
		"Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "Tracestate", "a=b",
		"Originator", "codex_exec", "Session-Id", "s1", "Thread-Id", "t1", "X-Client-Request-Id", "c1", "X-Codex-Window-Id", "w1",
		"X-Title", "mine",
	}
	dropped := []string{
		"X-Http-Method-Override", "DELETE", "X-Original-Url", "/admin", "X-Rewrite-Url", "/admin", "Openai-Organization", "CANARY", "Openai-Project", "CANARY",
		"X-Goog-Api-Key", "CANARY", "Cf-Connecting-Ip", "10.1.2.3", "X-Unknown", "CANARY", "Baggage", "user=CANARY",
	}
	for range 2 {
		if a := g.Post(Question, append(listed, dropped...)...); a.Status != 200 {
			t.Fatalf("status %d: %s", a.Status, a.Body)
		}
	}
	for _, r := range up.Requests() {
		for i := 0; i < len(listed); i += 2 {
			if got := r.Header.Get(listed[i]); got != listed[i+1] {
				t.Errorf("the provider got %s: %q, want %q", listed[i], got, listed[i+1])
			}
		}
		for i := 0; i < len(dropped); i += 2 {
			if got, has := r.Header[dropped[i]]; has {
				t.Errorf("the provider got %s: %s", dropped[i], got)
			}
		}
	}
	log := g.Log.String()
	for i := 0; i < len(dropped); i += 2 {
		if n := strings.Count(log, "header="+dropped[i]+" "); n != 1 {
			t.Errorf("the log names %s %d times, want once", dropped[i], n)
		}
	}
	if strings.Contains(log, "CANARY") || strings.Contains(log, "10.1.2.3") || strings.Count(log, "relay_header_dropped") != len(dropped)/2 {
		t.Errorf("the log is\n%s", log)
	}
}
