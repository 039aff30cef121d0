package egress

import (
	"net/http"
	"strings"
)

// ForbiddenHeader reports whether nobody but the gateway may set the header of a request to
// a guarded target: headers of the connection, the protocol and proxies, headers that give
// access to cloud metadata services, and headers that make net/http repeat a call.
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
