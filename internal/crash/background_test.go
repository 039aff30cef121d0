//go:build unix

package crash_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/crash"
	"github.com/turnpike-gateway/turnpike/internal/loop"
)

// backgroundCases kill the gateway while a background response is queued, when its run has begun, and in
// each of its three rounds and four tool calls.
func backgroundCases() []string {
	points := []string{nth(crash.AfterAccept, 1), nth(crash.AfterClaim, 1)}
	for n := 1; n <= 3; n++ {
		points = append(points, nth(crash.AfterModelIntent, n), nth(crash.AfterModelSend, n), nth(crash.BeforeTurn, n), nth(crash.AfterTurn, n))
	}
	for n := 1; n <= 4; n++ { // look, order, send; send
		points = append(points, nth(crash.AfterCallSend, n))
	}
	for n := 1; n <= 2; n++ { // the two batches of calls
		points = append(points, nth(crash.AfterCallIntent, n), nth(crash.BeforeResult, n), nth(crash.AfterResult, n))
	}
	return append(points, nth(crash.AfterDeltaStored, 1), nth(crash.AfterDelta, 2), nth(crash.BeforeFinish, 1), nth(crash.AfterFinish, 1))
}

// followersOfRun lets a client follow a run from each of its events at a time.
const followersOfRun = "TURNPIKE_MAX_FOLLOWERS_PER_RUN=1000"

// following is what the clients have seen that follow one background response.
type following struct {
	w  *world
	id string
	wg sync.WaitGroup

	mu    sync.Mutex
	seen  map[int][]string // by the number after which the client began: its events; guarded by mu
	first int              // events that the first client has so far; guarded by mu
	begun map[int]bool     // clients that have an event, by the number after which they began; guarded by mu
}

// follow begins with a client that reads the stream from its first event. For each event that arrives,
// another client connects with starting_after and reads the rest. A client whose stream breaks
// connects again after its last event.
func (w *world) follow(id string) *following {
	f := &following{w: w, id: id, seen: map[int][]string{}, begun: map[int]bool{}}
	ctx, cancel := context.WithTimeout(w.Context(), 2*patience)
	w.Cleanup(func() { cancel(); f.wg.Wait() })
	f.wg.Go(func() { f.read(ctx, -1) })
	return f
}

// read reads the events after the one with the number, to the end of the stream.
func (f *following) read(ctx context.Context, after int) {
	var events []string
	for !slices.Contains(events, "data: [DONE]\n") && ctx.Err() == nil {
		err := f.w.streamResponse(ctx, f.id, after+len(events), func(event string) {
			events = append(events, event)
			f.note(after, len(events))
			if after < 0 && strings.HasPrefix(event, "event: ") {
				n := len(events) - 1
				f.wg.Go(func() { f.read(ctx, n) })
			}
		})
		if err != nil && pause(ctx, 25*time.Millisecond) != nil {
			break
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen[after] = events
}

// note notes that a client has n events.
func (f *following) note(after, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.begun[after] = true
	if after < 0 {
		f.first = n
	}
}

// allButLast reports whether the first client has at least n events, and a client has begun after each of them
// but the last one, after which there is nothing yet.
func (f *following) allButLast(n int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.first >= n && len(f.begun) == f.first
}

// streamResponse calls got for each event of a response after the one with the number; -1 = for all.
func (w *world) streamResponse(ctx context.Context, id string, after int, got func(event string)) error {
	url := w.base() + "/v1/responses/" + id + "?stream=true"
	if after >= 0 {
		url += fmt.Sprint("&starting_after=", after)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+ownKey)
	resp, err := w.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %s", resp.Status)
	}
	event := ""
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		switch line := lines.Text(); {
		case strings.HasPrefix(line, ":"): // a heartbeat
		case line != "":
			event += line + "\n"
		case event != "":
			got(event)
			event = ""
		}
	}
	return lines.Err()
}

