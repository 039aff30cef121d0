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
	"encoding/json"
	"log/slog"
	"net/http"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/secret"
	"github.com/turnpike-gateway/turnpike/internal/surface"
)

// Directory is what the gateway works with at the moment. Implemented by
// app.Directory.
type Directory interface {
	// Reload takes the org's stored state into use, for the next request. After
	// an error it is tried again until it has succeeded, without being called.
	Reload(ctx context.Context, orgID string) error
	// SecretChanged does what Reload does, and makes the servers that refer to
	// the secret begin anew with what it is now.
	SecretChanged(ctx context.Context, orgID, name string) error
	// FromFile returns what the configuration file says of the org.
	FromFile(orgID string) org.FromFile
	// Unmatched returns the entries of the lists of a key for which there is nothing.
	Unmatched(orgID string, k org.Key) []org.ToolList
	// ServerStatus says how an enabled server was last seen.
	ServerStatus(orgID, name string) org.ServerStatus
}

// Reader reads and shows settings with the rules of the configuration file: the same
// keys, limits and messages. Implemented by package app.
type Reader interface {
	// MCPServer reads a whole server. Patched says that null gives a key its
	// default, as it does in the methods that read what is patched.
	MCPServer(json []byte, patched bool) (org.MCPServer, error)
	// Runtime reads an org's settings, patched.
	Runtime(json []byte) (org.Runtime, error)
	// Org reads the id and the features of a new org.
	Org(json []byte) (org.Record, error)
	// Features reads the features of an org, patched.
	Features(json []byte) ([]string, error)
	// Key reads name, role and rate of a key. Patched as with MCPServer.
	Key(json []byte, patched bool) (org.Key, error)
	// ServerSettings returns the settings of a server with the keys of the
	// configuration file, including literal values of headers.
	ServerSettings(s org.MCPServer) json.Marshaler
	// RuntimeSettings returns an org's settings with the keys of the configuration
	// file. null is the default of each surface.
	RuntimeSettings(rt org.Runtime) json.Marshaler
}

// Options are what a Handler needs. All but Vault and Now are required.
type Options struct {
	Store     org.Store
	Webhooks  journal.Webhooks
	Outbox    journal.Outbox
	Test      func(context.Context, org.Webhook) journal.Delivery // sends a test message once and stores nothing
	Audit     audit.Sums
	Budgets   Budgets
	Routes    Routes
	Directory Directory
	Reader    Reader
	Judge     func(url string) error // refuses URLs that the outbound policy refuses without a lookup
	NewKey    func() string

	// CheckDatabases connects to databases of an org that it sets, and refuses those with a role that may do too much.
	CheckDatabases func(ctx context.Context, orgID string, all []org.Database) error

	Vault *secret.Keyring // nil = no secrets can be stored, and no webhooks be added
	Log   *slog.Logger
	Now   func() time.Time // nil = time.Now
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

// endpoint turns a function that returns what to answer into an Endpoint: see [surface.Managed].
func (h *Handler) endpoint(serve func(*http.Request, caller.Caller) (int, any, error)) surface.Endpoint {
	return func(w http.ResponseWriter, r *http.Request, caller caller.Caller) error {
		return surface.Managed(h.o.Log, serve)(w, r, caller)
	}
}
