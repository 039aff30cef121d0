package config

import (
	"errors"
	"strings"
	"testing"
)

// FuzzParse: no file makes the parser panic, every refusal is an *Error with
// its mistakes, and what is accepted has its limits.
func FuzzParse(f *testing.F) {
	f.Add([]byte(example))
	f.Add([]byte(`{"listen": "127.0.0.1:1", "orgs": [{"id": "a", "runtime": {"deadline": 0}}]}`))
	f.Add([]byte("a: &x {b: *x}\n<<: *x\n? [a]\n: - - b\n---\n..."))
	f.Add([]byte("orgs: [{id: a, mcp_servers: [{name: x, require_approval: {always: {read_only: true}}}]}]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse("f.yaml", data, nothing)
		if err == nil {
			if c.Listen == "" || c.MaxRoundsCap < 0 {
				t.Errorf("accepted without its defaults: %+v", c)
			}
			return
		}
		var e *Error
		if !errors.As(err, &e) || len(e.Mistakes) == 0 || strings.TrimSpace(err.Error()) == "" {
			t.Errorf("a refusal without mistakes: %v", err)
		}
	})
}

func nothing(string) (string, bool) { return "", false }
