// Package admin is the management API: an org's settings, keys, MCP servers and
// secrets, and, for the operator, the orgs themselves.
//
//	request ─► who may ─► read with the configuration's own rules ─► store ─► Directory.Reload
//
// A change holds for the very next request. What the configuration file
// declares is shown with "declared": true and cannot be changed here: the file
// would undo it at the next start.
package admin

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/secret"
)

// Directory is what the gateway works with at the moment. Implemented by
// app.Directory.
type Directory interface {
	// Reload takes the org's stored state into use, for the next request.
	Reload(ctx context.Context, orgID string) error
	// SecretChanged does what Reload does, and makes the servers that refer to
	// the secret begin anew with what it is now.
	SecretChanged(ctx context.Context, orgID, name string) error
	// Declared returns what the configuration file says of the org.
	Declared(orgID string) Declared
	// ServerStatus says how an enabled server was last seen.
	ServerStatus(orgID, name string) ServerStatus
}

// Declared is what stands in the configuration file. The zero value is nothing.
type Declared struct {
	Org     bool
	Runtime bool
	Record  org.Record
	Keys    []org.Key
	Servers []org.MCPServer
}

// ServerStatus is how a server was last seen.
type ServerStatus struct {
	State string `json:"state"` // unknown, connected, failed, disabled
	Tools int    `json:"tools"`
	Error string `json:"error,omitempty"`
}

// Reader reads settings with the rules of the configuration file: the same
// keys, bounds and messages. Implemented by package app.
type Reader interface {
	MCPServer(json []byte) (org.MCPServer, error)
	Runtime(json []byte) (org.Runtime, error)
}

// Runs are the runs of all orgs. Implemented by *run.Runner.
type Runs interface {
	Cancel(ctx context.Context, org, runID, by string) error
}

// Options are what a Handler needs. All but Vault and Now are required.
type Options struct {
	Store     org.Store
	Runs      Runs
	Audit     audit.Rows
	Directory Directory
	Reader    Reader
	NewKey    func() string
	Vault     *secret.Keyring // nil = no secrets can be stored
	Log       *slog.Logger
	Now       func() time.Time // nil = time.Now
}

// Handler answers the management API.
type Handler struct{ o Options }

// New returns a Handler.
func New(o Options) *Handler {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Handler{o}
}

// Endpoint answers one request of a caller who may make it.
type Endpoint func(http.ResponseWriter, *http.Request, run.Caller)

// endpoint turns a function that returns what to answer into an Endpoint.
func (h *Handler) endpoint(serve func(*http.Request, run.Caller) (int, any, error)) Endpoint {
	return func(w http.ResponseWriter, r *http.Request, caller run.Caller) {
		status, body, err := serve(r, caller)
		if err != nil {
			h.writeError(w, err)
			return
		}
		writeJSON(w, status, body)
	}
}
