package mcptool

// Transport is how messages travel between the client and a server.
type Transport string

// The transports.
const (
	StreamableHTTP Transport = "streamable_http" // one POST for each request
	LegacySSE      Transport = "sse"             // revision 2024-11-05: POSTs, and one stream for all answers
	Stdio          Transport = "stdio"           // a child's standard input and output
	BareHTTP       Transport = "http"            // plain tools/list and tools/call, without a session
)

// terms are what was agreed on with the server, so that later sessions need not
// probe. The zero value knows nothing.
type terms struct {
	transport Transport
	version   string // the protocol revision; "" where there is none
}

// agreed returns what was last agreed on.
func (c *Client) agreed() terms {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.terms
}

func (c *Client) agree(t terms) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.terms = t
}
