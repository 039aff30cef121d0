package conformance

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
)

// script is the scripted model's mind: what it answers to a request. It keeps no
// state, so that everything it says comes from what it was sent.
type script func(ask chatRequest) turn

// upstream is a provider that speaks the chat-completions dialect, streamed or
// not as the request asks, and Anthropic's below /anthropic. It answers by its
// script and records every request.
type upstream struct {
	*httptest.Server
	play script

	mu   sync.Mutex
	seen []recorded // guarded by mu
}

// recorded is a request that reached the upstream.
type recorded struct {
	Header http.Header
	Body   []byte
	Chat   chatRequest
}

// sum is the SHA-256 of the body, in hexadecimal.
func (r recorded) sum() string {
	sum := sha256.Sum256(r.Body)
	return hex.EncodeToString(sum[:])
}

func startUpstream(t testing.TB, play script) *upstream {
	u := &upstream{play: play}
	u.Server = httptest.NewServer(u)
	t.Cleanup(func() {
		u.CloseClientConnections()
		u.Close()
	})
	return u
}

// upstreamModels is what the upstream lists.
const upstreamModels = `{"object":"list","data":[
	{"id":"gpt-oss/20b","object":"model","created":1700000000,"owned_by":"somebody"},
	{"id":"gpt-5","object":"model","created":1700000001,"owned_by":"somebody"},
	{"id":"o3","object":"model","created":1700000002,"owned_by":"somebody"}]}`

// ServeHTTP answers POST /v1/chat/completions and GET /v1/models for callers who
// hold the key.
func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	refuse := func(status int, why string) {
		turn{Status: status, Message: "scripted upstream: " + why}.write(w, r, chatRequest{})
	}
	asked := r.Method + " " + r.URL.Path
	switch {
	case asked == "POST /anthropic/v1/messages":
		u.serveMessages(w, r)
		return
	case asked != "POST /v1/chat/completions" && asked != "GET /v1/models":
		refuse(http.StatusNotFound, "no "+asked)
		return
	case r.Header.Get("Authorization") != "Bearer "+upKey:
		refuse(http.StatusUnauthorized, "wrong key")
		return
	case r.Method == http.MethodGet:
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, upstreamModels)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the caller left
	}
	seen := recorded{Header: r.Header.Clone(), Body: body}
	if err := json.Unmarshal(body, &seen.Chat); err != nil {
		refuse(http.StatusBadRequest, fmt.Sprintf("unreadable request: %v", err))
		return
	}
	u.mu.Lock()
	u.seen = append(u.seen, seen)
	u.mu.Unlock()
	u.play(seen.Chat).write(w, r, seen.Chat)
}

// take returns the requests recorded since the last take.
func (u *upstream) take() []recorded {
	u.mu.Lock()
	defer u.mu.Unlock()
	seen := slices.Clone(u.seen)
	u.seen = nil
	return seen
}
