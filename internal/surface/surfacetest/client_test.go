package surfacetest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

// client is the other end of a connection: an http.ResponseWriter that keeps
// what it is sent, piece by piece.
type client struct {
	header  http.Header
	status  int
	sent    http.Header // the header as it was when the status left
	pieces  []piece
	flushes int
	room    int         // how many pieces it takes before its connection breaks; 0 = all
	left    func() bool // it has closed its connection
	gone    bool        // it has left, or its connection was broken, before the end
}

type piece struct {
	at    time.Time
	bytes []byte
}

// Header implements http.ResponseWriter.
func (c *client) Header() http.Header { return c.header }

// WriteHeader implements http.ResponseWriter.
func (c *client) WriteHeader(status int) {
	if c.status == 0 && !c.left() {
		c.status, c.sent = status, c.header.Clone()
	}
}

// Write implements http.ResponseWriter.
func (c *client) Write(p []byte) (int, error) {
	c.WriteHeader(http.StatusOK)
	if c.left() || c.room > 0 && len(c.pieces) == c.room {
		return 0, errors.New("broken pipe")
	}
	c.pieces = append(c.pieces, piece{time.Now(), bytes.Clone(p)})
	return len(p), nil
}

// Flush implements http.Flusher.
func (c *client) Flush() { c.flushes++ }

// body is all that came.
func (c *client) body() string {
	var b strings.Builder
	for _, p := range c.pieces {
		b.Write(p.bytes)
	}
	return b.String()
}

func (c *client) streamed() bool { return c.sent.Get("Content-Type") == "text/event-stream" }

// golden is the answer as a story shows it: a stream byte for byte, everything
// else with its status and header.
func (c *client) golden() string {
	switch {
	case c.status == 0:
		return "nothing: the client has left\n"
	case c.streamed():
		return c.body()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d %s\n", c.status, http.StatusText(c.status))
	for _, name := range slices.Sorted(maps.Keys(c.sent)) {
		if name != "Content-Length" {
			fmt.Fprintf(&b, "%s: %s\n", name, strings.Join(c.sent[name], ", "))
		}
	}
	b.WriteByte('\n')
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, []byte(c.body()), "", "  "); err != nil {
		return b.String() + c.body()
	}
	return b.String() + strings.TrimRight(pretty.String(), "\n") + "\n"
}
