package app_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/agent"
	"github.com/turnpike-gateway/turnpike/internal/soak"
)

// heldBySession bounds the memory that a waiting session holds, in bytes. What pools and caches hold, for however many
// sessions, comes on top.
const (
	heldBySession = 4 << 10
	heldByAll     = 512 << 10
)

// Sessions that wait for approvals hold no goroutine and no slot, and next to no memory: with the
// fewest slots an org can have, a thousand wait, another run starts, and each is decided later. // N12 P20
func TestAThousandSessionsWaitForNothing(t *testing.T) {
	alone(t)
	waiting := soak.Value(t, 100, 100, 1000)
	if testing.Short() || raceDetector {
		waiting = 50
	}
	up := newUpstream(t, func(w http.ResponseWriter, _ *http.Request, got received) {
		if lastSaid(got.body) == "GATE" {
			asks(call{"pay", `{"amount":1}`}).write(w)
			return
		}
		says("Done.").write(w)
	})
	tools := newMCP(t, map[string]handler{"pay": echo})
	yaml := site{upstream: up.URL, runtime: "concurrency: 1", servers: []string{server("shop", tools.URL, "require_approval: always")}}.yaml()
	d := manage(MustRun(t, yaml))
	id := d.newAgent("")
	begin := func() (session, run string) {
		session, run = d.leave("owner-key", id, `{"message":"GATE","detached":true}`)
		d.becomes("owner-key", session, "waiting")
		return session, run
	}
	const first = 50
	for range first { // what every gateway has after some runs
		begin()
	}
	forget := func() { d.log.forget(); up.forget() } // what the test itself keeps
	goroutines, held := settled(d, forget)
	var last string
	began := time.Now()
	for range waiting {
		_, last = begin()
	}
	took := time.Since(began)
	more, bytes := settled(d, forget)
	t.Logf("%d sessions wait: %d goroutines more, %d KiB more of memory, begun in %s", waiting, more-goroutines, (bytes-held)>>10, took)
	if more > goroutines {
		t.Errorf("%d goroutines before, %d after", goroutines, more)
	}
	if bytes-held > heldByAll+int64(waiting)*heldBySession {
		t.Errorf("%d bytes more are held by %d sessions", bytes-held, waiting)
	}
	if all := d.asOwner("GET", "/api/agents/"+id+"/sessions?limit=1&min_runs=1", "", 200); all["total"] != float64(waiting+first) {
		t.Errorf("%v sessions", all["total"])
	}
	if a := d.streamAgent(id, `{"message":"END"}`); !strings.Contains(string(a.body), `"content":"Done."`) {
		t.Errorf("another run got\n%s", a.body)
	}
	d.asOwner("POST", "/api/agents/runs/"+last+"/approve", `{"approved":true}`, 200)
	if a := wait(t, d.follow("owner-key", last), "the end of a run"); !strings.Contains(string(a.body), `"content":"Done."`) || len(tools.of("tools/call")) != 1 {
		t.Errorf("%d calls, and the approved run ends with\n%s", len(tools.of("tools/call")), a.body)
	}
}

// settled returns how many goroutines there are and how much memory is in use when nothing happens. forget removes
// what the test has recorded.
func settled(d documented, forget func()) (goroutines int, held int64) {
	forget()
	for end, last := time.Now().Add(patience), -1; time.Now().Before(end); {
		d.client.CloseIdleConnections()
		for range 3 {
			runtime.GC() // also ends what only finalizers hold
		}
		if goroutines = runtime.NumGoroutine(); goroutines == last {
			break
		}
		last = goroutines
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return goroutines, int64(m.HeapAlloc)
}

// The sessions of a key are counted, which may have half of those of its org, also when they are created at the
// same time, and those that were deleted do not count. // P40
func TestAKeyHasNoMoreSessionsThanTheOperatorSays(t *testing.T) {
	noLeaks(t)
	up := newUpstream(t, script(says("Done.")))
	d := manage(MustRun(t, "org_caps: {sessions: 9}\n"+site{upstream: up.URL}.yaml()))
	id := d.newAgent("")
	var mu sync.Mutex
	statuses := map[int]int{}
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			path, body := "/sessions", "{}"
			if i%2 == 0 {
				path, body = "/run/stream", `{"message":"x"}`
			}
			a := d.send("POST", "/api/agents/"+id+path, strings.NewReader(body))
			mu.Lock()
			defer mu.Unlock()
			if statuses[a.status]++; a.status == 429 && (!bytes.Contains(a.body, []byte(`"code":"insufficient_quota"`)) || !bytes.Contains(a.body, []byte("org_caps.sessions"))) {
				t.Errorf("%d %s", a.status, a.body)
			}
		})
	}
	all.Wait()
	list := d.asOwner("GET", "/api/agents/"+id+"/sessions", "", 200)
	if list["total"] != 5.0 || statuses[429] != 15 || statuses[200]+statuses[201] != 5 {
		t.Errorf("%v sessions, and the answers %v", list["total"], statuses)
	}
	first := elements(list["sessions"])[0].(map[string]any)["id"].(string)
	d.asOwner("DELETE", "/api/sessions/"+first, "", 200)
	d.asOwner("POST", "/api/agents/"+id+"/sessions", "", 201)
	d.asOwner("POST", "/api/agents/"+id+"/sessions", "", 429)
	if a := d.send("POST", "/api/agents/"+id+"/run", strings.NewReader(`{"message":"x"}`)); a.status != 429 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// What is too large is refused, and the answer names the member; nothing is stored. // J01 J12