// wantSame waits for all clients. Each must have seen the rest of one sequence of events, which is also what
// clients get that connect now. It returns the sequence and the number of compared streams.
func (f *following) wantSame() (whole []string, streams int) {
	f.w.Helper()
	f.wg.Wait()
	whole = f.seen[-1]
	if len(whole) < 3 || len(f.seen) != len(whole) {
		f.w.Fatalf("%d clients have followed %d events: %q", len(f.seen), len(whole), whole)
	}
	for after, events := range f.seen {
		if !slices.Equal(events, whole[after+1:]) {
			f.w.Errorf("a client that reconnected after %d got\n%q\nwant\n%q", after, events, whole[after+1:])
		}
		var later []string
		err := f.w.streamResponse(f.w.Context(), f.id, after, func(event string) { later = append(later, event) })
		if err != nil || !slices.Equal(later, whole[after+1:]) {
			f.w.Errorf("a client that connects after the end, and after %d, got %v\n%q\nwant\n%q", after, err, later, whole[after+1:])
		}
	}
	return whole, 2 * len(f.seen)
}

// terminal returns the status of the response in each event that ends one. That of a cancelled response
// is response.failed: the document has no event for it.
func terminal(events []string) (ends []string) {
	for _, e := range events {
		for _, end := range []string{"completed", "failed", "incomplete", "cancelled"} {
			if strings.HasPrefix(e, "event: response."+end+"\n") {
				ends = append(ends, between(e, `"status":"`, `"`))
			}
		}
	}
	return ends
}

// ends returns how many ends the journal of the run has.
func (w *world) ends(id string) (n int) {
	w.Helper()
	story, _ := w.load(id)
	for _, f := range story.Facts {
		if f.Body.Kind() == loop.KindFinished {
			n++
		}
	}
	w.wantAccounts(story)
	return n
}

// A background response is killed while it is queued, when it has begun, and in each round and tool call. It
// completes after the restart, once, without a client. Clients that reconnect from every event, during
// the run and after its end, get the same bytes. // P01 P11 P20
func TestABackgroundResponseSurvivesCrashes(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	streams, kills := 0, 0
	t.Run("cases", func(t *testing.T) {
		for _, point := range sampled(t, backgroundCases(), only) {
			t.Run(point, func(t *testing.T) {
				t.Parallel()
				w, _ := newErrand(t, "", "")
				w.env = []string{followersOfRun}
				p := w.start(point)
				created := w.respond(t.Context(), asked{background: true, key: "background-1"})
				id := created.object.ID
				if id == "" { // it died before it could answer, or while it did
					p.wantKilled(t, "which passes "+point)
					id = strings.Replace(w.onlyRun(), "run_", "resp_", 1)
				}
				all := w.follow(id)
				p.wantKilled(t, "which passes "+point)
				w.start("")
				whole, n := all.wantSame()
				_, fates := w.judge("complete")
				w.wantBackground(id, whole, expected(fates))
				mu.Lock()
				defer mu.Unlock()
				streams, kills = streams+n, kills+1
			})
		}
	})
	t.Logf("%d kills, %d streams compared", kills, streams)
}

// wantBackground fails the test unless the response is completed with the text, also in its stream and for
// a client that sends the request again.
func (w *world) wantBackground(id string, whole []string, text string) {
	w.Helper()
	o := w.stored(w.Context(), id).object
	const types = "mcp_list_tools message mcp_call mcp_call mcp_call message mcp_call message"
	if o.ID != id || o.Status != "completed" || o.types() != types || o.text() != text || o.Usage.Total != 45 {
		w.Errorf("the response is %+v, want %q", o, text)
	}
	if ends := terminal(whole); !slices.Equal(ends, []string{"completed"}) {
		w.Errorf("the stream has the ends %q", ends)
	}
	calls := len(w.tools.Calls())
	if again := w.respond(w.Context(), asked{background: true, key: "background-1"}); again.status != http.StatusOK || again.object.ID != id {
		w.Errorf("the request, sent again, gets %d %s %+v", again.status, again.code, again.object)
	}
	if n := w.ends(w.onlyRun()); n != 1 || len(w.tools.Calls()) != calls {
		w.Errorf("the journal has %d ends, and there were %d calls after the end", n, len(w.tools.Calls())-calls)
	}
}

