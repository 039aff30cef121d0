package catalog

import (
	"slices"

	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/tool"
)

// reuses reports whether a cached result of the server's tool may be used in place of a
// call. The annotation that a tool only reads is believed also of a server that is not
// trusted: if it is wrong, the gateway only calls the tool less often. Results of a
// polling tool, or of one that is known to write, are used only if the configuration
// names the tool.
func (s Server) reuses(name string, says tool.Annotations, class tool.Class) bool {
	keyed := class == tool.Keyed
	reads := class == tool.Read || !keyed && says.ReadOnly != nil && *says.ReadOnly
	destroys := says.Destructive != nil && *says.Destructive
	switch {
	case s.Cache.Mode == org.CacheNames:
		return slices.Contains(s.Cache.Names, name)
	case slices.Contains(s.Polling, name):
		return false
	case s.Cache.Mode == org.CacheAll:
		return reads || !keyed && !destroys
	}
	return s.Cache.Mode == org.CacheReadOnly && reads
}
