package chat_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/app"
	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

// firstAndLast answers the first and the last of four attempts. The two between are refused and repeated at once: a provider
// that breaks off cannot say how long to wait.
func firstAndLast(answer func(http.ResponseWriter, *http.Request, Received)) func(http.ResponseWriter, *http.Request, Received) {
	return func(w http.ResponseWriter, r *http.Request, got Received) {
		if got.Number == 1 || got.Number == 2 {
			Refuses(503)(w, r, got)
			return
		}
		answer(w, r, got)
	}
}

// Before the first content, a stream that fails falls back, and the client sees one answer only.
// After it, nothing falls back.
func TestAStreamFallsBackBeforeItsFirstContent(t *testing.T) { // M09 I08 I09, failures 1, 2, 3 and 4
	NoLeaks(t)
	errorFrame := "data: {\"error\":{\"message\":\"overloaded\",\"type\":\"server_error\",\"code\":\"overloaded\"}}\n\n"
	for name, tt := range map[string]struct {
		first    func(http.ResponseWriter, *http.Request, Received)
		calls    int // of the first target
		fallback bool
	}{
		"the first read fails":            {firstAndLast(BreaksAfter("")), 4, true},
		"after the lifecycle frames":      {firstAndLast(BreaksAfter(RoleFrame)), 4, true},
		"an error after lifecycle frames": {firstAndLast(BreaksAfter(RoleFrame + errorFrame)), 4, true},
		"503":                             {Refuses(503), 4, true},
		"a credential that is refused":    {Refuses(401), 1, true},
		"an unknown model":                {Refuses(404), 1, true},
		"a request that is wrong":         {Refuses(400), 1, false},
		"after text":                      {BreaksAfter(RoleFrame + fmt.Sprintf(TextFrame, "half")), 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			one, two := NewUpstream(t, tt.first), NewUpstream(t, SaysChat("from two"))
			g := MustRun(t, RoutesYAML(one.URL, two.URL, ""))
			got := g.Send("POST", "/v1/responses", strings.NewReader(`{"model":"fast","input":"hi","stream":true,"store":false}`))
			if n := len(one.Requests()); n != tt.calls {
				t.Errorf("%d calls of the first target, want %d", n, tt.calls)
			}
			if fell := len(two.Requests()) == 1; fell != tt.fallback {
				t.Fatalf("fallback %v, want %v: %d %s", fell, tt.fallback, got.Status, got.Body)
			}
			if !tt.fallback {
				return
			}
			if got.Status != 200 || strings.Count(string(got.Body), "event: response.created\n") != 1 || !strings.Contains(string(got.Body), "from two") ||
				strings.Contains(string(got.Body), "overloaded") || got.Header.Get("Turnpike-Served-By") != "two/b" {
				t.Errorf("%d %v\n%s", got.Status, got.Header, got.Body)
			}
			if tt.calls > 1 {
				return
			}
			// A name of one target is never served by another.
			if got := g.Send("POST", "/v1/responses", strings.NewReader(`{"model":"up/a","input":"hi","stream":true,"store":false}`)); got.Status == 200 || len(two.Requests()) != 1 {
				t.Errorf("up/a: %d, and %d calls of the other target", got.Status, len(two.Requests()))
			}
		})
	}
}

// If all targets fail before anything was sent, the client gets a real HTTP error: that of the
// first target.
func TestTheErrorOfTheFirstTarget(t *testing.T) { // I09
	NoLeaks(t)
	one, two := NewUpstream(t, Refuses(404)), NewUpstream(t, Refuses(401))
	g := MustRun(t, RoutesYAML(one.URL, two.URL, ""))
	for _, stream := range []bool{true, false} {
		got := g.Send("POST", "/v1/responses", strings.NewReader(fmt.Sprintf(`{"model":"fast","input":"hi","stream":%v,"store":false}`, stream)))
		if got.Status != 404 || !strings.Contains(string(got.Body), "first says 404") || got.Header.Get("Turnpike-Served-By") != "" {
			t.Errorf("stream %v: %d %v %s", stream, got.Status, got.Header, got.Body)
		}
	}
}

