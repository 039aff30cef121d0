package approvals_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/app"
	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/cli"
	"github.com/turnpike-gateway/turnpike/internal/id"
	"github.com/turnpike-gateway/turnpike/internal/sse"
	"github.com/turnpike-gateway/turnpike/internal/store/database"
)

// heldRun is a durable run of two rounds whose second answer stops after its first piece,
// until release is called.
type heldRun struct {
	Documented
	data    string
	id      string
	release func()
	answer  <-chan Answer // of the client that has started it
}

// hold starts the run with the member's key.
func hold(t *testing.T, runtime string) *heldRun {
	t.Helper()
	held := make(chan struct{})
	up := NewUpstream(t, func(w http.ResponseWriter, r *http.Request, got Received) {
		if got.Number == 0 {
			Asks(Use("echo", `{"n":1}`)).Saying("Looking\x1b[2J.").Write(w)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		Frame(w, `{"choices":[{"index":0,"delta":{"content":"Do"}}]}`)
		_ = http.NewResponseController(w).Flush()
		select {
		case <-held:
		case <-r.Context().Done():
			return
		}
		Frame(w, `{"choices":[{"index":0,"delta":{"content":"ne.\nBye"}}]}`)
		Frame(w, `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}`)
		Frame(w, "[DONE]")
	})
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	h := &heldRun{data: NewData(t), release: sync.OnceFunc(func() { close(held) })}
	t.Cleanup(h.release)
	h.Documented = Manage(MustRunIn(t, h.data, Site{Upstream: up.URL, Runtime: runtime, Servers: []string{Server("tools", tools.URL)}}.Yaml(), Environment()))
	answers := make(chan Answer, 1)
	h.answer = answers
	r := h.Request(t.Context(), "POST", "/v1/chat/completions", strings.NewReader(StreamedQuestion), "Authorization", "Bearer member-key", "Idempotency-Key", "k")
	resp, err := h.Client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	h.id = resp.Header.Get("Turnpike-Run-Id")
	go func() {
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		answers <- Answer{Status: resp.StatusCode, Header: resp.Header, Body: body}
	}()
	return h
}

// follow opens the event stream of the run.
func (h *heldRun) follow(ctx context.Context, fields ...string) *http.Response {
	h.T.Helper()
	resp, err := h.Client.Do(h.Request(ctx, "GET", "/v1/runs/"+h.id+"/events", nil, fields...))
	if err != nil {
		h.T.Fatal(err)
	}
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		h.T.Fatalf("%d %v", resp.StatusCode, resp.Header)
	}
	return resp
}

// frames returns the events of a stream, each as it was sent.
func frames(body string) []string {
	all := strings.SplitAfter(body, "\n\n")
	all = all[:len(all)-1]
	return slices.DeleteFunc(all, func(f string) bool { return strings.HasPrefix(f, ":") })
}

// position returns the id of an event.
func position(frame string) string {
	text, _, _ := strings.Cut(strings.TrimPrefix(frame, "id: "), "\n")
	return text
}

