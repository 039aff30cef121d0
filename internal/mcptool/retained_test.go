package mcptool

import (
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/tool"
)

// An answer is charged to the run before it is read. The model is told that
// one does not fit, and the session goes on. // P40
func TestAnAnswerForWhichThereIsNoMemoryIsNotRead(t *testing.T) {
	for _, how := range []string{"known", "chunked", "event"} {
		t.Run(how, func(t *testing.T) {
			f := newFake(t)
			f.override["large"], f.override["small"] = exactly(4<<20, how), exactly(1<<20, how)
			c := f.client()
			a := memlimit.New(memlimit.Options{Run: 3 << 20}).Open("o")
			call := func(name string) tool.Result {
				memory := a.Share()
				defer memory.Close()
				r, err := unanswered(named(c, name).Call(t.Context(), tool.Call{Memory: memory}))
				if err != nil {
					t.Fatal(err)
				}
				return r
			}
			if r := call("large"); !r.IsError || !strings.Contains(textOf(r), "more memory than the run may retain") {
				t.Errorf("an answer beyond the bound: %.200q", textOf(r))
			}
			if r := call("small"); r.IsError || len(textOf(r)) < 1<<19 {
				t.Errorf("an answer within it: %.200q", textOf(r))
			}
			if a.Used() != 0 {
				t.Errorf("%d bytes stay charged", a.Used())
			}
		})
	}
}
