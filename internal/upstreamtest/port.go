package upstreamtest

import (
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
)

// The ports that FreePort returns, and behind them as many that mark them as given.
// Systems take ports for clients, and for servers that ask for any port, from above these:
// Linux from 32768, others from 49152. So nothing else takes a port between FreePort and
// the start of the server that it is for.
const (
	firstPort = 20000
	manyPorts = 6384
)

// FreePort returns a TCP port of 127.0.0.1 on which nobody listens, for a server that is
// another program and must be told its port. Until the test ends, no other call returns the
// same one, in whatever process.
func FreePort(t testing.TB) int {
	t.Helper()
	for range 10 * manyPorts {
		port := firstPort + rand.IntN(manyPorts)
		mark, err := listen(port + manyPorts)
		if err != nil {
			continue // given
		}
		t.Cleanup(func() { _ = mark.Close() })
		l, err := listen(port)
		if err != nil {
			continue // in use
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		return port
	}
	t.Fatalf("no port of %d to %d is free", firstPort, firstPort+manyPorts-1)
	return 0
}

func listen(port int) (net.Listener, error) {
	return net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
}
