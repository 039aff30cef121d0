package mcppool

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

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
	places   map[string]catalog.Place
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
		e = p.newEndpoints(orgID, org.HTTPTools, tools, true)
		p.http[orgID] = e
	}
	s := catalog.Server{
		Name: org.HTTPTools, Source: e.tools, Origin: origin, Places: e.places, Trust: true,
		Approval: policy.Approval{Always: AskingTools(tools, toolSettings)}, Prices: PricesOf(tools, toolSettings),
	}
	if s.Revision = e.shown.Revision; !reflect.DeepEqual(s, e.shown) {
		p.revisions++
		s.Revision = p.revisions
		e.shown = s
	}
	return s, true
}

// OwnTools returns tools, and then HTTP tools that are stored, as a server of a single run, with the name.
func (p *Pool) OwnTools(orgID, name string, first tool.Tools, tools []org.HTTPTool) catalog.Server {
	e := p.newEndpoints(orgID, name, tools, false)
	return catalog.Server{Name: name, Source: slices.Concat(first, e.tools), Places: e.places, Trust: true, FromRequest: true}
}

// newEndpoints returns the tools with the settings, which were checked. Only those of the configuration file may
// refer to the environment and to files of the gateway.
func (p *Pool) newEndpoints(orgID, server string, settings []org.HTTPTool, fromFile bool) *endpoints {
	log := p.options.Log.With("org", orgID, "server", server)
	e := &endpoints{settings: settings, places: map[string]catalog.Place{}}
	for _, s := range settings {
		o := httptool.Options{Client: p.options.Out.Guarded(egress.GuardedOptions{}), Log: log}
		if fromFile { // others are those of a single run, which has one process
			o.Living = p.options.Living
		}
		if len(s.Headers) > 0 {
			o.Headers = func(ctx context.Context) (http.Header, error) {
				out := make(http.Header, len(s.Headers))
				return out, p.resolve(ctx, referring(s, fromFile), s.Headers, out.Set)
			}
		}
		t, err := httptool.New(s, o)
		if err != nil {
			log.Error("an HTTP tool is not used", "tool", s.Name, "error", err)
			continue
		}
		e.tools, e.names = append(e.tools, t), append(e.names, s.Name)
		e.places[s.Name] = catalog.PlaceOf(time.Time{}, s.URL, s.Method)
	}
	return e
}

// referring returns a server with the URL and the headers of a tool: its references are looked up in the same way.
func referring(t org.HTTPTool, fromFile bool) org.MCPServer {
	return org.MCPServer{Org: t.Org, Name: t.Name, URL: t.URL, Headers: t.Headers, FromFile: fromFile}
}

// httpOrigin is origin for HTTP tools.
func (p *Pool) httpOrigin(ctx context.Context, tools []org.HTTPTool, secrets []org.Secret) string {
	var all strings.Builder
	for _, t := range tools {
		all.WriteString(t.Name + " " + t.Method + " " + t.Arguments + " " + p.origin(ctx, referring(t, true), secrets) + "\n")
	}
	sum := sha256.Sum256([]byte(all.String()))
	return hex.EncodeToString(sum[:])
}

// toolSettings returns what the settings of an HTTP tool say of its calls.
func toolSettings(t org.HTTPTool) org.ToolSettings {
	return org.ToolSettings{Name: t.Name, RequireApproval: t.RequireApproval, Price: t.Price}
}

// AskingTools returns the tools whose calls wait for approval; nil = none.
func AskingTools[T any](tools []T, settings func(T) org.ToolSettings) *policy.Tools {
	var names []string
	for _, t := range tools {
		if s := settings(t); s.RequireApproval == org.ApprovalAlways {
			names = append(names, s.Name)
		}
	}
	if names == nil {
		return nil
	}
	return &policy.Tools{Names: names}
}

// PricesOf returns what calls of the tools cost, by their names; nil = nobody has said.
func PricesOf[T any](tools []T, settings func(T) org.ToolSettings) map[string]money.Nano {
	var out map[string]money.Nano
	for _, t := range tools {
		s := settings(t)
		if s.Price == nil {
			continue
		}
		if out == nil {
			out = map[string]money.Nano{}
		}
		out[s.Name] = money.Nano(*s.Price)
	}
	return out
}
