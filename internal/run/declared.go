package run

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/policy"
	"github.com/turnpike-gateway/turnpike/internal/secret"
	"github.com/turnpike-gateway/turnpike/tool"
)

// RequestServer is an MCP server that a request declares for its run. The caller sees its tools
// and its calls.
type RequestServer struct {
	// Label is how the request calls the server. It differs from the labels of the other
	// servers that the request declares. For the name of the server in the run, see Server.
	Label string

	// URL is where the server is, http or https. It may contain credentials. Empty = the
	// org's server with the name Label, which the caller then sees.
	URL secret.Value

	// Headers are sent with every request to the server.
	Headers map[string]secret.Value

	// Tools are the names of the tools that may be offered; nil = all. ReadOnly is that of
	// [catalog.Server].
	Tools    []string
	ReadOnly *bool

	// Approval is the rule of the request: which calls wait for approval.
	Approval policy.Approval

	// origin is that of [catalog.Server], and name what Server returns, if the run has begun in
	// another process.
	origin, name string
}

// Server returns the name of the server in the run. It differs from those of the other servers,
// also if the org has a server called like the label.
func (d RequestServer) Server() string {
	switch {
	case d.name != "":
		return d.name
	case d.URL.IsZero():
		return d.Label
	}
	return loop.RequestServer(d.Label)
}

// ServerTool names a tool of a server of the run as the server does; Tool "" = all its tools.
type ServerTool struct {
	Server string `json:"server"`
	Tool   string `json:"tool,omitempty"`
}

// Dialer connects runs with the servers that their requests declare. Implemented by
// *mcppool.Pool.
type Dialer interface {
	// Dial returns the tools of a server with a URL. The first request is sent when they
	// are listed or called. origin identifies the URL and the headers without their
	// secrets; it is the same for all runs of the org in this process. The caller must call
	// release when the run ends. The session with the server ends with the last run.
	Dial(org string, d RequestServer) (source tool.Source, origin string, release func())
}

// Dispatcher connects runs with the URL that executes tools which requests define. Implemented by package app.
type Dispatcher interface {
	// Dispatch returns the tools of a request as a server of its run, with the name [loop.DispatchServer];
	// false = there is no URL any more.
	Dispatch(org string, tools []tool.Definition) (catalog.Server, bool)
}

// declaredServers are the servers that the request of a run declares.
type declaredServers struct {
	run        *runState
	dialer     Dialer
	dispatcher Dispatcher
	own        OwnServers
	release    []func()
}

// dialOwn adds the servers of the agent of the run, if it is a turn of a session.
func (d *declaredServers) dialOwn() error {
	if d.own == nil || d.run.req.AgentSession == "" {
		return nil
	}
	var snapshot json.RawMessage
	if t := d.run.req.Turn; t != nil {
		snapshot = t.Snapshot
	}
	servers, release, err := d.own.OwnServers(d.run.ctx, d.run.req.Org, d.run.lease.RunID, snapshot)
	if errors.Is(err, org.ErrNotFound) {
		return errSessionGone
	} else if err != nil {
		return err
	}
	d.release = append(d.release, release)
	req := d.run.req
	others := slices.DeleteFunc(slices.Clone(req.Servers), func(s catalog.Server) bool { // an agent's server replaces that of the org
		return slices.ContainsFunc(servers, func(own catalog.Server) bool { return own.Name == s.Name })
	})
	req.Servers = slices.Concat(catalog.Within(servers, d.run.accessNow()), others)
	return nil
}

// errSessionGone is the error for a turn of a session that was deleted.
var errSessionGone = errors.New("the session of the run was deleted")

// dispatch adds the tools of the request that the gateway executes, after the servers of the org. If there is no
// URL any more, calls of them are answered with an error.
func (d *declaredServers) dispatch() {
	if len(d.run.req.Dispatched) == 0 {
		return
	}
	var server catalog.Server
	there := false
	if d.dispatcher != nil {
		server, there = d.dispatcher.Dispatch(d.run.req.Org, d.run.req.dispatchedDefinitions())
	}
	if !there {
		d.run.log.Warn("the run has no tool dispatch URL any more", "tools", len(d.run.req.Dispatched))
		return
	}
	req, access := d.run.req, d.run.accessNow()
	server.Only, server.Reads = access.Tools, access.ReadOnly
	req.Servers = append(slices.Clip(req.Servers), server)
}

