package chat_test

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

// 200 bodies, each different, arrive as they were sent, and so do the
// answers. // A02 A09
func TestARelayedBodyIsTheSameAtBothEnds(t *testing.T) {
	NoLeaks(t)
	random := rand.New(rand.NewPCG(1, 2))
	var reply []byte
	var declared bool
	var status int
	up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, _ Received) {
		w.Header().Set("Content-Type", "application/x-odd; q=1")
		w.Header().Set("X-Request-Id", "abc")
		if declared {
			w.Header().Set("Content-Length", fmt.Sprint(len(reply)))
		}
		w.WriteHeader(status)
		for piece := range pieces(reply, 1+random.IntN(1+len(reply))) {
			_, _ = w.Write(piece)
			_ = http.NewResponseController(w).Flush()
		}
	})
	g := MustRun(t, Site{Upstream: up.URL}.Yaml())
	for i := range 200 {
		body := oddBody(random, i)
		reply = randomBytes(random, random.IntN(5000))
		declared = random.IntN(2) == 0
		status = []int{200, 200, 200, 201, 400, 418, 429, 500, 503}[random.IntN(9)]
		var src io.Reader = bytes.NewReader(body)
		if i%3 == 0 {
			src = struct{ io.Reader }{src} // of unknown length: sent in chunks
		}
		got := g.Send("POST", "/v1/chat/completions", src)
		sent := up.Requests()[i]
		if sha256.Sum256(sent.Body) != sha256.Sum256(body) {
			t.Fatalf("body %d: the upstream got\n%.300q\nthe client sent\n%.300q", i, sent.Body, body)
		}
		if sha256.Sum256(got.Body) != sha256.Sum256(reply) || got.Status != status {
			t.Fatalf("body %d: the client got status %d and %d bytes, the upstream sent %d and %d", i, got.Status, len(got.Body), status, len(reply))
		}
		if got.Header.Get("Content-Type") != "application/x-odd; q=1" || got.Header.Get("X-Request-Id") != "abc" {
			t.Fatalf("body %d: header %v", i, got.Header)
		}
		if auth := sent.Header.Get("Authorization"); auth != "Bearer CANARY-upstream-key" || sent.Path != "/v1/chat/completions" {
			t.Fatalf("the upstream was asked at %s with %q", sent.Path, auth)
		}
	}
}

func pieces(data []byte, size int) func(func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for len(data) > 0 {
			n := min(size, len(data))
			if !yield(data[:n]) {
				return
			}
			data = data[n:]
		}
	}
}

func randomBytes(random *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(random.Uint32())
	}
	return b
}

// oddBody returns a request that is JSON and as strange as JSON can be.
func oddBody(random *rand.Rand, i int) []byte {
	var b bytes.Buffer
	space := func() { b.WriteString([]string{"", " ", "\n", "\t ", "\r\n"}[random.IntN(5)]) }
	space()
	b.WriteString("{")
	b.WriteString([]string{`"model"`, `"mod\u0065l"`, `"\u006d\u006f\u0064\u0065\u006c"`}[random.IntN(3)])
	b.WriteString(":")
	space()
	b.WriteString([]string{`"m"`, `"\u006d"`}[random.IntN(2)])
	for n := range 1 + random.IntN(8) {
		space()
		b.WriteString(",")
		space()
		fmt.Fprintf(&b, "%s:", oddString(random, random.IntN(3) == 0 || n == 0))
		oddValue(&b, random, 0)
	}
	if i%20 == 7 {
		b.WriteString(`,"big":"` + strings.Repeat("a\\n\u00e9 ", 20_000) + `"`)
	}
	if i == 199 {
		b.WriteString(`,"huge":"` + strings.Repeat("x", 9<<20) + `"`)
	}
	b.WriteString("}")
	space()
	return b.Bytes()
}

// oddString returns a JSON string; a usual one is a member that clients send,
// so that members repeat.
func oddString(random *rand.Rand, usual bool) string {
	if usual {
		return []string{`"messages"`, `"stream"`, `"n"`, `"tools"`, `"user"`}[random.IntN(5)]
	}
	return []string{`""`, `"\/\b\f\n\r\t\"\\"`, `"\ud800"`, `"\udc00\ud800"`, `"\u0000"`, "\"\xff\xfe\xc0\x80\"", "\"\xed\xa0\x80\"", `"MODEL_"`, `"😀 ﷽"`, `"\uFFFF"`}[random.IntN(10)]
}

