package mcptool

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// Defaults of a [Server].
const (
	defaultTimeout = 30 * time.Second
	defaultRetries = 2
	defaultCalls   = 256
)

// errServer is the error of a Server with neither URL nor Command, or with both.
var errServer = errors.New("a server has either a URL or a command")

// Server has the settings of an MCP server. Exactly one of URL and Command must be set;
// otherwise every request fails.
type Server struct {
	Name string // for messages

	// URL is the MCP endpoint, http or https: of streamable HTTP, or of legacy SSE
	// (revision 2024-11-05).
	URL string

	// Command is the program and arguments of a stdio server. The program is looked up in
	// PATH. It runs in the working directory and with the rights of this process, and the
	// outbound policy does not apply to it. Only the operator's configuration file may set
	// it, never an org over an API.
	Command []string

	// Env returns environment variables of Command, in addition to PATH, HOME, TMPDIR and
	// LANG of this process, which it may override; nil = none. It is called before each
	// start, with a context that has no caller's values.
	Env func(ctx context.Context) (map[string]string, error)

	// Headers returns the headers of a request; nil = none. It is called for every request,
	// concurrently. Its context has the values of the call, and none during the handshake,
	// because all calls share the session. Headers of egress.ForbiddenHeader are not sent.
	Headers func(ctx context.Context) (http.Header, error)

	// Timeout limits each discovery and each call, including retries; 0 = 30 s.
	Timeout time.Duration

	// MaxRetries is the maximum number of retries of a discovery, of a call that may be
	// repeated, and of a call that was provably not sent; 0 = 2, negative = none.
	MaxRetries int

	// MaxConcurrent is the maximum number of calls in progress, over all runs; 0 = 256.
	// Further calls wait in the order in which they came, until their contexts end. Timeout
	// does not include the wait.
	MaxConcurrent int

	// Living returns the number of living replicas of the gateway: each makes its part of MaxConcurrent
	// calls at a time, and at least one. Nil = there is one.
	Living func() int

	// Trust means that the annotations of the server's tools are believed: a tool with
	// readOnlyHint has the class [tool.Read].
	Trust bool

	// Reads are names of tools that only read, whatever their annotations are. They have
	// the class [tool.Read].
	Reads []string

	// Keyed are names of tools that the server executes at most once for each idempotency
	// key. They have the class [tool.Keyed], unless they only read. All other tools are
	// [tool.Once]. Unknown names are ignored, also in Reads.
	Keyed []string

	// OnListChanged is called when the server announces that its tools have changed, and
	// when a session with such a server was replaced, because an announcement may have been
	// lost. It is called by one goroutine, at most once a second. It should return soon, and
	// must not close the Client, which waits for it. nil = no stream of notifications is
	// opened.
	OnListChanged func()

	// OnUnreachable is called when a call could not reach the server, or the stream of
	// notifications could not be opened again because there is no server, with the reason:
	// once, until the tools are listed again. It is called by the call, which waits for it, or
	// by the goroutine of the stream, and not after Retire. nil = nobody is told.
	OnUnreachable func(error)

	// Listed says that calls may rely on a list that an earlier client of the server got, so
	// that OnUnreachable is called also before this client has listed the tools.
	Listed bool

	// Tracer connects calls with traces; nil = calls carry no trace context.
	Tracer Tracer
}

// Tracer connects calls with the traces of their contexts. Its methods are called
// concurrently. Implemented by package telemetry.
type Tracer interface {
	// Trace returns the trace context of a call under ctx, for _meta: traceparent and
	// tracestate (SEP-414). nil = none.
	Trace(ctx context.Context) map[string]string

	// CallSent is called before each attempt at the call under ctx. sessionID is "" if the
	// session has no id. protocol is the revision of MCP, "" without a session. stdio is
	// false for a call over HTTP.
	CallSent(ctx context.Context, sessionID, protocol string, stdio bool)
}

// withDefaults replaces zero values with their defaults.
func (s Server) withDefaults() Server {
	if s.Timeout <= 0 {
		s.Timeout = defaultTimeout
	}
	if s.MaxConcurrent <= 0 {
		s.MaxConcurrent = defaultCalls
	}
	if s.Living == nil {
		s.Living = func() int { return 1 }
	}
	switch {
	case s.MaxRetries == 0:
		s.MaxRetries = defaultRetries
	case s.MaxRetries < 0:
		s.MaxRetries = 0
	}
	return s
}

// reachable reports whether exactly one of URL and Command is set.
func (s Server) reachable() bool { return (s.URL == "") != (len(s.Command) == 0) }
