package egress_test

import (
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/egress"
)

func TestHeadersThatOnlyTheGatewaySets(t *testing.T) {
	for name, forbidden := range map[string]bool{
		"host": true, "Mcp-Session-Id": true, "metadata-flavor": true, "X-Forwarded-For": true, "proxy-authorization": true, "idempotency-key": true,
		"Authorization": false, "X-Api-Key": false, "Cookie": false, "Mcp": false,
	} {
		if egress.ForbiddenHeader(name) != forbidden {
			t.Errorf("%s is forbidden: %v", name, !forbidden)
		}
	}
}
