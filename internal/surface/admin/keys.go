package admin

import (
	"crypto/sha256"
	"net/http"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/id"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/run"
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
func (h *Handler) ListKeys() Endpoint {
	return h.endpoint(func(r *http.Request, caller run.Caller) (int, any, error) {
		stored, err := h.o.Store.Keys(r.Context(), caller.Org.ID)
		if err != nil {
			return 0, nil, err
		}
		out := []key{}
		for _, k := range h.o.Directory.Declared(caller.Org.ID).Keys {
			out = append(out, wireKey(k, true))
		}
		for _, k := range stored {
			out = append(out, wireKey(k, false))
		}
		return http.StatusOK, list[key]{out}, nil
	})
}

// newKey is the body of POST /api/keys.
type newKey struct {
	Name string   `json:"name"`
	Role org.Role `json:"role"`
	org.Rate
}

// CreateKey answers POST /api/keys.
func (h *Handler) CreateKey() Endpoint {
	return h.endpoint(func(r *http.Request, caller run.Caller) (int, any, error) {
		asked, err := readKey(r)
		if err != nil {
			return 0, nil, err
		}
		if err := mayGive(caller.Principal.Role, asked.Role); err != nil {
			return 0, nil, err
		}
		return h.createKey(r, caller.Org.ID, asked)
	})
}

func (h *Handler) createKey(r *http.Request, orgID string, asked newKey) (int, any, error) {
	secret := h.o.NewKey()
	k := org.Key{
		Org: orgID, ID: id.New("key_"), Name: asked.Name, Role: asked.Role, Rate: asked.Rate,
		Hash: sha256.Sum256([]byte(secret)), Hint: secret[:min(len(secret), 7)] + "…", CreatedAt: h.o.Now(),
	}
	if err := h.o.Store.CreateKey(r.Context(), k); err != nil {
		return 0, nil, named(err, "org", orgID)
	}
	out := wireKey(k, false)
	out.Key = secret
	return http.StatusCreated, out, h.o.Directory.Reload(r.Context(), orgID)
}

// RevokeKey answers DELETE /api/keys/{id}.
func (h *Handler) RevokeKey() Endpoint {
	return h.endpoint(func(r *http.Request, caller run.Caller) (int, any, error) {
		keyID := r.PathValue("id")
		isIt := func(k org.Key) bool { return k.ID == keyID }
		if slices.ContainsFunc(h.o.Directory.Declared(caller.Org.ID).Keys, isIt) {
			return 0, nil, isDeclared("key", keyID)
		}
		stored, err := h.o.Store.Keys(r.Context(), caller.Org.ID)
		if err != nil {
			return 0, nil, err
		}
		i := slices.IndexFunc(stored, isIt)
		if i < 0 {
			return 0, nil, fault.New(fault.NotFound, "not_found", "there is no key with the id %q", keyID)
		}
		if err := mayGive(caller.Principal.Role, stored[i].Role); err != nil {
			return 0, nil, err
		}
		if err := h.o.Store.RevokeKey(r.Context(), caller.Org.ID, keyID, h.o.Now().UnixMilli()); err != nil {
			return 0, nil, named(err, "key", keyID)
		}
		return http.StatusOK, deleted{keyID, true}, h.o.Directory.Reload(r.Context(), caller.Org.ID)
	})
}

func readKey(r *http.Request) (newKey, error) {
	var asked newKey
	body, err := readBody(r)
	if err != nil {
		return asked, err
	}
	if err := strict(body, &asked); err != nil {
		return asked, err
	}
	roles := []org.Role{org.Owner, org.Admin, org.Member, org.Approver, org.Reader}
	asked.Name = strings.TrimSpace(asked.Name)
	switch {
	case asked.Name == "" || len(asked.Name) > 64:
		return asked, fault.New(fault.Invalid, "invalid_value", "name must have 1 to 64 characters").In("name")
	case !slices.Contains(roles, asked.Role):
		return asked, fault.New(fault.Invalid, "invalid_value", "role must be owner, admin, member, approver or reader").In("role")
	}
	return asked, checkRate(asked.Rate)
}

// checkRate holds a key's limit to what the configuration file may say.
func checkRate(r org.Rate) error {
	switch {
	case r.PerMinute < 0 || r.PerMinute > org.MaxRate:
		return fault.New(fault.Invalid, "invalid_value", "requests_per_minute must be 0, which is no limit, to %d", org.MaxRate).In("requests_per_minute")
	case r.Burst < 0 || r.Burst > org.MaxRate:
		return fault.New(fault.Invalid, "invalid_value", "burst must be 0, which is as many as requests_per_minute, to %d", org.MaxRate).In("burst")
	case r.Burst > 0 && !r.IsLimit():
		return fault.New(fault.Invalid, "invalid_value", "burst stands without requests_per_minute, which is the limit").In("burst")
	}
	return nil
}

// mayGive keeps an admin from making itself an owner.
func mayGive(who, role org.Role) error {
	if role == org.Owner && who != org.Owner {
		return fault.New(fault.Forbidden, "role_not_allowed", "only an owner may make or revoke the key of an owner")
	}
	return nil
}
