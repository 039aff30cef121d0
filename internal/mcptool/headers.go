package mcptool

import (
	"errors"
	"net/http"
	"strings"
)

// errHeaders wraps the failure of [Server.Headers]: nothing was sent.
var errHeaders = errors.New("headers")

// ForbiddenHeader reports whether an MCP server's configuration may not set the
// header: those that steer the connection, the protocol or a proxy, those that
// unlock metadata services, and those that make a call look repeatable.
func ForbiddenHeader(name string) bool {
	name = http.CanonicalHeaderKey(name)
	for _, prefix := range []string{"Mcp-", "Proxy-", "X-Forwarded-", "X-Aws-Ec2-Metadata-", "Sec-"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	switch name {
	case "Host", "Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade", // hop by hop
		"Content-Length", "Content-Type", "Content-Encoding", "Accept", "Accept-Encoding", "Expect", // the body
		"Last-Event-Id", "Forwarded", "X-Real-Ip", "Via",
		"Metadata", "Metadata-Flavor", "X-Google-Metadata-Request",
		"Idempotency-Key", "X-Idempotency-Key": // net/http would repeat the POST by itself
		return true
	}
	return false
}

// addHeaders puts the configured headers into a request of ours.
func (t *transport) addHeaders(r *http.Request) error {
	configured := t.client.server.Headers
	if configured == nil {
		return nil
	}
	extra, err := configured(r.Context())
	if err != nil {
		return errors.Join(errHeaders, err)
	}
	for name, values := range extra {
		if !ForbiddenHeader(name) {
			r.Header[http.CanonicalHeaderKey(name)] = values
		}
	}
	return nil
}
