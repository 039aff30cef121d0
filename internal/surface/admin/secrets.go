package admin

import (
	"context"
	"net/http"

	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/secret"
	"github.com/turnpike-gateway/turnpike/internal/surface"
)

// secrets answers requests for the vault of an org.
type secrets struct {
	base
	store     secretStore
	directory secretDirectory
	vault     *secret.Keyring // nil = no secrets can be stored
}

// secretStore is the part of [org.Store] for secrets.
type secretStore interface {
	Secrets(ctx context.Context, org string) ([]org.Secret, error)
	Secret(ctx context.Context, org, name string) (org.Secret, error)
	PutSecret(ctx context.Context, s org.Secret, by org.Author) error
	DeleteSecret(ctx context.Context, org, name string, by org.Author) error
}

// secretDirectory is the part of the Directory for secrets.
type secretDirectory interface {
	// SecretChanged does what Reload does, and makes the servers that refer to
	// the secret begin anew with what it is now.
	SecretChanged(ctx context.Context, orgID, name string) error
}

// secretObject is an entry of the vault on the wire: all that is ever shown.
type secretObject struct {
	Name      string `json:"name"`
	CreatedAt int64  `json:"created_at"`
	UpdatedAt int64  `json:"updated_at"`
}

func wireSecret(s org.Secret) secretObject {
	return secretObject{s.Name, s.CreatedAt.Unix(), s.UpdatedAt.Unix()}
}

// List answers GET /api/secrets.
func (h *secrets) List() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		stored, err := h.store.Secrets(r.Context(), caller.Org.ID)
		if err != nil {
			return 0, nil, err
		}
		out := surface.Each(stored, wireSecret)
		return http.StatusOK, list[secretObject]{out}, nil
	})
}

// Put answers PUT /api/secrets/{name}: it adds a secret or replaces one.
func (h *secrets) Put() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		if h.vault == nil {
			return 0, nil, surface.NoVault("secrets")
		}
		name := r.PathValue("name")
		if _, err := secret.ParseRef(string(secret.Vault) + ":" + name); err != nil {
			return 0, nil, fault.New(fault.Invalid, "invalid_value", "the name of a secret must have 1 to 64 letters, digits, dots, underscores or hyphens, and begin with a letter or a digit").In("name")
		}
		value, err := readSecret(r, caller)
		if err != nil {
			return 0, nil, err
		}
		s := org.Secret{Org: caller.Org.ID, Name: name, CreatedAt: h.now(), UpdatedAt: h.now()}
		if s.Sealed, err = h.vault.Seal(s.Org, s.Name, value); err != nil {
			return 0, nil, err
		}
		if err := h.store.PutSecret(r.Context(), s, caller.Author(h.now())); err != nil {
			return 0, nil, surface.Refused(err, surface.Thing{Kind: "org", Name: s.Org})
		}
		if err := h.directory.SecretChanged(r.Context(), s.Org, name); err != nil {
			return 0, nil, err
		}
		if s, err = h.store.Secret(r.Context(), s.Org, s.Name); err != nil {
			return 0, nil, surface.Refused(err, surface.Thing{Kind: "secret", Name: name})
		}
		return http.StatusOK, wireSecret(s), nil
	})
}

// Delete answers DELETE /api/secrets/{name}. A server that refers to the
// secret fails from its next request on.
func (h *secrets) Delete() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		name := r.PathValue("name")
		if err := h.store.DeleteSecret(r.Context(), caller.Org.ID, name, caller.Author(h.now())); err != nil {
			return 0, nil, surface.Refused(err, surface.Thing{Kind: "secret", Name: name})
		}
		return http.StatusOK, surface.Deleted(name, ""), h.directory.SecretChanged(r.Context(), caller.Org.ID, name)
	})
}

// readSecret reads {"value": "…"}. Its errors quote nothing of the body: see [surface.ReadSecret].
func readSecret(r *http.Request, caller caller.Caller) (secret.Value, error) {
	text, err := surface.ReadSecret(r, caller.Account, "value")
	v := secret.NewValue(text)
	if err != nil {
		return v, err
	}
	if err := v.Check(); err != nil {
		return v, fault.New(fault.Unprocessable, "invalid_value", "value %v", err).In("value")
	}
	return v, nil
}
