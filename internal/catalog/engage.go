package catalog

import "slices"

// Engage returns the servers of a run that has these tools of a server, which the switches of its org offer. The
// server takes the place of the one with its name, whose tools stay, or else is the first. Nil = the run has none of
// these tools.
func Engage(servers []Server, switched *Server, tools []string) []Server {
	if switched == nil || len(tools) == 0 {
		return servers
	}
	engaged := *switched
	engaged.Tools = slices.Clone(tools)
	out := slices.Clone(servers)
	at := slices.IndexFunc(out, func(s Server) bool { return s.Name == engaged.Name })
	if at < 0 {
		return slices.Insert(out, 0, engaged)
	}
	engaged.Tools = append(engaged.Tools, out[at].Tools...)
	out[at] = engaged
	return out
}
