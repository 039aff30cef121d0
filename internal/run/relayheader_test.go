package run

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/relay"
	"github.com/turnpike-gateway/turnpike/internal/route"
)

// What is remembered of dropped fields is bounded, for one key and for all.
func TestDroppedHeadersAreNamedOnceAndBounded(t *testing.T) {
	var out bytes.Buffer
	var d droppedHeaders
	req := &Request{Who: Who{Org: "o"}, Input: Input{Targets: []route.Target{{Target: loop.Target{Provider: "up"}, RelayHeaders: []string{"X-Mine"}}}}, Relay: &Relay{Raw: &relay.Request{}}}
	m := modelCaller{run: &runState{req: req, relay: true, log: slog.New(slog.NewTextHandler(&out, nil))}, dropped: &d}
	lines := func(word string) int { return strings.Count(out.String(), "msg="+word) }
	send := func(key, name string) {
		fields := map[string][]string{name: {"CANARY"}, "Accept": {"*/*"}, "X-Mine": {"1"}}
		req.Principal, req.Relay.Raw.Header = key, fields
		m.dropHeaders(loop.CallModel{}, req.Relay.Raw.Header)
		if len(fields) != 2 || fields["Accept"] == nil || fields["X-Mine"] == nil {
			t.Fatalf("of %s remain %v", name, fields)
		}
	}
	for range 3 {
		send("a", "X-One")
		send("b", "X-One")
	}
	if n := lines("relay_header_dropped"); n != 2 {
		t.Errorf("%d lines, want one for each key:\n%s", n, &out)
	}
	for i := range 3 * maxDroppedOfKey {
		send("a", fmt.Sprint("X-", i))
	}
	if n, ends := lines("relay_header_dropped"), lines("relay_headers_unreported"); n != maxDroppedOfKey+1 || ends != 1 {
		t.Errorf("%d lines and %d ends of one key, want %d and 1", n, ends, maxDroppedOfKey+1)
	}
	for i := range 2 * maxDropped {
		send(fmt.Sprint("key", i), "X-Long-"+strings.Repeat("x", 1000))
	}
	if d.count != maxDropped+1 || len(d.named) > maxDropped+1 {
		t.Errorf("%d names of %d keys are remembered, want at most %d", d.count, len(d.named), maxDropped+1)
	}
	if strings.Contains(out.String(), "CANARY") || strings.Contains(out.String(), strings.Repeat("x", longestDropped)) {
		t.Error("the log has a value or a whole long name")
	}
}
