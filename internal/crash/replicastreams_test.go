//go:build unix

package crash_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// cutStream is one kind of stream that a client can continue on any replica.
type cutStream struct {
	name string

	// begin starts a run on a replica and returns the first stream of it: an uncut one.
	begin func(r *replicated) (*http.Request, string)

	// resume returns the request for the events of the run after one; "" = all.
	resume func(run, after string) (path, header string)
}

// sequence finds the number of an event of the Responses API.
var sequence = regexp.MustCompile(`"sequence_number":(\d+)`)

// sentAt is the member of the events of agents that says when they were sent, not when they happened.
var sentAt = regexp.MustCompile(`"ts":"[^"]*",?`)

// readFrames calls got for each event of a stream, until the stream ends or got returns false.
func (w *world) readFrames(ctx context.Context, req *http.Request, got func(frame) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req = req.WithContext(ctx)
	req.Header.Set("Authorization", "Bearer "+ownKey)
	resp, err := w.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusNoContent: // nothing follows
		return nil
	default:
		text, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("%s: %s", resp.Status, text)
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	var next frame
	for lines.Scan() {
		line := lines.Text()
		if strings.HasPrefix(line, ":") { // a heartbeat
			continue
		}
		if id, ok := strings.CutPrefix(line, "id: "); ok {
			next.id = id
		} else if n := sequence.FindStringSubmatch(line); n != nil {
			next.id = n[1]
		}
		if line != "" {
			next.bytes += line + "\n"
			continue
		}
		if next.bytes != "" && !got(next) {
			return nil
		}
		next = frame{}
	}
	return lines.Err()
}

// get returns a request for the stream at the replica.
func (s cutStream) get(at *replica, run, after string) (*http.Request, error) {
	path, header := s.resume(run, after)
	req, err := http.NewRequest(http.MethodGet, at.base()+path, nil)
	if err == nil && header != "" {
		req.Header.Set("Last-Event-ID", header)
	}
	return req, err
}

// cutStreams are the streams that can be continued.
func cutStreams() []cutStream {
	byHeader := func(format string) func(run, after string) (string, string) {
		return func(run, after string) (string, string) { return fmt.Sprintf(format, run), after }
	}
	post := func(at *replica, path, body string) *http.Request {
		req, err := http.NewRequest(http.MethodPost, at.base()+path, strings.NewReader(body))
		if err != nil {
			at.Fatal(err)
		}
		return req
	}
	return []cutStream{
		{"responses", func(r *replicated) (*http.Request, string) {
			return post(r.replicas[0], "/v1/responses", string(asked{background: true, stream: true}.body())), ""
		}, func(run, after string) (string, string) {
			path := "/v1/responses/" + strings.Replace(run, "run_", "resp_", 1) + "?stream=true"
			if after != "" {
				path += "&starting_after=" + after
			}
			return path, ""
		}},
		{"agents", func(r *replicated) (*http.Request, string) {
			agent := r.created("/api/agents", `{"name":"a","model":"m"}`)
			return post(r.replicas[0], "/api/agents/"+agent+"/run/stream", `{"message":"Run the errand."}`), ""
		}, byHeader("/api/agents/runs/%s/events")},
		{"chat", func(r *replicated) (*http.Request, string) {
			key := "chat-1"
			go r.replicas[0].ask(r.Context(), question{text: "Run the errand.", key: key, stream: true}, nil)
			eventually(r.T, "the run is stored", func() bool { return len(r.runs()) == 1 })
			req, err := http.NewRequest(http.MethodGet, r.replicas[0].base()+"/v1/runs/"+r.onlyRun()+"/events", nil)
			if err != nil {
				r.Fatal(err)
			}
			return req, ""
		}, byHeader("/v1/runs/%s/events")},
	}
}

// cutting is many clients of one stream: each reads it on one replica up to an event, and continues on the other.
type cutting struct {
	*replicated
	stream  cutStream
	run     string
	ctx     context.Context
	clients sync.WaitGroup

	mu   sync.Mutex
	seen map[string]string // by when, and the event at which the client was cut off; guarded by mu
	errs []error           // guarded by mu
}

