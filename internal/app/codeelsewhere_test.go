package app_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/sandbox/sandboxtest"
)

// Code of a session goes on with what its replica has, and says on another one that the variables are lost. // L05 J16
func TestCodeOnAnotherReplicaSaysThatItsStateIsLost(t *testing.T) {
	noLeaks(t)
	up := newUpstream(t, func(w http.ResponseWriter, r *http.Request, got received) {
		turns(call{"code_execute", `{"language":"javascript","code":"globalThis.n = (globalThis.n ?? 0) + 1"}`})(w, r, got)
	})
	yaml := site{upstream: up.URL, runtime: "enable_code_execution: true"}.yaml() + "\nsandbox: {drivers: [quickjs]}\n"
	a, b := twoReplicasOf(t, yaml, sandboxtest.Program(t))
	for i, c := range []struct {
		on   *gateway
		want string
		lost bool
	}{{a, "1", false}, {a, "2", false}, {b, "1", true}, {b, "2", false}, {a, "1", true}} {
		got := c.on.send("POST", chatPath, strings.NewReader(`{"model":"m","enable_code_execution":true,"session_id":"s",`+
			`"messages":[{"role":"user","content":"x"}]}`))
		if text := string(got.body); got.status != 200 || !strings.Contains(text, fmt.Sprintf(`\"result\":\"%s\"`, c.want)) ||
			strings.Contains(text, "state_lost") != c.lost {
			t.Errorf("%d: %d %s", i, got.status, text)
		}
	}
}