// Clients reconnect from every event of a response that is in progress: while its model is silent, and while its
// tool is. The gateway is killed then, and they connect again. // P11 P20
func TestClientsReconnectWhileABackgroundResponseRuns(t *testing.T) {
	t.Parallel()
	type silence struct {
		held   string
		killed bool
	}
	silences := []silence{{"model", false}, {"model", true}, {"tool", false}, {"tool", true}}
	for _, s := range sampled(t, silences, func(s silence) string { return fmt.Sprint(s.killed) }) {
		t.Run(fmt.Sprintf("%s killed=%v", s.held, s.killed), func(t *testing.T) {
			t.Parallel()
			w, release := newErrand(t, s.held, "")
			defer release()
			w.env = []string{followersOfRun}
			p := w.serve()
			id := w.respond(t.Context(), asked{background: true, key: "background-1"}).object.ID
			all := w.follow(id)
			w.awaitHeld()
			eventually(t, "clients have begun after each event", func() bool { return all.allButLast(8) })
			if r := w.stored(t.Context(), id); r.object.Status != "in_progress" {
				t.Errorf("the response is %s while its %s is silent", r.object.Status, s.held)
			}
			if s.killed {
				p.kill()
				w.start("")
			}
			release()
			whole, _ := all.wantSame()
			_, fates := w.judge("complete")
			w.wantBackground(id, whole, expected(fates))
		})
	}
}

// cancelResponse cancels a response, and returns its status then. It asks again while there is no gateway that
// takes work.
func (w *world) cancelResponse(ctx context.Context, id string) (reply, error) {
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.base()+"/v1/responses/"+id+"/cancel", nil)
		if err != nil {
			return reply{}, err
		}
		r := w.reply(req)
		if r.status != 0 && r.status != http.StatusServiceUnavailable {
			return r, nil
		}
		if err := pause(ctx, 25*time.Millisecond); err != nil {
			return r, err
		}
	}
}

// wantOneEnd waits until a background response has ended, and fails the test unless it has one of the statuses,
// for all who ask, also for who cancels it once more.
func (w *world) wantOneEnd(id string, may ...string) string {
	w.Helper()
	status := ""
	eventually(w.T, "the response ends", func() bool {
		status = w.stored(w.Context(), id).object.Status
		return status != "queued" && status != "in_progress" && status != ""
	})
	if !slices.Contains(may, status) {
		w.Errorf("the response is %s, want one of %q", status, may)
	}
	calls := len(w.tools.Calls())
	for range 2 {
		again, err := w.cancelResponse(w.Context(), id)
		if err != nil || again.status != http.StatusOK || again.object.Status != status {
			w.Errorf("cancelled once more: %v, %d %s %+v", err, again.status, again.code, again.object)
		}
	}
	var events []string
	if err := w.streamResponse(w.Context(), id, -1, func(e string) { events = append(events, e) }); err != nil {
		w.Error(err)
	}
	if ends := terminal(events); !slices.Equal(ends, []string{status}) {
		w.Errorf("the stream has the ends %q, the response is %s", ends, status)
	}
	if n := w.ends(strings.Replace(id, "resp_", "run_", 1)); n != 1 || len(w.tools.Calls()) != calls {
		w.Errorf("the journal has %d ends, and there were %d calls after the end", n, len(w.tools.Calls())-calls)
	}
	return status
}

