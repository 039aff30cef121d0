package apptest

import (
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
)

// Measured runs f and fails the test where more than so many megabytes are allocated; 0 = it is
// not looked at. Everything of a story is in it: both neighbours live in this process. What is
// allocated depends neither on the speed of the machine nor on the collector.
func Measured(t *testing.T, most int, f func()) {
	t.Helper()
	if most == 0 {
		f()
		return
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	allocated := int((after.TotalAlloc - before.TotalAlloc) >> 20)
	t.Logf("%d MB were allocated, of %d", allocated, most)
	if allocated > most {
		t.Errorf("%d MB were allocated, of %d", allocated, most)
	}
}

// Definition is a tool of a list.
func Definition(name, more string) string {
	return `{"name":` + Quote(name) + `,"inputSchema":{"type":"object"}` + more + `}`
}

func Listed(definitions ...string) string {
	return `{"tools":[` + strings.Join(definitions, ",") + `]}`
}

func Said(text string) Method {
	return Gives(`{"content":[{"type":"text","text":` + Quote(text) + `}]}`)
}

// AsStream answers with frames as they stand; ID in them is the request's.
func AsStream(frames ...string) Method {
	return func(w http.ResponseWriter, _ *http.Request, m RPC) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, f := range frames {
			_, _ = io.WriteString(w, strings.ReplaceAll(f, "ID", string(m.ID)))
			_ = http.NewResponseController(w).Flush()
		}
	}
}
