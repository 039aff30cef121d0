package config

// ParseMCPServer reads one MCP server as it would stand in an org's
// mcp_servers: the same keys, defaults, bounds and messages. JSON is YAML, too.
// name stands for the file in messages.
func ParseMCPServer(name string, data []byte) (MCPServer, error) {
	var m MCPServer
	err := parsePart(name, data, m.keys(), func(d *decoder) { d.checkServer("", &m) })
	return m, err
}

// ParseRuntime reads an org's runtime settings in the same way. A max_rounds
// above roundsCap is a mistake.
func ParseRuntime(name string, data []byte, roundsCap int) (Runtime, error) {
	var r Runtime
	err := parsePart(name, data, r.keys(), func(d *decoder) { d.checkRuntime("", &r, roundsCap) })
	return r, err
}

// parsePart reads a map of the keys, which are those of one part of a file.
func parsePart(name string, data []byte, keys []key, check func(*decoder)) error {
	d := &decoder{file: name, where: map[string]origin{}}
	reset(keys)
	if root := d.tree(data); root != nil {
		d.mapping("", root, keys)
	}
	check(d)
	return newError(d.mistakes)
}

// Given reports whether the file, or the environment, says something at the
// path, such as orgs[0].runtime.
func (c *Config) Given(path string) bool {
	_, ok := c.where[path]
	return ok
}
