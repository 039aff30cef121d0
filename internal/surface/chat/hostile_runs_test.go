package chat_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// 5, a rug pull: a tool that changes what it says of itself while a run is under
// way is, for that run, what it was when the run began; the next run sees what it
// has become. P07
func TestAToolThatChangesInTheMiddleOfARun(t *testing.T) {
	NoLeaks(t)
	var lists atomic.Int64
	tools := NewRawMCP(t, Methods{
		"tools/list": func(w http.ResponseWriter, _ *http.Request, m RPC) {
			Reply(w, m, Listed(Definition("echo", fmt.Sprintf(`,"description":"Version %d"`, lists.Add(1)))))
		},
		"tools/call": Said("good"),
	})
	up := NewUpstream(t, Script(Asks(Use("echo", `{"n":1}`)), Asks(Use("echo", `{"n":2}`)), Says("Done.")))
	g := MustRun(t, Site{Upstream: up.URL, Runtime: "catalog_ttl: 0s", Servers: []string{Server("s", tools.URL)}}.Yaml())
	g.Post(Question).Completion(t)
	g.Post(Question).Completion(t)
	offered := func(n int) string { return string(up.Requests()[n].Decode(t).Tools) }
	if !strings.Contains(offered(0), "Version 1") || offered(1) != offered(0) || offered(2) != offered(0) {
		t.Errorf("the run was offered %s, %s, %s", offered(0), offered(1), offered(2))
	}
	if n := len(up.Requests()); n != 4 || !strings.Contains(offered(3), "Version 2") {
		t.Errorf("%d requests, the next run was offered %s", n, offered(n-1))
	}
}

// 25: nothing that a result points to is fetched. P06
func TestWhatAResultPointsToIsNotFetched(t *testing.T) {
	NoLeaks(t)
	elsewhere := NewRawMCP(t, Methods{})
	to := elsewhere.URL
	tools := NewRawMCP(t, Methods{"tools/list": Gives(OneTool("echo")), "tools/call": Gives(`{"content":[` +
		`{"type":"resource_link","uri":"` + to + `/link","name":"n"},{"type":"resource","resource":{"uri":"` + to + `/resource","text":"body"}},` +
		`{"type":"resource","resource":{"uri":"` + to + `/blob","blob":"cG5n"}},{"type":"image","uri":"` + to + `/image","data":"` + to + `/data","mimeType":"image/png"},` +
		`{"type":"text","text":"![x](` + to + `/markdown)"}]}`)})
	up := NewUpstream(t, Script(Asks(Use("echo", `{}`)), Says("![x]("+to+"/answer)")))
	g := MustRun(t, Site{Upstream: up.URL, Servers: []string{Server("s", tools.URL)}}.Yaml())
	if text, _ := g.Post(Question).Completion(t); text != "![x]("+to+"/answer)" {
		t.Errorf("the answer is %s", text)
	}
	if told := up.Requests()[1].Results(t); len(told) != 1 || !strings.Contains(told[0], to+"/link") || !strings.Contains(told[0], "body") {
		t.Errorf("the model was told %q", told)
	}
	if n := len(elsewhere.Of("")); n != 0 {
		t.Errorf("%d things were fetched", n)
	}
}

// 27: a server that says again and again that its tools have changed is asked for
// them once in a while. D29 P06
func TestAStormOfChangesIsNoStormOfQuestions(t *testing.T) {
	NoLeaks(t)
	tools := turnpiketest.NewMCPServer(turnpiketest.MCPOptions{}, turnpiketest.Tool{Name: "echo"})
	t.Cleanup(tools.Close)
	up := NewUpstream(t, Script(Says("Done.")))
	g := MustRun(t, Site{Upstream: up.URL, Servers: []string{Server("s", tools.URL)}}.Yaml())
	g.Post(Question).Completion(t)
	begin := time.Now()
	for range 300 {
		tools.SetTools(turnpiketest.Tool{Name: "echo"})
		if len(up.Requests()) < 30 {
			g.Post(Question).Completion(t)
		}
	}
	if asked, most := tools.Count("tools/list"), 3+int(time.Since(begin)/time.Second); asked > most {
		t.Errorf("the server was asked %d times in %v", asked, time.Since(begin))
	}
}

