package app

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/config"
	"github.com/turnpike-gateway/turnpike/internal/egress"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/secret"
	"github.com/turnpike-gateway/turnpike/internal/surface/admin"
)

// declared turns the orgs of the file into what the directory works with.
func declared(c *config.Config, keys *config.Secrets) map[string]admin.Declared {
	out := map[string]admin.Declared{}
	for i, o := range c.Orgs {
		path := fmt.Sprintf("orgs[%d]", i)
		d := admin.Declared{
			Org:     c.Given(path + ".id"),
			Runtime: c.Given(path + ".runtime"),
			Record:  org.Record{ID: o.ID, Features: o.Features, Runtime: runtimeOf(o.Runtime)},
		}
		for _, k := range o.Keys {
			value := keys.Keys[o.ID][k.Name].Reveal()
			d.Keys = append(d.Keys, org.Key{
				Org: o.ID, ID: k.Name, Name: k.Name, Role: org.Role(k.Role), Hash: sha256.Sum256([]byte(value)), Hint: "declared",
				Rate: org.Rate{PerMinute: k.RequestsPerMinute, Burst: k.Burst},
			})
		}
		for _, s := range o.MCPServers {
			d.Servers = append(d.Servers, declaredServer(o.ID, s))
		}
		out[o.ID] = d
	}
	return out
}

func caps(c config.OrgCaps) org.Caps {
	return org.Caps{Keys: c.Keys, MCPServers: c.MCPServers, Secrets: c.Secrets, Handovers: c.Handovers, Stored: int64(c.StoredMiB) << 20}
}

func runtimeOf(c config.Runtime) org.Runtime {
	return org.Runtime{
		MaxRounds: c.MaxRounds, MaxCalls: c.MaxCalls, Deadline: c.Deadline, Concurrency: c.Concurrency,
		StreamMode: org.StreamMode(c.StreamMode), ToolParallelism: c.ToolParallelism, CatalogTTL: c.CatalogTTL,
		ToolCacheTTL:       time.Duration(c.ToolCacheTTLSeconds) * time.Second,
		ToolResultMaxBytes: c.ToolResultMaxBytes, ToolArgValidation: c.ToolArgValidation,
		ToolErrorMode: c.ToolErrorMode, OnLimit: c.OnLimit, DoomLoop: c.DoomLoop, DoomThreshold: c.DoomThreshold, DroppedParams: c.DroppedParams,
		MaxRunTokens: c.MaxRunTokens, Durable: c.Durable, Rate: org.Rate{PerMinute: c.RequestsPerMinute, Burst: c.Burst},
	}
}

// declaredServer is a server of the file.
func declaredServer(orgID string, s config.MCPServer) org.MCPServer {
	out := serverOf(orgID, s)
	out.Declared = true
	return out
}

func serverOf(orgID string, s config.MCPServer) org.MCPServer {
	out := org.MCPServer{
		Org: orgID, Name: s.Name, URL: s.URL, Command: s.Command, Enabled: s.Enabled, Headers: written(s.Headers), Env: written(s.Env),
		Timeout: s.Timeout, MaxRetries: s.MaxRetries, Required: s.Required, Trust: s.Trust,
		Naming: s.Naming, Prefix: s.Prefix, Polling: s.Polling,
		Reads: s.Reads, Keyed: s.Keyed, Cache: cacheOf(s.Cache), Concurrency: s.Concurrency,
	}
	if !s.Tools.All {
		out.Tools = append([]string{}, s.Tools.Names...)
	}
	return out
}

func cacheOf(c config.Cache) org.Cache {
	out := org.Cache{Mode: org.CacheMode(c.Mode), Names: c.Names}
	if c.Mode == "read_only" {
		out.Mode = org.CacheReadOnly
	}
	return out
}

// written returns texts as they were written: references stay references.
func written(texts map[string]secret.Text) map[string]string {
	if texts == nil {
		return nil
	}
	out := make(map[string]string, len(texts))
	for name, t := range texts {
		out[name] = t.Literal().Reveal() + string(t.Ref())
	}
	return out
}

// reader implements admin.Reader with the rules of the configuration file, and
// the limits of those who are not its operator.
type reader struct {
	roundsCap int
	vault     bool // there is one to refer to
}

