package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/secret"
)

// check finds what is wrong between keys that are right by themselves.
func (d *decoder) check(c *Config) {
	d.placeReplica(c)
	d.storage = c.Storage()
	d.checkPostgres(c)
	unique(d, c.Providers, "providers[%d].name", func(p Provider) string { return p.Name })
	for i := range c.Providers {
		d.checkProvider(fmt.Sprintf("providers[%d]", i), &c.Providers[i])
	}
	unique(d, c.Routes, "routes[%d].model", func(r Route) string { return r.Model })
	for i := range c.Routes {
		d.checkRoute(fmt.Sprintf("routes[%d]", i), &c.Routes[i], c.Providers)
	}
	for i := range c.Models {
		d.checkModel(fmt.Sprintf("models[%d]", i), c.Models, i, c.Providers)
	}
	d.checkSummaryModels(c)
	unique(d, c.Orgs, "orgs[%d].id", func(o Org) string { return o.ID })
	for i := range c.Orgs {
		d.checkOrg(fmt.Sprintf("orgs[%d]", i), &c.Orgs[i], c.MaxRoundsCap)
	}
	d.checkShared(c)
	d.checkAgentNames(c)
	d.checkSandbox(&c.Sandbox)
	d.checkCode(c)
	d.checkKeys(c.Orgs)
	d.checkPreviousKey(c)
	d.checkDispatch(c)
}

// checkDispatch refuses settings of the tool dispatch URL without that URL.
func (d *decoder) checkDispatch(c *Config) {
	if _, tried := d.where["tool_dispatch_url"]; tried || c.ToolDispatch.URL != "" {
		return
	}
	for _, key := range []string{"tool_dispatch_secret", "tool_dispatch_timeout", "tool_dispatch_tools"} {
		if _, given := d.where[key]; given {
			d.failPath(key, "needs tool_dispatch_url")
		}
	}
}

// unique reports names that are taken already. path has one %d for the index.
func unique[T any](d *decoder, all []T, path string, name func(T) string) {
	first := map[string]int{}
	for i, x := range all {
		n := name(x)
		if n == "" {
			continue // missing, which is reported
		}
		if j, taken := first[n]; taken {
			d.failPath(fmt.Sprintf(path, i), "%s is already used by "+path, quote(n), j)
			continue
		}
		first[n] = i
	}
}

// checkProvider compares a provider's keys with its kind.
func (d *decoder) checkProvider(path string, p *Provider) {
	bedrock, gemini := p.Kind == "bedrock", p.Kind == "gemini"
	d.only(path, "region", "bedrock", p.Region != "" && !bedrock)
	d.only(path, "access_key_id", "bedrock", !p.AccessKeyID.IsZero() && !bedrock)
	d.only(path, "secret_access_key", "bedrock", !p.SecretAccessKey.IsZero() && !bedrock)
	d.only(path, "session_token", "bedrock", !p.SessionToken.IsZero() && !bedrock)
	if bedrock {
		d.checkAWS(path, p)
	}
	d.only(path, "api_version", "gemini", p.APIVersion != "" && !gemini)
	d.only(path, "default_max_tokens", "anthropic", p.DefaultMaxTokens != nil && p.Kind != "anthropic")
	d.checkRelayHeaders(path, p)
	_, tried := d.where[path+".base_url"]
	switch {
	case tried || p.BaseURL != "":
	case p.Kind == "sglang" || p.Kind == "vllm":
		d.failPath(path+".base_url", "is missing; kind %s has no default URL", p.Kind)
	}
}

