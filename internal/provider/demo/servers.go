package demo

import (
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

// Servers are HTTP servers on loopback addresses: the demo model and the demo MCP
// server are called over HTTP like any other. The zero value has none. It is not safe
// for concurrent use.
type Servers struct {
	servers []*http.Server
	tasks   sync.WaitGroup
}

// Serve answers with h on a free port until Stop, and returns its base URL.
func (s *Servers) Serve(h http.Handler) (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("demo server: %w", err)
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	s.servers = append(s.servers, server)
	s.tasks.Go(func() { _ = server.Serve(listener) })
	return "http://" + listener.Addr().String(), nil
}

// Stop ends all servers and waits for them.
func (s *Servers) Stop() {
	for _, one := range s.servers {
		_ = one.Close()
	}
	s.tasks.Wait()
	s.servers = nil
}
