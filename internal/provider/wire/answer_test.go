package wire

import (
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/internal/sse"
)

// events is a decoder that keeps nothing.
type events struct{ count int }

func (e *events) Whole([]byte) error            { return nil }
func (*events) Ends(sse.Event) bool             { return false }
func (e *events) Ended() bool                   { return true }
func (e *events) Size() (content, others int)   { return 0, 0 }
func (e *events) Event(sse.Event) (bool, error) { e.count++; return false, nil }

// The buffers of a stream are charged by its largest event, once.
func TestTheBuffersOfAStreamAreCharged(t *testing.T) {
	event := func(n int) string { return "data: " + strings.Repeat("x", n) + "\n\n" }
	account := memlimit.New(memlimit.Options{Run: 1 << 20}).Open("")
	defer account.Close()
	for _, tt := range []struct {
		name, body string
		want       string
		charged    int
	}{
		{"small events", strings.Repeat(event(1000), 5000), "", 0},
		{"large events", strings.Repeat(event(300_000), 10) + event(200_000), "", 600_000},
		{"one that the run has no room for", event(1000) + event(600_000), "needs more memory than the run may retain", 0},
	} {
		memory := account.Share()
		err := Decode(strings.NewReader(tt.body), memory, sse.ReaderOptions{}, &events{})
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) || int(account.Used()) != tt.charged {
			t.Errorf("%s: %v, %d bytes charged", tt.name, err, account.Used())
		}
		memory.Close()
	}
}
