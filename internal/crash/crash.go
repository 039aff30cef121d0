//go:build !crashtest

// Package crash names the points at which a test kills the gateway. In the
// program that people run they do nothing and cost nothing: only a build with
// the tag crashtest reads TURNPIKE_CRASH=POINT:N, and kills itself at the N-th
// time that it passes the point. Such a build also has a wall clock that a test
// can set: see package clock.
//
// The points are those of reference/reliability, section 1.
package crash

import "context"

// At is one point.
func At(string) {}

// OnSent returns a context in which the point is passed as soon as an HTTP
// request has been written.
func OnSent(ctx context.Context, _ string) context.Context { return ctx }
