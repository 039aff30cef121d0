package app

import (
	"context"
	"crypto/sha256"
	"net/http"

	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/config"
	"github.com/turnpike-gateway/turnpike/internal/egress"
	"github.com/turnpike-gateway/turnpike/internal/mcptool"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/run"
)

// directory knows the callers by the hash of their key: a comparison of hashes
// tells nothing about a key.
type directory map[[sha256.Size]byte]run.Caller

// Authenticate implements httpd.Directory.
func (d directory) Authenticate(key string) (run.Caller, bool) {
	caller, ok := d[sha256.Sum256([]byte(key))]
	return caller, ok
}

// directory builds the orgs and their keys.
func (a *App) directory() directory {
	d := directory{}
	for _, c := range a.config.Orgs {
		caller := a.caller(c)
		for _, k := range c.Keys {
			value := a.keys.Keys[c.ID][k.Name].Reveal()
			caller.Principal = org.Principal{ID: k.Name, Role: org.Role(k.Role)}
			d[sha256.Sum256([]byte(value))] = caller
		}
	}
	return d
}

// caller is what all principals of an org share.
func (a *App) caller(c config.Org) run.Caller {
	o := &org.Org{ID: c.ID, Runtime: runtime(c.Runtime)}
	for _, f := range c.Features {
		o.MCPOutbound = o.MCPOutbound || f == config.MCPOutbound
	}
	caller := run.Caller{Org: o}
	for _, s := range c.MCPServers {
		if s.Enabled {
			caller.Servers = append(caller.Servers, a.server(s))
		}
	}
	return caller
}

func runtime(c config.Runtime) org.Runtime {
	return org.Runtime{
		MaxRounds: c.MaxRounds, MaxCalls: c.MaxCalls, Deadline: c.Deadline, Concurrency: c.Concurrency,
		StreamMode: org.StreamMode(c.StreamMode), ToolParallelism: c.ToolParallelism, CatalogTTL: c.CatalogTTL,
		ToolResultMaxBytes: c.ToolResultMaxBytes, ToolArgValidation: c.ToolArgValidation,
		ToolErrorMode: c.ToolErrorMode, OnLimit: c.OnLimit, DoomLoop: c.DoomLoop,
	}
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
