package config

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"maps"
	"slices"

	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/secret"
	"github.com/turnpike-gateway/turnpike/internal/webhook"
)

// Secrets are the credentials that are needed as long as the process runs.
// Those of MCP servers are not here: they are looked up for every request.
type Secrets struct {
	Providers map[string]secret.Value              // API keys by provider name; absent where there is none
	AWS       map[string]AWS                       // AWS credentials by provider name; absent where there are none
	Keys      map[string]map[string]secret.Value   // callers' keys by org id and key name
	Webhooks  map[string]map[string]WebhookSecrets // by org id and name of the webhook
	Operator  secret.Value                         // empty when there is none
	Database  secret.Value                         // URL of PostgreSQL; empty for SQLite
	Listen    secret.Value                         // the same without a pooler; empty = Database
	Master    secret.Value                         // the master key as it was given; empty when there is none
	Previous  secret.Value                         // the one before; empty when there is none
	Vault     *secret.Keyring                      // seals the secrets of orgs; nil when there is no master key
	Audit     ed25519.PrivateKey                   // signs checkpoints of the audit; nil when the configuration has no key
	Pepper    secret.Value                         // of the result cache; empty when there is none
	Sandbox   secret.Value                         // for the sandbox service; empty when there is none
	Dispatch  secret.Value                         // signs the requests to the tool dispatch URL; empty when they are not signed
}

// AWS are static AWS credentials. The session token may be empty.
type AWS struct{ AccessKeyID, SecretAccessKey, SessionToken secret.Value }

// WebhookSecrets sign the messages of a webhook. Previous may be empty.
type WebhookSecrets struct{ Current, Previous secret.Value }

// Resolve looks up every credential of the configuration, also those of
// enabled MCP servers, so that a missing variable or file is found at start.
// What the vault holds is not looked up: it changes while the gateway serves.
// The *[Error] holds all that fail, each with the place that names it.
func (c *Config) Resolve(ctx context.Context, r *secret.Resolver) (*Secrets, error) {
	l := lookup{config: c, resolver: r, keys: map[string]string{}}
	s := &Secrets{Providers: map[string]secret.Value{}, AWS: map[string]AWS{}, Keys: map[string]map[string]secret.Value{}, Webhooks: map[string]map[string]WebhookSecrets{}}
	s.Operator = l.key(ctx, "operator_key", c.OperatorKey)
	s.Database = l.postgresURL(ctx, "database", c.Database)
	s.Listen = l.postgresURL(ctx, "postgres.listen_url", c.Postgres.ListenURL)
	s.Vault, s.Master, s.Previous = l.keyring(ctx)
	s.Audit = l.auditKey(ctx)
	s.Pepper = l.value(ctx, "cache_pepper", c.CachePepper)
	s.Sandbox = l.value(ctx, "sandbox.api_key", c.Sandbox.APIKey)
	s.Dispatch = l.webhookSecret(ctx, "tool_dispatch_secret", c.ToolDispatch.Secret)
	for i, p := range c.Providers {
		if v := l.value(ctx, fmt.Sprintf("providers[%d].api_key", i), p.APIKey); !v.IsZero() {
			s.Providers[p.Name] = v
		}
		aws := AWS{
			AccessKeyID:     l.value(ctx, fmt.Sprintf("providers[%d].access_key_id", i), p.AccessKeyID),
			SecretAccessKey: l.value(ctx, fmt.Sprintf("providers[%d].secret_access_key", i), p.SecretAccessKey),
			SessionToken:    l.value(ctx, fmt.Sprintf("providers[%d].session_token", i), p.SessionToken),
		}
		if !aws.AccessKeyID.IsZero() {
			s.AWS[p.Name] = aws
		}
	}
	for i, m := range c.MCPServers {
		l.server(ctx, fmt.Sprintf("mcp_servers[%d]", i), m.MCPServer)
	}
	for i, o := range c.Orgs {
		s.Keys[o.ID] = map[string]secret.Value{}
		for j, k := range o.Keys {
			s.Keys[o.ID][k.Name] = l.key(ctx, fmt.Sprintf("orgs[%d].keys[%d].key", i, j), k.Key)
		}
		for j, m := range o.MCPServers {
			l.server(ctx, fmt.Sprintf("orgs[%d].mcp_servers[%d]", i, j), m)
		}
		for j, t := range o.HTTPTools {
			if t.Enabled {
				l.texts(ctx, fmt.Sprintf("orgs[%d].http_tools[%d].headers", i, j), t.Headers)
			}
		}
		for j, a := range o.Agents {
			for k, m := range a.Servers {
				l.server(ctx, fmt.Sprintf("orgs[%d].agents[%d].mcp_servers[%d]", i, j, k), m.Settings)
			}
		}
		for j, b := range o.Runtime.Buckets {
			l.texts(ctx, fmt.Sprintf("orgs[%d].runtime.buckets[%d]", i, j), map[string]string{"access_key": b.AccessKey, "secret_key": b.SecretKey})
		}
		s.Webhooks[o.ID] = map[string]WebhookSecrets{}
		for j, w := range o.Webhooks {
			path := fmt.Sprintf("orgs[%d].webhooks[%d]", i, j)
			s.Webhooks[o.ID][w.Name] = WebhookSecrets{l.webhookSecret(ctx, path+".secret", w.Secret), l.webhookSecret(ctx, path+".secret_previous", w.SecretPrevious)}
		}
	}
	if err := newError(l.mistakes); err != nil {
		return nil, err
	}
	return s, nil
}

