package catalog

import (
	"slices"

	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/tool"
)

// reuses reports whether an earlier result of the server's tool may stand for a
// call. That a tool only reads is believed of a server that is not trusted, too:
// one that lies about it makes the gateway call it less often. A tool that is
// asked again and again for news, or of which it is known that it writes, must be
// named to be left uncalled.
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
