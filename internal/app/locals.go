package app

import (
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

// locals are HTTP servers of our own on loopback addresses: the demo model and
// the demo MCP server, which are spoken to over HTTP like any other.
type locals struct {
	servers []*http.Server
	tasks   sync.WaitGroup
}

// serve answers with h on a free port and returns its base URL.
func (l *locals) serve(h http.Handler) (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("demo server: %w", err)
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	l.servers = append(l.servers, server)
	l.tasks.Go(func() { _ = server.Serve(listener) })
	return "http://" + listener.Addr().String(), nil
}

func (l *locals) stop() {
	for _, s := range l.servers {
		_ = s.Close()
	}
	l.tasks.Wait()
	l.servers = nil
}
