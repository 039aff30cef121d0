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

	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/ratelimit"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/surface/admin"
)

// known is a directory of keys.
type known map[string]run.Caller

func (k known) Authenticate(key string) (run.Caller, bool) { c, ok := k[key]; return c, ok }
func (known) IsOperator(string) bool                       { return false }

// callerOf returns a caller with limits of its key and of its org.
func callerOf(orgID string, ofKey, ofOrg org.Rate) run.Caller {
	return run.Caller{Org: &org.Org{ID: orgID, Runtime: org.Runtime{Rate: ofOrg}}, Principal: org.Principal{ID: "k", Role: org.Owner, Rate: ofKey}}
}

// entrance is an API whose one endpoint is serve, as POST /v1/chat/completions
// is let in, or as the management API is.
func entrance(t *testing.T, o Options, serve admin.Endpoint) (model, manage http.HandlerFunc) {
	t.Helper()
	o.Health = func() error { return nil }
	a, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return a.as(org.Role.MayRun, a.calmly(a.unladen(serve))), a.managed(serve)
}

// unreadable fails the test when somebody reads the body.
type unreadable struct{ t *testing.T }

func (u unreadable) Read([]byte) (int, error) {
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

func fine(w http.ResponseWriter, _ *http.Request, _ run.Caller) { _, _ = io.WriteString(w, "fine") }

// K08: one request too many is refused before its body is read, in the form of
// the API that was asked; the org's limit does not keep out who manages it.
func TestOneRequestTooManyIsRefusedUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := known{"key": callerOf("a", org.Rate{PerMinute: 7, Burst: 1}, org.Rate{}), "org": callerOf("b", org.Rate{}, org.Rate{PerMinute: 60, Burst: 2})}
		model, manage := entrance(t, Options{Directory: d}, fine)
		for _, c := range []struct {
			api   http.Handler
			key   string
			after int // requests
			body  string
			retry string
			reset string
		}{
			{model, "key", 1, `{"error":{"message":"the key has used up its limit of 7 requests in a minute (1 at once); try again after the time that Retry-After says",` +
				`"type":"rate_limit_error","param":null,"code":"rate_limit_exceeded","retry_after_secs":9}}`, "9", "8.571s"},
			{manage, "key", 1, `{"error":{"code":"rate_limit_exceeded","message":"the key has used up its limit of 7 requests in a minute (1 at once); try again after the time that Retry-After says",` +
				`"retry_after_secs":9}}`, "9", "8.571s"},
			{model, "org", 2, `{"error":{"message":"the org has used up its limit of 60 requests in a minute (2 at once); try again after the time that Retry-After says",` +
				`"type":"rate_limit_error","param":null,"code":"rate_limit_exceeded","retry_after_secs":1}}`, "1", "2s"},
		} {
			time.Sleep(time.Hour)
			for i := range c.after {
				w := ask(c.api, c.key, strings.NewReader("{}"))
				if left := w.Header().Get("X-Ratelimit-Remaining-Requests"); w.Code != 200 || left != strconv.Itoa(c.after-1-i) {
					t.Errorf("%s: request %d was answered %d with %q left", c.key, i, w.Code, left)
				}
			}
			w := ask(c.api, c.key, unreadable{t})
			h := w.Header()
			if w.Code != 429 || strings.TrimSpace(w.Body.String()) != c.body || h.Get("Retry-After") != c.retry {
				t.Errorf("%s: %d, Retry-After %q:\n%s\nwant\n%s", c.key, w.Code, h.Get("Retry-After"), w.Body, c.body)
			}
			if h.Get("X-Ratelimit-Remaining-Requests") != "0" || h.Get("X-Ratelimit-Limit-Requests") != strconv.Itoa(c.after) || h.Get("X-Ratelimit-Reset-Requests") != c.reset {
				t.Errorf("%s: header %v", c.key, h)
			}
		}
		if w := ask(manage, "org", strings.NewReader("{}")); w.Code != 200 || w.Header().Get("X-Ratelimit-Limit-Requests") != "" {
			t.Errorf("who manages an org at its limit gets %d", w.Code)
		}
	})
}

// R11: a gateway with too much to do refuses before the body is read, with a
// time to come back that is not the same for everybody, and says so to its
// operator once.
func TestAnOverloadedGatewayRefusesUnread(t *testing.T) {
	why := "its store is slow"
	var log bytes.Buffer
	o := Options{Directory: known{"k": callerOf("a", org.Rate{}, org.Rate{})}, Overload: func() string { return why }, Log: slog.New(slog.NewTextHandler(&log, nil))}
	model, manage := entrance(t, o, fine)
	times := map[string]bool{}
	for range 100 {
		w := ask(model, "k", unreadable{t})
		if secs, err := strconv.Atoi(w.Header().Get("Retry-After")); err != nil || w.Code != 503 || secs < 1 || secs > 5 {
			t.Fatalf("%d, Retry-After %d", w.Code, secs)
		}
		times[w.Header().Get("Retry-After")] = true
		if !strings.Contains(w.Body.String(), `"code":"overloaded"`) || !strings.Contains(w.Body.String(), why) {
			t.Fatalf("refused with %s", w.Body)
		}
	}
	if len(times) < 3 {
		t.Errorf("all come back after %v", times)
	}
	if n := strings.Count(log.String(), "overloaded"); n != 1 {
		t.Errorf("the operator was told %d times:\n%s", n, log.String())
	}
	if w := ask(manage, "k", strings.NewReader("{}")); w.Code != 200 {
		t.Errorf("who manages an overloaded gateway gets %d", w.Code)
	}
	why = ""
	if w := ask(model, "k", strings.NewReader("{}")); w.Code != 200 {
		t.Errorf("after the overload: %d", w.Code)
	}
}

