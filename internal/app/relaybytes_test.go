package app_test

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/app"
	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

// exactCost has the bytes and the objects that one relayed request allocates.
type exactCost struct{ bytes, mallocs uint64 }

// relayCase is a request, its answer and the limit on what the gateway allocates for it.
type relayCase struct {
	name           string
	request        string
	answer         []string // each is written by itself
	bytes, mallocs uint64   // the measured values, with a tenth added
}

func relayCases() []relayCase {
	body := func(size int) string {
		const format = `{"model":"m","temperature":0.2,"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":%q}]}`
		const line = "The quick brown fox jumps over the lazy dog 0123456789. "
		all := fmt.Sprintf(format, "")
		var messages strings.Builder
		for n := len(all); n < size; n += 1000 {
			fmt.Fprintf(&messages, `,{"role":"user","content":%q}`, strings.Repeat(line, 1+min(size-n, 960)/len(line)))
		}
		return strings.Replace(all, `,{"role":"user","content":""}`, messages.String(), 1)
	}
	small, large := body(150), body(100_000)
	stream := strings.Replace(small, `"temperature":0.2`, `"stream":true`, 1)
	request := func(body string) string {
		return "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nUser-Agent: client/1\r\nAuthorization: Bearer owner-key\r\n" +
			"Content-Type: application/json\r\nAccept: application/json\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body
	}
	const answer = `{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":` +
		`{"role":"assistant","content":"Yes."},"finish_reason":"stop"}],"usage":{"prompt_tokens":20,"completion_tokens":2,"total_tokens":22}}`
	whole := []string{"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: " + strconv.Itoa(len(answer)) + "\r\n\r\n" + answer}
	chunks := []string{"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"}
	for i := range 200 {
		event := fmt.Sprintf(`data: {"id":"chatcmpl-1","choices":[{"index":0,"delta":{"content":"word %03d "}}]}`+"\n\n", i)
		chunks = append(chunks, fmt.Sprintf("%x\r\n%s\r\n", len(event), event))
	}
	chunks = append(chunks, "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
	return []relayCase{
		{"small", request(small), whole, 24_576, 230},
		{"body100k", request(large), whole, 22 * uint64(len(large)) / 10, 300},
		{"stream of 200 chunks", request(stream), chunks, 27_000, 240},
	}
}

// TestARelayAllocatesLittle measures exactly: TotalAlloc counts every byte, client and provider allocate nothing, and of
// several rounds the least counts, because work in the background only adds. It runs before the parallel tests.
func TestARelayAllocatesLittle(t *testing.T) {
	Alone(t)
	if RaceDetector || testing.CoverMode() != "" {
		t.Skip("instrumented code allocates more")
	}
	for _, c := range relayCases() {
		t.Run(c.name, func(t *testing.T) {
			cost := costOfRelay(t, c)
			t.Logf("a request of %d bytes allocates %d bytes in %d objects", len(c.request), cost.bytes, cost.mallocs)
			if cost.bytes > c.bytes || cost.mallocs > c.mallocs {
				t.Errorf("a request allocates %d bytes in %d objects, at most %d in %d are allowed; "+
					"a profile with -memprofile and -memprofilerate=1 shows where", cost.bytes, cost.mallocs, c.bytes, c.mallocs)
			}
		})
	}
}

// costOfRelay returns what one request costs, in the round that costs least.
func costOfRelay(t *testing.T, c relayCase) exactCost {
	const warm, rounds, each = 50, 5, 300
	provider := rawProvider(t, c.answer)
	g := MustRunWith(t, t.TempDir(), Site{Upstream: "http://" + provider, Feature: "none"}.Yaml(), Environment(),
		app.Options{Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	client := rawClient{t: t, conn: raw(g, ""), request: []byte(c.request), want: []byte(c.answer[len(c.answer)-1])}
	client.ask(warm)
	var least exactCost
	for round := range rounds {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		client.ask(each)
		runtime.ReadMemStats(&after)
		cost := exactCost{(after.TotalAlloc - before.TotalAlloc) / each, (after.Mallocs - before.Mallocs) / each}
		if round == 0 || cost.bytes < least.bytes {
			least = cost
		}
	}
	return least
}

// rawClient sends one request again and again, and reads each answer to its end, without allocating.
type rawClient struct {
	t             *testing.T
	conn          net.Conn
	request, want []byte // want is what the answer ends with
	read          [64 << 10]byte
}

func (c *rawClient) ask(times int) {
	c.t.Helper()
	end := c.want[max(0, len(c.want)-16):]
	for range times {
		if _, err := c.conn.Write(c.request); err != nil {
			c.t.Fatal(err)
		}
		for n := 0; !bytes.HasSuffix(c.read[:n], end); {
			more, err := c.conn.Read(c.read[n:])
			if err != nil {
				c.t.Fatalf("%v after %q", err, c.read[:n])
			}
			n += more
		}
	}
}

// rawProvider serves one answer to every request, without allocating. It returns its address.
func rawProvider(t *testing.T, answer []string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	parts := make([][]byte, len(answer))
	for i, part := range answer {
		parts[i] = []byte(part)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go serveRaw(conn, parts)
		}
	}()
	return l.Addr().String()
}

// serveRaw answers the requests of a connection until the other side closes it.
func serveRaw(conn net.Conn, answer [][]byte) {
	defer conn.Close()
	buf := make([]byte, 256<<10)
	for n := 0; ; {
		more, err := conn.Read(buf[n:])
		if err != nil {
			return
		}
		if n += more; !isWhole(buf[:n]) {
			continue
		}
		n = 0
		for _, part := range answer {
			if _, err := conn.Write(part); err != nil {
				return
			}
		}
	}
}

// isWhole reports whether a request with a Content-Length is complete.
func isWhole(request []byte) bool {
	head, body, found := bytes.Cut(request, []byte("\r\n\r\n"))
	if !found {
		return false
	}
	_, rest, _ := bytes.Cut(head, []byte("Content-Length: "))
	length := 0
	for _, digit := range rest {
		if digit < '0' || digit > '9' {
			break
		}
		length = 10*length + int(digit-'0')
	}
	return len(body) >= length
}
