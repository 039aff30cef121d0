package turnpiketest

import (
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"testing"
)

// The ports that FreePort returns. Systems take ports for clients, and for servers that
// ask for any port, from above this range: Linux from 32768, others from 49152. So nothing
// else takes a port between FreePort and the start of the server that it is for.
const (
	firstPort = 20000
	lastPort  = 32767
)

// portsGiven has the ports that FreePort returned: their servers may not listen yet.
var portsGiven sync.Map

// FreePort returns a TCP port of 127.0.0.1 on which nobody listens, for a server that is
// another program and must be told its port. No other call in this process returns the
// same one.
func FreePort(t testing.TB) int {
	t.Helper()
	for range lastPort - firstPort {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue // in use
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if _, given := portsGiven.LoadOrStore(port, true); !given {
			return port
		}
	}
	t.Fatalf("no port of %d to %d is free", firstPort, lastPort)
	return 0
}
