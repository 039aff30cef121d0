package config

import (
	"errors"
	"slices"
	"strings"
	"unicode"

	"github.com/turnpike-gateway/turnpike/internal/org"
)

// Part is a part of a configuration that is written by itself, over the
// management API. It has the keys, defaults, bounds and messages that it has in
// the file; JSON is YAML, too.
type Part struct {
	Name string // stands for the file in messages
	Data []byte // a map of the part's keys

	// Patched says that Data is the result of a merge patch: null gives a key
	// its default. Otherwise null is a mistake, as it is in the file.
	Patched bool

	Storage Storage // of the gateway: which kinds of buckets it has
}

// MCPServer reads one MCP server as it would stand in an org's mcp_servers.
func (p Part) MCPServer() (org.MCPServer, error) {
	var m org.MCPServer
	err := p.read(serverKeys(&m), func(d *decoder) { d.checkServer("", &m) })
	return m, err
}

// HTTPTool reads one tool as it would be in an org's http_tools, with those of its keys that are named.
func (p Part) HTTPTool(names ...string) (org.HTTPTool, error) {
	var t org.HTTPTool
	err := p.read(only(httpToolKeys(&t), names), func(d *decoder) { d.checkHTTPTool("", t) })
	return t, err
}

// Runtime reads an org's runtime settings. A max_rounds above roundsCap (0 = the default) is a
// mistake.
func (p Part) Runtime(roundsCap int) (org.Runtime, error) {
	var r org.Runtime
	err := p.read(runtimeKeys(&r), func(d *decoder) { d.checkRuntime("", &r, roundsCap) })
	return r, err
}

// Org reads those of an org's keys that are named, and no others. Features are
// returned as in [Config].
func (p Part) Org(names ...string) (Org, error) {
	var o Org
	err := p.read(only(o.keys(), names), func(*decoder) { o.settle() })
	return o, err
}

// Key reads a caller's key that the gateway is to make. Its name is only for
// people and may be any text of 1 to 64 characters.
func (p Part) Key() (Key, error) {
	var k Key
	name := key{name: "name", value: text(&k.Name, "", "text", checkLabel), required: true}
	keys := append([]key{name}, only(k.keys(), []string{"role", "requests_per_minute", "burst", "servers", "tools", "models", "end_users", "read_only", "expires_at", "budgets", "context"})...)
	err := p.read(keys, func(d *decoder) { d.checkBurst("", k.Rate); d.checkBudgets("budgets", k.Access.Budgets) })
	k.Name = strings.TrimSpace(k.Name)
	return k, err
}

func checkLabel(s string) error {
	if s = strings.TrimSpace(s); s == "" || len(s) > 64 || strings.ContainsFunc(s, unicode.IsControl) {
		return errors.New("must have 1 to 64 characters and no control characters")
	}
	return nil
}

func only(keys []key, names []string) []key {
	return slices.DeleteFunc(keys, func(k key) bool { return !slices.Contains(names, k.name) })
}

// read reads a map of the keys.
func (p Part) read(keys []key, check func(*decoder)) error {
	d := &decoder{file: p.Name, where: map[string]origin{}, nulls: p.Patched, storage: p.Storage}
	reset(keys)
	if root := d.tree(p.Data); root != nil {
		d.mapping("", root, keys)
	}
	check(d)
	if len(d.mistakes) == 0 {
		d.refuseFileOnly(keys)
	}
	return newError(d.mistakes)
}

func (d *decoder) refuseFileOnly(keys []key) {
	for _, k := range keys {
		if _, given := d.where[k.name]; given && k.fileOnly != "" {
			d.failPath(k.name, "can only be set in the configuration file, because %s", k.fileOnly)
		}
	}
}

// Mistake returns what a later check found wrong with the value at the path, such
// as orgs[0].mcp_servers[0].url, with its place in the file.
func (c *Config) Mistake(path, message string) Mistake {
	return nearestOrigin(c.where, path).mistake(c.file, path, message)
}

// Given reports whether the file, or the environment, says something at the
// path, such as orgs[0].runtime.
func (c *Config) Given(path string) bool {
	_, ok := c.where[path]
	return ok
}