// 33: calls that wait for a slow server, of whom as many are under way as may be,
// do not hold up those of another. D11 P06
func TestASlowServerHoldsUpOnlyItsOwnCalls(t *testing.T) {
	NoLeaks(t)
	release := make(chan struct{})
	begun := make(chan struct{}, 12)
	slow := NewMCP(t, map[string]Handler{"slow": func(ctx context.Context, _ string) (string, error) {
		begun <- struct{}{}
		select {
		case <-release:
		case <-ctx.Done():
		}
		return "late", nil
	}})
	fast := NewMCP(t, map[string]Handler{"fast": Echo})
	up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, got Received) {
		wants := "fast"
		if strings.Contains(string(got.Body), "please wait") {
			wants = "slow"
		}
		if len(got.Results(t)) > 0 {
			Says("Done.").Write(w)
			return
		}
		Asks(many(wants, 4)...).Write(w)
	})
	g := MustRun(t, Site{Upstream: up.URL, Servers: []string{Server("slow", slow.URL, "max_concurrent_calls: 2"), Server("fast", fast.URL)}}.Yaml())
	waiting := make(chan Answer, 3)
	for range cap(waiting) {
		go func() {
			waiting <- g.Post(strings.Replace(Question, "go", "please wait", 1))
		}()
	}
	for range 2 {
		Wait(t, begun, "a call of the slow server")
	}
	for range 5 {
		if text, reason := g.Post(Question).Completion(t); text != "Done." || reason != "stop" {
			t.Errorf("%q, %s", text, reason)
		}
	}
	if n := len(slow.Of("tools/call")); n != 2 {
		t.Errorf("the slow server had %d calls at a time", n)
	}
	close(release)
	for range cap(waiting) {
		if text, _ := Wait(t, waiting, "a run of the slow server").Completion(t); text != "Done." {
			t.Errorf("%q", text)
		}
	}
	if n := len(slow.Of("tools/call")); n != 12 {
		t.Errorf("%d of 12 slow calls were made", n)
	}
}

// 24: an answer that comes after its call was given up is nobody's, over a
// transport where all answers come on one stream. P06
func TestAnAnswerThatComesTooLateIsNobodys(t *testing.T) {
	NoLeaks(t)
	frames := make(chan string, 16)
	var late atomic.Value
	text := func(id, text string) string {
		return `{"jsonrpc":"2.0","id":` + id + `,"result":{"content":[{"type":"text","text":"` + text + `"}]}}`
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m RPC
		switch body, _ := io.ReadAll(r.Body); {
		case r.Method == http.MethodGet:
			AsStream("event: endpoint\ndata: /messages\n\n")(w, r, m)
			for {
				select {
				case f := <-frames:
					AsStream("data: "+f+"\n\n")(w, r, m)
				case <-r.Context().Done():
					return
				}
			}
		case r.URL.Path != "/messages" || json.Unmarshal(body, &m) != nil:
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		id := string(m.ID)
		switch {
		case m.Method == "initialize":
			frames <- `{"jsonrpc":"2.0","id":` + id + `,"result":{"protocolVersion":"2024-11-05","capabilities":{"tools":{}},"serverInfo":{"name":"late","version":"1"}}}`
		case m.Method == "tools/list":
			frames <- `{"jsonrpc":"2.0","id":` + id + `,"result":` + OneTool("late") + `}`
		case m.Method == "tools/call" && late.CompareAndSwap(nil, id): // is not answered now
		case m.Method == "tools/call":
			for _, f := range []string{text(late.Load().(string), "LATE"), text(late.Load().(string), "LATE"), text(id, "right"), text(id, "TWICE")} {
				frames <- f
			}
		}
		w.WriteHeader(http.StatusAccepted)
	}))
	t.Cleanup(server.Close)
	up := NewUpstream(t, Script(Asks(Use("late", `{"n":1}`)), Asks(Use("late", `{"n":2}`)), Says("Done.")))
	g := MustRun(t, Site{Upstream: up.URL, Servers: []string{fmt.Sprintf("name: s, url: %q, timeout: 3s", server.URL+"/sse")}}.Yaml())
	g.Post(Question).Completion(t)
	if told := up.Requests()[2].Results(t); len(told) != 2 || !strings.Contains(told[0], "did not answer") || told[1] != "right" {
		t.Errorf("the model was told %q", told)
	}
}
