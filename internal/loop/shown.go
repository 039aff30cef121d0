package loop

import (
	"fmt"
	"slices"
	"strings"
)

// requestPrefix is in front of the names of servers that requests bring. No server of an org has
// a colon in its name.
const requestPrefix = "request:"

// RequestServer returns the name, among the servers of a run, of the one that its request brings
// under the label. It differs from those of all servers of the org: requests choose their labels
// freely, and a label must not tell which servers the org has.
func RequestServer(label string) string { return requestPrefix + label }

// LabelOf returns the name of a server as the caller of its run knows it.
func LabelOf(server string) string { return strings.TrimPrefix(server, requestPrefix) }

// Announce returns the servers, and marks those whose tools the run lists for its caller:
// the shown ones, each once in a conversation.
func (s *State) Announce(servers []Server) []Server {
	out := slices.Clone(servers)
	for i := range out {
		out[i].Announced = out[i].Shown && !slices.Contains(s.Accepted.Listed, LabelOf(out[i].Label))
	}
	return out
}

// allowAnnounced refuses a fact that lists a hidden server, or one that the conversation
// has listed already.
func (s *State) allowAnnounced(b Catalogued) error {
	for _, server := range b.Servers {
		switch {
		case server.Announced && !server.Shown:
			return fmt.Errorf("it lists the tools of server %q, which is hidden", server.Label)
		case server.Announced && slices.Contains(s.Accepted.Listed, LabelOf(server.Label)):
			return fmt.Errorf("it lists the tools of server %q, which the conversation has listed", server.Label)
		}
	}
	return nil
}

// Listed returns the labels of the servers whose tools the conversation has listed, after
// this run. The next run of the conversation has them in Accepted.Listed.
func (s *State) Listed() []string {
	if s.Accepted == nil {
		return nil
	}
	out := slices.Clip(s.Accepted.Listed)
	if s.Catalogued == nil {
		return out
	}
	for _, server := range s.Catalogued.Servers {
		if server.Announced {
			out = append(out, LabelOf(server.Label))
		}
	}
	return out
}

// Brought reports whether the request brought the server of this name.
func (s *State) Brought(name string) bool {
	return name != "" && s.Catalogued != nil &&
		slices.ContainsFunc(s.Catalogued.Servers, func(server Server) bool { return server.Brought && server.Label == name })
}

// Shown reports whether the caller sees the server of this name.
func (s *State) Shown(name string) bool {
	return name != "" && s.Catalogued != nil &&
		slices.ContainsFunc(s.Catalogued.Servers, func(server Server) bool { return server.Shown && server.Label == name })
}

// ShownAs returns how the caller sees a call: as one of a shown server, or as one of a hosted
// tool. tool is the server's own name of its tool. For a hidden call all values are zero.
func (s *State) ShownAs(c Call) (shown bool, hosted, tool string) {
	if c.Prepared == nil || s.Accepted == nil {
		return false, "", ""
	}
	if s.Shown(c.Prepared.Server) {
		return true, "", c.Prepared.Tool
	}
	for _, h := range s.Accepted.Hosted {
		if h.Server == c.Prepared.Server && h.Tool == c.Prepared.Tool {
			return false, h.Type, h.Tool
		}
	}
	return false, "", ""
}

// MissingServers returns the names of the org's servers that could not list their tools.
func (s *State) MissingServers() (names []string) {
	if s.Catalogued == nil {
		return nil
	}
	for _, server := range s.Catalogued.Servers {
		if server.Error != "" && !server.Brought && !server.Shown {
			names = append(names, server.Label)
		}
	}
	return names
}