// promptCache answers like a provider that bills the beginning of a prompt that it has seen before as
// cached: each byte of the messages is a token.
type promptCache struct {
	mu    sync.Mutex
	seen  [][]byte // guarded by mu
	usage [][2]int // input and cached tokens of each answer; guarded by mu
}

func (c *promptCache) answer(w http.ResponseWriter, _ *http.Request, got Received) {
	var asked struct{ Messages json.RawMessage }
	if err := json.Unmarshal(got.Body, &asked); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	prompt := bytes.TrimSuffix(asked.Messages, []byte("]"))
	c.mu.Lock()
	cached := 0
	for _, before := range c.seen {
		n := 0
		for n < min(len(before), len(prompt)) && before[n] == prompt[n] {
			n++
		}
		cached = max(cached, n)
	}
	c.seen, c.usage = append(c.seen, prompt), append(c.usage, [2]int{len(prompt), cached})
	c.mu.Unlock()
	w.Header().Set("Content-Type", "text/event-stream")
	usage := fmt.Sprintf(`"usage":{"prompt_tokens":%d,"completion_tokens":2,"total_tokens":%d,"prompt_tokens_details":{"cached_tokens":%d}}`, len(prompt), len(prompt)+2, cached)
	fmt.Fprint(w, RoleFrame, fmt.Sprintf(TextFrame, "ok"), strings.Replace(EndFrames, `"usage":{"prompt_tokens":10,"completion_tokens":2,"total_tokens":12}`, usage, 1))
}

// Of a conversation of ten turns over two targets, with a restart of the gateway in the middle, the provider has
// at least 90 percent of the input in its cache after turn 2, and the client is told so. When the target goes
// away, the conversation moves, and the next turns are in the cache of the other one. Without sticky, they are
// not. // M09, failure 14
func TestAConversationKeepsThePromptCache(t *testing.T) {
	const part = "A sentence of the conversation, of one hundred characters, so that turns have about the same length."
	for _, sticky := range []string{"session", "none"} {
		t.Run(sticky, func(t *testing.T) {
			NoLeaks(t)
			var down atomic.Int32 // number of the target that is down
			var caches [2]promptCache
			var ups [2]*Upstream
			for i := range ups {
				ups[i] = NewUpstream(t, func(w http.ResponseWriter, r *http.Request, got Received) {
					if down.Load() == int32(i+1) {
						Refuses(404)(w, r, got)
						return
					}
					caches[i].answer(w, r, got)
				})
			}
			yaml, data := RoutesYAML(ups[0].URL, ups[1].URL, "strategy: round_robin, sticky: "+sticky+","), NewData(t)
			history := fmt.Sprintf(`{"role":"user","content":"question 0 %s"}`, part)
			turn := func(g *Gateway, i int) (share float64, by string) {
				t.Helper()
				body := fmt.Sprintf(`{"model":"fast","instructions":%q,"store":false,"input":[%s]}`, strings.Repeat(part, 15), history)
				got := g.Send("POST", "/v1/responses", strings.NewReader(body))
				var said struct {
					Usage struct {
						Input   int `json:"input_tokens"`
						Details struct {
							Cached int `json:"cached_tokens"`
						} `json:"input_tokens_details"`
					}
				}
				if err := json.Unmarshal(got.Body, &said); err != nil || got.Status != 200 || said.Usage.Input == 0 {
					t.Fatalf("turn %d: %d %s %v", i, got.Status, got.Body, err)
				}
				history += fmt.Sprintf(`,{"role":"assistant","content":"ok"},{"role":"user","content":"question %d %s"}`, i+1, part)
				return float64(said.Usage.Details.Cached) / float64(said.Usage.Input), got.Header.Get("Turnpike-Served-By")
			}
			g := MustRunIn(t, data, yaml, Environment())
			var shares []float64
			served := map[string]int{}
			for i := range 10 {
				if i == 5 {
					_ = g.Stop()
					g = MustRunIn(t, data, yaml, Environment())
				}
				share, by := turn(g, i)
				shares = append(shares, share)
				served[by]++
			}
			if sticky == "none" {
				if len(served) != 2 || shares[2] >= 0.9 {
					t.Errorf("turns in turn are served by %v, with %v of the input cached", served, shares)
				}
				return
			}
			if len(served) != 1 {
				t.Fatalf("ten turns are served by %v", served)
			}
			at := 0
			if served["two/b"] > 0 {
				at = 1
			}
			down.Store(int32(at + 1))
			moved, to := turn(g, 10)
			down.Store(0) // the conversation keeps the new target
			if moved != 0 || served[to] != 0 {
				t.Errorf("after its target went away, a turn is served by %s, with %v of the input cached", to, moved)
			}
			for i := range 2 {
				share, by := turn(g, 11+i)
				if shares = append(shares, share); by != to {
					t.Errorf("turn %d is served by %s, want %s", 11+i, by, to)
				}
			}
			for i, share := range shares {
				if i >= 2 && share < 0.9 {
					t.Errorf("%v of the input is cached, want at least 0.9 after turn 2", shares)
					break
				}
			}
			t.Logf("cached: %.3f", shares)
			for i := range caches { // the client is told what the provider has counted
				for _, u := range caches[i].usage {
					if u[0] < 1000 {
						t.Errorf("the provider counted %v", u)
					}
				}
			}
		})
	}
}