func oddValue(b *bytes.Buffer, random *rand.Rand, depth int) {
	kind := random.IntN(6)
	if depth > 5 {
		kind = random.IntN(4)
	}
	switch kind {
	case 0, 1:
		b.WriteString([]string{"1e400", "-0", "0.1000000000000000055511151231257827", "-1E-999", "123456789012345678901234567890", "true", "null", "1e+2"}[random.IntN(8)])
	case 2, 3:
		b.WriteString(oddString(random, false))
	case 4:
		b.WriteString("[")
		for n := range random.IntN(4) {
			if n > 0 {
				b.WriteString(" ,")
			}
			oddValue(b, random, depth+1)
		}
		b.WriteString("]")
	case 5:
		b.WriteString("{")
		for n := range random.IntN(4) {
			if n > 0 {
				b.WriteString(",")
			}
			b.WriteString(oddString(random, false) + " : ")
			oddValue(b, random, depth+1)
		}
		b.WriteString("}")
	}
}

// A01 A02 O04
func TestWhatSwitchesTheLoopOff(t *testing.T) {
	for _, tt := range []struct {
		name     string
		feature  string
		servers  func(url string) []string
		header   []string
		loopRuns bool
	}{
		{name: "the header says true", header: []string{"turnpike-mcp-disabled", "true"}},
		{name: "the header says YES", header: []string{"Turnpike-MCP-Disabled", "YES"}},
		{name: "the header says 1 with spaces", header: []string{"TURNPIKE-MCP-DISABLED", " 1 "}},
		{name: "the other spelling says True", header: []string{"Floopy-Mcp-Disabled", "True"}},
		{name: "the header says 0", header: []string{"turnpike-mcp-disabled", "0"}, loopRuns: true},
		{name: "the header says no", header: []string{"floopy-mcp-disabled", "no"}, loopRuns: true},
		{name: "the header is empty", header: []string{"turnpike-mcp-disabled", ""}, loopRuns: true},
		{name: "nothing does", loopRuns: true},
		{name: "nothing does, the feature has its other name", feature: "has_mcp_outbound", loopRuns: true},
		{name: "the org has no feature", feature: "none"},
		{name: "the org has no server", servers: func(string) []string { return nil }},
		{name: "the org has no enabled server", servers: func(url string) []string { return []string{Server("s", url, "enabled: false")} }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			NoLeaks(t)
			up := NewUpstream(t, Script(Says("hello")))
			tools := NewMCP(t, map[string]Handler{"echo": Echo})
			servers := []string{Server("s", tools.URL)}
			if tt.servers != nil {
				servers = tt.servers(tools.URL)
			}
			g := MustRun(t, Site{Upstream: up.URL, Feature: tt.feature, Servers: servers}.Yaml())
			if got := g.Post(Question, tt.header...); got.Status != 200 {
				t.Fatalf("status %d: %s", got.Status, got.Body)
			}
			sent := up.Requests()[0]
			if relayed := string(sent.Body) == Question; relayed == tt.loopRuns {
				t.Errorf("the upstream got %s", sent.Body)
			}
			if asked := len(tools.Of("")) > 0; asked != tt.loopRuns { // D13
				t.Errorf("the MCP server got %d requests", len(tools.Of("")))
			}
			for name := range sent.Header {
				if strings.HasPrefix(name, "Turnpike-") || strings.HasPrefix(name, "Floopy-") {
					t.Errorf("the upstream got our header %s", name)
				}
			}
		})
	}
}

