package apptest

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
)

// nameserver is a DNS server whose answers a test changes as it goes. While the
// test runs it is the resolver of the whole process, CNAMEs, packets and all.
//
//	gateway ──egress──► net.Resolver ──UDP──► nameserver
type nameserver struct {
	mu     sync.Mutex
	zone   map[string][]string
	asking []net.Conn // of the resolver, which waits for seconds also when it is cancelled
}

// Silence stands for a name that is asked for in vain.
const Silence = "silence"

// NewNameserver starts a server that knows names, each with its addresses, or
// with the one name that it is an alias of.
func NewNameserver(t *testing.T, names map[string][]string) *nameserver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &nameserver{zone: names}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		query := make([]byte, 512)
		for {
			size, from, err := conn.ReadFrom(query)
			if err != nil {
				return
			}
			if answer := n.answer(query[:size]); answer != nil {
				_, _ = conn.WriteTo(answer, from)
			}
		}
	}()
	before := net.DefaultResolver // what the gateway is built with
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		d := net.Dialer{Resolver: &net.Resolver{}} // a lookup may outlive its test, and must not read what the next one sets
		asking, err := d.DialContext(ctx, "udp", conn.LocalAddr().String())
		if err == nil {
			n.mu.Lock()
			n.asking = append(n.asking, asking)
			n.mu.Unlock()
		}
		return asking, err
	}}
	t.Cleanup(func() {
		net.DefaultResolver = before
		_ = conn.Close()
		<-ended
		n.mu.Lock()
		defer n.mu.Unlock()
		for _, c := range n.asking {
			_ = c.Close()
		}
	})
	return n
}

// Set changes the answer for a name.
func (n *nameserver) Set(name string, to ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.zone[name] = to
}

// Types of record, and where the parts of a message lie (RFC 1035).
const (
	typeA, typeCNAME, typeAAAA = 1, 5, 28
	headerSize                 = 12
)

// answer returns the answer to a query with one question; nil for none.
func (n *nameserver) answer(query []byte) []byte {
	if len(query) < headerSize {
		return nil
	}
	name, end := readName(query, headerSize)
	if len(query) < end+4 {
		return nil
	}
	kind := binary.BigEndian.Uint16(query[end:])
	n.mu.Lock()
	defer n.mu.Unlock()
	records, count, found := n.records(name, []byte{0xc0, headerSize}, kind) // the name is in the question
	if !found && records == nil {
		return nil
	}
	flags := uint16(0x8400) // an answer, with authority
	if !found {
		flags |= 3 // no such name
	}
	message := append([]byte(nil), query[:2]...)
	for _, field := range []uint16{flags, 1, count, 0, 0} {
		message = binary.BigEndian.AppendUint16(message, field)
	}
	message = append(message, query[headerSize:end+4]...)
	return append(message, records...)
}

// records returns the records of a name, written as wire, its aliases followed.
// It returns nothing at all for a name that is not to be answered.
func (n *nameserver) records(name string, wire []byte, kind uint16) (records []byte, count uint16, found bool) {
	targets, ok := n.zone[name]
	if !ok {
		return []byte{}, 0, false
	}
	for _, target := range targets {
		addr, err := netip.ParseAddr(target)
		switch {
		case target == Silence:
			return nil, 0, false
		case err != nil:
			rest, more, _ := n.records(target, wireName(target), kind)
			return append(record(wire, typeCNAME, wireName(target)), rest...), more + 1, true
		case addr.Is4() == (kind == typeA) && (kind == typeA || kind == typeAAAA):
			records, count = append(records, record(wire, kind, addr.AsSlice())...), count+1
		}
	}
	return records, count, true
}

// record is one record, with no time to live.
func record(name []byte, kind uint16, data []byte) []byte {
	r := bytes.Clone(name)
	for _, field := range []uint16{kind, 1, 0, 0, uint16(len(data))} {
		r = binary.BigEndian.AppendUint16(r, field)
	}
	return append(r, data...)
}

func wireName(name string) []byte {
	var b []byte
	for label := range strings.SplitSeq(name, ".") {
		b = append(append(b, byte(len(label))), label...)
	}
	return append(b, 0)
}

// readName reads the name that begins at i, and returns where it ends.
func readName(message []byte, i int) (name string, end int) {
	var labels []string
	for i < len(message) && message[i] != 0 {
		next := i + 1 + int(message[i])
		if next > len(message) {
			break
		}
		labels = append(labels, string(message[i+1:next]))
		i = next
	}
	return strings.ToLower(strings.Join(labels, ".")), i + 1
}