// MCPServer implements admin.Reader.
func (r reader) MCPServer(json []byte, patched bool) (org.MCPServer, error) {
	s, err := config.Part{Name: "body", Data: json, Patched: patched}.MCPServer()
	if err != nil {
		return org.MCPServer{}, refusal(fault.Unprocessable, err)
	}
	if s.Command != nil {
		return org.MCPServer{}, fault.New(fault.Unprocessable, "invalid_value", "command can only be set in the configuration file, because it starts a program on the gateway's machine").In("command")
	}
	for name, text := range s.Headers {
		switch kind := text.Ref().Kind(); {
		case text.Ref() == "":
		case kind != secret.Vault:
			return org.MCPServer{}, fault.New(fault.Unprocessable, "invalid_value", "a header cannot refer to the gateway's environment or files; store the value with PUT /api/secrets/NAME and refer to it with secret:NAME").In("headers." + name)
		case !r.vault:
			return org.MCPServer{}, fault.New(fault.Unprocessable, "vault_off", "%s: %v", text.Ref(), secret.ErrNoVault).In("headers." + name)
		}
	}
	return serverOf("", s), nil
}

// Runtime implements admin.Reader.
func (r reader) Runtime(json []byte) (org.Runtime, error) {
	rt, err := config.Part{Name: "body", Data: json, Patched: true}.Runtime(r.roundsCap)
	if err != nil {
		return org.Runtime{}, refusal(fault.Unprocessable, err)
	}
	return runtimeOf(rt), nil
}

// Org implements admin.Reader.
func (r reader) Org(json []byte) (org.Record, error) {
	o, err := config.Part{Name: "body", Data: json}.Org("id", "features")
	if err != nil {
		return org.Record{}, refusal(fault.Invalid, err)
	}
	return org.Record{ID: o.ID, Features: o.Features}, nil
}

// Features implements admin.Reader.
func (r reader) Features(json []byte) ([]string, error) {
	o, err := config.Part{Name: "body", Data: json, Patched: true}.Org("features")
	if err != nil {
		return nil, refusal(fault.Invalid, err)
	}
	return o.Features, nil
}

// Key implements admin.Reader.
func (r reader) Key(json []byte, patched bool) (org.Key, error) {
	k, err := config.Part{Name: "body", Data: json, Patched: patched}.Key()
	if err != nil {
		return org.Key{}, refusal(fault.Invalid, err)
	}
	return org.Key{Name: k.Name, Role: org.Role(k.Role), Rate: org.Rate{PerMinute: k.RequestsPerMinute, Burst: k.Burst}}, nil
}

// refusal shows the mistakes to who made them.
func refusal(code fault.Code, err error) error {
	var mistakes *config.Error
	if !errors.As(err, &mistakes) || len(mistakes.Mistakes) == 0 {
		return err
	}
	first := mistakes.Mistakes[0]
	message := ""
	for i, m := range mistakes.Mistakes {
		if i > 0 {
			message += "; "
		}
		if m.Path != "" {
			message += m.Path + ": "
		}
		message += m.Message
	}
	return fault.New(code, "invalid_value", "%s", message).In(first.Path)
}

// judgeServer refuses URLs of MCP servers to which the gateway would never connect:
// literal addresses and names that the outbound policy refuses without a lookup.
func judgeServer(way *egress.Egress) func(url string) error {
	return func(url string) error {
		_, err := way.CheckURL(url)
		var blocked *egress.BlockedError
		if !errors.As(err, &blocked) || blocked.Setting() == "" { // how a URL is written is for the reader of settings
			return nil
		}
		refused := fault.New(fault.Unprocessable, "outbound_ssrf_blocked", "the outbound policy refuses this URL: %s%s", blocked.Reason, allowedBy(blocked)).In("url")
		refused.Setting = blocked.Setting()
		return refused
	}
}

// allowedBy says how the operator can allow a refused address; "" if only another
// URL helps.
func allowedBy(e *egress.BlockedError) string {
	switch {
	case e.Setting() == "":
		return ""
	case e.Addr.IsValid():
		return fmt.Sprintf("; the operator can allow it with %s: [%q]", e.Setting(), netip.PrefixFrom(e.Addr, e.Addr.BitLen()))
	}
	return "; the operator can allow its addresses with " + e.Setting()
}
