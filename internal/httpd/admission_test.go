package httpd

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/ratelimit"
	"github.com/turnpike-gateway/turnpike/internal/surface/admin"
)

// knownKeys is a directory of keys. No key is the operator's.
type knownKeys map[string]caller.Caller

func (k knownKeys) Authenticate(_ context.Context, key string) (caller.Caller, bool) {
	c, ok := k[key]
	return c, ok
}
func (knownKeys) IsOperator(string) bool     { return false }
func (knownKeys) Gone(string, string) string { return "" }

// callerOf returns a caller with limits of its key and of its org.
func callerOf(orgID string, ofKey, ofOrg org.Rate) caller.Caller {
	return caller.Caller{Org: &org.Org{ID: orgID, Runtime: org.Runtime{Rate: ofOrg}}, Principal: org.Principal{ID: "k", Role: org.Owner, Rate: ofKey}}
}

// newHandlers returns an API's two kinds of route, both with serve as the endpoint:
// model as for POST /v1/chat/completions, manage as for the management API.
func newHandlers(t *testing.T, o Options, serve handler) (model, manage http.HandlerFunc) {
	t.Helper()
	o.Health, o.Routes, o.Document = func() error { return nil }, allRoutes(), admin.ServeDocument
	a, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	with := func(pattern string) http.HandlerFunc {
		rt := a.byPattern[pattern]
		rt.Serve = func(w http.ResponseWriter, r *http.Request, caller caller.Caller) error {
			serve(w, r, caller)
			return nil
		}
		return a.authorize(rt)
	}
	return with("POST /v1/chat/completions"), with("GET /api/org")
}

// unreadableBody fails the test if it is read.
type unreadableBody struct{ t *testing.T }

func (u unreadableBody) Read([]byte) (int, error) {
	u.t.Error("the body of a refused request was read")
	return 0, io.EOF
}

func ask(h http.Handler, key string, body io.Reader) *httptest.ResponseRecorder {
	r := httptest.NewRequest("POST", "/", body)
	r.Header.Set("Authorization", "Bearer "+key)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func serveOK(w http.ResponseWriter, _ *http.Request, _ caller.Caller) {
	_, _ = io.WriteString(w, "fine")
}

// A request above the rate limit is refused before its body is read, in the
// API's own error format. The org's limit does not apply to management requests. // K08
func TestARequestAboveTheRateLimitIsRefusedUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := knownKeys{"key": callerOf("a", org.Rate{PerMinute: 7, Burst: 1}, org.Rate{}), "org": callerOf("b", org.Rate{}, org.Rate{PerMinute: 60, Burst: 2})}
		model, manage := newHandlers(t, Options{Directory: d}, serveOK)
		for _, c := range []struct {
			api   http.Handler
			key   string
			after int // requests
			body  string
			retry string
			reset string
		}{
			{model, "key", 1, `{"error":{"message":"the rate limit of the key is used up: 7 requests per minute, bursts of 1; try again after the time in Retry-After",` +
				`"type":"rate_limit_error","param":null,"code":"rate_limit_exceeded","retry_after_secs":9}}`, "9", "8.571s"},
			{manage, "key", 1, `{"error":{"code":"rate_limit_exceeded","message":"the rate limit of the key is used up: 7 requests per minute, bursts of 1; try again after the time in Retry-After",` +
				`"retry_after_secs":9}}`, "9", "8.571s"},
			{model, "org", 2, `{"error":{"message":"the rate limit of the org is used up: 60 requests per minute, bursts of 2; try again after the time in Retry-After",` +
				`"type":"rate_limit_error","param":null,"code":"rate_limit_exceeded","retry_after_secs":1}}`, "1", "2s"},
		} {
			time.Sleep(time.Hour)
			for i := range c.after {
				w := ask(c.api, c.key, strings.NewReader("{}"))
				if left := w.Header().Get("X-Ratelimit-Remaining-Requests"); w.Code != 200 || left != strconv.Itoa(c.after-1-i) {
					t.Errorf("%s: request %d was answered %d with %q left", c.key, i, w.Code, left)
				}
			}
			w := ask(c.api, c.key, unreadableBody{t})
			h := w.Header()
			if w.Code != 429 || strings.TrimSpace(w.Body.String()) != c.body || h.Get("Retry-After") != c.retry {
				t.Errorf("%s: %d, Retry-After %q:\n%s\nwant\n%s", c.key, w.Code, h.Get("Retry-After"), w.Body, c.body)
			}
			if h.Get("X-Ratelimit-Remaining-Requests") != "0" || h.Get("X-Ratelimit-Limit-Requests") != strconv.Itoa(c.after) || h.Get("X-Ratelimit-Reset-Requests") != c.reset {
				t.Errorf("%s: header %v", c.key, h)
			}
		}
		if w := ask(manage, "org", strings.NewReader("{}")); w.Code != 200 || w.Header().Get("X-Ratelimit-Limit-Requests") != "" {
			t.Errorf("a management request at the org's limit: status %d", w.Code)
		}
	})
}