// A breaker is seen closed, open and half-open in the metrics and in the management API, and so is its probe: one
// that fails opens it again, one that is answered closes it. // M09
func TestABreakerIsSeenInAllItsStates(t *testing.T) {
	NoLeaks(t)
	var ahead atomic.Int64 // of the clock of breakers
	began := time.Now()
	var well atomic.Bool
	one := NewUpstream(t, func(w http.ResponseWriter, r *http.Request, got Received) {
		if well.Load() {
			SaysChat("from one")(w, r, got)
			return
		}
		Refuses(503)(w, r, got)
	})
	two := NewUpstream(t, SaysChat("from two"))
	yaml := RoutesYAML(one.URL, two.URL, "sticky: none,") + "\ntelemetry: {metrics_listen: \"127.0.0.1:0\"}\n"
	g := MustRunWith(t, NewData(t), yaml, Environment(), app.Options{RouteClock: func() time.Time { return began.Add(time.Duration(ahead.Load())) }})
	ask := func(by string) {
		t.Helper()
		got := g.Send("POST", "/v1/responses", strings.NewReader(`{"model":"fast","input":"hi","stream":true,"store":false}`))
		if got.Status != 200 || got.Header.Get("Turnpike-Served-By") != by {
			t.Fatalf("%d %v %s", got.Status, got.Header, got.Body)
		}
	}
	seen := func(when, state string) {
		t.Helper()
		var shown struct {
			Data []struct {
				Targets []struct{ Model, Breaker string }
			}
		}
		a := g.Send("GET", "/api/routes", nil)
		if err := json.Unmarshal(a.Body, &shown); err != nil || len(shown.Data) != 1 || len(shown.Data[0].Targets) != 2 {
			t.Fatalf("%s: %v %s", when, err, a.Body)
		}
		if a, b := shown.Data[0].Targets[0], shown.Data[0].Targets[1]; a.Breaker != state || b.Breaker != "closed" {
			t.Errorf("%s: the API shows %+v and %+v, want %s", when, a, b, state)
		}
		metrics := Scrape(t, g)
		for _, s := range []string{"closed", "open", "half_open"} {
			want := 0.0
			if s == state {
				want = 1
			}
			if got, there := metrics["turnpike_target_breaker_state{model=a,provider=up,state="+s+"}"]; !there || got != want {
				t.Errorf("%s: the metric of %s is %v (%v), want %v", when, s, got, there, want)
			}
		}
	}
	seen("at the start", "closed")
	ask("two/b")
	seen("after three failures", "closed")
	ask("two/b")
	seen("after five failures", "open")
	calls := len(one.Requests())
	ask("two/b")
	if n := len(one.Requests()); n != calls {
		t.Errorf("%d calls of an open target", n-calls)
	}
	ahead.Store(int64(30 * time.Second))
	seen("after 30 seconds", "half_open")
	ask("two/b")
	if n := len(one.Requests()); n != calls+1 {
		t.Errorf("%d calls of a half-open target, want one probe", n-calls)
	}
	seen("after a probe that failed", "open")
	ahead.Store(int64(60 * time.Second))
	seen("after 30 more seconds", "half_open")
	well.Store(true)
	ask("up/a")
	seen("after a probe that was answered", "closed")
}

