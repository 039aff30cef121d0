package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/internal/secret"
)

// Two master keys, as openssl rand -base64 32 makes them.
const (
	masterKey   = "q2pV0S0j5m7J4O0w1hYk3XrT9bZcUeNfGdLa8iQxRzs="
	previousKey = "n8vK1uYw3cRtB6mZ0sQeXaJ5hLfGdPoI9rTyUiWq2E4="
)

func TestWhatAMasterKeyCanBe(t *testing.T) { // K06
	for name, c := range map[string]struct{ file, want string }{
		"without one, the gateway makes it": {"orgs:\n  - id: a\n    mcp_servers:\n      - {name: s, url: http://a, headers: {x-key: 'secret:t'}}", ""},
		"a number is not one":               {"master_key: 7", "t.yaml:1:13: master_key: found a number, want text (put it in quotes)"},
		"the one before needs the one now":  {"master_key_previous: env:OLD", "t.yaml:1:22: master_key_previous: needs master_key"},
		"a master key is not in the vault":  {"master_key: secret:k", "t.yaml:1:13: master_key: secret:NAME is for headers and variables of an org's servers; want env:NAME or file:PATH"},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if _, err := Parse("t.yaml", []byte(c.file), nothing); err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestTheMasterKeyIsLookedUpAndJudgedAtTheStart(t *testing.T) { // K06
	for name, c := range map[string]struct {
		file, now, was, want string
	}{
		"none is no vault":           {"", "", "", "none"},
		"one is a vault":             {"master_key: env:NOW", masterKey, "", ""},
		"two are a vault":            {"master_key: env:NOW\nmaster_key_previous: env:WAS", masterKey, previousKey, ""},
		"a variable that is not set": {"master_key: env:NONE", "", "", "t.yaml:1:13: master_key: environment variable NONE is not set; set it where turnpike starts"},
		"a word":                     {"master_key: env:NOW", "CANARY hunter2", "", "t.yaml:1:13: master_key: is not base64 or hexadecimal; want 32 random bytes; generate one with: openssl rand -base64 32"},
		"a weak one before":          {"master_key: env:NOW\nmaster_key_previous: env:WAS", masterKey, strings.Repeat("ab", 32), "t.yaml:2:22: master_key_previous: is not random; a guessable key does not protect the secrets; generate one with: openssl rand -base64 32"},
		"the same one twice":         {"master_key: env:NOW\nmaster_key_previous: env:WAS", masterKey, masterKey, "t.yaml:2:22: master_key_previous: is the same as master_key; remove it"},
	} {
		t.Run(name, func(t *testing.T) {
			parsed, err := Parse("t.yaml", []byte(c.file), nothing)
			if err != nil {
				t.Fatal(err)
			}
			resolver := secret.NewResolver(func(name string) (string, bool) {
				v := map[string]string{"NOW": c.now, "WAS": c.was}[name]
				return v, v != ""
			})
			got := ""
			s, err := parsed.Resolve(t.Context(), resolver)
			switch {
			case err != nil:
				got = err.Error()
			case s.Vault == nil:
				got = "none"
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestWhatTheVaultHoldsIsNotLookedUpAtTheStart(t *testing.T) { // D18
	c, err := Parse("t.yaml", []byte("master_key: env:NOW\norgs: [{id: a, mcp_servers: [{name: s, url: 'http://a', headers: {A: 'Bearer secret:missing'}}]}]"), nothing)
	if err != nil {
		t.Fatal(err)
	}
	resolver := secret.NewResolver(func(string) (string, bool) { return masterKey, true })
	if _, err := c.Resolve(t.Context(), resolver); err != nil {
		t.Errorf("%v", err)
	}
}
