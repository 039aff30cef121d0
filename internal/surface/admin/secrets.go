package admin

import (
	"net/http"

	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/secret"
	"github.com/turnpike-gateway/turnpike/internal/surface"
)

// secretObject is an entry of the vault on the wire: all that is ever shown.
type secretObject struct {
	Name      string `json:"name"`
	CreatedAt int64  `json:"created_at"`
	UpdatedAt int64  `json:"updated_at"`
}

func wireSecret(s org.Secret) secretObject {
	return secretObject{s.Name, s.CreatedAt.Unix(), s.UpdatedAt.Unix()}
}

// ListSecrets answers GET /api/secrets.
func (h *Handler) ListSecrets() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		stored, err := h.o.Store.Secrets(r.Context(), caller.Org.ID)
		if err != nil {
			return 0, nil, err
		}
		out := surface.Each(stored, wireSecret)
		return http.StatusOK, list[secretObject]{out}, nil
	})
}

// PutSecret answers PUT /api/secrets/{name}: it adds a secret or replaces one.
func (h *Handler) PutSecret() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		if h.o.Vault == nil {
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
		s := org.Secret{Org: caller.Org.ID, Name: name, CreatedAt: h.o.Now(), UpdatedAt: h.o.Now()}
		if s.Sealed, err = h.o.Vault.Seal(s.Org, s.Name, value); err != nil {
			return 0, nil, err
		}
		if err := h.o.Store.PutSecret(r.Context(), s, caller.Author(h.o.Now())); err != nil {
			return 0, nil, surface.Refused(err, surface.Thing{Kind: "org", Name: s.Org})
		}
		if err := h.o.Directory.SecretChanged(r.Context(), s.Org, name); err != nil {
			return 0, nil, err
		}
		if s, err = h.o.Store.Secret(r.Context(), s.Org, s.Name); err != nil {
			return 0, nil, surface.Refused(err, surface.Thing{Kind: "secret", Name: name})
		}
		return http.StatusOK, wireSecret(s), nil
	})
}

// DeleteSecret answers DELETE /api/secrets/{name}. A server that refers to the
// secret fails from its next request on.
func (h *Handler) DeleteSecret() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		name := r.PathValue("name")
		if err := h.o.Store.DeleteSecret(r.Context(), caller.Org.ID, name, caller.Author(h.o.Now())); err != nil {
			return 0, nil, surface.Refused(err, surface.Thing{Kind: "secret", Name: name})
		}
		return http.StatusOK, surface.Deleted(name, ""), h.o.Directory.SecretChanged(r.Context(), caller.Org.ID, name)
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
