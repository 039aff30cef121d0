package app_test

import (
	"strings"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

func TestAGoroutineThatIsLeftBehindIsFound(t *testing.T) {
	started, release := make(chan struct{}), make(chan struct{})
	Label(t.Name())
	go func() {
		go func() { // which the test did not start itself
			close(started)
			<-release
		}()
	}()
	Label("")
	<-started
	left := LeftBehind(t.Name(), 0)
	if !strings.Contains(left, "TestAGoroutineThatIsLeftBehindIsFound.func1.1") {
		t.Errorf("found: %q", left)
	}
	if left := LeftBehind(t.Name()+"X", 0); left != "" {
		t.Errorf("found for another test: %s", left)
	}
	close(release)
	if left := LeftBehind(t.Name(), Patience); left != "" {
		t.Errorf("found after its end: %s", left)
	}
}