// Ten turns of a conversation reach one target, also after a restart of the gateway, and then the
// other one when it goes away.
func TestAConversationStaysAtItsTarget(t *testing.T) { // M09, failure 14
	NoLeaks(t)
	var down atomic.Int32 // number of the target that is down
	answers := func(number int32) func(http.ResponseWriter, *http.Request, Received) {
		return func(w http.ResponseWriter, r *http.Request, x Received) {
			if down.Load() == number {
				Refuses(404)(w, r, x)
				return
			}
			SaysChat("ok")(w, r, x)
		}
	}
	ups := []*Upstream{NewUpstream(t, answers(1)), NewUpstream(t, answers(2))}
	yaml, data := RoutesYAML(ups[0].URL, ups[1].URL, "strategy: round_robin,"), NewData(t)
	served := func(n int) (by []int) {
		for _, up := range ups {
			by = append(by, len(up.Requests()))
		}
		if by[0]+by[1] < n {
			t.Fatalf("%v requests, want %d", by, n)
		}
		return by
	}
	history := `{"role":"user","content":"question 0"}`
	turn := func(g *Gateway, i int) {
		t.Helper()
		if got := g.Send("POST", "/v1/responses", strings.NewReader(`{"model":"fast","instructions":"Be brief.","store":false,"input":[`+history+`]}`)); got.Status != 200 {
			t.Fatalf("turn %d: %d %s", i, got.Status, got.Body)
		}
		history += fmt.Sprintf(`,{"role":"assistant","content":"ok"},{"role":"user","content":"question %d"}`, i+1)
	}
	g := MustRunIn(t, data, yaml, Environment())
	for i := range 5 {
		turn(g, i)
	}
	_ = g.Stop()
	g = MustRunIn(t, data, yaml, Environment())
	for i := range 5 {
		turn(g, 5+i)
	}
	by := served(10)
	if by[0] != 0 && by[1] != 0 {
		t.Fatalf("ten turns of one conversation reached %v", by)
	}
	at := 0
	if by[1] > 0 {
		at = 1
	}
	down.Store(int32(at + 1))
	turn(g, 10)
	down.Store(0) // the conversation keeps the new target
	turn(g, 11)
	turn(g, 12)
	if after := served(13); after[1-at] != 3 || after[at] != 11 {
		t.Errorf("after the target %d went away: %v", at+1, after)
	}
}

func TestListsOfModels(t *testing.T) { // I09
	NoLeaks(t)
	one, two := NewUpstream(t, Refuses(404)), NewUpstream(t, SaysChat("from two"))
	body := `{"model":"m, only-two","input":"hi","store":false}`
	g := MustRun(t, RoutesYAML(one.URL, two.URL, ""))
	if got := g.Send("POST", "/v1/responses", strings.NewReader(body)); got.Status != 400 || !strings.Contains(string(got.Body), "model_lists: allow") {
		t.Errorf("not allowed: %d %s", got.Status, got.Body)
	}
	g = MustRun(t, strings.Replace(RoutesYAML(one.URL, two.URL, ""), "runtime: {", "runtime: {model_lists: allow", 1))
	if got := g.Send("POST", "/v1/responses", strings.NewReader(body)); got.Status != 200 || got.Header.Get("Turnpike-Served-By") != "two/only-two" {
		t.Errorf("allowed: %d %v %s", got.Status, got.Header, got.Body)
	}
}

