package app_test

import (
	"bytes"
	"context"
	"fmt"
	"runtime/pprof"
	"strings"
	"sync"
	"testing"
	"time"
)

// noLeaks makes the test run in parallel with others and fails it when it leaves a goroutine
// behind. It is called before anything is started.
//
// Goroutines inherit a label with the name of the test. Those that a timer starts have no
// label: goleak finds them after all tests. // O01
func noLeaks(t *testing.T) {
	t.Helper()
	parallel(t)
	checkLeaks(t)
}

// alone is noLeaks for a test that cannot run beside others. It sets state of the process
// (variables, the working directory, a global), measures memory or time, or stops a server
// whose port another test must not get. Go runs these
// tests before the parallel ones begin. It is called first: the harness would make the test
// parallel.
func alone(t *testing.T) {
	t.Helper()
	if !decide(t) {
		t.Fatal("alone must be called first")
	}
	checkLeaks(t)
}

// decided contains the top-level tests that are parallel or alone.
var decided sync.Map

// decide reports whether this is the first call for the test.
func decide(t *testing.T) bool {
	_, again := decided.LoadOrStore(t, true)
	if !again {
		t.Cleanup(func() { decided.Delete(t) })
	}
	return !again
}

// parallel makes a top-level test parallel, once. Subtests run in the order of their test:
// a parallel one would begin after the last line of its test.
func parallel(t *testing.T) {
	if !strings.Contains(t.Name(), "/") && decide(t) {
		t.Parallel()
	}
}

// checkLeaks labels the goroutines that the test starts from now on, and fails it when one is
// left at its end.
func checkLeaks(t *testing.T) {
	label(t.Name())
	t.Cleanup(func() {
		label("")
		time.Sleep(5 * time.Millisecond) // meanwhile most goroutines end, and a look takes as long
		if left := leftBehind(t.Name(), patience); left != "" {
			t.Errorf("the test left goroutines behind:\n%s", left)
		}
	})
}

// label sets the label of this goroutine; "" removes it.
func label(test string) {
	ctx := context.Background()
	if test != "" {
		ctx = pprof.WithLabels(ctx, pprof.Labels("test", test))
	}
	pprof.SetGoroutineLabels(ctx)
}

// leftBehind returns the stacks of goroutines that have the label. It waits for their end.
func leftBehind(test string, atMost time.Duration) string {
	mark := fmt.Sprintf("%q:%q", "test", test)
	end := time.Now().Add(atMost)
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		var all bytes.Buffer
		_ = pprof.Lookup("goroutine").WriteTo(&all, 1)
		var left strings.Builder
		for stack := range strings.SplitSeq(all.String(), "\n\n") {
			if strings.Contains(stack, mark) && !strings.Contains(stack, "os/signal.loop") { // which never ends
				left.WriteString(stack + "\n\n")
			}
		}
		if left.Len() == 0 || time.Now().After(end) {
			return left.String()
		}
		time.Sleep(pause)
	}
}

func TestAGoroutineThatIsLeftBehindIsFound(t *testing.T) {
	started, release := make(chan struct{}), make(chan struct{})
	label(t.Name())
	go func() {
		go func() { // which the test did not start itself
			close(started)
			<-release
		}()
	}()
	label("")
	<-started
	left := leftBehind(t.Name(), 0)
	if !strings.Contains(left, "TestAGoroutineThatIsLeftBehindIsFound.func1.1") {
		t.Errorf("found: %q", left)
	}
	if left := leftBehind(t.Name()+"X", 0); left != "" {
		t.Errorf("found for another test: %s", left)
	}
	close(release)
	if left := leftBehind(t.Name(), patience); left != "" {
		t.Errorf("found after its end: %s", left)
	}
}
