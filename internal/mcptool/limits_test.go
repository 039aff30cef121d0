//go:build !race

// These tests read answers of 16 MiB. The race detector makes them ten times
// slower and finds nothing in them: they run without it.

package mcptool

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/tool"
)

// An answer may have 16 MiB, and no byte more, whether or not it tells its
// length; as an event it is the stream that may. // P06
func TestAnAnswerIsAsLargeAsItsLimit(t *testing.T) {
	for how, over := range map[string]int{"known": 1, "chunked": 1, "event": 3} { // the line ends of an event say nothing
		t.Run(how, func(t *testing.T) {
			f := newFake(t)
			f.override["fits"], f.override["over"] = exactly(maxAnswer, how), exactly(maxAnswer+over, how)
			c := f.client()
			if r, err := named(c, "fits").Call(t.Context(), tool.Call{}); err != nil || r.IsError || len(textOf(r)) < maxAnswer-200 {
				t.Errorf("at the limit: error %v, %d bytes, %v", r.IsError, len(textOf(r)), err)
			}
			if r, err := unanswered(named(c, "over").Call(t.Context(), tool.Call{})); err != nil || !r.IsError || !strings.Contains(textOf(r), "larger than 16 MiB") {
				t.Errorf("over it: error %v, %.200q, %v", r.IsError, textOf(r), err)
			}
		})
	}
}

// sized is a tool whose definition has n bytes.
func sized(name string, n int) string {
	before := fmt.Sprintf(`{"name":%q,"inputSchema":{"type":"object"},"description":"`, name)
	return before + strings.Repeat("d", n-len(before)-2) + `"}`
}

// What a list may hold, each limit met and passed by one. // P06
func TestAListIsAsLongAsItsLimits(t *testing.T) {
	several := func(n int, each int) string {
		list := make([]string, n)
		for i := range list {
			list[i] = sized(fmt.Sprintf("t%05d", i), each)
		}
		return "[" + strings.Join(list, ",") + "]"
	}
	const full = maxListed / maxDefinition
	for _, tt := range []struct {
		name, tools string
		kept, left  int
		reason      string
	}{
		{"tools at the limit", several(maxTools, 100), maxTools, 0, ""},
		{"one tool over", several(maxTools+1, 100), maxTools, 1, "1 tools beyond the limit of 500"},
		{"a hundred thousand tools", several(100_000, 100), maxTools, 1, "99500 tools beyond"},
		{"a definition at the limit", several(1, maxDefinition), 1, 0, ""},
		{"a definition one over", several(1, maxDefinition+1), 0, 1, "its definition is larger than 131072 bytes"},
		{"definitions together at the limit", several(full, maxDefinition), full, 0, ""},
		{"definitions together over it", several(full+1, maxDefinition), full, 1, "larger than 2097152 bytes together"},
		{"a hundred thousand things that are no tools", "[" + strings.Repeat("7,", 100_000) + "7]", 0, maxLeftOut, "has no name"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFake(t)
			f.tools = tt.tools
			report, err := f.client().Check(t.Context())
			if err != nil || len(report.Tools) != tt.kept || len(report.LeftOut) != tt.left {
				t.Fatalf("%d tools, %d left out, %v", len(report.Tools), len(report.LeftOut), err)
			}
			if tt.left > 0 && !strings.Contains(report.LeftOut[0].Reason, tt.reason) {
				t.Errorf("left out because %q, want %q", report.LeftOut[0].Reason, tt.reason)
			}
		})
	}
}

// Pages of a list that say little and are large are not all read. // P06
func TestThePagesOfAListAreAsLongAsOneAnswer(t *testing.T) {
	f := newFake(t)
	page := strings.Repeat(" ", maxAnswer/4)
	n := 0
	f.override[methodList] = func(w http.ResponseWriter, r *http.Request) {
		n++
		result(w, asked(r).id, fmt.Sprintf(`{"tools":[{"name":"t%d","inputSchema":{}}],"nextCursor":"c%d"%s}`, n, n, page))
	}
	tools, err := f.client().List(t.Context())
	if err != nil || len(tools) != 4 || f.count(methodList) != 4 {
		t.Errorf("%d tools in %d pages, %v", len(tools), f.count(methodList), err)
	}
}
