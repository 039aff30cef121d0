package approvals_test

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
	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/internal/soak"
)

// heldBySession bounds the memory that a waiting session holds, in bytes. What pools and caches hold, for however many
// sessions, comes on top.
const (
	heldBySession = 4 << 10
	heldByAll     = 512 << 10
)

// A second prompt to a session whose call waits for a person is refused and changes nothing: the model sees nothing of it, and the
// run goes on after the decision. // H13
func TestASecondPromptWhileACallWaits(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, Script(Asks(Use("pay", `{"amount":1}`)), Says("Paid.")))
	tools := NewMCP(t, map[string]Handler{"pay": Echo})
	d := Manage(MustRun(t, Site{Upstream: up.URL, Servers: []string{Server("shop", tools.URL, "require_approval: always")}}.Yaml()))
	id := d.NewAgent("")
	session, run := d.Leave("owner-key", id, `{"message":"pay","detached":true}`)
	d.Becomes("owner-key", session, "waiting")
	for _, path := range []string{"/run", "/run/stream"} {
		refused := d.AsOwner("POST", "/api/agents/"+id+path, fmt.Sprintf(`{"message":"and then","session_id":%q}`, session), 409)
		if !strings.Contains(fmt.Sprint(refused), "session_busy") {
			t.Errorf("%s: %v", path, refused)
		}
	}
	d.AsOwner("POST", "/api/agents/runs/"+run+"/approve", `{"approved":true}`, 200)
	d.Becomes("owner-key", session, "idle")
	sent, calls := up.Requests(), len(tools.Of("tools/call"))
	if len(sent) != 2 || strings.Contains(string(sent[1].Body), "and then") || calls != 1 {
		t.Errorf("%d model calls, the last with %s; %d calls", len(sent), sent[len(sent)-1].Body, calls)
	}
}

// Sessions that wait for approvals hold no goroutine and no slot, and next to no memory: with the
// fewest slots an org can have, a thousand wait, another run starts, and each is decided later. // N12 P20
func TestAThousandSessionsWaitForNothing(t *testing.T) {
	Alone(t)
	waiting := soak.Value(t, 100, 100, 1000)
	if testing.Short() || RaceDetector {
		waiting = 50
	}
	up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, got Received) {
		if LastSaid(got.Body) == "GATE" {
			Asks(Use("pay", `{"amount":1}`)).Write(w)
			return
		}
		Says("Done.").Write(w)
	})
	tools := NewMCP(t, map[string]Handler{"pay": Echo})
	yaml := Site{Upstream: up.URL, Runtime: "concurrency: 1", Servers: []string{Server("shop", tools.URL, "require_approval: always")}}.Yaml()
	d := Manage(MustRun(t, yaml))
	id := d.NewAgent("")
	begin := func() (session, run string) {
		session, run = d.Leave("owner-key", id, `{"message":"GATE","detached":true}`)
		d.Becomes("owner-key", session, "waiting")
		return session, run
	}
	const first = 50
	for range first { // what every gateway has after some runs
		begin()
	}
	forget := func() { d.Log.Forget(); up.Forget() } // what the test itself keeps
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
	if all := d.AsOwner("GET", "/api/agents/"+id+"/sessions?limit=1&min_runs=1", "", 200); all["total"] != float64(waiting+first) {
		t.Errorf("%v sessions", all["total"])
	}
	if a := d.StreamAgent(id, `{"message":"END"}`); !strings.Contains(string(a.Body), `"content":"Done."`) {
		t.Errorf("another run got\n%s", a.Body)
	}
	d.AsOwner("POST", "/api/agents/runs/"+last+"/approve", `{"approved":true}`, 200)
	if a := Wait(t, d.Follow("owner-key", last), "the end of a run"); !strings.Contains(string(a.Body), `"content":"Done."`) || len(tools.Of("tools/call")) != 1 {
		t.Errorf("%d calls, and the approved run ends with\n%s", len(tools.Of("tools/call")), a.Body)
	}
}

// settled returns how many goroutines there are and how much memory is in use when nothing happens. forget removes
// what the test has recorded.
func settled(d Documented, forget func()) (goroutines int, held int64) {
	forget()
	for end, last := time.Now().Add(Patience), -1; time.Now().Before(end); {
		d.Client.CloseIdleConnections()
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
	NoLeaks(t)
	up := NewUpstream(t, Script(Says("Done.")))
	d := Manage(MustRun(t, "org_caps: {sessions: 9}\n"+Site{Upstream: up.URL}.Yaml()))
	id := d.NewAgent("")
	var mu sync.Mutex
	statuses := map[int]int{}
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			path, body := "/sessions", "{}"
			if i%2 == 0 {
				path, body = "/run/stream", `{"message":"x"}`
			}
			a := d.Send("POST", "/api/agents/"+id+path, strings.NewReader(body))
			mu.Lock()
			defer mu.Unlock()
			if statuses[a.Status]++; a.Status == 429 && (!bytes.Contains(a.Body, []byte(`"code":"insufficient_quota"`)) || !bytes.Contains(a.Body, []byte("org_caps.sessions"))) {
				t.Errorf("%d %s", a.Status, a.Body)
			}
		})
	}
	all.Wait()
	list := d.AsOwner("GET", "/api/agents/"+id+"/sessions", "", 200)
	if list["total"] != 5.0 || statuses[429] != 15 || statuses[200]+statuses[201] != 5 {
		t.Errorf("%v sessions, and the answers %v", list["total"], statuses)
	}
	first := Elements(list["sessions"])[0].(map[string]any)["id"].(string)
	d.AsOwner("DELETE", "/api/sessions/"+first, "", 200)
	d.AsOwner("POST", "/api/agents/"+id+"/sessions", "", 201)
	d.AsOwner("POST", "/api/agents/"+id+"/sessions", "", 429)
	if a := d.Send("POST", "/api/agents/"+id+"/run", strings.NewReader(`{"message":"x"}`)); a.Status != 429 {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}

// What is too large is refused, and the answer names the member; nothing is stored. // J01 J12
func TestWhatIsTooLargeForASessionIsRefused(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, Script(Says("Done.")))
	d := Manage(MustRun(t, Site{Upstream: up.URL}.Yaml()))
	path := "/api/agents/" + d.NewAgent("")
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
		a := d.Send("POST", path+c.path, strings.NewReader(c.body))
		var got struct{ Code, Error, Param string }
		if err := json.Unmarshal(a.Body, &got); err != nil || a.Status != 400 && a.Status != 413 || a.Status == 400 && (got.Param != c.param || !strings.Contains(got.Error, c.param)) || len(a.Body) > 2000 {
			t.Errorf("%s %.60s: %d %.300s", c.path, c.body, a.Status, a.Body)
		}
	}
	if a := d.Send("GET", "/api/sessions/"+text(5000), nil); a.Status != 404 || len(a.Body) > 300 {
		t.Errorf("a long id: %d %s", a.Status, a.Body)
	}
	if all := d.AsOwner("GET", path+"/sessions", "", 200); all["total"] != 0.0 {
		t.Errorf("refused requests have left sessions: %v", all)
	}
	d.AsOwner("POST", path+"/sessions", messages(200, short), 201)
	d.AsOwner("POST", path+"/sessions", `{"title":"`+text(200)+`","metadata":`+entries(16, "k", text(512))+`}`, 201)
	if a := d.Send("POST", path+"/run/stream", strings.NewReader(`{"message":"`+text(agent.MaxMessage)+`"}`)); a.Status != 200 {
		t.Errorf("the longest message got %d %.300s", a.Status, a.Body)
	}
}