// checkAWS checks the credentials of a provider of kind bedrock.
func (d *decoder) checkAWS(path string, p *Provider) {
	id, key := !p.AccessKeyID.IsZero(), !p.SecretAccessKey.IsZero()
	switch {
	case id && !key:
		d.failPath(path+".secret_access_key", "is missing; access_key_id needs it")
	case key && !id:
		d.failPath(path+".access_key_id", "is missing; secret_access_key needs it")
	case !id && !p.SessionToken.IsZero():
		d.failPath(path+".session_token", "needs access_key_id and secret_access_key")
	case id && !p.APIKey.IsZero():
		d.failPath(path+".api_key", "cannot be combined with access_key_id; want one of them")
	}
	if p.APIKeyHeader != "" {
		d.failPath(path+".api_key_header", "is not for kind bedrock")
	}
	_, tried := d.where[path+".region"]
	if unsigned := !p.APIKey.IsZero() && p.BaseURL != ""; p.Region == "" && !tried && !unsigned {
		d.failPath(path+".region", "is missing; kind bedrock needs it")
	}
}

// checkRelayHeaders compares the headers of relayed requests with the kind and the header of
// the key.
func (d *decoder) checkRelayHeaders(path string, p *Provider) {
	if len(p.RelayHeaders) > 0 && p.Kind != "openai" && p.Kind != "openai-responses" {
		d.failPath(path+".relay_headers", "is only for the kinds openai and openai-responses; requests to other kinds are translated")
	}
	for i, name := range p.RelayHeaders {
		if p.APIKeyHeader != "" && strings.EqualFold(name, p.APIKeyHeader) {
			d.failPath(fmt.Sprintf("%s.relay_headers[%d]", path, i), "is the header of the gateway's key (api_key_header); remove it here")
		}
	}
}

func (d *decoder) only(path, key, kind string, wrong bool) {
	if wrong {
		d.failPath(path+"."+key, "is only for kind %s", kind)
	}
}

func (d *decoder) checkOrg(path string, o *Org, roundsCap int) {
	unique(d, o.Keys, path+".keys[%d].name", func(k Key) string { return k.Name })
	unique(d, o.MCPServers, path+".mcp_servers[%d].name", func(m org.MCPServer) string { return m.Name })
	unique(d, o.Webhooks, path+".webhooks[%d].name", func(w Webhook) string { return w.Name })
	d.checkRuntime(path+".runtime", &o.Runtime, roundsCap)
	for _, of := range []struct {
		key string
		any bool
	}{{".mcp_servers", len(o.MCPServers) > 0}, {".http_tools", len(o.HTTPTools) > 0}, {".runtime.builtin_tools", o.Runtime.OffersWithoutSwitch()}} {
		if of.any && !o.loop() {
			d.warn(nearestOrigin(d.where, path+of.key), path+of.key, "not used, because the org does not have the agent loop; add features: [mcp_outbound] to the org")
		}
	}
	d.checkHTTPTools(path, o)
	for i, k := range o.Keys {
		d.checkBurst(fmt.Sprintf("%s.keys[%d]", path, i), k.Rate)
		d.checkBudgets(fmt.Sprintf("%s.keys[%d].budgets", path, i), k.Access.Budgets)
	}
	d.checkHostedOnce(path, o.MCPServers)
	d.checkAgents(path+".agents", o.Agents)
	for i := range o.MCPServers {
		d.checkServer(fmt.Sprintf("%s.mcp_servers[%d]", path, i), &o.MCPServers[i])
	}
}

// checkShared compares the servers that orgs share with each other and with those of the orgs.
func (d *decoder) checkShared(c *Config) {
	unique(d, c.MCPServers, "mcp_servers[%d].name", func(m org.SharedServer) string { return m.Name })
	for i := range c.MCPServers {
		m, path := &c.MCPServers[i], fmt.Sprintf("mcp_servers[%d]", i)
		d.checkServer(path, &m.MCPServer)
		d.checkSharedTexts(path+".headers", m.Headers)
		d.checkSharedTexts(path+".env", m.Env)
		for j, o := range c.Orgs {
			if _, has := m.For(o.ID); !has {
				continue
			}
			for k, own := range o.MCPServers {
				at := fmt.Sprintf("orgs[%d].mcp_servers[%d]", j, k)
				if own.Name == m.Name && own.Name != "" {
					d.failPath(at+".name", "%s is already used by %s.name, which the org shares", quote(own.Name), path)
				}
				for kind := range own.HostedTools() {
					if m.HostedTools()[kind] != "" {
						d.failPath(at+".hosted", "%s is already in %s.hosted, which the org shares; a type has one tool", kind, path)
					}
				}
			}
		}
		for j := range i {
			other := &c.MCPServers[j]
			both := m.Orgs == nil || other.Orgs == nil || slices.ContainsFunc(m.Orgs, func(id string) bool { return slices.Contains(other.Orgs, id) })
			for kind := range m.HostedTools() {
				if both && other.HostedTools()[kind] != "" {
					d.failPath(path+".hosted", "%s is already in mcp_servers[%d].hosted; a type has one tool", kind, j)
				}
			}
		}
	}
}

