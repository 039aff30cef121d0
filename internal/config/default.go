package config

import "github.com/turnpike-gateway/turnpike/internal/secret"

// DefaultOrg is the id of the org that exists without a file.
const DefaultOrg = "default"

// Default is the configuration without a file: the defaults, the TURNPIKE_…
// variables over them, providers for the keys that the environment holds under
// their usual names, and one org without keys, for which the caller makes one.
// hasProvider is false when there is none of those names.
func Default(env Environment) (c *Config, hasProvider bool, err error) {
	d := &decoder{file: "environment", where: map[string]origin{}}
	c = &Config{file: d.file, where: d.where}
	keys := c.keys()
	reset(keys)
	d.overlay("", keys, env)
	d.usualProviders(c, env)
	org := Org{ID: DefaultOrg}
	reset(org.keys())
	org.ID, org.Features = DefaultOrg, []string{MCPOutbound}
	c.Orgs = []Org{org}
	d.check(c)
	if err := newError(d.mistakes); err != nil {
		return nil, false, err
	}
	c.settle()
	return c, len(c.Providers) > 0, nil
}

// usualProviders adds a provider for each API key that is set.
func (d *decoder) usualProviders(c *Config, env Environment) {
	const key, base = "OPENAI_API_KEY", "OPENAI_BASE_URL"
	if v, _ := env(key); v == "" {
		return
	}
	var p Provider
	reset(p.keys())
	p.Name, p.Kind = "openai", "openai"
	d.where["providers[0].api_key"] = origin{env: key}
	if err := credentialKey(&p.APIKey).fromEnv(string(secret.Env) + ":" + key); err != nil {
		d.fail(origin{env: key}, "providers[0].api_key", "%v", err)
	}
	if u, _ := env(base); u != "" {
		d.where["providers[0].base_url"] = origin{env: base}
		if err := checkURL(u); err != nil {
			d.fail(origin{env: base}, "providers[0].base_url", "%v", err)
		}
		p.BaseURL = u
	}
	c.Providers = append(c.Providers, p)
}
