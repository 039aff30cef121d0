package app

import (
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/config"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// maxKeyWarnings is how many keys are named in the log at a start or Reload.
const maxKeyWarnings = 100

// warnOfKeys logs the keys whose lists name what does not exist, names that two keys of an org
// have, and orgs that do not exist and have shared servers.
func (a *App) warnOfKeys(c *config.Config) {
	var keys []org.Key
	a.directory.EachKey(func(k org.Key) { keys = append(keys, k) })
	slices.SortFunc(keys, func(a, b org.Key) int {
		return strings.Compare(a.Org+"\x00"+a.Name+"\x00"+a.ID, b.Org+"\x00"+b.Name+"\x00"+b.ID)
	})
	warned := 0
	warn := func(message string, details ...any) {
		if warned++; warned <= maxKeyWarnings {
			a.log.Warn(message, details...)
		}
	}
	for i, k := range keys {
		for _, l := range a.directory.Unmatched(k.Org, k) {
			warn("a key names what does not exist: the entries allow nothing", "org", k.Org, "key", k.Name, "setting", l.Setting, "names", strings.Join(l.Names, ", "))
		}
		if i > 0 && k.Name != "" && keys[i-1].Org == k.Org && keys[i-1].Name == k.Name {
			warn("two keys of an org have one name: rename or revoke the one of the management API", "org", k.Org, "name", k.Name, "keys", keys[i-1].ID+", "+k.ID)
		}
	}
	for _, s := range c.MCPServers {
		for _, id := range s.Orgs {
			if !a.directory.Has(id) {
				warn("a shared MCP server is for an org that does not exist", "server", s.Name, "org", id)
			}
		}
	}
	if warned > maxKeyWarnings {
		a.log.Warn("further keys name what does not exist; turnpike keys check lists those of an org", "left_out", warned-maxKeyWarnings)
	}
}
