package apptest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// NoLeaks makes the test run in parallel with others and fails it when it leaves a goroutine
// behind. It is called before anything is started.
//
// Goroutines inherit a label with the name of the test. Those that a timer starts have no
// label: goleak finds them after all tests.
func NoLeaks(t *testing.T) {
	t.Helper()
	parallel(t)
	checkLeaks(t)
}

// Alone is noLeaks for a test that cannot run beside others. It sets state of the process
// (variables, the working directory, a global), measures memory or time, or stops a server
// whose port another test must not get. Go runs these
// tests before the parallel ones begin. It is called first: the harness would make the test
// parallel.
func Alone(t *testing.T) {
	t.Helper()
	if !decide(t) {
		t.Fatal("alone must be called first")
	}
	checkLeaks(t)
}

// decided contains the top-level tests that are parallel or alone.
var decided sync.Map

// decide reports whether this is the first call for the test.
func decide(t *testing.T) bool {
	_, again := decided.LoadOrStore(t, true)
	if !again {
		t.Cleanup(func() { decided.Delete(t) })
	}
	return !again
}

// parallel makes a top-level test parallel, once. Subtests run in the order of their test:
// a parallel one would begin after the last line of its test.
func parallel(t *testing.T) {
	if !strings.Contains(t.Name(), "/") && decide(t) {
		t.Parallel()
	}
}

// checkLeaks labels the goroutines that the test starts from now on, and fails it when one is
// left at its end.
func checkLeaks(t *testing.T) {
	Label(t.Name())
	t.Cleanup(func() {
		Label("")
		time.Sleep(5 * time.Millisecond) // meanwhile most goroutines end, and a look takes as long
		if left := LeftBehind(t.Name(), Patience); left != "" {
			t.Errorf("the test left goroutines behind:\n%s", left)
		}
	})
}

// Label sets the label of this goroutine; "" removes it.
func Label(test string) {
	ctx := context.Background()
	if test != "" {
		ctx = pprof.WithLabels(ctx, pprof.Labels("test", test))
	}
	pprof.SetGoroutineLabels(ctx)
}

// LeftBehind returns the stacks of goroutines that have the label. It waits for their end.
func LeftBehind(test string, atMost time.Duration) string {
	mark := fmt.Sprintf("%q:%q", "test", test)
	end := time.Now().Add(atMost)
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		var all bytes.Buffer
		_ = pprof.Lookup("goroutine").WriteTo(&all, 1)
		var left strings.Builder
		for stack := range strings.SplitSeq(all.String(), "\n\n") {
			if strings.Contains(stack, mark) && !strings.Contains(stack, "os/signal.loop") { // which never ends
				left.WriteString(stack + "\n\n")
			}
		}
		if left.Len() == 0 || time.Now().After(end) {
			return left.String()
		}
		time.Sleep(pause)
	}
}

// SendAndLeave sends a request and closes the connection without reading the
// answer.
func (g *Gateway) SendAndLeave(method, path, key, body string) {
	g.T.Helper()
	u, err := url.Parse(g.URL)
	if err != nil {
		g.T.Fatal(err)
	}
	conn, err := net.Dial("tcp", u.Host)
	if err != nil {
		g.T.Fatal(err)
	}
	fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s", method, path, u.Host, key, len(body), body)
	if err := conn.Close(); err != nil {
		g.T.Fatal(err)
	}
}

// works reports whether the model API takes the key.
func (g *Gateway) works(key string) bool {
	g.T.Helper()
	return g.Send("GET", "/v1/models", nil, "Authorization", "Bearer "+key).Status != http.StatusUnauthorized
}

// StillWorking asks with the keys until none of them works, or time is up, and
// returns how many do.
func (g *Gateway) StillWorking(keys []string) int {
	g.T.Helper()
	for end := time.Now().Add(Patience); len(keys) > 0 && time.Now().Before(end); PollPause() {
		keys = slices.DeleteFunc(keys, func(key string) bool { return !g.works(key) })
	}
	return len(keys)
}

// tenant is an org with an owner's key and another one.
type tenant struct{ ID, Owner, KeyID, Key string }

// Tenants creates orgs over the API.
func (d Documented) Tenants(n int) []tenant {
	d.T.Helper()
	all := make([]tenant, n)
	for i := range all {
		t := &all[i]
		t.ID = fmt.Sprintf("tenant-%d", i)
		d.Do("POST", "/api/orgs", "operator-key", fmt.Sprintf(`{"id":%q}`, t.ID), 201)
		t.Owner = d.Do("POST", "/api/orgs/"+t.ID+"/keys", "operator-key", `{"name":"owner","role":"owner"}`, 201)["key"].(string)
		victim := d.Do("POST", "/api/keys", t.Owner, `{"name":"victim","role":"member"}`, 201)
		t.KeyID, t.Key = victim["id"].(string), victim["key"].(string)
		if !d.works(t.Key) {
			d.T.Fatalf("the new key of %s does not work", t.ID)
		}
	}
	return all
}

// ComesTrue waits until what is asked for again and again is true.
func ComesTrue(t *testing.T, what string, ask func() bool) {
	t.Helper()
	for end := time.Now().Add(Patience); !ask(); PollPause() {
		if time.Now().After(end) {
			t.Errorf("in vain: %s", what)
			return
		}
	}
}

// Beside returns how many answers the clients of the org large get, which ask again and again,
// while the org o makes one change: the median of several changes.
func (d Documented) Beside(clients int, method, path, body string) int {
	d.T.Helper()
	var stop atomic.Bool
	var answered atomic.Int64
	var group sync.WaitGroup
	for range clients {
		group.Go(func() {
			for !stop.Load() {
				resp, err := d.Client.Do(d.Request(d.T.Context(), method, path, strings.NewReader(body), "Authorization", "Bearer large-key-1"))
				if err != nil {
					d.T.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
				answered.Add(1)
			}
		})
	}
	for answered.Load() < int64(clients) { // all of them have begun
		runtime.Gosched()
	}
	const asked = 15
	var between []int
	for i := range asked {
		before := answered.Load()
		d.Send("POST", "/api/mcp-servers", strings.NewReader(fmt.Sprintf(`{"name":"s%d","url":"https://example.com/mcp","enabled":false}`, i)))
		between = append(between, int(answered.Load()-before))
		d.Send("DELETE", fmt.Sprintf("/api/mcp-servers/s%d", i), nil)
	}
	stop.Store(true)
	group.Wait()
	slices.Sort(between)
	d.T.Logf("answers to %d clients that %s %s, during one change of another org: %v", clients, method, path, between)
	return between[asked/2]
}