// A relayed request of a route falls back as the loop does, and a translated answer names its
// target. A request for one target is passed on unchanged.
func TestARelayOfARouteFallsBack(t *testing.T) { // M09 I09, failures 1 and 2
	NoLeaks(t)
	for name, first := range map[string]func(http.ResponseWriter, *http.Request, Received){
		"the first read fails":       firstAndLast(BreaksAfter("")),
		"after the lifecycle frames": firstAndLast(BreaksAfter(RoleFrame)),
		"503":                        Refuses(503),
	} {
		t.Run(name, func(t *testing.T) {
			one, two := NewUpstream(t, first), NewUpstream(t, SaysChat("from two"))
			g := MustRun(t, strings.Replace(RoutesYAML(one.URL, two.URL, ""), "features: [mcp_outbound]", "features: []", 1))
			got := g.Post(`{"model":"fast","messages":[{"role":"user","content":"hi"}],"stream":true}`)
			if got.Status != 200 || strings.Count(string(got.Body), `"role":"assistant"`) != 1 || !strings.Contains(string(got.Body), "from two") || got.Header.Get("Turnpike-Served-By") != "two/b" {
				t.Errorf("%d %v\n%s", got.Status, got.Header, got.Body)
			}
			if got := g.Post(`{"model":"two/b","messages":[{"role":"user","content":"hi"}]}`); got.Header.Get("Turnpike-Served-By") != "two/b" {
				t.Errorf("relayed: %v", got.Header)
			}
		})
	}
	one, two := NewUpstream(t, Refuses(503)), NewUpstream(t, Refuses(500))
	g := MustRun(t, strings.Replace(RoutesYAML(one.URL, two.URL, ""), "features: [mcp_outbound]", "features: []", 1))
	if got := g.Post(`{"model":"fast","messages":[{"role":"user","content":"hi"}],"stream":true}`); got.Status != 503 || !strings.Contains(string(got.Body), "first says 503") {
		t.Errorf("all fail: %d %s", got.Status, got.Body)
	}
}

// Streams that end in an error, before or after their text, open the breaker of their target, which is not tried then, also not
// again by the request that opens it; so do relayed requests that are passed on unchanged.
func TestStreamsFeedTheBreaker(t *testing.T) { // M09, failure 5
	NoLeaks(t)
	one := NewUpstream(t, func(w http.ResponseWriter, r *http.Request, got Received) {
		frames := RoleFrame
		if got.Number < 4 {
			frames += fmt.Sprintf(TextFrame, "half") // such a request is not repeated
		}
		BreaksAfter(frames)(w, r, got)
	})
	two := NewUpstream(t, SaysChat("from two"))
	yaml := RoutesYAML(one.URL, two.URL, "sticky: none,")
	const body = `{"model":"fast","input":"hi","stream":true,"store":false}`
	ask := func(g *Gateway) {
		t.Helper()
		got := g.Send("POST", "/v1/responses", strings.NewReader(body))
		if got.Status != 200 || got.Header.Get("Turnpike-Served-By") != "two/b" {
			t.Fatalf("%d %s", got.Status, got.Body)
		}
	}
	g := MustRun(t, yaml)
	for range 4 {
		g.Send("POST", "/v1/responses", strings.NewReader(body))
	}
	for range 4 {
		ask(g)
	}
	if n := len(one.Requests()); n != 5 { // four requests and the first attempt of the next, whose second is at the other target
		t.Errorf("%d calls of a target whose breaker is open after 5 failures, want 5", n)
	}
	shown := string(g.Send("GET", "/api/routes", nil).Body)
	if !strings.Contains(shown, `"model":"a","breaker":"open","failures":5,"opened_at":"`) || !strings.Contains(shown, `"model":"b","breaker":"closed","failures":0,"opened_at":null`) {
		t.Error(shown)
	}
	refused := NewUpstream(t, Refuses(503))
	g = MustRun(t, RoutesYAML(refused.URL, two.URL, ""))
	for range 5 {
		g.Post(`{"model":"up/a","messages":[]}`)
	}
	ask(g)
	if n := len(refused.Requests()); n != 5 {
		t.Errorf("%d calls of a target after 5 relayed requests failed, want 5", n)
	}
}
