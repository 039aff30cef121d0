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
)

// passed counts how often the process has passed its point.
var passed atomic.Int64

// At kills the process, without a chance to tidy up, when it passes the point
// for the N-th time.
func At(point Point) {
	wanted, n, _ := strings.Cut(os.Getenv("TURNPIKE_CRASH"), ":")
	if wanted != string(point) {
		return
	}
	times, err := strconv.ParseInt(n, 10, 64)
	if err != nil {
		times = 1
	}
	if passed.Add(1) == times {
		_ = syscall.Kill(syscall.Getpid(), syscall.SIGKILL)
		select {} // until the signal arrives
	}
}

// OnSent returns a context in which the point is passed as soon as an HTTP
// request has been written.
func OnSent(ctx context.Context, point Point) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		WroteRequest: func(httptrace.WroteRequestInfo) { At(point) },
	})
}