// A background response is cancelled at every position of its run, while its owner is alive and while it is
// dead. It has one end, and every call that was started is accounted for. // J22 P20
func TestABackgroundResponseIsCancelledAtEveryPosition(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	table := map[string]int{}
	t.Run("cases", func(t *testing.T) {
		for _, c := range sampled(t, cancelCases(), cancelCase.ownerName) {
			t.Run(fmt.Sprintf("%s serial=%v owner=%s", c.name, c.serial, c.ownerName()), func(t *testing.T) {
				t.Parallel()
				status := c.cancelInBackground(t, c.dead)
				mu.Lock()
				defer mu.Unlock()
				table[c.ownerName()+" "+status]++
			})
		}
	})
	t.Logf("positions by owner and end: %v", table)
}

func (c matrixCase) cancelInBackground(t *testing.T, dead bool) string {
	runtime := ""
	if c.serial {
		runtime = "tool_parallelism: serial"
	}
	w, release := newErrand(t, "", runtime)
	defer release()
	if !dead {
		w.pause = filepath.Join(t.TempDir(), "pause")
	}
	p := w.start(c.name)
	eventually(t, "the gateway takes work", w.ready)
	created := make(chan reply, 1)
	go func() { created <- w.respond(t.Context(), asked{background: true}) }()
	finished := strings.Contains(c.name, "-finish:") // the response is stored, and nothing is left to be cancelled
	if dead {
		p.wantKilled(t, "which passes "+c.name)
		if refused := w.cancelBy(true, w.onlyRun()); refused != "" && !finished {
			t.Errorf("the cancel was refused: %s", refused)
		}
		w.start("")
	} else {
		eventually(t, "the gateway is at "+c.name, func() bool { return exists(w.pause) })
	}
	id := strings.Replace(w.onlyRun(), "run_", "resp_", 1)
	answer := make(chan error, 1)
	go func() {
		r, err := w.cancelResponse(t.Context(), id)
		if err == nil && r.status != http.StatusOK {
			err = fmt.Errorf("the cancel was answered with %d %s", r.status, r.said)
		}
		answer <- err
	}()
	if !dead {
		eventually(t, "the cancel is stored", func() bool { return finished || w.isCancelled(w.onlyRun()) })
		if err := os.Remove(w.pause); err != nil {
			t.Error(err)
		}
	}
	if err := await(t, "the answer to the cancel", answer); err != nil {
		t.Error(err)
	}
	await(t, "the answer to the request", created)
	may := []string{"cancelled"}
	switch {
	case finished && dead && strings.HasPrefix(c.name, string(crash.BeforeFinish)):
	case finished:
		may = []string{"completed"}
	case !dead && strings.Contains(c.name, "-send:"): // see cancelCase.cancel
		may = append(may, "completed")
	}
	status := w.wantOneEnd(id, may...)
	w.judge(map[string]string{"cancelled": "cancelled", "completed": "complete"}[status])
	return status
}

// isCancelled reports whether somebody has asked for the end of the run.
func (w *world) isCancelled(id string) bool {
	w.Helper()
	story, _ := w.load(id)
	return slices.ContainsFunc(story.Facts, func(f loop.Fact) bool { return f.Body.Kind() == loop.KindCancelRequested })
}

// The gateway dies when a cancel is stored and nothing else has happened: of a response that is queued, that
// waits for its model or for its tool, and that waits for approval. After the restart the run ends, once, and the
// run that held the slot completes. // J22 P20
func TestTheGatewayDiesWhileABackgroundResponseIsCancelled(t *testing.T) {
	t.Parallel()
	for _, held := range []string{"queue", "model", "tool", "approval"} {
		t.Run(held, func(t *testing.T) {
			t.Parallel()
			holds := held
			if held == "queue" || held == "approval" {
				holds = "model"
			}
			w, release := newErrand(t, holds, "concurrency: 1")
			defer release()
			p := w.start(nth(crash.AfterCancel, 1))
			eventually(t, "the gateway takes work", w.ready)
			id := w.respond(t.Context(), asked{background: true, gated: held == "approval"}).object.ID
			other, want := "", "cancelled"
			switch held {
			case "queue":
				w.awaitHeld()
				other, id = id, w.respond(t.Context(), asked{background: true}).object.ID
				if s := w.stored(t.Context(), id).object.Status; s != "queued" {
					t.Errorf("the response is %s, want queued", s)
				}
			case "approval":
				want = "completed" // with its approval requests; its run ends
				eventually(t, "the run waits", func() bool { return w.stored(t.Context(), id).object.Status == want })
			default:
				w.awaitHeld()
			}
			answer := make(chan error, 1)
			go func() {
				_, err := w.cancelResponse(t.Context(), id)
				answer <- err
			}()
			p.wantKilled(t, "which records a cancel")
			w.start("")
			if err := await(t, "the answer to the cancel", answer); err != nil {
				t.Error(err)
			}
			eventually(t, "the run ends", func() bool { return w.runs()[strings.Replace(id, "resp_", "run_", 1)] == "cancelled" })
			w.wantOneEnd(id, want)
			release()
			if other != "" {
				w.wantOneEnd(other, "completed")
			}
		})
	}
}

