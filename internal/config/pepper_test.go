package config

import (
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/secret"
)

// F03
func TestTheCachePepperIsACredential(t *testing.T) {
	env := variablesOf(map[string]string{"TURNPIKE_AGENT_CACHE_PEPPER": "CANARY-one", "OTHER": "CANARY-two"})
	for name, c := range map[string]struct {
		file string
		env  Environment
		want string
	}{
		"of the environment":                  {"", env, "CANARY-one"},
		"which goes before the file":          {"cache_pepper: env:OTHER", env, "CANARY-one"},
		"of the file":                         {"cache_pepper: env:OTHER", func(name string) (string, bool) { return "CANARY-two", name == "OTHER" }, "CANARY-two"},
		"none: another one is made each time": {"", nothing, ""},
	} {
		t.Run(name, func(t *testing.T) {
			config, err := Parse("t.yaml", []byte(c.file), c.env)
			if err != nil {
				t.Fatal(err)
			}
			secrets, err := config.Resolve(t.Context(), secret.NewResolver(c.env))
			if err != nil || secrets.Pepper.Reveal() != c.want {
				t.Errorf("got %q, %v, want %q", secrets.Pepper.Reveal(), err, c.want)
			}
		})
	}
}
