package config

import (
	"fmt"
	"slices"

	"github.com/turnpike-gateway/turnpike/internal/builtin"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// Runs reports whether there is a sandbox that runs code.
func (s *Sandbox) Runs() bool { return len(s.Drivers) > 0 || s.URL != "" }

// NoSandbox says why enable_code_execution is refused.
const NoSandbox = "needs a sandbox; the operator sets sandbox.drivers (such as [auto]) or sandbox.url in the configuration file"

// checkCode refuses orgs that run code without a sandbox.
func (d *decoder) checkCode(c *Config) {
	for i := range c.Orgs {
		if c.Orgs[i].Runtime.EnableCode && !c.Sandbox.Runs() {
			d.failPath(fmt.Sprintf("orgs[%d].runtime.enable_code_execution", i), "%s", NoSandbox)
		}
	}
}

// checkSwitches compares the switches of an org with what they need.
func (d *decoder) checkSwitches(path string, r *org.Runtime) {
	disabled := func(at builtin.Switch, name string) {
		if r.BuiltinTool(name).Disabled {
			d.failPath(join(path, string(at)), "offers %s, which builtin_tools disables; remove enabled: false there", name)
		}
	}
	if s := r.Web.Search; r.EnableSearch {
		disabled(builtin.EnableSearch, builtin.WebSearch)
		if slices.Contains([]string{"", org.SearchExa}, s.Provider) && s.APIKey == "" {
			d.failPath(join(path, "enable_search"), "needs a search provider; set web.search.api_key to a secret with a key of Exa, such as secret:EXA_API_KEY, or web.search.provider to searxng, duckduckgo or custom")
		}
	}
	if r.EnableCode {
		disabled(builtin.EnableCode, builtin.CodeExecute)
	}
}
