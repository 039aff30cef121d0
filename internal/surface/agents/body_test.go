package agents

import (
	"errors"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/fault"
)

// A body that starts a run, or that puts a message into the inbox, is read or refused with a fault; what is read is within
// its bounds. // J12 P25
func FuzzRunBody(f *testing.F) {
	for _, body := range []string{
		`{"message":"go"}`,
		`{"message":"go","session_id":"s","max_steps":50,"timeout_seconds":600,"temperature":0,"when_busy":"steer","detached":true}`,
		`{"message":"go","response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"type":"object"}}}}`,
		`{"message":"","max_steps":0}`, `{"message":"a","message":"b"}`, `{"message":null,"max_steps":1e2}`, `{"knowledge_bases":["k"]}`, `[]`, `{`, "\xff",
	} {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) {
		b, err := readRunBody([]byte(body))
		if err != nil {
			var refused *fault.Error
			if !errors.As(err, &refused) || refused.Message == "" {
				t.Fatalf("%q is refused with %v", body, err)
			}
			return
		}
		if strings.TrimSpace(b.message) == "" {
			t.Errorf("%q has no message", body)
		}
		if n := b.maxSteps; n != nil && (*n < 1 || *n > 50) {
			t.Errorf("%q has %d steps", body, *n)
		}
		if n := b.timeout; n != nil && *n < 1 {
			t.Errorf("%q has a timeout of %d s", body, *n)
		}
	})
}
