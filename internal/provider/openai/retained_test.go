package openai

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/internal/provider/providertest"
	"github.com/turnpike-gateway/turnpike/model"
)

// A turn is charged as it grows. One that is beyond the bound of its run is
// the provider's failure; where the org has no room, the error is the account's. // P40
func TestATurnForWhichThereIsNoMemoryEnds(t *testing.T) {
	chunk := delta(`"content":"` + strings.Repeat("x", 64<<10) + `"`)
	for name, body := range map[string]string{
		"streamed": strings.Repeat(chunk, 32) + end("stop") + done,
		"whole":    `{"choices":[{"message":{"content":"` + strings.Repeat("x", 2<<20) + `"}}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			p := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(body)) })
			for _, tt := range []struct {
				bounds  memlimit.Options
				fails   bool
				refused bool
			}{{memlimit.Options{Run: 1 << 20}, true, false}, {memlimit.Options{Process: 2 << 20}, true, true}, {memlimit.Options{Run: 16 << 20}, false, false}} {
				memory := memlimit.New(tt.bounds).Open("o").Share()
				_, err := p.Stream(t.Context(), &model.Request{Memory: memory}, (&providertest.Heard{}).Emit)
				var refused *memlimit.Refused
				if (err != nil) != tt.fails || errors.As(err, &refused) != tt.refused {
					t.Errorf("with %+v: %v", tt.bounds, err)
				}
			}
		})
	}
}