// R11: what is under way is counted, is not given up for others, and leaves its
// place however it ends.
func TestRequestsUnderWayAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := known{"loud": callerOf("loud", org.Rate{}, org.Rate{}), "quiet": callerOf("quiet", org.Rate{}, org.Rate{})}
		finish := make(chan struct{})
		model, _ := entrance(t, Options{Directory: d, Limits: Limits{Requests: 3}}, func(_ http.ResponseWriter, r *http.Request, _ run.Caller) {
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

// R11: who is refused and comes back at once gets slow answers, for which only
// its connection is held; another org is not slowed down, and they are not so
// many that they hold all connections.
func TestWhoIsRefusedAndComesBackAtOnceIsCalmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := org.Rate{PerMinute: 1}
		d := known{"loud": callerOf("loud", org.Rate{}, limit), "quiet": callerOf("quiet", org.Rate{}, limit)}
		model, _ := entrance(t, Options{Directory: d}, fine)
		began := time.Now()
		for range 1 + 20 { // the first is allowed
			ask(model, "loud", strings.NewReader("{}"))
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("the first refusals took %v", took)
		}
		if ask(model, "loud", unreadable{t}); time.Since(began) != longestPause {
			t.Errorf("the next one took %v, want %v", time.Since(began), longestPause)
		}
		ask(model, "quiet", strings.NewReader("{}"))
		if ask(model, "quiet", unreadable{t}); time.Since(began) != longestPause {
			t.Error("another org waits with it")
		}
		var all sync.WaitGroup
		var mu sync.Mutex
		slow := 0
		for range 2 * mostPaused {
			all.Go(func() {
				began := time.Now()
				ask(model, "loud", unreadable{t})
				mu.Lock()
				defer mu.Unlock()
				if time.Since(began) > 0 {
					slow++
				}
			})
		}
		all.Wait()
		if slow != mostPaused {
			t.Errorf("%d refusals were kept back at a time, want %d", slow, mostPaused)
		}
	})
}

// R11: a refusal that comes from a run's limits is kept back after everything
// of the request was given back; another answer with that status is not kept.
func TestOnlyShortRefusalsAreKeptBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := known{"k": callerOf("o", org.Rate{}, org.Rate{})}
		var served []time.Time
		length := "5"
		model, _ := entrance(t, Options{Directory: d, Limits: Limits{Requests: 1}}, func(w http.ResponseWriter, _ *http.Request, _ run.Caller) {
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
		if since := time.Since(served[20]); since != longestPause {
			t.Errorf("the answer came %v after it was made, want %v", since, longestPause)
		}
		for _, length = range []string{"", "5000"} {
			before := time.Now()
			if w := ask(model, "k", strings.NewReader("{}")); w.Code != 429 || w.Body.String() != "no!!!" || !time.Now().Equal(before) {
				t.Errorf("length %q: answered %d %q after %v", length, w.Code, w.Body, time.Since(before))
			}
		}
	})
}

// A client that leaves while it is calmed leaves nothing behind.
func TestACalmedClientMayLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, began := newCalm(), time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		for range 21 {
			c.wait(ctx, "o")
		}
		if took := time.Since(began); took != time.Millisecond || len(c.paused) != 0 {
			t.Errorf("after %v %v are kept back", took, c.paused)
		}
	})
}

// K08: what it costs to let a request in that may come.
func BenchmarkLettingIn(b *testing.B) {
	for name, limit := range map[string]org.Rate{"no limit": {}, "a limit": {PerMinute: org.MaxRate}} {
		b.Run(name, func(b *testing.B) {
			a, err := New(Options{})
			if err != nil {
				b.Fatal(err)
			}
			caller := callerOf("o", limit, limit)
			r := httptest.NewRequest("POST", "/", nil)
			w := httptest.NewRecorder()
			serve := a.calmly(a.unladen(func(http.ResponseWriter, *http.Request, run.Caller) {}))
			b.ReportAllocs()
			for b.Loop() {
				if err := a.withinRate(w, r, caller, true); err != nil {
					a.rates = ratelimit.New() // all of it was used up
				}
				serve(w, r, caller)
			}
		})
	}
}
