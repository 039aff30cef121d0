package postgres

import (
	"net/url"
	"strings"
)

// The kinds of keys.
const (
	RingRun      = "r" // facts of the run were stored, or its head has changed
	RingCancel   = "c" // somebody asks the run to end
	RingQueue    = "q" // a run waits for somebody who claims it
	RingOutbox   = "o" // a message waits
	RingSettings = "s" // the epoch of the settings has changed
	RingMCP      = "m" // a client ends a session of /mcp, or a call in it; the ID is mcpserver's message
)

// Key is what a bell rings for.
type Key struct {
	Kind string // not empty; RingRun and so on
	Org  string // empty = everything of the kind
	ID   string // of the run; empty for kinds that have none
}

// encode returns the key as a line: its parts, with a space between two. A part is escaped as in the query of a URL, so
// that it has neither spaces nor newlines, and every byte of it comes back.
func (k Key) encode() string {
	parts := []string{url.QueryEscape(k.Kind)}
	if k.Org != "" || k.ID != "" {
		parts = append(parts, url.QueryEscape(k.Org))
	}
	if k.ID != "" {
		parts = append(parts, url.QueryEscape(k.ID))
	}
	return strings.Join(parts, " ")
}

// decodeKey returns the key of a line; ok = false: encode makes no such line.
func decodeKey(line string) (k Key, ok bool) {
	parts := strings.Split(line, " ")
	if len(parts) > 3 {
		return Key{}, false
	}
	to := []*string{&k.Kind, &k.Org, &k.ID}
	for i, part := range parts {
		text, err := url.QueryUnescape(part)
		if err != nil {
			return Key{}, false
		}
		*to[i] = text
	}
	return k, k.Kind != "" && k.encode() == line
}

// The limits of a message. The server takes payloads of less than 8,000 bytes.
const (
	maxPayload = 7990
	maxKeys    = 150
)

// messages returns the payloads for the keys, each of which begins with the line from. A key that is too long for one
// becomes everything of its kind.
func messages(from string, keys []Key) []string {
	var all []string
	var b strings.Builder
	n := 0
	for _, k := range keys {
		line := k.encode()
		if len(from)+1+len(line) > maxPayload {
			line = Key{Kind: k.Kind}.encode()
		}
		if n == maxKeys || n > 0 && b.Len()+1+len(line) > maxPayload {
			all = append(all, b.String())
			b.Reset()
			n = 0
		}
		if n == 0 {
			b.WriteString(from)
		}
		b.WriteByte('\n')
		b.WriteString(line)
		n++
	}
	if n > 0 {
		all = append(all, b.String())
	}
	return all
}
