package app

import (
	"context"
	"crypto/sha256"
	"net/http"

	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/config"
	"github.com/turnpike-gateway/turnpike/internal/egress"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/mcptool"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/policy"
	"github.com/turnpike-gateway/turnpike/internal/toolexec"
)

// directory knows the callers by the hash of their key: a comparison of hashes
// tells nothing about a key.
type directory map[[sha256.Size]byte]org.Caller

// Authenticate implements org.Directory.
func (d directory) Authenticate(key string) (org.Caller, bool) {
	caller, ok := d[sha256.Sum256([]byte(key))]
	return caller, ok
}

// directory builds the orgs and their keys.
func (a *App) directory() (directory, error) {
	d := directory{}
	for _, c := range a.config.Orgs {
		o := a.org(c)
		for _, k := range c.Keys {
			value := a.keys.Keys[c.ID][k.Name].Reveal()
			d[sha256.Sum256([]byte(value))] = org.Caller{Org: o, Principal: org.Principal{ID: k.Name, Role: org.Role(k.Role)}}
		}
	}
	return d, nil
}

func (a *App) org(c config.Org) *org.Org {
	o := &org.Org{ID: c.ID, Runtime: runtime(c.Runtime, a.config.MaxRoundsCap)}
	for _, f := range c.Features {
		o.MCPOutbound = o.MCPOutbound || f == config.MCPOutbound
	}
	for _, s := range c.MCPServers {
		if s.Enabled {
			o.Servers = append(o.Servers, a.server(s))
		}
	}
	return o
}

// runtime fills in what the chat surface does where the org says nothing.
func runtime(c config.Runtime, cap int) org.Runtime {
	rt := org.Runtime{
		Limits:         budget.Limits{ActiveMS: c.Deadline.Milliseconds(), OnLimit: c.OnLimit},
		StreamMode:     org.StreamMode(c.StreamMode),
		Parallelism:    loop.Parallelism(c.ToolParallelism),
		AbortOnTool:    c.ToolErrorMode == "abort",
		Guard:          policy.Guard{Mode: policy.Mode(c.DoomLoop)},
		ArgValidation:  toolexec.Validation(c.ToolArgValidation),
		ResultMaxBytes: 64 << 10,
		CatalogTTL:     c.CatalogTTL,
	}
	if c.MaxRounds != nil {
		rt.Limits.Rounds = *c.MaxRounds
	}
	if c.MaxCalls != nil {
		rt.Limits.Calls = *c.MaxCalls
	}
	if c.ToolResultMaxBytes != nil {
		rt.ResultMaxBytes = *c.ToolResultMaxBytes
	}
	if rt.Parallelism == "auto" || rt.Parallelism == "" {
		rt.Parallelism = loop.Parallel
	}
	if rt.Guard.Mode == "" {
		rt.Guard.Mode = policy.Nudge
	}
	rt.Limits = rt.Limits.Clamp(cap)
	return rt
}

func (a *App) server(s config.MCPServer) catalog.Server {
	retries := s.MaxRetries
	if retries == 0 {
		retries = -1
	}
	client := mcptool.New(mcptool.Server{
		Name: s.Name, URL: s.URL, Headers: a.headers(s), Timeout: s.Timeout, MaxRetries: retries, Trust: s.Trust,
	}, a.out.Guarded(egress.GuardedOptions{}), a.log)
	a.clients = append(a.clients, client)
	out := catalog.Server{
		Name: s.Name, Source: client, Naming: catalog.Naming(s.Naming), Prefix: s.Prefix, Required: s.Required, Polling: s.Polling,
	}
	if !s.Tools.All {
		out.Tools = append([]string{}, s.Tools.Names...)
	}
	return out
}

// headers returns what looks a server's headers up, just in time.
func (a *App) headers(s config.MCPServer) func(context.Context) (http.Header, error) {
	if len(s.Headers) == 0 {
		return nil
	}
	return func(ctx context.Context) (http.Header, error) {
		out := make(http.Header, len(s.Headers))
		for name, text := range s.Headers {
			value, err := a.secrets.Resolve(ctx, text)
			if err != nil {
				return nil, err
			}
			out.Set(name, value.Reveal())
		}
		return out, nil
	}
}
