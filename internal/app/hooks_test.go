package app_test

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/app"
	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/internal/config"
)

// A hook of the file for a key that the org does not have is refused, at the start and when the file is read
// again. The id of a key of the API is one that it has. // H07
func TestHooksForKeysThatDoNotExist(t *testing.T) {
	up := NewUpstream(t, Script(Says("done")))
	yaml := func(key string) string {
		return Site{Upstream: up.URL, Runtime: `hooks: [{id: h, event: OnRunStart, type: rule, keys: [` + key + `], config: {condition: "input CONTAINS x"}}]`}.Yaml()
	}
	s := serve(t, yaml("b"))
	id := Manage(s.Gateway).Do("POST", "/api/keys", "owner-key", `{"name":"later","role":"member"}`, 201)["id"].(string)
	s.reload(t, yaml(id), readAgain)
	s.reload(t, yaml("nobody"), `there is no key`)
	data, variables := t.TempDir(), Environment()
	env := func(name string) (string, bool) {
		if name == "TURNPIKE_DATA" {
			return data, true
		}
		v, ok := variables[name]
		return v, ok
	}
	c, err := config.Parse("test.yaml", []byte(yaml("nobody")), env)
	if err != nil {
		t.Fatal(err)
	}
	if a, err := app.New(t.Context(), c, app.Options{Env: env, Log: slog.New(slog.DiscardHandler)}); err == nil || !strings.Contains(err.Error(), `runtime.hooks[0].keys: there is no key "nobody"`) {
		t.Errorf("the gateway starts: %v, %v", a, err)
	}
}
