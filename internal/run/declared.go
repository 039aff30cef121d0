package run

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"

	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/policy"
	"github.com/turnpike-gateway/turnpike/internal/secret"
	"github.com/turnpike-gateway/turnpike/tool"
)

// Declared is an MCP server that a request declares for its run. The caller sees its tools
// and its calls.
type Declared struct {
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
func (d Declared) Server() string {
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
	Dial(org string, d Declared) (source tool.Source, origin string, release func())
}

// declaredServers are the servers that the request of a run declares.
type declaredServers struct {
	run     *runState
	dialer  Dialer
	release []func()
}

// dial adds the servers to those of the run.
func (d *declaredServers) dial() error {
	if len(d.run.req.Declared) == 0 {
		return nil
	}
	req := *d.run.req // which belongs to the caller
	req.Servers = slices.Clone(req.Servers)
	for _, s := range req.Declared {
		if s.URL.IsZero() {
			req.show(s)
			continue
		}
		access := d.run.access()
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
			Name: s.Server(), Source: source, Tools: s.Tools, Only: access.Tools, ReadOnly: s.ReadOnly, Shown: true, Brought: true, Origin: origin, URL: hostOf(s.URL),
		})
	}
	d.run.req = &req
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

// show makes the org's server visible to the caller, with the tools that the request allows.
func (r *Request) show(s Declared) {
	i := slices.IndexFunc(r.Servers, func(have catalog.Server) bool { return have.Name == s.Label && !have.Brought })
	if i < 0 {
		return
	}
	have := &r.Servers[i]
	have.Shown, have.ReadOnly = true, s.ReadOnly
	switch {
	case have.Tools == nil:
		have.Tools = s.Tools
	case s.Tools != nil:
		have.Tools = slices.DeleteFunc(slices.Clone(have.Tools), func(name string) bool { return !slices.Contains(s.Tools, name) })
	}
}

// storedDeclared is a Declared as it is stored with a durable run. Address is sealed.
type storedDeclared struct {
	Label    string   `json:"label"`
	Name     string   `json:"name"` // in the run
	Tools    []string `json:"tools,omitzero"`
	ReadOnly *bool    `json:"read_only,omitempty"`
	Origin   string   `json:"origin,omitempty"`
	Address  []byte   `json:"address,omitempty"` // an address; nil for a server of the org
}

// address is what may have secrets of a Declared.
type address struct {
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers,omitempty"`
}

// addressName is the name under which the addresses of a run are sealed.
func addressName(runID string) string { return runID + "/declared_servers" }

// storeDeclared returns the servers that the request declared, for the next owner of the run.
// Without a master key it leaves out the servers with a URL: see [Request.missesBrought].
func (s *runState) storeDeclared() (out []storedDeclared) {
	for _, declared := range s.req.Declared {
		stored := storedDeclared{Label: declared.Label, Name: declared.Server(), Tools: declared.Tools, ReadOnly: declared.ReadOnly}
		if !declared.URL.IsZero() {
			at := slices.IndexFunc(s.req.Servers, func(server catalog.Server) bool { return server.Name == declared.Server() })
			if s.keys == nil || at < 0 {
				continue
			}
			sealed, err := declared.seal(s.keys, s.req.Org, s.lease.RunID)
			if err != nil {
				s.log.Error("a server that the request declared is not stored", "server", declared.Label, "error", err)
				continue
			}
			stored.Address, stored.Origin = sealed, s.req.Servers[at].Origin
		}
		out = append(out, stored)
	}
	return out
}

// seal seals the address of the server, for the store.
func (d Declared) seal(keys *secret.Keyring, orgID, runID string) ([]byte, error) {
	return keys.Seal(orgID, addressName(runID), secret.NewValue(d.address()))
}

func (d Declared) address() string {
	a := address{URL: d.URL.Reveal(), Headers: map[string]string{}}
	for name, value := range d.Headers {
		a.Headers[name] = value.Reveal()
	}
	text, _ := json.Marshal(a) // strings: cannot fail
	return string(text)
}

// recallDeclared returns the servers that were stored. One that cannot be opened is left out.
func (s *runState) recallDeclared(stored []storedDeclared) (out []Declared) {
	for _, one := range stored {
		declared := Declared{Label: one.Label, name: one.Name, Tools: one.Tools, ReadOnly: one.ReadOnly, origin: one.Origin}
		if one.Address != nil {
			if err := s.open(one.Address, &declared); err != nil {
				s.log.Error("a server that the request declared cannot be used", "server", one.Label, "error", err)
				continue
			}
		}
		out = append(out, declared)
	}
	return out
}

// open sets what was sealed of a server.
func (s *runState) open(sealed []byte, into *Declared) error {
	if s.keys == nil {
		return secret.ErrMasterKey
	}
	text, err := s.keys.Open(s.lease.Org, addressName(s.lease.RunID), sealed)
	if err != nil {
		return err
	}
	var a address
	if err := json.Unmarshal([]byte(text.Reveal()), &a); err != nil {
		return secret.ErrDamaged
	}
	into.URL, into.Headers = secret.NewValue(a.URL), map[string]secret.Value{}
	for name := range maps.Keys(a.Headers) {
		into.Headers[name] = secret.NewValue(a.Headers[name])
	}
	return nil
}