// dispatchedDefinitions returns the definitions of Dispatched. A function without a schema takes any object.
func (r *Request) dispatchedDefinitions() []tool.Definition {
	out := make([]tool.Definition, len(r.Dispatched))
	for i, t := range r.Dispatched {
		if out[i] = t.Definition; len(t.InputSchema) == 0 {
			out[i].InputSchema = json.RawMessage(`{"type":"object"}`)
		}
	}
	return out
}

// dial adds the servers to those of the run.
func (d *declaredServers) dial() error {
	if err := d.dialOwn(); err != nil {
		return err
	}
	d.dispatch()
	if len(d.run.req.RequestServers) == 0 {
		return nil
	}
	req := d.run.req
	req.Servers = slices.Clone(req.Servers)
	for _, s := range req.RequestServers {
		if s.URL.IsZero() {
			req.show(s)
			continue
		}
		access := d.run.accessNow()
		if !access.AllowsAddresses() {
			continue // the key was limited since the request: the tools of the server are gone
		}
		if d.dialer == nil {
			return fmt.Errorf("server %q: the gateway connects to no servers of requests", s.Label)
		}
		source, origin, release := d.dialer.Dial(req.Org, s)
		d.release = append(d.release, release)
		if s.origin != "" {
			origin = s.origin
		}
		req.Servers = append(req.Servers, catalog.Server{
			Name: s.Server(), Source: source, Tools: s.Tools, Only: access.Tools, ReadOnly: s.ReadOnly, Shown: true, FromRequest: true, Origin: origin, URL: hostOf(s.URL), Place: catalog.PlaceOf(time.Time{}, hostOf(s.URL)),
		})
	}
	return nil
}

// hangUp ends the run's use of the servers.
func (d *declaredServers) hangUp() {
	for _, release := range d.release {
		release()
	}
	d.release = nil
}

// hostOf returns the URL without what may have a secret: all but its scheme and its host.
func hostOf(address secret.Value) string {
	u, err := url.Parse(address.Reveal())
	if err != nil {
		return ""
	}
	return u.Scheme + "://" + u.Host
}

// storedRequestServer is a RequestServer as it is stored with a durable run. Address is sealed.
type storedRequestServer struct {
	Label    string   `json:"label"`
	Name     string   `json:"name"` // in the run
	Tools    []string `json:"tools,omitzero"`
	ReadOnly *bool    `json:"read_only,omitempty"`
	Origin   string   `json:"origin,omitempty"`
	Address  []byte   `json:"address,omitempty"` // an address; nil for a server of the org
}

// address is what may have secrets of a RequestServer.
type address struct {
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers,omitempty"`
}

// addressName is the name under which the addresses of a run are sealed.
func addressName(runID string) string { return runID + "/declared_servers" }

// seal seals the address of the server, for the store.
func (d RequestServer) seal(keys *secret.Keyring, orgID, runID string) ([]byte, error) {
	return keys.Seal(orgID, addressName(runID), secret.NewValue(d.address()))
}

func (d RequestServer) address() string {
	a := address{URL: d.URL.Reveal(), Headers: map[string]string{}}
	for name, value := range d.Headers {
		a.Headers[name] = value.Reveal()
	}
	text, _ := json.Marshal(a) // strings: cannot fail
	return string(text)
}

// open sets what seal has sealed.
func (d *RequestServer) open(keys *secret.Keyring, orgID, runID string, sealed []byte) error {
	if keys == nil {
		return secret.ErrMasterKey
	}
	text, err := keys.Open(orgID, addressName(runID), sealed)
	if err != nil {
		return err
	}
	var a address
	if err := json.Unmarshal([]byte(text.Reveal()), &a); err != nil {
		return secret.ErrDamaged
	}
	d.URL, d.Headers = secret.NewValue(a.URL), map[string]secret.Value{}
	for name := range maps.Keys(a.Headers) {
		d.Headers[name] = secret.NewValue(a.Headers[name])
	}
	return nil
}
