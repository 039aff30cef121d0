// Package connect says what a source of tools that connects to something, such as an MCP server, is to agents of
// package turnpike.
package connect

import (
	"log/slog"
	"net/http"

	"github.com/turnpike-gateway/turnpike/tool"
)

// Source is a source that connects over what the agent gives it.
type Source interface {
	tool.Source

	// Connect returns the server for one agent. It connects to nothing. The error says what is wrong with the source.
	Connect(Agent) (Server, error)
}

// Agent is what a source gets of an agent.
type Agent struct {
	// Client keeps the outbound policy of the agent. It is not used for a program.
	Client *http.Client

	// Changed is called when the server says that its tools have changed; nil = nobody is told.
	Changed func()

	Log *slog.Logger // nil = nothing is logged
}

// Server is a source for one agent.
type Server struct {
	tool.Source
	Required bool // runs fail without it
}