// cutAfter is how long a connection may be silent at the proxy of the test.
const cutAfter = 16 * time.Second

// cuttingProxy passes connections on to the gateway, and closes those on which the gateway says nothing for
// cutAfter.
func cuttingProxy(t *testing.T, gateway string) (url string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	pass := func(client net.Conn) {
		server, err := net.Dial("tcp", strings.TrimPrefix(gateway, "http://"))
		if err != nil {
			_ = client.Close()
			return
		}
		mu.Lock()
		open = append(open, client, server)
		mu.Unlock()
		wg.Go(func() { _, _ = io.Copy(server, client) })
		wg.Go(func() {
			defer client.Close()
			defer server.Close()
			part := make([]byte, 4096)
			for {
				_ = server.SetReadDeadline(time.Now().Add(cutAfter))
				n, err := server.Read(part)
				if err == nil {
					_, err = client.Write(part[:n])
				}
				if err != nil {
					return
				}
			}
		})
	}
	wg.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			pass(client)
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		mu.Lock()
		for _, c := range open {
			_ = c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return "http://" + listener.Addr().String()
}

// A proxy that cuts after 16 seconds of silence cuts no stream: of a response in the foreground and of one in the
// background whose model is silent, of one that is queued, and of a client that reconnects. // P20 G14
func TestAProxyThatCutsSilentConnectionsCutsNoStream(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for the clock")
	}
	t.Parallel()
	w, release := newErrand(t, "model", "concurrency: 2")
	defer release()
	w.serve()
	w.mu.Lock()
	w.url = cuttingProxy(t, w.url)
	w.mu.Unlock()
	answers := make(chan reply, 3)
	ask := func(background bool) {
		go func() { answers <- w.respond(t.Context(), asked{stream: true, background: background}) }()
	}
	ask(false)
	ask(true)
	eventually(t, "the models of both are silent", func() bool { return len(w.provider.transcripts()) == 4 })
	ask(true)
	id := ""
	eventually(t, "the third response is queued", func() bool {
		for run, state := range w.runs() {
			if state == "queued" {
				id = strings.Replace(run, "run_", "resp_", 1)
			}
		}
		return id != ""
	})
	followed := make(chan []string, 1)
	go func() {
		var events []string
		if err := w.streamResponse(t.Context(), id, 0, func(e string) { events = append(events, e) }); err != nil {
			t.Error(err)
		}
		followed <- events
	}()
	if err := pause(t.Context(), 2*cutAfter); err != nil {
		t.Fatal(err)
	}
	release()
	for range 3 {
		if r := await(t, "the end of a stream", answers); r.code != "" || r.object.Status != "completed" || !strings.Contains(r.said, "\n: ") && !strings.HasPrefix(r.said, ": ") {
			t.Errorf("a stream was cut, or has no heartbeat: %q %+v", r.code, r.object.Status)
		}
	}
	if events := await(t, "the end of a follower", followed); !slices.Equal(terminal(events), []string{"completed"}) {
		t.Errorf("a client that reconnected was cut: %q", events)
	}
}
