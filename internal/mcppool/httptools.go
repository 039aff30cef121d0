package mcppool

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/egress"
	"github.com/turnpike-gateway/turnpike/internal/httptool"
	"github.com/turnpike-gateway/turnpike/internal/money"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/policy"
	"github.com/turnpike-gateway/turnpike/tool"
)

// endpoints are the HTTP tools of an org.
type endpoints struct {
	settings []org.HTTPTool
	tools    tool.Tools
	names    []string
	shown    catalog.Server // to the catalogue, last
}

// KeepHTTP makes the org's HTTP tools those that are enabled, and returns them as one server for the
// catalogue, or false if there is none. Tools that did not change stay the same. The secrets are
// those of the org's vault.
func (p *Pool) KeepHTTP(ctx context.Context, orgID string, tools []org.HTTPTool, secrets []org.Secret) (catalog.Server, bool) {
	tools = slices.DeleteFunc(slices.Clone(tools), func(t org.HTTPTool) bool { return !t.Enabled })
	origin := p.httpOrigin(ctx, tools, secrets) // may read files: before the lock, which all orgs share
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(tools) == 0 {
		delete(p.http, orgID)
		return catalog.Server{}, false
	}
	e := p.http[orgID]
	if e == nil || !reflect.DeepEqual(e.settings, tools) {
		e = p.newEndpoints(orgID, tools)
		p.http[orgID] = e
	}
	s := catalog.Server{
		Name: org.HTTPTools, Source: e.tools, Origin: origin, Trust: true,
		Approval: policy.Approval{Always: asking(tools)}, Prices: httpPrices(tools),
	}
	if s.Revision = e.shown.Revision; !reflect.DeepEqual(s, e.shown) {
		p.revisions++
		s.Revision = p.revisions
		e.shown = s
	}
	return s, true
}

// newEndpoints returns the tools with the settings, which the configuration file has checked.
func (p *Pool) newEndpoints(orgID string, settings []org.HTTPTool) *endpoints {
	log := p.options.Log.With("org", orgID, "server", org.HTTPTools)
	e := &endpoints{settings: settings}
	for _, s := range settings {
		o := httptool.Options{Client: p.options.Out.Guarded(egress.GuardedOptions{}), Log: log}
		if len(s.Headers) > 0 {
			o.Headers = func(ctx context.Context) (http.Header, error) {
				out := make(http.Header, len(s.Headers))
				return out, p.resolve(ctx, referring(s), s.Headers, out.Set)
			}
		}
		t, err := httptool.New(s, o)
		if err != nil {
			log.Error("an HTTP tool is not used", "tool", s.Name, "error", err)
			continue
		}
		e.tools, e.names = append(e.tools, t), append(e.names, s.Name)
	}
	return e
}

// referring returns a server with the URL and the headers of a tool of the configuration file: its
// references are looked up in the same way.
func referring(t org.HTTPTool) org.MCPServer {
	return org.MCPServer{Org: t.Org, Name: t.Name, URL: t.URL, Headers: t.Headers, FromFile: true}
}

// httpOrigin is origin for HTTP tools.
func (p *Pool) httpOrigin(ctx context.Context, tools []org.HTTPTool, secrets []org.Secret) string {
	var all strings.Builder
	for _, t := range tools {
		all.WriteString(t.Name + " " + t.Method + " " + t.Arguments + " " + p.origin(ctx, referring(t), secrets) + "\n")
	}
	sum := sha256.Sum256([]byte(all.String()))
	return hex.EncodeToString(sum[:])
}

// asking returns the tools whose calls wait for approval; nil = none.
func asking(tools []org.HTTPTool) *policy.Tools {
	var names []string
	for _, t := range tools {
		if t.RequireApproval == org.ApprovalAlways {
			names = append(names, t.Name)
		}
	}
	if names == nil {
		return nil
	}
	return &policy.Tools{Names: names}
}

func httpPrices(tools []org.HTTPTool) map[string]money.Nano {
	var out map[string]money.Nano
	for _, t := range tools {
		if t.Price == nil {
			continue
		}
		if out == nil {
			out = map[string]money.Nano{}
		}
		out[t.Name] = money.Nano(*t.Price)
	}
	return out
}
