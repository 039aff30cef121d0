package mcppool

import (
	"context"
	"errors"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/secret"
)

// masterKey is a key of 32 bytes, as the configuration has it.
const masterKey = "q2pV0S0j5m7J4O0w1hYk3XrT9bZcUeNfGdLa8iQxRzs="

// vaultPool returns a pool whose vaults have one sealed secret under every name.
func vaultPool(keys *secret.Keyring, sealed []byte, env func(string) (string, bool)) *Pool {
	return New(Options{Secrets: secret.NewResolver(env), Vaults: Vaults{keys, func(_ context.Context, orgID, name string) (org.Secret, error) {
		return org.Secret{Org: orgID, Name: name, Sealed: sealed}, nil
	}}})
}

func TestOnlyTheVaultIsLookedUpForAStoredServer(t *testing.T) { // K06
	keys, err := secret.NewKeyring(secret.NewValue(masterKey))
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := keys.Seal("o", "gh", secret.NewValue("token"))
	if err != nil {
		t.Fatal(err)
	}
	p := vaultPool(keys, sealed, func(string) (string, bool) { return "CANARY", true })
	for _, c := range []struct {
		text     string
		declared bool
		want     string
	}{
		{"plain", false, "plain"},
		{"Bearer secret:gh", false, "Bearer token"},
		{"env:HOME", false, ""},
		{"file:/etc/hostname", false, ""},
		{"env:HOME", true, "CANARY"},
		{"Bearer secret:gh", true, "Bearer token"},
	} {
		got := ""
		err := p.resolve(t.Context(), org.MCPServer{Org: "o", FromFile: c.declared}, map[string]string{"X": c.text}, func(_, value string) { got = value })
		if got != c.want || errors.Is(err, secret.ErrVaultOnly) != (c.want == "") {
			t.Errorf("%q, declared %v: got %q, %v", c.text, c.declared, got, err)
		}
	}
}

func TestAProgramGetsSecretsInItsEnvironment(t *testing.T) { // K06 D18
	keys, err := secret.NewKeyring(secret.NewValue(masterKey))
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := keys.Seal("o", "gh", secret.NewValue("token"))
	if err != nil {
		t.Fatal(err)
	}
	p := vaultPool(keys, sealed, func(string) (string, bool) { return "", false })
	variables := func(orgID string) (map[string]string, error) {
		return p.environment(&pooled{server: org.MCPServer{Org: orgID, Env: map[string]string{"TOKEN": "secret:gh"}}})(t.Context())
	}
	if got, err := variables("o"); err != nil || got["TOKEN"] != "token" {
		t.Errorf("%v", err)
	}
	if got, err := variables("p"); err == nil || len(got) != 0 {
		t.Error("another org's program got it")
	}
}
