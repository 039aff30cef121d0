package app_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/app"
	"github.com/turnpike-gateway/turnpike/internal/httpd"
)

// The tests here are about what one org can make the gateway retain, in bytes
// and places, and that others do not notice.

// relayingOrgs is a gateway with the orgs a and b, which have the keys a-key and
// b-key and relay.
func relayingOrgs(t *testing.T, upstream, settings string) *gateway {
	t.Helper()
	return MustRun(t, fmt.Sprintf(`
listen: 127.0.0.1:0
%s
providers:
  - {name: up, base_url: %q, api_key: env:UPSTREAM_KEY, models: [m]}
orgs:
  - {id: a, keys: [{name: a, key: a-key, role: member}]}
  - {id: b, keys: [{name: b, key: b-key, role: member}]}
`, settings, upstream+"/v1"))
}

// raw sends the text on a connection of its own.
func (g *gateway) raw(text string) net.Conn {
	g.t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(g.URL, "http://"))
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { _ = c.Close() })
	_, _ = io.WriteString(c, text) // a request that is refused early is not read to its end
	return c
}

// declares is the header of a request with the key and a body of n bytes.
func declares(key string, n int) string {
	return fmt.Sprintf("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", key, n)
}

// heap returns the bytes that live.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) //nolint:gosec // no machine has that much
}

// The length that a client announces reserves nothing. // P40
func TestAnAnnouncedBodyReservesNothing(t *testing.T) {
	alone(t)
	up := newUpstream(t, script(says("Done.")))
	g := relayingOrgs(t, up.URL, "")
	const clients = 40
	before := heap()
	for range clients {
		g.raw(declares("a-key", 10<<20))
	}
	settled := make(chan int64, 1)
	go func() {
		for blocked("httpd.(*body).Read(") < clients {
			pollPause()
		}
		settled <- min(heap(), heap(), heap()) // what is allocated during a collection counts as held
	}()
	if grown := wait(t, settled, "the requests to be under way") - before; grown > clients*64<<10 {
		t.Errorf("%d announced bodies, of which no byte has come, hold %d KiB", clients, grown>>10)
	}
	if a := g.send("POST", "/v1/chat/completions", strings.NewReader(question), "Authorization", "Bearer b-key"); a.status != 200 {
		t.Errorf("another org gets %d %s", a.status, a.body)
	}
}

// blocked returns how many goroutines are in a function.
func blocked(function string) int {
	stacks := make([]byte, 16<<20)
	return strings.Count(string(stacks[:runtime.Stack(stacks, true)]), function)
}

// Bodies count against their org. The answer is 429 when the org has its
// share, while another org works. // P40
func TestAnOrgThatHoldsItsShareIsRefusedAndOthersAreNot(t *testing.T) {
	noLeaks(t)
	up := newUpstream(t, script(says("Done.")))
	g := relayingOrgs(t, up.URL, "max_retained_mib: 30")
	large := strings.Repeat(" ", 5<<20)
	refused := make(chan string, 16)
	for range cap(refused) {
		c := g.raw(declares("a-key", 10<<20))
		go func() {
			_, _ = io.WriteString(c, large) // which may be cut off
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				return // it is closed at the end of the test
			}
			defer resp.Body.Close()
			text, _ := io.ReadAll(resp.Body)
			refused <- fmt.Sprintf("%d %s %s", resp.StatusCode, resp.Header.Get("Retry-After"), text)
		}()
	}
	for range cap(refused) - 4 { // 20 MiB are the share of one org alone
		if got := wait(t, refused, "a refusal"); !strings.HasPrefix(got, "429 ") || !strings.Contains(got, `"code":"org_memory_exceeded"`) || strings.HasPrefix(got, "429  ") {
			t.Errorf("the org is answered %s", got)
		}
	}
	for range 10 {
		if a := g.send("POST", "/v1/chat/completions", strings.NewReader(question), "Authorization", "Bearer b-key"); a.status != 200 {
			t.Errorf("another org gets %d %s", a.status, a.body)
		}
	}
}

// Clients that repeat an Idempotency-Key and never read the answer hold what their
// requests are charged with, so that an org has no more than its share; those for which
// there is no place or no memory get 429. // P40
func TestRepeatsThatNobodyReadsHoldWhatIsCharged(t *testing.T) {
	alone(t)
	up := newUpstream(t, func(w http.ResponseWriter, _ *http.Request, _ received) {
		for range 16 { // 4 MiB
			frame(w, `{"choices":[{"index":0,"delta":{"content":"`+strings.Repeat("x", 256<<10)+`"}}]}`)
		}
		turn{}.write(w)
	})
	tools := newMCP(t, map[string]handler{"echo": echo})
	const share = 160 // MiB of one org, two thirds of all
	g := mustRunWith(t, t.TempDir(), site{upstream: up.URL, servers: []string{server("s", tools.URL+"/mcp")}}.yaml()+"max_retained_mib: 240\n",
		environment(), app.Options{Limits: httpd.Limits{StallTimeout: 10 * patience}})
	g.post(question, "Idempotency-Key", "k").completion(t)
	before := heap()
	const clients = 40
	var conns []net.Conn
	for range clients {
		conns = append(conns, g.raw(fmt.Sprintf("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer owner-key\r\n"+
			"Idempotency-Key: k\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(question), question)))
	}
	ended := func(status string) int {
		return strings.Count(g.log.String(), "path=/v1/chat/completions status="+status)
	}
	var writing, refused int
	eventually(t, "the requests to be refused, or to wait for their clients", func() bool {
		writing, refused = blocked("httpd.(*conn).Write("), ended("429")
		return writing+refused == clients
	})
	held := heap() - before                // nothing moves now
	if held > share<<20 && !raceDetector { // which makes memory mean nothing
		t.Errorf("%d repeats hold %d MiB", writing, held>>20)
	}
	t.Logf("%d repeats hold %d MiB, and %d are refused", writing, held>>20, refused)
	if writing == 0 || refused == 0 {
		t.Errorf("of %d repeats %d were answered and %d refused", clients, writing, refused)
	}
	for _, c := range conns {
		_ = c.Close()
	}
	eventually(t, "the requests to end", func() bool { return ended("200")-1+refused == clients })
	if text, _ := g.post(question, "Idempotency-Key", "k").completion(t); len(text) != 4<<20 {
		t.Errorf("a client that reads gets %d bytes", len(text))
	}
}