// An overloaded gateway refuses before it reads the body, with a random
// Retry-After, and logs the overload once. // R11
func TestAnOverloadedGatewayRefusesUnread(t *testing.T) {
	why := "its store is slow"
	var log bytes.Buffer
	o := Options{Directory: knownKeys{"k": callerOf("a", org.Rate{}, org.Rate{})}, Overload: func(string) string { return why }, Log: slog.New(slog.NewTextHandler(&log, nil))}
	model, manage := newHandlers(t, o, serveOK)
	times := map[string]bool{}
	for range 100 {
		w := ask(model, "k", unreadableBody{t})
		if secs, err := strconv.Atoi(w.Header().Get("Retry-After")); err != nil || w.Code != 503 || secs < 1 || secs > 5 {
			t.Fatalf("%d, Retry-After %d", w.Code, secs)
		}
		times[w.Header().Get("Retry-After")] = true
		if !strings.Contains(w.Body.String(), `"code":"overloaded"`) || !strings.Contains(w.Body.String(), why) {
			t.Fatalf("refused with %s", w.Body)
		}
	}
	if len(times) < 3 {
		t.Errorf("Retry-After is always one of %v", times)
	}
	if n := strings.Count(log.String(), "overloaded"); n != 1 {
		t.Errorf("the overload was logged %d times:\n%s", n, log.String())
	}
	if w := ask(manage, "k", strings.NewReader("{}")); w.Code != 200 {
		t.Errorf("a management request during the overload: status %d", w.Code)
	}
	why = ""
	if w := ask(model, "k", strings.NewReader("{}")); w.Code != 200 {
		t.Errorf("after the overload: %d", w.Code)
	}
}

// Requests in progress are limited. None is aborted for another, and each
// frees its place when it ends, also by a panic. // R11
func TestRequestsInProgressAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := knownKeys{"loud": callerOf("loud", org.Rate{}, org.Rate{}), "quiet": callerOf("quiet", org.Rate{}, org.Rate{})}
		finish := make(chan struct{})
		model, _ := newHandlers(t, Options{Directory: d, Limits: Limits{Requests: 3}}, func(_ http.ResponseWriter, r *http.Request, _ caller.Caller) {
			<-finish
			if r.Header.Get("Authorization") == "Bearer quiet" {
				panic(http.ErrAbortHandler)
			}
		})
		var all sync.WaitGroup
		send := func(key string, want int) {
			all.Go(func() {
				defer func() { _ = recover() }()
				if w := ask(model, key, strings.NewReader("{}")); w.Code != want {
					t.Errorf("%s was answered %d, want %d: %s", key, w.Code, want, w.Body)
				}
			})
			synctest.Wait()
		}
		send("loud", 200)
		send("loud", 200)
		send("loud", 503)
		send("quiet", 200)
		send("quiet", 503)
		close(finish)
		all.Wait()
		for range 3 {
			send("quiet", 200)
			send("loud", 200)
		}
		all.Wait()
	})
}

