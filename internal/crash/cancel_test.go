//go:build unix

package crash_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/crash"
	"github.com/turnpike-gateway/turnpike/internal/loop"
)

// cancelPositions are places in the errand, which has three rounds and four calls.
func cancelPositions() []matrixCase {
	var cases []matrixCase
	each := func(serial bool, times int, points ...crash.Point) {
		for _, p := range points {
			for n := 1; n <= times; n++ {
				cases = append(cases, matrixCase{name: nth(p, n), serial: serial})
			}
		}
	}
	each(false, 1, crash.AfterAccept)
	each(false, 3, crash.AfterModelIntent, crash.AfterModelSend, crash.AfterDeltaStored, crash.BeforeTurn, crash.AfterTurn)
	each(true, 4, crash.AfterCallIntent, crash.AfterCallSend, crash.BeforeResult, crash.AfterResult)
	each(false, 3, crash.AfterCallSend, crash.BeforeResult)
	each(false, 1, crash.BeforeFinish, crash.AfterFinish)
	return cases
}

// cancelCase is a position at which a run is cancelled.
type cancelCase struct {
	matrixCase
	dead      bool // the owner of the run
	byCommand bool // and not over HTTP
	stream    bool
}

func (c cancelCase) ownerName() string {
	if c.dead {
		return "dead"
	}
	return "alive"
}

// cancelCases returns each position with an owner that is alive and one that is dead.
func cancelCases() (all []cancelCase) {
	for i, c := range cancelPositions() {
		all = append(all, cancelCase{c, false, i%2 == 1, i%4 < 2}, cancelCase{c, true, i%2 == 0, i%4 < 2})
	}
	return all
}

// A run is cancelled at every position, while its owner is alive and while it is dead,
// over HTTP and from the command line: it has one end, and every call that it has started
// is accounted for. A run that has ended stays as it is.
func TestARunIsCancelledAtEveryPosition(t *testing.T) { // J22 P01
	t.Parallel()
	for _, c := range sampled(t, cancelCases(), cancelCase.ownerName) {
		t.Run(fmt.Sprintf("%s serial=%v owner=%s command=%v", c.name, c.serial, c.ownerName(), c.byCommand), func(t *testing.T) {
			t.Parallel()
			c.cancel(t)
		})
	}
}

func (c cancelCase) cancel(t *testing.T) {
	dead, byCommand, stream := c.dead, c.byCommand, c.stream
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
	q := question{text: "Run the errand.", stream: stream, key: "errand-1"}
	got := w.insist(q, nil)
	finished := strings.HasPrefix(c.name, string(crash.AfterFinish))
	ended := "cancelled"
	if finished {
		ended = "complete"
	}
	if dead {
		p.wantKilled(t, "which passes "+c.name)
	} else {
		eventually(t, "the gateway is at "+c.name, func() bool { return exists(w.pause) })
	}
	if dead && !byCommand { // over HTTP only a gateway can be asked, and the new one goes on with the run at once
		w.start("")
	}
	id := w.onlyRun()
	refused := w.cancelBy(byCommand, id)
	if dead && byCommand {
		w.start("")
	}
	if !dead {
		if err := os.Remove(w.pause); err != nil {
			t.Error(err)
		}
	}
	in := w.answered(got)
	// A new owner may be quicker than the cancel; and who waits in the middle of sending a
	// request does not keep the run from getting the answer.
	quicker := dead && !byCommand || !dead && strings.Contains(c.name, "-send:")
	if quicker && w.runs()[id] == "complete" {
		ended = "complete"
	}
	if refused != "" && ended != "complete" {
		t.Errorf("the cancel was refused: %s", refused)
	}
	if finished && refused == "" {
		t.Error("a run that has ended was cancelled")
	}
	if in.runID != id {
		t.Errorf("the client was told of %s, the run is %s", in.runID, id)
	}
	w.judge(ended)
	story, _ := w.load(id)
	ends := 0
	for _, f := range story.Facts {
		if f.Body.Kind() == loop.KindFinished {
			ends++
		}
	}
	if ends != 1 {
		t.Errorf("the journal has %d ends", ends)
	}
	w.wantAccounts(story)
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// cancelBy cancels a run, and returns why that was refused; "" = it was not.
func (w *world) cancelBy(command bool, id string) string {
	w.Helper()
	if command {
		ctx, cancel := context.WithTimeout(w.Context(), patience)
		defer cancel()
		cmd := exec.CommandContext(ctx, w.binary(), "runs", "cancel", id, "--config", w.config, "--url", w.base())
		cmd.Env = append(baseEnv(), "TURNPIKE_KEY="+ownKey, "OWNER_KEY="+ownKey, "PROVIDER_KEY="+providerKey)
		text, err := cmd.CombinedOutput()
		if err != nil && errors.As(err, new(*exec.ExitError)) {
			return string(text)
		} else if err != nil {
			w.Fatal(err)
		}
		return ""
	}
	req, err := http.NewRequestWithContext(w.Context(), http.MethodPost, w.base()+"/v1/runs/"+id+"/cancel", nil)
	if err != nil {
		w.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+ownKey)
	for {
		resp, err := w.http.Do(req)
		if err != nil {
			w.Fatal(err)
		}
		_ = resp.Body.Close()
		switch resp.StatusCode {
		case http.StatusAccepted:
			return ""
		case http.StatusServiceUnavailable: // it is starting
			if err := pause(w.Context(), 25*time.Millisecond); err != nil {
				w.Fatal(err)
			}
		default:
			return resp.Status
		}
	}
}
