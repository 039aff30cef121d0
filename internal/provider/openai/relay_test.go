package openai

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/internal/relay"
)

func TestRelay(t *testing.T) {
	var got *http.Request
	var body []byte
	p := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
		h := w.Header()
		h.Set("X-Request-Id", "r")
		h.Add("Set-Cookie", "a=b")
		h.Set("Keep-Alive", "timeout=5")
		h.Set("X-Hop", "1")
		h.Set("Connection", "X-Hop")
		h.Set("Content-Encoding", "gzip")
		w.WriteHeader(418)
		_, _ = io.WriteString(w, "\x1f\x8bnot really")
	}, func(e *wire.Endpoint) { e.APIKey = func(context.Context) (string, error) { return "k", nil } })
	in := http.Header{"Accept-Encoding": {"gzip, br"}, "Authorization": {"Bearer client"}, "X-Own": {"1", "2"}, "User-Agent": {"me"}}
	sent := []byte(`{ "model" : "m" }`)
	resp, err := p.Relay(t.Context(), &relay.Request{Path: "/embeddings?a=1", Header: in, Body: sent})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, _ := io.ReadAll(resp.Body)
	if resp.Status != 418 || string(answer) != "\x1f\x8bnot really" || resp.Length != int64(len(answer)) {
		t.Errorf("%d %q %d", resp.Status, answer, resp.Length)
	}
	if !bytes.Equal(body, sent) || got.URL.String() != "/v1/embeddings?a=1" || got.ContentLength != int64(len(sent)) {
		t.Errorf("%s %s", got.URL, body)
	}
	for name, want := range map[string][]string{"Authorization": {"Bearer k"}, "Accept-Encoding": {"gzip, br"}, "X-Own": {"1", "2"}, "User-Agent": {"me"}} {
		if diff := cmp.Diff(want, got.Header[name]); diff != "" {
			t.Error(name, diff)
		}
	}
	for _, name := range []string{"Set-Cookie", "Keep-Alive", "X-Hop", "Connection"} {
		if _, ok := resp.Header[name]; ok {
			t.Error(name, "was passed on")
		}
	}
	if header := http.Header(resp.Header); header.Get("X-Request-Id") != "r" || header.Get("Content-Encoding") != "gzip" {
		t.Error(resp.Header)
	}
}

func TestRelayDoesNotAddCompression(t *testing.T) {
	p := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Header.Get("Accept-Encoding"))
	})
	resp, err := p.Relay(t.Context(), &relay.Request{Path: chatPath})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got, _ := io.ReadAll(resp.Body); string(got) != "identity" {
		t.Errorf("%q", got)
	}
}

// A server may answer before it has read the request. The caller's bytes are
// its own again then, and the server still gets the rest.
func TestRequestBodyIsNotReadAfterTheAnswerBegan(t *testing.T) {
	body := bytes.Repeat([]byte("x"), 8<<20)
	answered := make(chan struct{})
	received := make(chan []byte, 1)
	p := serve(t, func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		_ = rc.EnableFullDuplex()
		w.WriteHeader(200)
		_ = rc.Flush()
		<-answered
		all, _ := io.ReadAll(r.Body)
		received <- all
	})
	resp, err := p.Relay(t.Context(), &relay.Request{Path: chatPath, Body: body})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	clear(body) // under -race this also shows a read
	close(answered)
	got := <-received
	if len(got) != len(body) || bytes.IndexByte(got, 0) >= 0 {
		t.Errorf("%d bytes, a zero at %d", len(got), bytes.IndexByte(got, 0))
	}
}

func BenchmarkRelayRequest(b *testing.B) {
	ok := roundTrip(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody}, nil
	})
	p := New(wire.Endpoint{BaseURL: "http://p/v1", Transport: ok, APIKey: func(context.Context) (string, error) { return "k", nil }}, Options{})
	req := &relay.Request{Path: chatPath, Header: http.Header{"Content-Type": {"application/json"}, "Accept-Encoding": {"gzip"}}, Body: []byte("{}")}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.Relay(b.Context(), req); err != nil {
			b.Fatal(err)
		}
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
