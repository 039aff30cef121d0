package mcptool

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"github.com/turnpike-gateway/turnpike/tool"
)

// State says whether a server can be used.
type State string

// The states of a server.
const (
	Unknown   State = "unknown" // nobody has asked for it yet
	Connected State = "connected"
	Failed    State = "failed" // the next request tries again
)

// Status is what a [Client] knows of its server, from the last time that it
// connected, listed tools or lost the session.
type Status struct {
	State     State
	Transport Transport // as last agreed on; "" before the first session
	Protocol  string    // the revision as last agreed on; "" where there is none
	Tools     int       // in the last list; 0 before the first

	// Error says why State is failed, for whoever may see that there is a server:
	// it holds no address, no header and none of the server's own words.
	Error string

	// Since is when State last changed; at first, when the Client was made.
	Since time.Time
}

// Status returns what is known of the server, without asking it.
func (c *Client) Status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.status
}

// connected notes a session.
func (s *Status) connected(t terms) {
	s.enter(Connected, "")
	s.Transport, s.Protocol = t.transport, t.version
}

func (s *Status) enter(state State, why string) {
	if s.State != state {
		s.Since = time.Now()
	}
	s.State, s.Error = state, why
}

// noteTools notes a list that was read.
func (c *Client) noteTools(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status.enter(Connected, "")
	c.status.Tools = n
}

// noteFailure notes why the server cannot be used. Closing is no failure.
func (c *Client) noteFailure(why string) {
	if c.life.Err() != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status.enter(Failed, why)
}

// describe says what went wrong without naming addresses or repeating what the
// server said. limited is the request's context with our timeout.
func (c *Client) describe(limited context.Context, o outcome) string {
	var status *statusError
	var fatal tool.Fatal
	switch {
	case errors.As(o.err, &fatal):
		reason, _ := fatal.Blocked()
		return "refused by the outbound policy: " + reason + remedy(o.err)
	case o.unauthorized() != "":
		return "answered with " + o.unauthorized()
	case o.rpc != nil:
		return fmt.Sprintf("%s was answered with error %.0f", o.method, o.rpc.Code)
	case errors.As(o.err, &status):
		return "answered with " + status.Error()
	case errors.Is(o.err, errHeaders):
		return "its headers could not be resolved"
	case errors.Is(o.err, errEnv):
		return "its environment could not be resolved"
	case errors.Is(o.err, errClosed):
		return "the gateway has closed the connection"
	case limited.Err() != nil:
		return fmt.Sprintf("did not answer within %s", c.server.Timeout)
	}
	return describeError(o)
}

// describeError names the kind of an error of the way to the server.
func describeError(o outcome) string {
	var name *net.DNSError
	var number syscall.Errno
	var certificate *tls.CertificateVerificationError
	var exit *exitError
	switch {
	case errors.As(o.err, &exit):
		return o.reason()
	case errors.Is(o.err, errServer):
		return errServer.Error()
	case errors.As(o.err, &name):
		return "its host name could not be resolved"
	case errors.As(o.err, &certificate):
		return "its certificate is not trusted"
	case errors.Is(o.err, errStart):
		return "its command could not be started"
	case errors.As(o.err, &number):
		return number.Error()
	case !o.sent && o.status == 0:
		return "could not be reached"
	}
	return o.reason()
}

// remedy names the setting that would allow a refused address; "" where none would.
func remedy(err error) string {
	var allowed interface{ Setting() string }
	if errors.As(err, &allowed) && allowed.Setting() != "" {
		return "; " + allowed.Setting() + " can allow it"
	}
	return ""
}
