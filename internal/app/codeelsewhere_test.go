package app_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/internal/sandbox/sandboxtest"
)

// Code of a session goes on with what its replica has, and says on another one that the variables are lost. // L05 J16
func TestCodeOnAnotherReplicaSaysThatItsStateIsLost(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, func(w http.ResponseWriter, r *http.Request, got Received) {
		Turns(Use("code_execute", `{"language":"javascript","code":"globalThis.n = (globalThis.n ?? 0) + 1"}`))(w, r, got)
	})
	yaml := Site{Upstream: up.URL, Runtime: "enable_code_execution: true"}.Yaml() + "\nsandbox: {drivers: [quickjs]}\n"
	a, b := twoReplicasOf(t, yaml, sandboxtest.Program(t))
	for i, c := range []struct {
		on   *Gateway
		want string
		lost bool
	}{{a, "1", false}, {a, "2", false}, {b, "1", true}, {b, "2", false}, {a, "1", true}} {
		got := c.on.Send("POST", ChatPath, strings.NewReader(`{"model":"m","enable_code_execution":true,"session_id":"s",`+
			`"messages":[{"role":"user","content":"x"}]}`))
		if text := string(got.Body); got.Status != 200 || !strings.Contains(text, fmt.Sprintf(`\"result\":\"%s\"`, c.want)) ||
			strings.Contains(text, "state_lost") != c.lost {
			t.Errorf("%d: %d %s", i, got.Status, text)
		}
	}
}