// The events of a run are the same while it happens, afterwards, and after
// any of them. // L05 J21 P05
func TestARunIsFollowedOverHTTP(t *testing.T) {
	NoLeaks(t)
	h := hold(t, "")
	live := h.follow(t.Context())
	defer live.Body.Close()
	var body bytes.Buffer
	reader := sse.NewReader(io.TeeReader(live.Body, &body), sse.ReaderOptions{})
	for piece := ""; !strings.Contains(piece, `"text":"Do"`); { // it comes before the model has ended its answer
		e, err := reader.Next()
		if err != nil {
			t.Fatal(err)
		}
		piece = string(e.Data)
	}
	shown := h.Do("GET", "/v1/runs/"+h.id, "member-key", "", 200)
	if calls := shown["calls"].([]any); shown["state"] != "running" || shown["finished_at"] != nil || len(calls) != 1 || calls[0].(map[string]any)["outcome"] != "ok" {
		t.Errorf("in progress: %v", shown)
	}
	h.release()
	for {
		if _, err := reader.Next(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	h.answerEnds()
	want := frames(body.String())
	var types []string
	for _, f := range want {
		_, name, _ := strings.Cut(f, "\nevent: ")
		name, data, _ := strings.Cut(name, "\ndata: ")
		types = append(types, name)
		if e, err := event.Decode([]byte(strings.TrimSpace(data))); err != nil || e.Type() != name {
			t.Errorf("%s: %v", f, err)
		}
	}
	if got := strings.Join(types, " "); got != "started round_started text_delta round_done tool_started tool_done round_started text_delta text_delta round_done finished" {
		t.Errorf("the events are %s", got)
	}
	for n := range len(want) + 1 {
		fields, query := []string{"Authorization", "Bearer member-key"}, ""
		switch {
		case n > 0 && n%2 == 0:
			query = "?after=" + position(want[n-1])
		case n > 0:
			fields = append(fields, "Last-Event-ID", position(want[n-1]))
		}
		a := h.Send("GET", "/v1/runs/"+h.id+"/events"+query, nil, fields...)
		if got := frames(string(a.Body) + "\n\n"); n < len(want) && !slices.Equal(got[:len(got)-1], want[n:]) || n == len(want) && (a.Status != 204 || len(a.Body) > 0) {
			t.Errorf("after event %d: %d\n%s\nwant\n%s", n, a.Status, a.Body, strings.Join(want[n:], ""))
		}
	}
	shown = h.Do("GET", "/v1/runs/"+id.UUID(h.id), "owner-key", "", 200)
	if limits := shown["limits"].(map[string]any); shown["state"] != "complete" || shown["id"] != h.id || shown["grade"] != "durable" || limits["rounds"] != 10.0 || shown["key"] != "c" {
		t.Errorf("afterwards: %v", shown)
	}
	listed := h.Do("GET", "/v1/runs?key_id=c&state=complete", "owner-key", "", 200)
	if data := listed["data"].([]any); len(data) != 1 || listed["last_id"] != h.id || data[0].(map[string]any)["rounds"] != 2.0 {
		t.Errorf("the list: %v", listed)
	}
	h.Do("POST", "/v1/runs/"+h.id+"/cancel", "member-key", "", 409)
	for path, want := range map[string]int{"/v1/runs?limit=0": 400, "/v1/runs/run_x": 404, "/v1/runs/run_x/events": 404} {
		h.Do("GET", path, "owner-key", "", want)
	}
}

// answerEnds waits for the client that has started the run.
func (h *heldRun) answerEnds() Answer {
	h.T.Helper()
	return Wait(h.T, h.answer, "the answer")
}

// A stream of events does not take the place of a model request, and is not ended by a
// client that leaves.
func TestEventStreamsAreNoModelRequests(t *testing.T) {
	NoLeaks(t)
	h := hold(t, "concurrency: 2")
	for range 3 {
		body := h.follow(t.Context()).Body
		t.Cleanup(func() { _ = body.Close() })
	}
	ctx, cancel := context.WithCancel(t.Context())
	left := h.follow(ctx)
	cancel()
	_ = left.Body.Close()
	h.release()
	if text := h.answerEnds().Stream(t).Text; !strings.HasSuffix(text, "Done.\nBye") {
		t.Errorf("the run ended with %q", text)
	}
}

// A member cancels its own run, and those who follow it see its end. // J22
func TestAMemberCancelsItsRun(t *testing.T) {
	NoLeaks(t)
	h := hold(t, "")
	stream := h.follow(t.Context())
	defer stream.Body.Close()
	if got := h.Do("POST", "/v1/runs/"+h.id+"/cancel", "member-key", "{}", 202); got["status"] != "cancelling" || got["id"] != h.id {
		t.Errorf("the answer is %v", got)
	}
	body, err := io.ReadAll(stream.Body)
	all := frames(string(body))
	if last := all[len(all)-1]; err != nil || !strings.Contains(last, "event: finished\n") || !strings.Contains(last, `"reason":"cancelled"`) {
		t.Errorf("%v: the stream ends with %s", err, last)
	}
	h.answerEnds()
	if shown := h.Do("GET", "/v1/runs/"+h.id, "member-key", "", 200); shown["why"] != "The key c cancelled the run." {
		t.Errorf("why: %v", shown)
	}
}

// What the model had said when its client left is kept, and shown to those who
// follow the run. // G18
func TestTheTextOfARunThatItsClientLeftIsKept(t *testing.T) {
	NoLeaks(t)
	begun := make(chan struct{})
	up := NewUpstream(t, func(w http.ResponseWriter, r *http.Request, _ Received) {
		w.Header().Set("Content-Type", "text/event-stream")
		Frame(w, `{"choices":[{"index":0,"delta":{"content":"Half an ans"}}]}`)
		_ = http.NewResponseController(w).Flush()
		close(begun)
		<-r.Context().Done()
	})
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	d := Manage(MustRun(t, Site{Upstream: up.URL, Servers: []string{Server("tools", tools.URL)}}.Yaml()))
	ctx, leave := context.WithCancel(t.Context())
	resp, err := d.Client.Do(d.Request(ctx, "POST", "/v1/chat/completions", strings.NewReader(StreamedQuestion)))
	if err != nil {
		t.Fatal(err)
	}
	name := resp.Header.Get("Turnpike-Run-Id")
	Wait(t, begun, "the first text")
	if _, err := bufio.NewReader(resp.Body).ReadString('H'); err != nil {
		t.Fatal(err)
	}
	leave()
	_ = resp.Body.Close()
	a := d.Send("GET", "/v1/runs/"+name+"/events", nil) // ends with the run
	if text := string(a.Body); !strings.Contains(text, `"text":"Half an ans"`) || !strings.Contains(text, `"reason":"caller_gone"`) {
		t.Errorf("%d %s", a.Status, text)
	}
	if shown := d.Do("GET", "/v1/runs/"+name, "owner-key", "", 200); shown["state"] != "caller_gone" || shown["failure"].(map[string]any)["code"] != "caller_gone" {
		t.Errorf("%v", shown)
	}
}

// The failure of a run names addresses to owners and admins only. // K09
func TestRunsShowAddressesToThoseWhoMaySeeThem(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, Script(Says("never")))
	d := Manage(MustRun(t, Site{Upstream: up.URL, Allow: "127.0.0.1/32", Servers: []string{Server("files", "http://10.1.2.3/mcp")}}.Yaml()))
	name := d.Post(Question, "Authorization", "Bearer member-key").Header.Get("Turnpike-Run-Id")
	for role, sees := range map[string]bool{"owner": true, "admin": true, "member": false} {
		shown := d.Send("GET", "/v1/runs/"+name, nil, "Authorization", "Bearer "+role+"-key")
		d.Conforms("GET", "/v1/runs/"+name, shown)
		events := d.Send("GET", "/v1/runs/"+name+"/events", nil, "Authorization", "Bearer "+role+"-key")
		for _, body := range []string{string(shown.Body), string(events.Body)} {
			if strings.Contains(body, "10.1.2.3") != sees || !strings.Contains(body, "outbound_ssrf_blocked") {
				t.Errorf("the %s got %s", role, body)
			}
		}
	}
}

// "runs follow" prints a run while it happens, and the same afterwards.
func TestRunsFollowPrintsARunAsItHappens(t *testing.T) { // L05
	NoLeaks(t)
	h := hold(t, "")
	in, out := io.Pipe()
	var errs bytes.Buffer
	status := make(chan int, 1)
	go func() {
		args := []string{"runs", "follow", h.id, "--org", "o", "--data", h.data}
		status <- cli.Main(t.Context(), cli.Process{Args: args, Env: NoEnvironment, Stdout: out, Stderr: &errs})
		_ = out.Close()
	}()
	lines, live := bufio.NewReader(in), ""
	for !strings.HasSuffix(live, "\nround 1    model    Do") {
		r, _, err := lines.ReadRune()
		if err != nil {
			t.Fatalf("%v after %s%s", err, live, errs.String())
		}
		live += string(r)
	}
	h.release()
	rest, err := io.ReadAll(lines)
	if live += string(rest); err != nil || Wait(t, status, "the command") != 0 {
		t.Fatalf("%v: %s%s", err, live, errs.String())
	}
	h.answerEnds()
	for _, want := range []string{
		"started             " + h.id + "   m at ", "\nround 0    model    Looking\ufffd[2J.", `           0.0      echo({"n":1})` + "\n", `           0.0      ok: {"n":1}   (tools, `,
		"\nround 1    model    Done.\n                    Bye   (3 + 2 tokens)\nfinished            complete\n\n2 rounds, 1 tool call, ",
	} {
		if !strings.Contains(live, want) {
			t.Errorf("%q is missing in\n%s", want, live)
		}
	}
	follow := func(args ...string) string {
		status, out, errs := RunMain(t, append([]string{"runs", "follow", "--org", "o", "--data", h.data}, args...)...)
		if status != 0 || errs != "" {
			t.Errorf("%v: %d %s", args, status, errs)
		}
		return out
	}
	if later := follow(id.UUID(h.id)); later != live {
		t.Errorf("afterwards\n%s\nwant\n%s", later, live)
	}
	all := strings.SplitAfter(follow(h.id, "--json"), "\n")
	all = all[:len(all)-1]
	for i, line := range all {
		var one struct {
			Position string
			Type     string
		}
		if err := json.Unmarshal([]byte(line), &one); err != nil || one.Type == "" || !strings.HasPrefix(line, `{"position":"`) || strings.ContainsRune(line, 0x1b) {
			t.Fatalf("%v: %s", err, line)
		}
		if got := follow(h.id, "--json", "--after", one.Position); got != strings.Join(all[i+1:], "") {
			t.Errorf("after %s: %s", one.Position, got)
		}
	}
	if !strings.Contains(strings.Join(all, ""), `"text":"Looking\u001b[2J."`) {
		t.Errorf("the text was changed: %s", all)
	}
}

func TestRunsFollowRefusesWhatItCannotRead(t *testing.T) {
	data := storedRuns(t)
	for args, want := range map[string]string{
		"run_9":             "the org o has no run run_9",
		"run_1 --after 1":   `--after: "1" is not a position of an event; want two numbers with a dot between them, such as 12.3`,
		"run_1 --after":     "flag needs an argument",
		"":                  "turnpike runs follow takes 1 argument, not 0: write turnpike runs follow ID|UUID",
		"run_1 --org other": "there is no org other; the orgs are o",
	} {
		status, out, errs := RunMain(t, append(strings.Fields("runs follow --org o --data "+data), strings.Fields(args)...)...)
		if status != 1 || out != "" || !strings.Contains(errs, want) {
			t.Errorf("%s: %d, %q, %s, want %s", args, status, out, errs, want)
		}
	}
}

// Ctrl-C ends the command, which is no error.
func TestRunsFollowIsInterrupted(t *testing.T) {
	NoLeaks(t)
	data := storedRuns(t)
	ctx, interrupt := context.WithCancel(t.Context())
	in, out := io.Pipe()
	status := make(chan int, 1)
	var errs bytes.Buffer
	go func() {
		status <- cli.Main(ctx, cli.Process{Args: strings.Fields("runs follow run_4 --org o --data " + data), Env: NoEnvironment, Stdout: out, Stderr: &errs})
		_ = out.Close()
	}()
	line, err := bufio.NewReader(in).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "started             run_4   m\ufffd at ") {
		t.Errorf("%v: %q", err, line)
	}
	interrupt()
	if got := Wait(t, status, "the command"); got != 0 || errs.Len() > 0 {
		t.Errorf("%d: %s", got, errs.String())
	}
}

