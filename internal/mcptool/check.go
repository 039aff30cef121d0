package mcptool

import (
	"context"

	"github.com/turnpike-gateway/turnpike/tool"
)

// Report is what [Client.Check] found out about a server. Its texts are the
// server's own.
type Report struct {
	Transport     Transport
	Protocol      string // the revision spoken; "" where there is no session
	ServerName    string // "" where the server does not say
	ServerVersion string

	// Tools are the definitions as [Client.List] has them, in the server's order;
	// whether their schemas are usable is for the catalogue to say.
	Tools []tool.Definition

	// LeftOut are the entries of the server's list that List drops.
	LeftOut []LeftOut
}

// LeftOut is an entry of a server's list of tools that cannot be used.
type LeftOut struct {
	Name   string // "" where the entry has none
	Reason string
}

// Check connects where there is no session yet, lists the tools and reports what
// the server is. Errors are those of [Client.List].
func (c *Client) Check(ctx context.Context) (Report, error) {
	limited, cancel := context.WithTimeout(ctx, c.server.Timeout)
	defer cancel()
	s, found, err := c.discover(ctx, limited)
	if err != nil {
		return Report{}, err
	}
	r := Report{Transport: s.transport, Protocol: s.protocol(), LeftOut: found.leftOut}
	if s.sdk != nil && s.sdk.InitializeResult().ServerInfo != nil {
		info := s.sdk.InitializeResult().ServerInfo
		r.ServerName, r.ServerVersion = info.Name, info.Version
	}
	for _, t := range found.tools {
		r.Tools = append(r.Tools, t.Definition())
	}
	return r, nil
}
