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

// DispatchServer is the name, among the servers of a run, of the one whose tools the request defines and the tool
// dispatch URL executes. No server of an org has it, and no server that a request brings.
const DispatchServer = "dispatch:tools"

// LabelOf returns the name of a server as the caller of its run knows it.
func LabelOf(server string) string { return strings.TrimPrefix(server, requestPrefix) }

// allowAnnounced refuses a fact that lists a hidden server, or one that the conversation
// has listed already.
func allowAnnounced(s *State, b Catalogued) error {
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