func TestWhatIsTooLargeForASessionIsRefused(t *testing.T) {
	noLeaks(t)
	up := newUpstream(t, script(says("Done.")))
	d := manage(MustRun(t, site{upstream: up.URL}.yaml()))
	path := "/api/agents/" + d.newAgent("")
	text := func(n int) string { return strings.Repeat("x", n) }
	entries := func(n int, key, value string) string {
		m := map[string]string{}
		for i := range n {
			m[fmt.Sprint(key, i)] = value
		}
		b, _ := json.Marshal(m)
		return string(b)
	}
	messages := func(n int, one string) string {
		return `{"initial_messages":[` + strings.Repeat(one+",", n-1) + one + `]}`
	}
	short := `{"role":"user","content":"x"}`
	for _, c := range []struct{ path, body, param string }{
		{"/sessions", `{"title":"` + text(201) + `"}`, "title"},
		{"/sessions", `{"title":"` + text(1<<20) + `"}`, "title"},
		{"/sessions", `{"title":"a\u0000b"}`, "title"},
		{"/sessions", `{"metadata":` + entries(17, "k", "v") + `}`, "metadata"},
		{"/sessions", `{"metadata":` + entries(1, text(64), "v") + `}`, "metadata"},
		{"/sessions", `{"metadata":` + entries(1, "k", text(513)) + `}`, "metadata"},
		{"/sessions", `{"metadata":{"a":{"b":1}}}`, "metadata"},
		{"/sessions", `{"metadata":{"a":null}}`, "metadata"},
		{"/sessions", messages(201, short), "initial_messages"},
		{"/sessions", messages(2, `{"role":"user","content":"`+text(20_001)+`"}`), "initial_messages[0].content"},
		{"/sessions", messages(1, `{"role":"system","content":"x"}`), "initial_messages[0].role"},
		{"/sessions", messages(1, `{"role":"user","content":""}`), "initial_messages[0].content"},
		{"/run", `{"message":"` + text(agent.MaxMessage+1) + `"}`, "message"},
		{"/run/stream", `{"message":"` + text(agent.MaxMessage+1) + `"}`, "message"},
		{"/run/stream", `{"message":" \n"}`, "message"},
		{"/run/stream", `{"message":"x","max_steps":51}`, "max_steps"},
		{"/run/stream", `{"message":"x","timeout_seconds":0}`, "timeout_seconds"},
		{"/run/stream", `{"message":"x","max_context_tokens":999}`, "max_context_tokens"},
		{"/run/stream", `{"message":"x","temperature":2.1}`, "temperature"},
	} {
		a := d.send("POST", path+c.path, strings.NewReader(c.body))
		var got struct{ Code, Error, Param string }
		if err := json.Unmarshal(a.body, &got); err != nil || a.status != 400 && a.status != 413 || a.status == 400 && (got.Param != c.param || !strings.Contains(got.Error, c.param)) || len(a.body) > 2000 {
			t.Errorf("%s %.60s: %d %.300s", c.path, c.body, a.status, a.body)
		}
	}
	if a := d.send("GET", "/api/sessions/"+text(5000), nil); a.status != 404 || len(a.body) > 300 {
		t.Errorf("a long id: %d %s", a.status, a.body)
	}
	if all := d.asOwner("GET", path+"/sessions", "", 200); all["total"] != 0.0 {
		t.Errorf("refused requests have left sessions: %v", all)
	}
	d.asOwner("POST", path+"/sessions", messages(200, short), 201)
	d.asOwner("POST", path+"/sessions", `{"title":"`+text(200)+`","metadata":`+entries(16, "k", text(512))+`}`, 201)
	if a := d.send("POST", path+"/run/stream", strings.NewReader(`{"message":"`+text(agent.MaxMessage)+`"}`)); a.status != 200 {
		t.Errorf("the longest message got %d %.300s", a.status, a.body)
	}
}
