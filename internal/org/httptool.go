package org

import (
	"encoding/json"
	"time"

	"github.com/turnpike-gateway/turnpike/tool"
)

// HTTPTools is the name of the server to which the HTTP tools of an org belong: in the lists of
// keys, in events, in the audit log and in metrics. No MCP server of an org with HTTP tools has it.
const HTTPTools = "http_tools"

// HTTPTool is an HTTP endpoint that runs of an org call as a tool.
type HTTPTool struct {
	Org  string
	Name string // unique in its org; the model sees it

	Description string
	InputSchema json.RawMessage // a JSON Schema of an object
	URL         string          // may have arguments in braces in its path and query
	Method      string          // GET, POST, PUT, PATCH or DELETE
	Arguments   string          // where those go that are not in URL: ArgumentsInBody or ArgumentsInQuery; "" = by the method
	Headers     map[string]string
	Class       tool.Class // once, keyed or read

	RequireApproval    string // ApprovalNever or ApprovalAlways
	Timeout            time.Duration
	MaxRetries         int
	MaxCharacters      int // of a response
	MaxConcurrentCalls int
	Price              *int64 // of a call, in 10⁻⁹ US dollars; nil = nobody has said
	Enabled            bool
}

// Where the arguments of an HTTPTool go.
const (
	ArgumentsInBody  = "body"
	ArgumentsInQuery = "query"
)

// Whether calls of an HTTPTool wait for approval.
const (
	ApprovalNever  = "never"
	ApprovalAlways = "always"
)

// InQuery reports whether the arguments that are not in the URL go into its query.
func (t HTTPTool) InQuery() bool {
	if t.Arguments == "" {
		return t.Method == "GET" || t.Method == "DELETE"
	}
	return t.Arguments == ArgumentsInQuery
}
