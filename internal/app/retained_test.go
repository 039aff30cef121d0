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
	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/internal/httpd"
)

// The tests here are about what one org can make the gateway retain, in bytes
// and places, and that others do not notice.

// relayingOrgs is a gateway with the orgs a and b, which have the keys a-key and
// b-key and relay.
func relayingOrgs(t *testing.T, upstream, settings string) *Gateway {
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
	Alone(t)
	up := NewUpstream(t, Script(Says("Done.")))
	g := relayingOrgs(t, up.URL, "")
	const clients = 40
	before := heap()
	for range clients {
		raw(g, declares("a-key", 10<<20))
	}
	settled := make(chan int64, 1)
	go func() {
		for blocked("httpd.(*body).Read(") < clients {
			PollPause()
		}
		settled <- min(heap(), heap(), heap()) // what is allocated during a collection counts as held
	}()
	if grown := Wait(t, settled, "the requests to be under way") - before; grown > clients*64<<10 {
		t.Errorf("%d announced bodies, of which no byte has come, hold %d KiB", clients, grown>>10)
	}
	if a := g.Send("POST", "/v1/chat/completions", strings.NewReader(Question), "Authorization", "Bearer b-key"); a.Status != 200 {
		t.Errorf("another org gets %d %s", a.Status, a.Body)
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
	NoLeaks(t)
	up := NewUpstream(t, Script(Says("Done.")))
	g := relayingOrgs(t, up.URL, "max_retained_mib: 30")
	large := strings.Repeat(" ", 5<<20)
	refused := make(chan string, 16)
	for range cap(refused) {
		c := raw(g, declares("a-key", 10<<20))
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
		if got := Wait(t, refused, "a refusal"); !strings.HasPrefix(got, "429 ") || !strings.Contains(got, `"code":"org_memory_exceeded"`) || strings.HasPrefix(got, "429  ") {
			t.Errorf("the org is answered %s", got)
		}
	}
	for range 10 {
		if a := g.Send("POST", "/v1/chat/completions", strings.NewReader(Question), "Authorization", "Bearer b-key"); a.Status != 200 {
			t.Errorf("another org gets %d %s", a.Status, a.Body)
		}
	}
}

// Clients that repeat an Idempotency-Key and never read the answer hold what their
// requests are charged with, so that an org has no more than its share; those for which
// there is no place or no memory get 429. // P40
func TestRepeatsThatNobodyReadsHoldWhatIsCharged(t *testing.T) {
	Alone(t)
	up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, _ Received) {
		for range 16 { // 4 MiB
			Frame(w, `{"choices":[{"index":0,"delta":{"content":"`+strings.Repeat("x", 256<<10)+`"}}]}`)
		}
		Turn{}.Write(w)
	})
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	const share = 160 // MiB of one org, two thirds of all
	g := MustRunWith(t, t.TempDir(), Site{Upstream: up.URL, Servers: []string{Server("s", tools.URL+"/mcp")}}.Yaml()+"max_retained_mib: 240\n",
		Environment(), app.Options{Limits: httpd.Limits{StallTimeout: 10 * Patience}})
	g.Post(Question, "Idempotency-Key", "k").Completion(t)
	before := heap()
	const clients = 40
	var conns []net.Conn
	for range clients {
		conns = append(conns, raw(g, fmt.Sprintf("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer owner-key\r\n"+
			"Idempotency-Key: k\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(Question), Question)))
	}
	ended := func(status string) int {
		return strings.Count(g.Log.String(), "path=/v1/chat/completions status="+status)
	}
	var writing, refused int
	Eventually(t, "the requests to be refused, or to wait for their clients", func() bool {
		writing, refused = blocked("httpd.(*conn).Write("), ended("429")
		sent := ended("200") - 1 // the first request; the buffers of connections can take a whole answer
		return writing+refused+sent == clients
	})
	held := heap() - before                // nothing moves now
	if held > share<<20 && !RaceDetector { // which makes memory mean nothing
		t.Errorf("%d repeats hold %d MiB", writing, held>>20)
	}
	t.Logf("%d repeats hold %d MiB, and %d are refused", writing, held>>20, refused)
	if writing == 0 || refused == 0 {
		t.Errorf("of %d repeats %d were answered and %d refused", clients, writing, refused)
	}
	for _, c := range conns {
		_ = c.Close()
	}
	Eventually(t, "the requests to end", func() bool { return ended("200")-1+refused == clients })
	if text, _ := g.Post(Question, "Idempotency-Key", "k").Completion(t); len(text) != 4<<20 {
		t.Errorf("a client that reads gets %d bytes", len(text))
	}
}

// raw sends the text on a connection of its own.
func raw(g *Gateway, text string) net.Conn {
	g.T.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(g.URL, "http://"))
	if err != nil {
		g.T.Fatal(err)
	}
	g.T.Cleanup(func() { _ = c.Close() })
	_, _ = io.WriteString(c, text) // a request that is refused early is not read to its end
	return c
}
