package upstreamtest_test

import (
	"fmt"
	"net"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/upstreamtest"
)

func TestAFreePortIsFreeAndGivenOnce(t *testing.T) {
	given := map[int]bool{}
	for range 50 {
		port := upstreamtest.FreePort(t)
		if given[port] || port < 20000 || port >= 32768 {
			t.Fatalf("port %d: given before, or where systems take ports for others", port)
		}
		given[port] = true
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
	}
}