// Refusals of a client that ignores Retry-After are delayed and hold only its
// connection. Another org is not delayed, and the number of delayed refusals is
// limited. // R11
func TestRefusalsOfAClientThatIgnoresRetryAfterAreDelayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := org.Rate{PerMinute: 1}
		d := knownKeys{"loud": callerOf("loud", org.Rate{}, limit), "quiet": callerOf("quiet", org.Rate{}, limit)}
		model, _ := newHandlers(t, Options{Directory: d}, serveOK)
		began := time.Now()
		for range 1 + 20 { // the first is allowed
			ask(model, "loud", strings.NewReader("{}"))
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("the first refusals took %v", took)
		}
		if ask(model, "loud", unreadableBody{t}); time.Since(began) != refusalDelay {
			t.Errorf("the next one took %v, want %v", time.Since(began), refusalDelay)
		}
		ask(model, "quiet", strings.NewReader("{}"))
		if ask(model, "quiet", unreadableBody{t}); time.Since(began) != refusalDelay {
			t.Error("another org is delayed too")
		}
		var all sync.WaitGroup
		var mu sync.Mutex
		slow := 0
		for range 2 * maxDelayed {
			all.Go(func() {
				began := time.Now()
				ask(model, "loud", unreadableBody{t})
				mu.Lock()
				defer mu.Unlock()
				if time.Since(began) > 0 {
					slow++
				}
			})
		}
		all.Wait()
		if slow != maxDelayed {
			t.Errorf("%d refusals were delayed at the same time, want %d", slow, maxDelayed)
		}
	})
}

// A 429 of the endpoint is delayed after the endpoint has returned. A 429
// without a length, or a long one, is not delayed. // R11
func TestOnlyShortRefusalsAreDelayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := knownKeys{"k": callerOf("o", org.Rate{}, org.Rate{})}
		var served []time.Time
		length := "5"
		model, _ := newHandlers(t, Options{Directory: d, Limits: Limits{Requests: 1}}, func(w http.ResponseWriter, _ *http.Request, _ caller.Caller) {
			if length != "" {
				w.Header().Set("Content-Length", length)
			}
			w.WriteHeader(429)
			_, _ = io.WriteString(w, "no")
			_, _ = io.WriteString(w, "!!!")
			served = append(served, time.Now())
		})
		for range 21 {
			if w := ask(model, "k", strings.NewReader("{}")); w.Code != 429 || w.Body.String() != "no!!!" {
				t.Fatalf("answered %d %q", w.Code, w.Body)
			}
		}
		if since := time.Since(served[20]); since != refusalDelay {
			t.Errorf("the response came %v after the endpoint returned, want %v", since, refusalDelay)
		}
		for _, length = range []string{"", "5000"} {
			before := time.Now()
			if w := ask(model, "k", strings.NewReader("{}")); w.Code != 429 || w.Body.String() != "no!!!" || !time.Now().Equal(before) {
				t.Errorf("length %q: answered %d %q after %v", length, w.Code, w.Body, time.Since(before))
			}
		}
	})
}

// A client that disconnects while its refusal is delayed leaves no state.
func TestADelayedRefusalEndsWhenTheClientDisconnects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, began := newRefusalThrottle(), time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		for range 21 {
			c.wait(ctx, "o")
		}
		if took := time.Since(began); took != time.Millisecond || len(c.delayed) != 0 {
			t.Errorf("after %v %v are still delayed", took, c.delayed)
		}
	})
}

// The cost of the limits for a request that is admitted. // K08
func BenchmarkAdmission(b *testing.B) {
	for name, limit := range map[string]org.Rate{"no limit": {}, "a limit": {PerMinute: org.MaxRate}} {
		b.Run(name, func(b *testing.B) {
			a, err := New(Options{Routes: allRoutes(), Document: admin.ServeDocument})
			if err != nil {
				b.Fatal(err)
			}
			sender := callerOf("o", limit, limit)
			r := httptest.NewRequest("POST", "/", nil)
			w := httptest.NewRecorder()
			rt := a.byPattern["POST /v1/chat/completions"]
			rt.Serve = func(http.ResponseWriter, *http.Request, caller.Caller) error { return nil }
			serve := a.answering(rt)
			b.ReportAllocs()
			for b.Loop() {
				if err := a.checkRate(w, r, sender, true); err != nil {
					a.rates = ratelimit.New() // the limit is used up
				}
				serve(w, r, sender)
			}
		})
	}
}