// cut reads the stream on one replica up to the event with the id, and the rest of it on the other.
func (c *cutting) cut(when string, i int, id string) {
	read, err := "", error(nil)
	for leg, after := range []string{"", id} {
		var req *http.Request
		if req, err = c.stream.get(c.replicas[(i+leg)%2], c.run, after); err != nil {
			break
		}
		err = c.readFrames(c.ctx, req, func(f frame) bool {
			read += f.bytes + "\n"
			return leg == 1 || f.id != id
		})
		if err != nil {
			break
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.errs = append(c.errs, fmt.Errorf("%s, cut at %s: %w", when, id, err))
	}
	c.seen[fmt.Sprint(when, " at ", id, " of replica ", i%2)] = read
}

// A stream begun on one replica is cut at each event and continued on the other, while the run is in progress and after its
// end: the bytes are those of the uncut one, but for the time at which an event of an agent was sent. // P05 P20
func TestAStreamGoesOnOnAnotherReplica(t *testing.T) {
	t.Parallel()
	for _, s := range cutStreams() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			gate := make(chan struct{})
			release := sync.OnceFunc(func() { close(gate) })
			r := newReplicated(t, options{script: func(transcript []message) turn {
				said := errand(transcript)
				if len(said.calls) == 1 {
					said.hold = gate
				}
				return said
			}, tools: toolsOfAll()}, 2)
			defer release()
			r.beginAll()
			s.wantSameWhereverCut(r, release)
		})
	}
}

func (s cutStream) wantSameWhereverCut(r *replicated, release func()) {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), 2*patience)
	defer cancel()
	c := &cutting{replicated: r, stream: s, ctx: ctx, seen: map[string]string{}}
	req, _ := s.begin(r)
	whole, ids := "", []string(nil)
	ended := make(chan error, 1)
	var mu sync.Mutex // guards whole and ids
	go func() {
		ended <- r.readFrames(ctx, req, func(f frame) bool {
			mu.Lock()
			defer mu.Unlock()
			whole += f.bytes + "\n"
			if f.id != "" && (len(ids) == 0 || ids[len(ids)-1] != f.id) {
				i := len(ids)
				ids = append(ids, f.id)
				if c.run == "" {
					c.run = r.onlyRun()
				}
				c.clients.Go(func() { c.cut("live", i, f.id) })
			}
			return true
		})
	}()
	waitFor(r.T, patience, "the model is asked again", func() bool { return len(r.provider.transcripts()) == 2 })
	_ = pause(ctx, 300*time.Millisecond) // what is said before it waits
	release()
	if err := await(r.T, "the end of the stream", ended); err != nil {
		r.Fatal(err)
	}
	for i, id := range ids {
		for from := range 2 {
			c.clients.Go(func() { c.cut("stored", i+from, id) })
		}
	}
	c.clients.Wait()
	for _, err := range c.errs {
		r.Error(err)
	}
	if len(ids) < 5 {
		r.Fatalf("the stream has the events %q:\n%s", ids, whole)
	}
	differ := 0
	whole = sentAt.ReplaceAllString(whole, "")
	for how, read := range c.seen {
		if read = sentAt.ReplaceAllString(read, ""); read != whole {
			if differ++; differ < 3 {
				got, want := firstDifference(read, whole)
				r.Errorf("%s: read\n%s\nwant\n%s", how, got, want)
			}
		}
	}
	r.Logf("%s: %d events; %d streams cut and continued on the other replica, %d differ", s.name, len(ids), len(c.seen), differ)
}

// firstDifference returns the rest of two streams from the first line in which they differ, 400 bytes of each.
func firstDifference(a, b string) (string, string) {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	n = strings.LastIndex(a[:n], "\n") + 1
	return a[n:min(len(a), n+400)], b[n:min(len(b), n+400)]
}
