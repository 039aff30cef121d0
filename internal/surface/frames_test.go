package surface

import (
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/sse"
)

// The stream of an agent that says nothing gets a comment, so that no proxy cuts it. // G14
func TestAStreamOfFramesIsKeptAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		beats := sse.NewHeartbeats(0)
		beats.Start()
		defer beats.Stop()
		rec := httptest.NewRecorder()
		out := New(Options{Heartbeats: beats}, Surface{}).Frames(rec, caller.Caller{})
		defer out.Close()
		if err := out.Send("1.0", map[string]string{"event": "start"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(11 * time.Second)
		synctest.Wait()
		out.Stop()
		if got := rec.Body.String(); !strings.HasSuffix(got, "\n\n: keep-alive\n\n") || strings.Count(got, ": keep-alive") != 1 || rec.Header().Get("X-Accel-Buffering") != "no" {
			t.Errorf("after a silence: %q %v", got, rec.Header())
		}
	})
}
