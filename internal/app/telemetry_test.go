package app_test

import (
	"strings"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/app"
	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

// A collector that is not there costs a line in the log, and no request.
func TestACollectorThatIsGoneCostsNothing(t *testing.T) {
	Alone(t)
	g, sink, _, _ := Traced(t, "", "")
	sink.Close()
	for range 3 {
		if a := g.Post(PrivateQuestion); a.Status != 200 {
			t.Errorf("status %d", a.Status)
		}
	}
	began := time.Now()
	if err := g.Stop(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > app.LastSpans+3*time.Second {
		t.Errorf("the gateway stopped after %v", took)
	}
	if got := strings.Count(g.Log.String(), "spans could not be exported"); got != 1 {
		t.Errorf("the log says so %d times, want once", got)
	}
}