func TestOnlyTheValueOfModelIsSpliced(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, Script(Says("hi")))
	g := MustRun(t, Site{Upstream: up.URL}.Yaml())
	for _, tt := range []struct{ name, body, want string }{
		{"the provider's name in front is taken off", `{ "x":1e400, "model" : "up/m" ,"model2":"up/m","a":{"model":"up/m"}}`, `{ "x":1e400, "model" : "m" ,"model2":"up/m","a":{"model":"up/m"}}`},
		{"a model that no pattern covers is reached with the provider's name", `{"model":"up/x/y"}`, `{"model":"x/y"}`},
		{"all of several are replaced by the last", `{"model":"nobody","mod\u0065l":"up/g-1"}`, `{"model":"g-1","mod\u0065l":"g-1"}`},
		{"all of several are replaced by the last, also where its name stays", `{"model":"nobody","model":"g-1"}`, `{"model":"g-1","model":"g-1"}`},
		{"an escaped name that stays is left alone", `{"model":"\u006d"}`, `{"model":"\u006d"}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := g.Post(tt.body); got.Status != 200 {
				t.Fatalf("status %d: %s", got.Status, got.Body)
			}
			all := up.Requests()
			if got := string(all[len(all)-1].Body); got != tt.want {
				t.Errorf("the upstream got\n%s\nwant\n%s", got, tt.want)
			}
		})
	}
}

func TestACompressedAnswerIsPassedThrough(t *testing.T) {
	NoLeaks(t)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	fmt.Fprint(z, strings.Repeat("hello ", 1000))
	_ = z.Close()
	up := NewUpstream(t, func(w http.ResponseWriter, r *http.Request, _ Received) {
		if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(packed.Bytes())
			return
		}
		fmt.Fprint(w, "plain")
	})
	g := MustRun(t, Site{Upstream: up.URL}.Yaml())
	got := g.Post(Question, "Accept-Encoding", "gzip")
	if !bytes.Equal(got.Body, packed.Bytes()) || got.Header.Get("Content-Encoding") != "gzip" {
		t.Errorf("got %d bytes, %q; want the %d compressed ones", len(got.Body), got.Header.Get("Content-Encoding"), packed.Len())
	}
	if got := g.Post(Question); string(got.Body) != "plain" { // nobody asked for gzip: nobody gets it
		t.Errorf("got %q", got.Body)
	}
}

func TestWhatConcernsOneConnectionIsNotPassedOn(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, _ Received) {
		w.Header().Set("Connection", "X-Hop")
		w.Header().Set("X-Hop", "1")
		w.Header().Set("Set-Cookie", "a=b")
		w.Header().Set("X-Kept", "1")
		fmt.Fprint(w, "{}")
	})
	g := MustRun(t, Site{Upstream: up.URL}.Yaml())
	got := g.Post(Question, "Connection", "X-Mine", "X-Mine", "1", "Cookie", "s=1", "X-Forwarded-For", "10.0.0.1",
		"X-Api-Key", "CANARY", "Proxy-Authorization", "Basic CANARY", "Openai-Beta", "assistants=v2")
	for _, name := range []string{"X-Hop", "Set-Cookie"} {
		if v := got.Header.Get(name); v != "" {
			t.Errorf("the client got %s: %s", name, v)
		}
	}
	if got.Header.Get("X-Kept") != "1" {
		t.Error("the client did not get X-Kept")
	}
	sent := up.Requests()[0].Header
	for _, name := range []string{"X-Mine", "Cookie", "X-Forwarded-For", "X-Api-Key", "Proxy-Authorization"} {
		if v := sent.Get(name); v != "" {
			t.Errorf("the upstream got %s: %s", name, v)
		}
	}
	if sent.Get("Openai-Beta") != "assistants=v2" {
		t.Error("the upstream did not get Openai-Beta")
	}
}

func TestARelayedAnswerThatBreaksOffBreaksOffAtTheClient(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, got Received) {
		if got.Number == 0 {
			w.Header().Set("Content-Length", "100")
		}
		fmt.Fprint(w, "half")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	g := MustRun(t, Site{Upstream: up.URL}.Yaml())
	for _, name := range []string{"of a declared length", "in chunks"} {
		t.Run(name, func(t *testing.T) {
			resp, err := g.Client.Do(g.Request(t.Context(), "POST", "/v1/chat/completions", strings.NewReader(Question)))
			if err != nil {
				return // it broke off before the header had left
			}
			defer resp.Body.Close()
			if data, err := io.ReadAll(resp.Body); err == nil {
				t.Errorf("the client read %q and saw no failure", data)
			}
		})
	}
}
