package load

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// plan loads srv with c connections that expect an echo of their bodies.
func plan(srv *httptest.Server, c int) Plan {
	addr := srv.Listener.Addr().String()
	p := Plan{Addr: addr}
	for i := range c {
		var exchanges []Exchange
		for _, v := range []string{"a", "b"} {
			body := strings.Repeat(v, i+1)
			exchanges = append(exchanges, Exchange{
				Request: Post(addr, "/echo", "key-1", []byte(body)),
				Want:    Answer{Status: 200, ContentType: "application/json", Body: []byte(body)},
			})
		}
		p.Connections = append(p.Connections, exchanges)
	}
	return p
}

func echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body)
}

func TestRunCountsRightAnswers(t *testing.T) {
	var keys, conns atomic.Int64
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "Bearer key-1" {
			keys.Add(1)
		}
		echo(w, r)
	}))
	srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			conns.Add(1)
		}
	}
	srv.Start()
	defer srv.Close()
	p := plan(srv, 4)
	p.Count = 100
	got, err := Run(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	if got.Answers != 100 || got.Warm != 4 || got.Wrong() != 0 || got.Rate() <= 0 {
		t.Errorf("tally %+v: %s", got, got.Describe())
	}
	if keys.Load() != 104 || conns.Load() != 4 {
		t.Errorf("the server saw %d right keys and %d connections, want 104 and 4", keys.Load(), conns.Load())
	}
}

func TestRunEndsByTime(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(echo))
	defer srv.Close()
	p := plan(srv, 2)
	p.For = 50 * time.Millisecond
	got, err := Run(t.Context(), p)
	if err != nil || got.Answers == 0 || got.Wrong() != 0 {
		t.Fatalf("tally %+v, error %v", got, err)
	}
	if got.Elapsed < p.For || got.Elapsed > p.For+grace {
		t.Errorf("the pass took %v, want about %v", got.Elapsed, p.For)
	}
}

func TestRunCountsWrongAnswers(t *testing.T) {
	for _, tt := range []struct {
		name  string
		kind  Kind
		wrong http.HandlerFunc
	}{
		{"an aborted answer is a cut", Cut, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}},
		{"another's answer is an alteration", Altered, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, "z")
		}},
		{"another content type is an alteration", Altered, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.Copy(w, r.Body)
		}},
		{"another status is a refusal", Refused, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusTooManyRequests)
		}},
		{"a closed connection is no answer", NoAnswer, func(http.ResponseWriter, *http.Request) {
			panic(http.ErrAbortHandler)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var n atomic.Int64
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if n.Add(1)%10 == 0 {
					tt.wrong(w, r)
					return
				}
				echo(w, r)
			}))
			defer srv.Close()
			p := plan(srv, 3)
			p.Count = 57 // and three to warm up
			got, err := Run(t.Context(), p)
			if err != nil {
				t.Fatal(err)
			}
			if got.Answers != 57 || got.Faults[tt.kind] != 6 || got.Wrong() != 6 {
				t.Errorf("%d answers, %s; want 57 and 6 %s", got.Answers, got.Describe(), tt.kind)
			}
		})
	}
}

func TestRunFailsWithoutATarget(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(echo))
	p := plan(srv, 3)
	p.Count = 10
	srv.Close()
	if got, err := Run(t.Context(), p); err == nil {
		t.Errorf("no error for a dead target; tally %+v", got)
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	arrived := make(chan struct{}, 3)
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		arrived <- struct{}{}
		<-r.Context().Done()
	}))
	defer srv.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	result := make(chan error)
	go func() { // ends with the pass; the test waits for it below
		p := plan(srv, 3)
		p.Count = 10
		got, err := Run(ctx, p)
		if got.Wrong() != 0 {
			err = errors.New("a cancelled answer was counted as wrong: " + got.Describe())
		}
		result <- err
	}()
	for range 3 {
		<-arrived
	}
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want %v", err, context.Canceled)
	}
}

func TestRunWantsALimit(t *testing.T) {
	if _, err := Run(t.Context(), Plan{Connections: [][]Exchange{{}}}); err == nil {
		t.Error("a plan without an end was accepted")
	}
}