// Without a gateway the request is stored, and the next start ends the run. // J22
func TestRunsCancelWithoutAGateway(t *testing.T) {
	NoLeaks(t)
	data := storedRuns(t)
	refused := ClosedURL
	cancel := func(args string) (int, string, string) {
		return RunMain(t, strings.Fields(fmt.Sprintf("runs cancel --url %s --org o --data %s %s", refused, data, args))...)
	}
	for args, want := range map[string]string{
		"run_9": "the org o has no run run_9", "run_1": "run run_1 has already ended (model_error)", "run_4 --org other": "there is no org other; the orgs are o",
		"run_4 --data " + t.TempDir(): "there is no Turnpike data in ", "..": `".." is not the id or name of anything`,
	} {
		if status, out, errs := cancel(args); status != 1 || out != "" || !strings.Contains(errs, want) {
			t.Errorf("%s: %d %s%s, want %s", args, status, out, errs, want)
		}
	}
	if status, out, errs := cancel("run_4"); status != 0 || out != "no gateway is running: run_4 ends when the gateway starts\n" {
		t.Fatalf("%d %s%s", status, out, errs)
	}
	up := NewUpstream(t, Script(Says("never")))
	g := MustRunIn(t, data, Site{Upstream: up.URL}.Yaml(), Environment())
	a := g.Send("GET", "/v1/runs/run_4/events", nil) // ends with the run
	if !strings.Contains(string(a.Body), `"reason":"cancelled"`) {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	if shown := g.ShowRun(t, data, "run_4"); !strings.Contains(shown, "An operator cancelled the run on the command line.") {
		t.Errorf("runs show says %s", shown)
	}
	if status, _, errs := cancel("run_4"); status != 1 || !strings.Contains(errs, "no key: set TURNPIKE_KEY") {
		t.Errorf("without a key, while a gateway runs: %d %s", status, errs)
	}
	var out, errs bytes.Buffer
	withKey := cli.Process{Args: []string{"runs", "cancel", "run_4", "--url", refused, "--data", data}, Stdout: &out, Stderr: &errs, Env: func(name string) (string, bool) {
		return "k", name == "TURNPIKE_KEY"
	}}
	if status := cli.Main(t.Context(), withKey); status != 1 || !strings.Contains(errs.String(), "another process uses "+data) || !strings.Contains(errs.String(), "--url") {
		t.Errorf("while a gateway runs elsewhere: %d %s", status, errs.String())
	}
	store, err := database.OpenReader(t.Context(), filepath.Join(data, app.DatabaseFile))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	rows, err := store.AuditRows(t.Context(), "o", audit.Query{Kind: audit.KindManagement})
	if err != nil || len(rows) != 1 || rows[0].Principal != "command line" || !strings.Contains(string(rows[0].Body), `"cancel"`) {
		t.Errorf("%v: %+v", err, rows)
	}
}

// A response whose run was cancelled, by somebody or because its client left, is cancelled and has
// no error: in the stream and when it is read later.
func TestACancelledRunIsACancelledResponse(t *testing.T) {
	NoLeaks(t)
	begun := make(chan struct{}, 2)
	up := NewUpstream(t, func(w http.ResponseWriter, r *http.Request, _ Received) {
		w.Header().Set("Content-Type", "text/event-stream")
		Frame(w, `{"choices":[{"index":0,"delta":{"content":"Half an ans"}}]}`)
		_ = http.NewResponseController(w).Flush()
		begun <- struct{}{}
		<-r.Context().Done()
	})
	d := Manage(MustRun(t, Site{Upstream: up.URL}.Yaml()))
	const asked = `{"model":"m","input":"go","stream":true}`
	for _, leaves := range []bool{false, true} {
		ctx, leave := context.WithCancel(t.Context())
		resp, err := d.Client.Do(d.Request(ctx, "POST", "/v1/responses", strings.NewReader(asked)))
		if err != nil {
			t.Fatal(err)
		}
		name := resp.Header.Get("Turnpike-Run-Id")
		Wait(t, begun, "the first text")
		if leaves {
			leave()
		} else {
			d.Do("POST", "/v1/runs/"+name+"/cancel", "owner-key", "", 202)
			body, err := io.ReadAll(resp.Body)
			if text := string(body); err != nil || strings.Count(text, "event: response.failed\n") != 1 || !strings.Contains(text, `"status":"cancelled"`) || strings.Contains(text, "invalid_prompt") {
				t.Errorf("%v: the stream is %s", err, text)
			}
		}
		_ = resp.Body.Close()
		leave()
		d.Send("GET", "/v1/runs/"+name+"/events", nil) // ends with the run
		var got RespObject
		a := d.Send("GET", "/v1/responses/resp_"+strings.TrimPrefix(name, "run_"), nil)
		if err := json.Unmarshal(a.Body, &got); err != nil || got.Status != "cancelled" || got.Error != nil || got.Text() != "Half an ans" {
			t.Errorf("leaves %v: %d %s", leaves, a.Status, a.Body)
		}
	}
}
