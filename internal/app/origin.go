package app

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"

	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/secret"
)

// origin returns a text that is the same for servers that are reached in the
// same way: with other credentials, a server may answer something else.
func (p *pool) origin(ctx context.Context, s org.MCPServer, secrets []org.Secret) string {
	var credentials []string
	for _, texts := range []map[string]string{s.Headers, s.Env} {
		for _, name := range slices.Sorted(maps.Keys(texts)) {
			credentials = append(credentials, p.version(ctx, s, texts[name], secrets))
		}
	}
	text, _ := json.Marshal([]any{s.URL, s.Headers, s.Command, s.Env, credentials}) // strings: cannot fail
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// version returns what changes when that changes to which a text refers: the
// time of a secret of the vault, which is opened at dispatch and not before, and
// the value of any other.
func (p *pool) version(ctx context.Context, s org.MCPServer, text string, secrets []org.Secret) string {
	reference, err := secret.Parse(text)
	if err != nil {
		return ""
	}
	if ref := reference.Ref(); ref.Kind() == secret.Vault {
		i := slices.IndexFunc(secrets, func(s org.Secret) bool { return s.Name == ref.Name() })
		if i < 0 {
			return ""
		}
		return secrets[i].UpdatedAt.UTC().String()
	}
	value, err := p.resolver(s).Resolve(ctx, reference)
	if err != nil {
		return ""
	}
	return value.Reveal()
}
