package fake

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/bench/wire"
)

// ask posts a body and returns the answer, whose body the caller reads; nil
// when ctx ended before the answer began.
func ask(ctx context.Context, t *testing.T, url string, body []byte) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(string(body)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer k")
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil && ctx.Err() == nil {
		t.Error(err)
	}
	return resp
}

// waitForOpen waits until the server says that so many requests are open.
func waitForOpen(t *testing.T, url, want string) {
	t.Helper()
	got := ""
	for end := time.Now().Add(10 * time.Second); got != want && time.Now().Before(end); {
		resp, err := http.Get(url + "/open")
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		got = strings.TrimSpace(string(b))
	}
	if got != want {
		t.Fatalf("%s requests are open, want %s", got, want)
	}
}

func TestHolderStopsInTheMiddleAndCountsWhatIsOpen(t *testing.T) {
	srv := httptest.NewServer(Counted(Holder("k")))
	defer srv.Close()
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	body := wire.Body("s1", 0, true)
	sum, _, _ := wire.Read(body)
	whole := wire.Stream(sum)

	resp := ask(t.Context(), t, srv.URL+wire.Path, body)
	defer resp.Body.Close()
	begin := make([]byte, len(Begin(whole)))
	if _, err := io.ReadFull(resp.Body, begin); err != nil || string(begin) != string(whole[:len(begin)]) {
		t.Fatalf("beginning %q, error %v", begin, err)
	}
	waitForOpen(t, srv.URL, "1")

	leaving, leave := context.WithCancel(t.Context())
	left := make(chan struct{})
	go func() {
		defer close(left)
		if r := ask(leaving, t, srv.URL+wire.Path, wire.Body(MuteTag, 0, true)); r != nil {
			t.Errorf("a mute answer began with status %d", r.StatusCode)
			r.Body.Close()
		}
	}()
	waitForOpen(t, srv.URL, "2")
	leave()
	<-left
	waitForOpen(t, srv.URL, "1")

	ask(t.Context(), t, srv.URL+"/release", nil).Body.Close()
	if rest, err := io.ReadAll(resp.Body); err != nil || string(begin)+string(rest) != string(whole) {
		t.Errorf("the rest has %d bytes, error %v", len(rest), err)
	}
	waitForOpen(t, srv.URL, "0")
}

func TestLoopWithoutAProviderSaysSo(t *testing.T) {
	l := &Loop{Provider: "http://127.0.0.1:0"}
	w := httptest.NewRecorder()
	l.ServeHTTP(w, httptest.NewRequest(http.MethodPost, wire.Path, strings.NewReader(`{"messages":[]}`)))
	if w.Code != http.StatusBadGateway {
		t.Errorf("status %d", w.Code)
	}
	w = httptest.NewRecorder()
	l.ServeHTTP(w, httptest.NewRequest(http.MethodPost, wire.Path, strings.NewReader(`{`)))
	if w.Code != http.StatusBadRequest {
		t.Errorf("status %d for a body that is no JSON", w.Code)
	}
}