// minKey is the shortest key of a caller that cannot be guessed, in bytes.
const minKey = 16

// ShortKeys returns a mistake for each key of a caller, or of the operator, that is shorter
// than 16 characters.
func (c *Config) ShortKeys(s *Secrets) []Mistake {
	l := lookup{config: c}
	check := func(path string, v secret.Value) {
		if n := len(v.Reveal()); n > 0 && n < minKey {
			l.fail(path, fmt.Sprintf("the key has %d characters; use at least %d random ones (openssl rand -hex 16)", n, minKey))
		}
	}
	check("operator_key", s.Operator)
	for i, o := range c.Orgs {
		for j, k := range o.Keys {
			check(fmt.Sprintf("orgs[%d].keys[%d].key", i, j), s.Keys[o.ID][k.Name])
		}
	}
	return l.mistakes
}

// Keyring looks up what seals the secrets of orgs, and nothing else; nil when
// there is no master key. What is wrong is an *[Error].
func (c *Config) Keyring(ctx context.Context, r *secret.Resolver) (*secret.Keyring, error) {
	l := lookup{config: c, resolver: r}
	ring, _, _ := l.keyring(ctx)
	return ring, newError(l.mistakes)
}

// AuditKey looks up what signs checkpoints of the audit, and nothing else; nil
// when the configuration has no key. What is wrong is an *[Error].
func (c *Config) AuditKey(ctx context.Context, r *secret.Resolver) (ed25519.PrivateKey, error) {
	l := lookup{config: c, resolver: r}
	return l.auditKey(ctx), newError(l.mistakes)
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

// keyring returns what seals the secrets of orgs, nil for none, and the master keys that it is made of.
func (l *lookup) keyring(ctx context.Context) (ring *secret.Keyring, key, previous secret.Value) {
	const now, was = "master_key", "master_key_previous"
	if key = l.value(ctx, now, l.config.MasterKey); key.IsZero() {
		return nil, key, previous
	}
	ring, err := secret.NewKeyring(key)
	if err != nil {
		l.fail(now, err.Error())
		return nil, key, previous
	}
	if previous = l.value(ctx, was, l.config.MasterKeyPrevious); !previous.IsZero() {
		if ring, err = ring.WithPrevious(previous); err != nil {
			l.fail(was, err.Error())
		}
	}
	return ring, key, previous
}

func (l *lookup) auditKey(ctx context.Context) ed25519.PrivateKey {
	const path = "audit.key"
	v := l.value(ctx, path, l.config.Audit.Key)
	if v.IsZero() {
		return nil
	}
	seed, err := secret.ParseKey(v)
	if err != nil {
		l.fail(path, err.Error())
		return nil
	}
	return ed25519.NewKeyFromSeed(seed[:])
}

// webhookSecret is a secret of Standard Webhooks; empty for none.
func (l *lookup) webhookSecret(ctx context.Context, path string, t secret.Text) secret.Value {
	v := l.value(ctx, path, t)
	if v.IsZero() {
		return v
	}
	if _, err := webhook.ParseSecret(v); err != nil {
		l.fail(path, err.Error())
	}
	return v
}

func (l *lookup) server(ctx context.Context, path string, m org.MCPServer) {
	if !m.Enabled {
		return
	}
	l.texts(ctx, path+".headers", m.Headers)
	l.texts(ctx, path+".env", m.Env)
}

func (l *lookup) texts(ctx context.Context, path string, texts map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		if t, err := secret.Parse(texts[name]); err == nil && t.Ref().Kind() != secret.Vault {
			l.value(ctx, join(path, name), t)
		}
	}
}
