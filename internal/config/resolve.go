package config

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/turnpike-gateway/turnpike/internal/secret"
)

// Secrets are the credentials that are needed as long as the process runs.
// Those of MCP servers are not here: they are looked up for every request.
type Secrets struct {
	Providers map[string]secret.Value            // API keys by provider name; absent where there is none
	Keys      map[string]map[string]secret.Value // callers' keys by org id and key name
	Operator  secret.Value                       // empty when there is none
}

// Resolve looks up every credential of the configuration, also those of
// enabled MCP servers, so that a missing variable or file is found at start.
// The *[Error] holds all that fail, each with the place that names it.
func (c *Config) Resolve(ctx context.Context, r *secret.Resolver) (*Secrets, error) {
	l := lookup{config: c, resolver: r, keys: map[string]string{}}
	s := &Secrets{Providers: map[string]secret.Value{}, Keys: map[string]map[string]secret.Value{}}
	s.Operator = l.key(ctx, "operator_key", c.OperatorKey)
	for i, p := range c.Providers {
		if v := l.value(ctx, fmt.Sprintf("providers[%d].api_key", i), p.APIKey); !v.IsZero() {
			s.Providers[p.Name] = v
		}
	}
	for i, o := range c.Orgs {
		s.Keys[o.ID] = map[string]secret.Value{}
		for j, k := range o.Keys {
			s.Keys[o.ID][k.Name] = l.key(ctx, fmt.Sprintf("orgs[%d].keys[%d].key", i, j), k.Key)
		}
		for j, m := range o.MCPServers {
			l.server(ctx, fmt.Sprintf("orgs[%d].mcp_servers[%d]", i, j), m)
		}
	}
	if err := newError(l.mistakes); err != nil {
		return nil, err
	}
	return s, nil
}

// lookup is one pass over the credentials of a configuration.
type lookup struct {
	config   *Config
	resolver *secret.Resolver
	mistakes []Mistake
	keys     map[string]string // the path of each caller's key, by the key
}

func (l *lookup) fail(path, message string) {
	at := nearestOrigin(l.config.where, path)
	l.mistakes = append(l.mistakes, at.mistake(l.config.file, path, message))
}

func (l *lookup) value(ctx context.Context, path string, t secret.Text) secret.Value {
	v, err := l.resolver.Resolve(ctx, t)
	if err != nil {
		l.fail(path, err.Error())
	}
	return v
}

// key is a caller's key: two references may not lead to the same one.
func (l *lookup) key(ctx context.Context, path string, t secret.Text) secret.Value {
	v := l.value(ctx, path, t)
	if v.IsZero() {
		return v
	}
	if other, taken := l.keys[v.Reveal()]; taken {
		l.fail(path, "is the same as "+other+"; a key belongs to one caller")
	}
	l.keys[v.Reveal()] = path
	return v
}

func (l *lookup) server(ctx context.Context, path string, m MCPServer) {
	if !m.Enabled {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
		l.value(ctx, join(path+".headers", name), m.Headers[name])
	}
	for _, name := range slices.Sorted(maps.Keys(m.Env)) {
		l.value(ctx, join(path+".env", name), m.Env[name])
	}
}
