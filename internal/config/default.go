package config

import (
	"fmt"

	"github.com/turnpike-gateway/turnpike/internal/secret"
)

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
	d.bedrockProvider(c, env)
	var o Org
	reset(o.keys())
	o.ID, o.Features = DefaultOrg, []string{MCPOutbound}
	c.Orgs = []Org{o}
	d.check(c)
	if err := newError(d.mistakes); err != nil {
		return nil, false, err
	}
	c.settle()
	return c, len(c.Providers) > 0, nil
}

// usual is a provider that needs only an API key in the environment.
type usual struct {
	name    string   // also its kind
	key     string   // variable of its API key
	baseURL string   // variable of its base URL
	models  []string // where it is not the only provider
}

// usualProviders adds a provider for each API key that is set. The only one gets
// every model; of several, each gets its own.
func (d *decoder) usualProviders(c *Config, env Environment) {
	var set []usual
	for _, u := range []usual{
		{"openai", "OPENAI_API_KEY", "OPENAI_BASE_URL", []string{"gpt-*", "o*"}},
		{"anthropic", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", []string{"claude-*"}},
		{"gemini", "GEMINI_API_KEY", "GEMINI_BASE_URL", []string{"gemini-*"}},
	} {
		if v, _ := env(u.key); v != "" {
			set = append(set, u)
		}
	}
	for _, u := range set {
		p := d.usualProvider(fmt.Sprintf("providers[%d]", len(c.Providers)), u, env)
		if asked, _ := env(bedrockSwitch); len(set) > 1 || asksForBedrock(asked) {
			p.Models = u.models
		}
		c.Providers = append(c.Providers, p)
	}
}

func (d *decoder) usualProvider(path string, u usual, env Environment) Provider {
	var p Provider
	reset(p.keys())
	p.Name, p.Kind = u.name, u.name
	d.where[path+".api_key"] = origin{env: u.key}
	if err := credentialKey(&p.APIKey).fromEnv(string(secret.Env) + ":" + u.key); err != nil {
		d.fail(origin{env: u.key}, path+".api_key", "%v", err)
	}
	if base, _ := env(u.baseURL); base != "" {
		d.where[path+".base_url"] = origin{env: u.baseURL}
		if err := checkURL(base); err != nil {
			d.fail(origin{env: u.baseURL}, path+".base_url", "%v", err)
		}
		p.BaseURL = base
	}
	return p
}

// bedrockSwitch is the variable that makes a provider of Bedrock. AWS's own variables
// alone do not: they are set on many machines for other reasons.
const bedrockSwitch = "TURNPIKE_BEDROCK"

// bedrockProvider adds a provider of Bedrock in the region AWS_REGION, with the
// credentials that AWS's own clients would use, if bedrockSwitch asks for it. Beside
// others it gets the names that only Bedrock has.
func (d *decoder) bedrockProvider(c *Config, env Environment) {
	asked, _ := env(bedrockSwitch)
	switch {
	case asked == "" || asked == "false" || asked == "0":
		return
	case !asksForBedrock(asked):
		d.fail(origin{env: bedrockSwitch}, "", "%s is not allowed; want true or false", quote(asked))
		return
	}
	var p Provider
	reset(p.keys())
	p.Name, p.Kind = "bedrock", "bedrock"
	p.Region, _ = env("AWS_REGION")
	path := fmt.Sprintf("providers[%d]", len(c.Providers))
	d.where[path+".region"] = origin{env: "AWS_REGION"}
	if err := checkWord(p.Region); err != nil {
		d.fail(origin{env: "AWS_REGION"}, path+".region", "%v; "+bedrockSwitch+" needs the AWS region", err)
	}
	if len(c.Providers) > 0 {
		p.Models = bedrockModels()
	}
	c.Providers = append(c.Providers, p)
}

func asksForBedrock(v string) bool { return v == "true" || v == "1" }

// bedrockModels returns the forms of model ids of Bedrock: of models, of inference
// profiles, which begin with a part of the world, and ARNs.
func bedrockModels() []string {
	globs := []string{"arn:aws*:bedrock:*"}
	for _, vendor := range []string{"ai21", "amazon", "anthropic", "cohere", "deepseek", "meta", "mistral", "openai", "qwen", "writer"} {
		globs = append(globs, vendor+".*", "*."+vendor+".*")
	}
	return globs
}
