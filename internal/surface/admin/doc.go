// Package admin is the management API: an org's settings, keys, MCP servers and
// secrets, and, for the operator, the orgs themselves.
//
//	request ─► who may ─► read with the configuration's own rules ─► store ─► Directory.Reload
//
// A change holds for the very next request. What the configuration file
// declares is shown with "declared": true and cannot be changed here: the file
// would undo it at the next start.
//
// Each duty has a type: orgs, keys, servers, secrets, webhooks, routes, budgets and auditLog.
package admin

import (
	"context"
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
// directory.Directory.
type Directory interface {
	keyDirectory
	serverDirectory
	secretDirectory
}

// orgDirectory is the part of the Directory for what changes or is shown with the configuration file.
type orgDirectory interface {
	// Reload takes the org's stored state into use, for the next request. After
	// an error it is tried again until it has succeeded, without being called.
	Reload(ctx context.Context, orgID string) error
	// FromFile returns what the configuration file says of the org.
	FromFile(orgID string) org.FromFile
}

// Reader reads and shows settings with the rules of the configuration file: the same
// keys, limits and messages. Implemented by directory.Reader.
type Reader interface {
	orgReader
	keyReader
	serverReader
}

// Options are what a Handler needs. All but Vault and Now are required.
type Options struct {
	Store     org.Store
	Webhooks  journal.Webhooks
	Outbox    Outbox
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
type Handler struct {
	orgs     orgs
	keys     keys
	servers  servers
	secrets  secrets
	webhooks webhooks
	routes   routes
	budgets  budgets
	audit    auditLog
}

// New returns a Handler.
func New(o Options) *Handler {
	if o.Now == nil {
		o.Now = time.Now
	}
	b := base{o.Log, o.Now}
	h := &Handler{
		keys:     keys{b, o.Store, o.Directory, o.Reader, o.NewKey},
		servers:  servers{b, o.Store, o.Directory, o.Reader, o.Judge},
		secrets:  secrets{b, o.Store, o.Directory, o.Vault},
		webhooks: webhooks{b, o.Webhooks, o.Outbox, o.Test, o.Directory, o.Judge, o.Vault},
		routes:   routes{b, o.Routes},
		budgets:  budgets{b, o.Budgets},
		audit:    auditLog{b, o.Audit},
	}
	h.orgs = orgs{b, o.Store, o.Directory, o.Reader, o.Judge, o.CheckDatabases, &h.keys}
	return h
}

// base is what all endpoints need.
type base struct {
	log *slog.Logger
	now func() time.Time
}

// endpoint turns a function that returns what to answer into an Endpoint: see [surface.Managed].
func (b *base) endpoint(serve func(*http.Request, caller.Caller) (int, any, error)) surface.Endpoint {
	return func(w http.ResponseWriter, r *http.Request, caller caller.Caller) error {
		return surface.Managed(b.log, serve)(w, r, caller)
	}
}
