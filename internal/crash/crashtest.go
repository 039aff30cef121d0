//go:build crashtest

package crash

import (
	"context"
	"net/http/httptrace"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// passed counts how often the process has passed its point.
var passed atomic.Int64

// At kills the process, without a chance to tidy up, when it passes the point
// for the N-th time. With TURNPIKE_PAUSE=FILE it is not killed: it creates FILE, and the
// goroutine that has passed the point waits until somebody deletes FILE.
func At(point Point) {
	wanted, n, _ := strings.Cut(os.Getenv("TURNPIKE_CRASH"), ":")
	if wanted != string(point) {
		return
	}
	times, err := strconv.ParseInt(n, 10, 64)
	if err != nil {
		times = 1
	}
	if passed.Add(1) != times {
		return
	}
	if file := os.Getenv("TURNPIKE_PAUSE"); file != "" {
		pause(file)
		return
	}
	_ = syscall.Kill(syscall.Getpid(), syscall.SIGKILL)
	select {} // until the signal arrives
}

func pause(file string) {
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		panic(err)
	}
	for {
		if _, err := os.Stat(file); err != nil {
			return
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// OnSent returns a context in which the point is passed as soon as an HTTP
// request has been written.
func OnSent(ctx context.Context, point Point) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		WroteRequest: func(httptrace.WroteRequestInfo) { At(point) },
	})
}