// checkSharedTexts reports references that a server of several orgs cannot have.
func (d *decoder) checkSharedTexts(path string, texts map[string]string) {
	for name, text := range texts {
		t, err := secret.Parse(text)
		switch {
		case err != nil: // reported
		case t.Ref().Kind() == secret.Vault:
			d.failPath(join(path, name), "%s is a secret of one org, and the server is shared; want env:NAME or file:PATH", t.Ref())
		case strings.Contains(string(t.Ref()), org.OrgInHeader):
			d.failPath(join(path, name), "%s cannot be in a reference; want it in the text before", org.OrgInHeader)
		}
	}
}

func (d *decoder) checkRuntime(path string, r *org.Runtime, roundsCap int) {
	if n, most := r.MaxRounds, cmp.Or(roundsCap, budget.DefaultRoundsCap); n != nil && *n > most {
		d.failPath(join(path, "max_rounds"), "%d is above max_rounds_cap (%d)", *n, most)
	}
	if n, most := r.MaxToolRounds, cmp.Or(roundsCap, org.MaxToolRounds); n != nil && *n > most {
		d.failPath(join(path, "max_tool_rounds"), "%d is above max_rounds_cap (%d)", *n, most)
	}
	d.checkBurst(path, r.Rate)
	d.checkBudgets(join(path, "budgets"), r.Budgets)
	d.checkHooks(join(path, "hooks"), r.Hooks)
	d.checkBuiltins(join(path, "builtin_tools"), r.BuiltinTools)
	d.checkSwitches(path, r)
	d.checkWeb(join(path, "web"), r.Web)
	d.checkBuckets(join(path, "buckets"), r.Buckets)
	d.checkDatabases(join(path, "databases"), r.Databases)
}

// checkBurst reports a burst without a rate.
func (d *decoder) checkBurst(path string, rate org.Rate) {
	if rate.PerMinute == 0 && rate.Burst > 0 {
		d.failPath(join(path, "burst"), "needs requests_per_minute")
	}
}

func (d *decoder) checkServer(path string, m *org.MCPServer) {
	_, url := d.where[join(path, "url")]
	_, command := d.where[join(path, "command")]
	switch {
	case url && command:
		d.failPath(join(path, "command"), "cannot be combined with url; want one of them")
	case !url && !command:
		d.failPath(join(path, "url"), "is missing; want an http or https URL")
	}
	if m.Env != nil && !command {
		d.failPath(join(path, "env"), "is only for servers with command")
	}
	d.checkServerSettings(path, m)
}

// checkServerSettings compares the settings of a server with each other that are not about where it is.
func (d *decoder) checkServerSettings(path string, m *org.MCPServer) {
	if m.Prefix != "" && m.Naming != "prefixed" {
		d.failPath(join(path, "prefix"), "is only for naming: prefixed")
	}
	d.checkHosted(path, m)
	d.checkApproval(join(path, "require_approval"), m)
	for i, name := range m.Keyed {
		if slices.Contains(m.Reads, name) {
			d.failPath(fmt.Sprintf("%s[%d]", join(path, "keyed"), i), "%s is also in reads; want it in one of them", quote(name))
		}
	}
}

