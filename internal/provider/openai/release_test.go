package openai

import (
	"io"
	"net/http"
	"runtime"
	"testing"
	"time"
	"weak"

	"github.com/turnpike-gateway/turnpike/internal/relay"
)

// A stream is open for minutes: its request must not stay in memory for as long.
func TestTheRequestIsForgottenWhenTheAnswerBegins(t *testing.T) {
	finish := make(chan struct{})
	p := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_ = http.NewResponseController(w).Flush() // the answer has begun …
		<-finish                                  // … and goes on
	})
	req := &relay.Request{Path: "/chat/completions", Body: make([]byte, 100_000)}
	body := weak.Make(&req.Body[0])
	resp, err := p.Relay(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	req.Body = nil // as the run does
	deadline := time.Now().Add(5 * time.Second)
	for runtime.GC(); body.Value() != nil; runtime.GC() {
		if time.Now().After(deadline) {
			t.Error("the request's bytes are still in memory")
			break
		}
	}
	close(finish)
	_, _ = io.Copy(io.Discard, resp.Body)
	if err := resp.Body.Close(); err != nil {
		t.Error(err)
	}
}
