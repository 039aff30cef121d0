package crash_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// disk is a file system of a few MiB that only the gateway's process sees, and
// whoever looks through its eyes.
type disk struct {
	mount  string   // where the gateway sees it
	prefix []string // command line that makes it and runs what follows
	seen   string   // where the test sees it, once the gateway runs
}

// newDisk skips the test where nobody may mount anything.
func newDisk(t *testing.T, size string) *disk {
	t.Helper()
	dir := t.TempDir()
	d := &disk{mount: dir, prefix: []string{
		"unshare", "--map-root-user", "--mount", "sh", "-c", `mount -t tmpfs -o size="$0" turnpike "$1" && shift && exec "$@"`, size, dir,
	}}
	try := slices.Concat(d.prefix, []string{"true"})
	if output, err := exec.CommandContext(t.Context(), try[0], try[1:]...).CombinedOutput(); err != nil {
		t.Skipf("no file system of our own can be mounted here, to be filled: %v\n%s", err, output)
	}
	return d
}

// fill takes all the space there is.
func (d *disk) fill(t *testing.T) {
	t.Helper()
	f, err := os.Create(filepath.Join(d.seen, "ballast"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for piece := bytes.Repeat([]byte("x"), 4096); err == nil; {
		_, err = f.Write(piece)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
}

// free gives it back.
func (d *disk) free(t *testing.T) {
	t.Helper()
	if err := os.Remove(filepath.Join(d.seen, "ballast")); err != nil {
		t.Fatal(err)
	}
}

// full is a world whose disk can be filled while runs wait for what the gate
// holds.
type full struct {
	*world
	*disk
	gate        chan struct{}
	model, call <-chan insistence // of two clients that insist
	light       chan answer       // of two that do not
}

// newFull makes the world and lets its clients ask.
func newFull(t *testing.T) *full {
	t.Helper()
	f := &full{disk: newDisk(t, "64m"), gate: make(chan struct{}), light: make(chan answer, 2)}
	f.world = newWorld(t, options{
		data: filepath.Join(f.mount, "data"), runtime: "concurrency: 64",
		script: func(transcript []message) turn { return patient(transcript, f.gate) },
		tools:  []turnpiketest.Tool{{Name: "send", Result: "sent", Gate: f.gate}},
	})
	f.world.prefix = f.disk.prefix
	p := f.serve()
	pid := fmt.Sprint(p.cmd.Process.Pid)
	f.seen = "/proc/" + pid + "/root" + f.mount
	f.inside = []string{"nsenter", "--target", pid, "--user", "--mount", "--preserve-credentials"}
	f.model = f.insist(question{text: "model", key: "1"}, nil)
	f.call = f.insist(question{text: "call", key: "2", stream: true}, nil)
	for _, stream := range []bool{false, true} {
		go func() { f.light <- f.ask(f.Context(), question{text: "model", stream: stream}, nil) }()
	}
	eventually(t, "four runs wait", func() bool { return len(f.provider.transcripts()) == 4 && len(f.tools.Calls()) == 1 })
	return f
}

// A gateway whose disk is full says so, and answers nothing that is not stored;
// when there is space again, it goes on where it was.
func TestADiskThatIsFullLosesNothing(t *testing.T) { // R18
	t.Parallel()
	f := newFull(t)
	crowd := f.newCrowd(4)
	eventually(t, "a few runs are over", func() bool { return f.stateCounts()["complete"] > 4 })

	f.fill(t)
	f.wantNotReady() // SQLite first writes over the part of its log that it needs no more
	close(f.gate)
	var stored []string // SQLite may have room for a run in its log, even now
	for range 2 {
		a := await(t, "the end of a light run", f.light)
		if a.status == http.StatusOK && a.reason == "stop" {
			stored = append(stored, a.runID)
			continue
		}
		f.wantRefused(a)
	}
	f.wantNotReady()
	for _, q := range []question{{text: "quick"}, {text: "quick", stream: true}, {text: "quick", key: "3"}, {text: "quick", key: "4", stream: true}} {
		f.wantRefused(f.ask(t.Context(), q, nil))
	}

	f.free(t)
	f.wantReadySoon()
	f.wantGoneOn("unknown")
	crowd.wantStored(f.world)
	for _, id := range stored {
		if state := f.runs()[id]; state != "complete" {
			t.Errorf("a light run was answered and is stored as %q", state)
		}
	}
	if counts := f.stateCounts(); counts["lost"] < 2-len(stored) || counts["running"] > 0 {
		t.Errorf("runs %v, want those of the light clients lost that were refused, and none running", counts)
	}
}

// A run that has nothing to write does not notice that the disk was full, even
// if its lease could not be extended for too long.
func TestADiskThatIsFullForLongerThanALeaseTakesNoRunAway(t *testing.T) { // R18
	if testing.Short() {
		t.Skip("waits for the end of a lease")
	}
	t.Parallel()
	f := newFull(t)
	f.fill(t)
	f.wantNotReady() // the lease cannot be extended
	if err := pause(t.Context(), journal.LeaseTTL); err != nil {
		t.Fatal(err)
	}
	f.free(t)
	f.wantReadySoon()
	close(f.gate)
	for range 2 {
		if a := await(t, "the end of a light run", f.light); a.text != "Slowly." {
			t.Errorf("a light run was answered with %+v", a)
		}
	}
	f.wantGoneOn("sent")
}

func (f *full) wantNotReady() {
	f.Helper()
	eventually(f.T, "the gateway says that it is not ready", func() bool { return f.get("/readyz") == http.StatusServiceUnavailable })
	if status := f.get("/healthz"); status != http.StatusOK {
		f.Errorf("/healthz says %d while the disk is full", status)
	}
}

func (f *full) wantReadySoon() {
	f.Helper()
	eventually(f.T, "the gateway takes work again", f.ready)
}

// wantGoneOn fails the test unless the durable runs were finished, without a
// second call of the tool.
func (f *full) wantGoneOn(told string) {
	f.Helper()
	if in := f.answered(f.model); in.text != "Slowly." {
		f.Errorf("the run that waited for its model: %+v", in)
	}
	if in := f.answered(f.call); in.last() != "Result: send "+told+"." {
		f.Errorf("the run that waited for its tool: %+v, want it %s", in, told)
	}
	if n := len(f.tools.Calls()); n != 1 {
		f.Errorf("the tool was called %d times", n)
	}
}

// patient is the model that has text ready for some, calls a tool for others,
// and is slow for the rest.
func patient(transcript []message, gate <-chan struct{}) turn {
	switch rounds, told, err := follow(transcript); {
	case err != nil:
		return turn{text: []string{err.Error()}}
	case transcript[0].Content == "quick":
		return turn{text: []string{"Quick."}}
	case transcript[0].Content == "model":
		return turn{text: []string{"Slow", "ly."}, hold: gate}
	case rounds == 0:
		return turn{text: []string{"Let me send it."}, calls: []call{{"c1", "send", "{}"}}}
	default:
		return turn{text: []string{"Result: " + told[0] + "."}}
	}
}

// wantRefused fails the test unless the client was told to come back later, and
// got no answer.
func (w *world) wantRefused(a answer) {
	w.Helper()
	begun := a.status == http.StatusOK && a.text != "" && a.reason == "" // a stream cannot change its status
	if a.code != "store_unavailable" || a.after == 0 || !begun && (a.status != http.StatusServiceUnavailable || a.retry == "") {
		w.Errorf("answered %+v while the disk is full, want 503 and store_unavailable", a)
	}
}

// crowd are clients that ask again and again, whatever they hear.
type crowd struct {
	stop    context.CancelFunc
	clients sync.WaitGroup

	mu      sync.Mutex
	heard   map[string]answer // of the runs that were answered, by id; guarded by mu
	refused int               // guarded by mu
}

func (w *world) newCrowd(size int) *crowd {
	c := &crowd{heard: map[string]answer{}}
	var ctx context.Context
	ctx, c.stop = context.WithCancel(w.Context())
	for i := range size {
		c.clients.Go(func() {
			for n := 0; pause(ctx, 5*time.Millisecond) == nil; n++ {
				q := question{text: "quick", stream: n%2 == 0}
				if i%2 == 0 {
					q.key = fmt.Sprintf("crowd %d %d", i, n)
				}
				c.hear(w.ask(ctx, q, nil))
			}
		})
	}
	w.Cleanup(func() {
		c.stop()
		c.clients.Wait()
	})
	return c
}

func (c *crowd) hear(a answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a.reason != "" {
		c.heard[a.runID] = a
	} else if a.code == "store_unavailable" {
		c.refused++
	}
}

// wantStored stops the clients, and fails the test unless each run that was
// answered is stored as one that has ended.
func (c *crowd) wantStored(w *world) {
	w.Helper()
	c.mu.Lock()
	before := len(c.heard)
	c.mu.Unlock()
	eventually(w.T, "others are answered again", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.heard) > before
	})
	c.stop()
	c.clients.Wait()
	eventually(w.T, "no run is under way", func() bool { return w.stateCounts()["running"] == 0 })
	states := w.runs()
	for id, a := range c.heard {
		if states[id] != "complete" {
			w.Errorf("run %s was answered with %+v and is %q in the store", id, a, states[id])
		}
	}
	if c.refused == 0 || len(c.heard) == 0 {
		w.Errorf("%d runs answered, %d refused: want some of each", len(c.heard), c.refused)
	}
	w.Logf("%d runs answered and stored, %d refused, %v", len(c.heard), c.refused, w.stateCounts())
}

// Below the floor of free space nothing is accepted, and what is under way ends
// as usual.
func TestADiskBelowItsFloorAcceptsNothing(t *testing.T) { // R18
	t.Parallel()
	d := newDisk(t, "12m")
	gate := make(chan struct{})
	w := newWorld(t, options{
		data: filepath.Join(d.mount, "data"), floor: 6, runtime: "concurrency: 64",
		script: func(transcript []message) turn { return patient(transcript, gate) },
	})
	w.prefix = d.prefix
	p := w.serve()
	d.seen = "/proc/" + fmt.Sprint(p.cmd.Process.Pid) + "/root" + d.mount
	slow := w.insist(question{text: "model", key: "1"}, nil)
	eventually(t, "a run waits", func() bool { return len(w.provider.transcripts()) == 1 })

	ballast := filepath.Join(d.seen, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 7<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the gateway says that it is not ready", func() bool { return w.get("/readyz") == http.StatusServiceUnavailable })
	for _, q := range []question{{text: "quick"}, {text: "quick", stream: true}, {text: "quick", key: "2"}} {
		if a := w.ask(t.Context(), q, nil); a.status != http.StatusServiceUnavailable || a.code != "disk_space_low" || a.after == 0 {
			t.Errorf("answered %+v below the floor", a)
		}
	}
	close(gate)
	if in := w.answered(slow); in.text != "Slowly." {
		t.Errorf("the run that was under way: %+v", in)
	}
	d.free(t)
	eventually(t, "the gateway takes work again", w.ready)
	if a := w.ask(t.Context(), question{text: "quick"}, nil); a.text != "Quick." {
		t.Errorf("answered %+v when there is space again", a)
	}
}

// A start on a full disk waits for space, and says so.
func TestAStartOnAFullDiskWaits(t *testing.T) { // R18
	t.Parallel()
	d := newDisk(t, "6m")
	w := newWorld(t, options{data: filepath.Join(d.mount, "data"), script: oneAnswer})
	// As the gateway's own command, but with a full disk.
	full := slices.Concat(d.prefix[:5], []string{
		`mount -t tmpfs -o size="$0" turnpike "$1" && mkdir "$1/data" && { head -c 8388608 /dev/zero > "$1/ballast" 2> /dev/null; shift && exec "$@"; }`,
	}, d.prefix[6:])
	env := append(baseEnv(), "OWNER_KEY="+ownKey, "PROVIDER_KEY="+providerKey)
	command := slices.Concat(full, []string{os.Getenv(binaryVariable), "serve", "--config", w.config})
	p := begin(t, env, command[0], command[1:]...)
	eventually(t, "the gateway says that it waits", func() bool {
		return strings.Contains(p.output.String(), "the disk is full: the gateway waits for space before it starts")
	})
	d.seen = "/proc/" + fmt.Sprint(p.cmd.Process.Pid) + "/root" + d.mount
	line, _ := p.output.after("listen=")
	address, _, _ := strings.Cut(line, " ")
	w.mu.Lock()
	w.url = "http://" + address
	w.mu.Unlock()
	if health, ready := w.get("/healthz"), w.get("/readyz"); health != http.StatusOK || ready != http.StatusServiceUnavailable {
		t.Errorf("while it waits, /healthz says %d and /readyz %d", health, ready)
	}
	if a := w.ask(t.Context(), question{text: "go"}, nil); a.status != http.StatusServiceUnavailable || a.code != "starting" {
		t.Errorf("while it waits, it answered %+v", a)
	}
	d.free(t)
	eventually(t, "the gateway listens", func() bool {
		url, ok := p.output.after("turnpike listens on ")
		w.mu.Lock()
		defer w.mu.Unlock()
		w.url = url
		return ok
	})
	eventually(t, "the gateway takes work", w.ready)
	if a := w.ask(t.Context(), question{text: "go"}, nil); a.text != "Done." {
		t.Errorf("answered %+v", a)
	}
}
