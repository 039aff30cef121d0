package admin

import (
	"crypto/sha256"
	"errors"
	"net/http"
	"slices"

	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/id"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/surface"
)

// key is a caller's key on the wire. Key is there only in the answer to its
// creation: nobody can read it again.
type key struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Role      string `json:"role"`
	Hint      string `json:"hint"`
	Key       string `json:"key,omitempty"`
	Declared  bool   `json:"declared"`
	PerMinute int    `json:"requests_per_minute"`
	Burst     int    `json:"burst"`
	CreatedAt *int64 `json:"created_at"`
	RevokedAt *int64 `json:"revoked_at"`
}

func wireKey(k org.Key, declared bool) key {
	out := key{ID: k.ID, Name: k.Name, Role: string(k.Role), Hint: k.Hint, Declared: declared, PerMinute: k.Rate.PerMinute, Burst: k.Rate.Burst}
	if !declared {
		created := k.CreatedAt.Unix()
		out.CreatedAt = &created
	}
	if !k.RevokedAt.IsZero() {
		revoked := k.RevokedAt.Unix()
		out.RevokedAt = &revoked
	}
	return out
}

// ListKeys answers GET /api/keys.
func (h *Handler) ListKeys() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller run.Caller) (int, any, error) {
		stored, err := h.o.Store.Keys(r.Context(), caller.Org.ID)
		if err != nil {
			return 0, nil, err
		}
		out := []key{}
		for _, k := range h.o.Directory.FromFile(caller.Org.ID).Keys {
			out = append(out, wireKey(k, true))
		}
		for _, k := range stored {
			out = append(out, wireKey(k, false))
		}
		return http.StatusOK, list[key]{out}, nil
	})
}

// CreateKey answers POST /api/keys.
func (h *Handler) CreateKey() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller run.Caller) (int, any, error) {
		asked, err := h.readKey(r)
		if err != nil {
			return 0, nil, err
		}
		if err := mayGive(caller.Principal.Role, asked.Role); err != nil {
			return 0, nil, err
		}
		return h.createKey(r, caller.Org.ID, asked, h.author(caller))
	})
}

func (h *Handler) createKey(r *http.Request, orgID string, k org.Key, by org.Author) (int, any, error) {
	secret := h.o.NewKey()
	k.Org, k.ID, k.CreatedAt = orgID, id.New(org.KeyPrefix), h.o.Now()
	k.Hash, k.Hint = sha256.Sum256([]byte(secret)), secret[:min(len(secret), 7)]+"…"
	if err := h.freeName(orgID, k.Name); err != nil {
		return 0, nil, err
	}
	if err := h.o.Store.CreateKey(r.Context(), k, by); err != nil {
		return 0, nil, keyError(err, k.Name, "org", orgID)
	}
	out := wireKey(k, false)
	out.Key = secret
	return http.StatusCreated, out, h.o.Directory.Reload(r.Context(), orgID)
}

// RevokeKey answers DELETE /api/keys/{id}.
func (h *Handler) RevokeKey() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller run.Caller) (int, any, error) {
		stored, err := h.storedKey(r, caller)
		if err != nil {
			return 0, nil, err
		}
		keyID := stored.ID
		if err := h.o.Store.RevokeKey(r.Context(), caller.Org.ID, keyID, h.o.Now().UnixMilli(), h.author(caller)); err != nil {
			return 0, nil, named(err, "key", keyID)
		}
		return http.StatusOK, deleted{keyID, true}, h.o.Directory.Reload(r.Context(), caller.Org.ID)
	})
}

// PatchKey answers PATCH /api/keys/{id}: name, role and rate. The key itself
// stays as it is. The change holds for the next request.
func (h *Handler) PatchKey() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller run.Caller) (int, any, error) {
		was, err := h.storedKey(r, caller)
		if err != nil {
			return 0, nil, err
		}
		if !was.RevokedAt.IsZero() {
			return 0, nil, fault.New(fault.Conflict, "revoked", "the key %q is revoked and cannot be changed", was.ID)
		}
		merged, err := mergePatch(r, map[string]any{
			"name": was.Name, "role": was.Role, "requests_per_minute": was.Rate.PerMinute, "burst": was.Rate.Burst,
		})
		if err != nil {
			return 0, nil, err
		}
		asked, err := h.o.Reader.Key(merged, true)
		if err != nil {
			return 0, nil, err
		}
		if err := mayGive(caller.Principal.Role, asked.Role); err != nil {
			return 0, nil, err
		}
		k := was
		k.Name, k.Role, k.Rate = asked.Name, asked.Role, asked.Rate
		if k.Name != was.Name {
			if err := h.freeName(k.Org, k.Name); err != nil {
				return 0, nil, err
			}
		}
		if err := h.o.Store.UpdateKey(r.Context(), was, k, h.author(caller)); err != nil {
			return 0, nil, keyError(err, k.Name, "key", k.ID)
		}
		return http.StatusOK, wireKey(k, false), h.o.Directory.Reload(r.Context(), k.Org)
	})
}

// freeName refuses the name of a key of the configuration file.
func (h *Handler) freeName(orgID, name string) error {
	if slices.ContainsFunc(h.o.Directory.FromFile(orgID).Keys, func(k org.Key) bool { return k.Name == name }) {
		return nameTaken(name)
	}
	return nil
}

func keyError(err error, name, kind, id string) error {
	if errors.Is(err, org.ErrNameTaken) {
		return nameTaken(name)
	}
	return named(err, kind, id)
}

func nameTaken(name string) error {
	return fault.New(fault.Conflict, "exists", "the org has a key called %q already; choose another name, or revoke that key", name).In("name")
}

// storedKey returns the key that the path names, if the caller may change it.
func (h *Handler) storedKey(r *http.Request, caller run.Caller) (org.Key, error) {
	keyID := r.PathValue("id")
	isIt := func(k org.Key) bool { return k.ID == keyID }
	if slices.ContainsFunc(h.o.Directory.FromFile(caller.Org.ID).Keys, isIt) {
		return org.Key{}, isDeclared("key", keyID)
	}
	stored, err := h.o.Store.Key(r.Context(), caller.Org.ID, keyID)
	if errors.Is(err, org.ErrNotFound) {
		return org.Key{}, fault.New(fault.NotFound, "not_found", "there is no key with the id %q; GET /api/keys and \"turnpike keys list\" show the ids", keyID)
	} else if err != nil {
		return org.Key{}, err
	}
	return stored, mayGive(caller.Principal.Role, stored.Role)
}

func (h *Handler) readKey(r *http.Request) (org.Key, error) {
	body, err := readBody(r)
	if err != nil {
		return org.Key{}, err
	}
	return h.o.Reader.Key(body, false)
}

// mayGive keeps an admin from making itself an owner.
func mayGive(who, role org.Role) error {
	if role == org.Owner && who != org.Owner {
		return fault.New(fault.Forbidden, "role_not_allowed", "only a key with the role owner can create, change or revoke a key with the role owner")
	}
	return nil
}
