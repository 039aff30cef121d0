package crash_test

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/soak"
)

// followerLimit is how many bytes of memory a follower may cost.
const followerLimit = 256 << 10

// A thousand clients follow one run, the most that an org may have, and one of them never reads. Each costs less than
// 256 KiB, and the others get everything without waiting for it. Without TURNPIKE_TEST_DEPTH=soak they are three hundred.
//
// Resident memory has garbage in it that is not collected yet: up to half as much again
// on a machine that is busy with other work. Therefore it is measured up to three times.
func TestAThousandFollowersOfOneRun(t *testing.T) { // P40 P05
	followers := soak.Value(t, 300, 300, 1000)
	var each int64
	for try := range 3 {
		t.Run(fmt.Sprint(try+1), func(t *testing.T) { each = memoryOfAFollower(t, int64(followers)) })
		if each <= followerLimit || t.Failed() {
			return
		}
	}
	t.Errorf("each follower costs %d bytes, want %d at most", each, followerLimit)
}

// memoryOfAFollower returns how many bytes each follower costs at the most.
func memoryOfAFollower(t *testing.T, followers int64) int64 {
	t.Helper()
	gate := make(chan struct{})
	pieces := make([]string, 128)
	for i := range pieces {
		pieces[i] = strings.Repeat(fmt.Sprintf("%04d ", i), 4<<10/5)
	}
	size := int64(len(strings.Join(pieces, "")))
	w := newWorld(t, options{script: func([]message) turn { return turn{text: pieces, hold: gate} }})
	w.env = []string{"TURNPIKE_MAX_FOLLOWERS_PER_RUN=" + fmt.Sprint(followers)}
	p := w.serve()
	first := w.insist(question{text: "Tell me all.", stream: true, key: "followers"}, nil)
	eventually(t, "the run is stored", func() bool { return len(w.runs()) == 1 })
	id := w.onlyRun()
	before := p.memory(t)

	quiet := w.neverReads(id)
	defer quiet.Close()
	var read, begun atomic.Int64
	var all sync.WaitGroup
	transport := &http.Transport{MaxConnsPerHost: int(followers), DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	ctx, cancel := context.WithTimeout(t.Context(), 8*patience)
	defer cancel()
	for range followers - 1 {
		all.Go(func() {
			n, err := w.readAll(ctx, client, id, &begun)
			if read.Add(n); err != nil {
				t.Errorf("a follower got %d bytes: %v", n, err)
			}
		})
	}
	eventually(t, "all followers have the first event", func() bool { return begun.Load() == followers-1 })
	waiting := p.memory(t)
	most := atomic.Int64{}
	most.Store(waiting)
	begin := time.Now()
	close(gate)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for ctx.Err() == nil && read.Load() < (followers-1)*size {
			most.Store(max(most.Load(), p.memory(t)))
			_ = pause(ctx, 20*time.Millisecond)
		}
	}()
	in := w.answered(first)
	run := time.Since(begin)
	all.Wait()
	took := time.Since(begin)
	cancel()
	<-watched
	each := (most.Load() - before) / followers
	t.Logf("%d followers of a run of %d KiB, one of which never reads: %d KiB each while they wait, at most %d KiB each; the run took %v, the last follower had everything after %v",
		followers, size>>10, (waiting-before)/followers>>10, each>>10, run.Round(time.Millisecond), took.Round(time.Millisecond))
	if int64(len(in.text)) != size || read.Load() != (followers-1)*size {
		t.Errorf("the first client read %d bytes and the followers %d, want %d and %d", len(in.text), read.Load(), size, (followers-1)*size)
	}
	if took > 2*patience {
		t.Errorf("the followers waited: they had everything after %v", took)
	}
	return each
}

// readAll follows a run to its end and returns how much text it was told.
func (w *world) readAll(ctx context.Context, client *http.Client, id string, begun *atomic.Int64) (n int64, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.base()+"/v1/runs/"+id+"/events", nil)
	if err != nil {
		return 0, err
	}
	req.Header.Set("Authorization", "Bearer "+ownKey)
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("status %s", resp.Status)
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(make([]byte, 0, 16<<10), 1<<20)
	last, line := "", ""
	for lines.Scan() {
		if lines.Text() == "" {
			continue
		}
		line = lines.Text()
		if event, ok := strings.CutPrefix(line, "event: "); ok {
			if last == "" {
				begun.Add(1)
			}
			last = event
		}
		if _, text, ok := strings.Cut(line, `"text":"`); ok && last == "text_delta" {
			n += int64(strings.Index(text, `"`))
		}
	}
	if last != "finished" {
		return n, fmt.Errorf("the last event was %q, %s: %w", last, line, cmp.Or(lines.Err(), io.ErrUnexpectedEOF))
	}
	return n, nil
}

// neverReads follows a run on a connection with a small buffer, and does not read.
func (w *world) neverReads(id string) net.Conn {
	w.Helper()
	dialer := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) { failed = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096) })
		if err != nil {
			return err
		}
		return failed
	}}
	conn, err := dialer.DialContext(w.Context(), "tcp", strings.TrimPrefix(w.base(), "http://"))
	if err != nil {
		w.Fatal(err)
	}
	_, err = fmt.Fprintf(conn, "GET /v1/runs/%s/events HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\n\r\n", id, ownKey)
	if err != nil {
		w.Fatal(err)
	}
	return conn
}

// memory returns the resident memory of the process in bytes.
func (p *process) memory(t *testing.T) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		t.Error(err)
		return 0
	}
	_, rest, _ := strings.Cut(string(text), "VmRSS:")
	var kib int64
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		t.Error(err)
	}
	return kib << 10
}
