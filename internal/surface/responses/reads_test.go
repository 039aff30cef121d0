package responses_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/turnpike-gateway/turnpike/internal/eventlog"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/internal/surface"
)

// stalled is a response that is not read: the first write waits.
type stalled struct {
	*httptest.ResponseRecorder
	once    sync.Once
	begins  func()
	release <-chan struct{}
}

func (w *stalled) Write(b []byte) (int, error) {
	w.once.Do(w.begins)
	<-w.release
	return w.ResponseRecorder.Write(b)
}

// A reader of a stored response that stalls holds as much as another follower of a run, however
// large the input of the response is. // K07 P40
func TestAStalledReaderHoldsNoInput(t *testing.T) {
	for name, query := range map[string]string{"stream": "stream=true", "object": ""} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, "text Fine.")
			made := b.post(t, `{"model":"m","input":[{"role":"user","content":"`+strings.Repeat("x", 1<<20)+`"}]}`)
			if made.status != 200 {
				t.Fatalf("%d %.200s", made.status, made.body)
			}
			alice := b.caller("acme", "alice")
			alice.Account = memlimit.New(memlimit.Options{}).Open("acme")
			release := make(chan struct{})
			w := &stalled{ResponseRecorder: httptest.NewRecorder(), release: release, begins: func() {
				if n := alice.Account.Used(); n > 256<<10 {
					t.Errorf("%s: a reader that stalls holds %d bytes", name, n)
				}
			}}
			r := httptest.NewRequest(http.MethodGet, "/x?"+query, http.NoBody)
			r.SetPathValue("id", made.object.ID)
			var all sync.WaitGroup
			all.Go(func() {
				if err := b.Streamed(b.Get)(w, r, alice); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
			close(release)
			all.Wait()
			if w.Code != 200 || !strings.Contains(w.Body.String(), "Fine.") {
				t.Errorf("%s: %d %.200s", name, w.Code, w.Body)
			}
		})
	}
}

// Of the stored responses of an org, one is read at a time: its readers do not keep those of
// others waiting, and hold the memory of one. // K07
func TestAnOrgReadsOneStoredResponseAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, "text Fine.")
		made := b.post(t, `{"model":"m","input":"Hello."}`)
		release := make(chan struct{})
		var mu sync.Mutex
		finding := map[string]int{}
		b.kept.onFind = func(orgID string) {
			mu.Lock()
			finding[orgID]++
			mu.Unlock()
			<-release
		}
		var all sync.WaitGroup
		get := func(orgID, query string, serve surface.Endpoint) {
			all.Go(func() {
				r := httptest.NewRequest(http.MethodGet, "/x?"+query, http.NoBody)
				r.SetPathValue("id", made.object.ID)
				err := serve(httptest.NewRecorder(), r, b.caller(orgID, "p"))
				if other := orgID != "acme"; (err != nil) != other {
					t.Errorf("%s: %v", orgID, err)
				}
			})
		}
		for range eventlog.DefaultFollowers / 2 { // the first two of the three below follow the run after their read
			get("acme", "stream=true", b.Streamed(b.Get))
			get("acme", "", b.Get)
			get("acme", "", b.InputItems)
		}
		get("other", "", b.Get)
		synctest.Wait()
		mu.Lock()
		if got := fmt.Sprint(finding); got != "map[acme:1 other:1]" {
			t.Errorf("reads in progress: %s", got)
		}
		mu.Unlock()
		close(release)
		all.Wait()
	})
}
