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
	defaultCalls   = 10
)

// errServer says that a Server names no way to reach it, or two.
var errServer = errors.New("a server has either a URL or a command")

// Server is an MCP server as an org declared it. Exactly one of URL and Command
// is set; with none or both every request fails.
type Server struct {
	Name string // what messages call it

	// URL is the MCP endpoint, http or https: of streamable HTTP, or of the
	// event stream of revision 2024-11-05 where the server knows no other.
	URL string

	// Command is the program of a server that speaks over its standard input and
	// output, and its arguments. It is looked up in this process's PATH, runs in
	// its working directory and has all its rights; no outbound policy holds it.
	// So only the operator's own file may declare one: never an org over an API.
	Command []string

	// Env returns the environment of Command beyond PATH, HOME, TMPDIR and LANG,
	// which are this process's own unless it names them; nil means nothing. It is
	// called right before each start, with a context without any caller's values.
	Env func(ctx context.Context) (map[string]string, error)

	// Headers returns the headers to send with every request, resolved at that
	// moment; nil means none. Its context carries the values of the call that it
	// is asked for, and none during the handshake, because the session belongs
	// to nobody's call. Headers of [ForbiddenHeader] are left out. It is called
	// concurrently.
	Headers func(ctx context.Context) (http.Header, error)

	// Timeout bounds each discovery and each call, retries included; 0 = 30 s.
	Timeout time.Duration

	// MaxRetries is how often discovery, calls that may be repeated and calls
	// that were provably not sent are tried again; 0 = 2, negative = never. A
	// call that writes is sent once for each try, and by nothing else again.
	MaxRetries int

	// MaxConcurrent is how many calls may be under way at the same time, over all
	// runs; 0 = 10. The others wait in the order in which they came, as long as
	// their contexts allow: Timeout begins when a call's turn has come.
	MaxConcurrent int

	// Trust believes the annotations of the server's tools: one that says it
	// only reads is of class [tool.Read].
	Trust bool

	// Reads are tools that only read whatever the server says of them: class
	// [tool.Read].
	Reads []string

	// Keyed are tools that the server executes once for each idempotency key,
	// however often a call comes: class [tool.Keyed], unless they only read. All
	// tools that are neither are [tool.Once]. Names that the server does not have
	// do no harm, here and in Reads.
	Keyed []string

	// OnListChanged is called when the server says that its tools have changed,
	// and when a session that would have told so was replaced. Calls follow each
	// other, at most one a second: what comes in between is one call. It should
	// return soon, and must not close the Client, which waits for it. nil means
	// that nobody wants to know, and no stream is kept open for it.
	OnListChanged func()
}

// withDefaults fills in what zero stands for.
func (s Server) withDefaults() Server {
	if s.Timeout <= 0 {
		s.Timeout = defaultTimeout
	}
	if s.MaxConcurrent <= 0 {
		s.MaxConcurrent = defaultCalls
	}
	switch {
	case s.MaxRetries == 0:
		s.MaxRetries = defaultRetries
	case s.MaxRetries < 0:
		s.MaxRetries = 0
	}
	return s
}

// reachable reports whether s names one way to reach it.
func (s Server) reachable() bool { return (s.URL == "") != (len(s.Command) == 0) }
