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

// State is whether a server can be used.
type State string

// The states of a server.
const (
	Unknown   State = "unknown" // no request was made yet
	Connected State = "connected"
	Failed    State = "failed" // the next request tries again
)

// Status is the state of a server when the [Client] last connected, listed tools, lost the
// session, or could not reach the server for a call or its stream of notifications.
type Status struct {
	State     State
	Transport Transport // of the last session; "" before the first
	Protocol  string    // revision of the last session; "" = none
	Tools     int       // in the last list; 0 before the first
	Names     []string  // of these tools; nil before the first list

	// Error is the reason if State is Failed. It contains no address, no header and no text
	// of the server.
	Error string

	// Since is when State last changed, or when the Client was created.
	Since time.Time
}

// Status returns the status of the server. It makes no request.
func (c *Client) Status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.status
}

// connected records a new session.
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

// noteTools records the tools that were listed.
func (c *Client) noteTools(tools []tool.Tool) {
	names := make([]string, len(tools))
	for i, t := range tools {
		names[i] = t.Definition().Name
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status.enter(Connected, "")
	c.status.Tools, c.status.Names = len(names), names
	c.listed = true
}

// noteAnswer records that the server has answered a call.
func (c *Client) noteAnswer() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.status.State == Failed {
		c.status.enter(Connected, "")
	}
}

// noteUnreachable records that a call, or the stream of notifications, could not reach the server. why is for the status, and err
// for OnUnreachable.
func (c *Client) noteUnreachable(why string, err error) {
	c.noteFailure(why)
	c.mu.Lock()
	tell := c.listed && !c.retired && !c.closed && c.server.OnUnreachable != nil
	c.listed = false
	c.mu.Unlock()
	if tell {
		c.server.OnUnreachable(err)
	}
}

// noteFailure records why the server cannot be used. After Close it does nothing.
func (c *Client) noteFailure(why string) {
	if c.life.Err() != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status.enter(Failed, why)
}

// describe describes a failure without addresses and without text of the server. limited is
// the context of the request, with the timeout of the server.
func (c *Client) describe(limited context.Context, o outcome) string {
	var status *statusError
	var fatal tool.Blocked
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

// describeError describes an error of the connection.
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

// remedy names the setting that can allow a refused address; "" = there is none.
func remedy(err error) string {
	var allowed interface{ Setting() string }
	if errors.As(err, &allowed) && allowed.Setting() != "" {
		return "; " + allowed.Setting() + " can allow it"
	}
	return ""
}