// checkApproval reports a rule that selects nothing, whatever the server says of its tools.
func (d *decoder) checkApproval(path string, m *org.MCPServer) {
	for name, f := range map[string]*org.ToolFilter{"always": m.RequireApproval.Always, "never": m.RequireApproval.Never} {
		switch at := join(path, name); {
		case f == nil:
		case f.ToolNames == nil && f.ReadOnly == nil:
			d.failPath(at, "selects no tools; want tool_names, read_only or both")
		case f.ReadOnly != nil && !m.Trust:
			d.failPath(join(at, "read_only"), "needs trust: true; without it nobody believes what the server says of its tools")
		}
	}
}

// checkHosted reports a type of hosted tools that the server has twice, and a tool that runs
// cannot use.
func (d *decoder) checkHosted(path string, m *org.MCPServer) {
	first := map[string]int{}
	for i, entry := range m.Hosted {
		at := fmt.Sprintf("%s[%d]", join(path, "hosted"), i)
		kind, name, _ := strings.Cut(entry, "=")
		if j, taken := first[kind]; taken {
			d.failPath(at, "%s is already in hosted[%d]; a type has one tool", kind, j)
			continue
		}
		first[kind] = i
		if m.Tools != nil && !slices.Contains(m.Tools, name) {
			d.failPath(at, "%s is not in tools", quote(name))
		}
	}
}

// checkHostedOnce reports a type of hosted tools that two servers of an org have.
func (d *decoder) checkHostedOnce(path string, servers []org.MCPServer) {
	first := map[string]int{}
	for i, m := range servers {
		for j, entry := range m.Hosted {
			kind, _, _ := strings.Cut(entry, "=")
			if other, taken := first[kind]; taken && other != i {
				d.failPath(fmt.Sprintf("%s.mcp_servers[%d].hosted[%d]", path, i, j), "%s is already in %s.mcp_servers[%d].hosted; a type has one tool", kind, path, other)
			} else if !taken {
				first[kind] = i
			}
		}
	}
}

// checkKeys finds a caller's key that is written twice: it could not say whose
// request it is.
func (d *decoder) checkKeys(orgs []Org) {
	first := map[string]string{}
	for i, o := range orgs {
		for j, k := range o.Keys {
			path := fmt.Sprintf("orgs[%d].keys[%d].key", i, j)
			written := k.Key.Literal().Reveal() + "\n" + string(k.Key.Ref())
			if other, taken := first[written]; taken && !k.Key.IsZero() {
				d.failPath(path, "is the same as %s; a key belongs to one caller", other)
				continue
			}
			first[written] = path
		}
	}
}

// checkPreviousKey reports a previous master key without a present one.
func (d *decoder) checkPreviousKey(c *Config) {
	if c.MasterKey.IsZero() && !d.refused("master_key") && !c.MasterKeyPrevious.IsZero() {
		d.failPath("master_key_previous", "needs master_key")
	}
}

// settle fills in what depends on other keys, and gives words with two
// spellings one.
func (c *Config) settle() {
	for i := range c.Providers {
		p := &c.Providers[i]
		if p.BaseURL == "" {
			p.BaseURL = usualURL(p)
		}
		p.BaseURL = strings.TrimRight(p.BaseURL, "/")
	}
	for i := range c.Orgs {
		c.Orgs[i].settle()
	}
}

func (o *Org) settle() {
	for i := range o.Features {
		o.Features[i] = strings.TrimPrefix(o.Features[i], "has_")
	}
	slices.Sort(o.Features)
	o.Features = slices.Compact(o.Features)
}

func usualURL(p *Provider) string {
	switch p.Kind {
	case "openai", "openai-responses":
		return "https://api.openai.com/v1"
	case "anthropic":
		return "https://api.anthropic.com"
	case "gemini":
		return "https://generativelanguage.googleapis.com"
	case "bedrock":
		return "https://bedrock-runtime." + p.Region + ".amazonaws.com"
	}
	return ""
}
