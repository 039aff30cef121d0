package admin

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/id"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/surface"
)

// keys answers requests for the keys of an org.
type keys struct {
	base
	store     keyStore
	directory keyDirectory
	reader    keyReader
	newKey    func() string
}

// keyStore is the part of [org.Store] for keys.
type keyStore interface {
	Keys(ctx context.Context, org string) ([]org.Key, error)
	KeysAfter(ctx context.Context, org string, after org.KeyPlace, limit int) ([]org.Key, error)
	Key(ctx context.Context, org, id string) (org.Key, error)
	CreateKey(ctx context.Context, k org.Key, by org.Author) error
	UpdateKey(ctx context.Context, was, k org.Key, by org.Author) error
	RotateKey(ctx context.Context, was, k org.Key, by org.Author) error
	RevokeKey(ctx context.Context, org, id string, at int64, by org.Author) error
}

// keyDirectory is the part of the Directory for keys.
type keyDirectory interface {
	orgDirectory
	// Unmatched returns the entries of the lists of a key for which there is nothing.
	Unmatched(orgID string, k org.Key) []org.ToolList
}

// keyReader is the part of the Reader for keys.
type keyReader interface {
	// Key reads name, role and rate of a key. Patched says that null gives a key its
	// default, as it does in the methods that read what is patched.
	Key(json []byte, patched bool) (org.Key, error)
}

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

	Servers   any         `json:"servers"` // "*" or a list, as in the configuration file
	Tools     any         `json:"tools"`
	Models    any         `json:"models"`
	EndUsers  bool        `json:"end_users"`
	ReadOnly  bool        `json:"read_only"`
	Budgets   []keyBudget `json:"budgets"`
	Context   *string     `json:"context"` // null: as the org says
	MadeBy    *string     `json:"made_by"` // the limited key whose budgets and hooks the key has, too; null: there is none
	ExpiresAt *string     `json:"expires_at"`

	// Unmatched are the entries of servers, tools and models for which there is nothing. They
	// allow nothing.
	Unmatched []org.ToolList `json:"unmatched,omitempty"`

	PreviousHint  string  `json:"previous_hint,omitempty"` // of the secret before the latest rotation, while it works
	PreviousUntil *string `json:"previous_until,omitempty"`

	CreatedAt *int64 `json:"created_at"`
	RevokedAt *int64 `json:"revoked_at"`
}

func (h *keys) wire(k org.Key, declared bool) key {
	out := key{
		ID: k.ID, Name: k.Name, Role: string(k.Role), Hint: k.Hint, Declared: declared, PerMinute: k.Rate.PerMinute, Burst: k.Rate.Burst,
		Servers: wireList(k.Access.Servers), Tools: wireList(k.Access.Tools), Models: wireList(k.Access.Models), EndUsers: k.Access.EndUsers, ReadOnly: k.Access.ReadOnly,
		Budgets: wireBudgets(k.Access.Budgets), Context: surface.Given(k.Access.Context),
		ExpiresAt: surface.Seconds.Time(k.ExpiresAt),
	}
	if len(k.Access.Makers) > 0 {
		out.MadeBy = &k.Access.Makers[0].Key
	}
	if k.RevokedAt.IsZero() {
		out.Unmatched = h.directory.Unmatched(k.Org, k)
	}
	if k.Previous.Until.After(h.now()) {
		out.PreviousHint, out.PreviousUntil = k.Previous.Hint, surface.Seconds.Time(k.Previous.Until)
	}
	if !declared {
		out.CreatedAt = new(k.CreatedAt.Unix())
	}
	if !k.RevokedAt.IsZero() {
		out.RevokedAt = new(k.RevokedAt.Unix())
	}
	return out
}

// wireList returns a list of what a key may use: "*" for everything.
func wireList(names []string) any {
	if names == nil {
		return "*"
	}
	return names
}

// maxKeys is the most keys that an answer has, and how many it has unless told.
const maxKeys = 1000

// List answers GET /api/keys: first the keys of the configuration file, then the others, the earliest first.
func (h *keys) List() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		after, limit, err := keyQuery(r.URL.Query())
		if err != nil {
			return 0, nil, err
		}
		page := surface.NextPage[key, string]{Data: []key{}}
		var last org.KeyPlace
		for _, k := range h.declaredAfter(caller.Org.ID, after) {
			if len(page.Data) == limit {
				page.Next = new(cursorOf(last))
				return http.StatusOK, page, nil
			}
			page.Data, last = append(page.Data, h.wire(k, true)), org.KeyPlace{ID: k.ID}
		}
		if after.CreatedAt == 0 {
			after = org.KeyPlace{}
		}
		stored, err := h.store.KeysAfter(r.Context(), caller.Org.ID, after, limit-len(page.Data)+1)
		if err != nil {
			return 0, nil, err
		}
		for _, k := range stored {
			if len(page.Data) == limit {
				page.Next = new(cursorOf(last))
				break
			}
			page.Data, last = append(page.Data, h.wire(k, false)), k.Place()
		}
		return http.StatusOK, page, nil
	})
}

// declaredAfter returns the keys of the configuration file that the page after the place has. Their places
// have no time.
func (h *keys) declaredAfter(orgID string, after org.KeyPlace) []org.Key {
	declared := h.directory.FromFile(orgID).Keys
	if after == (org.KeyPlace{}) {
		return declared
	}
	i := slices.IndexFunc(declared, func(k org.Key) bool { return k.ID == after.ID })
	if after.CreatedAt > 0 || i < 0 { // the place is behind them, or that key was removed from the file
		return nil
	}
	return declared[i+1:]
}

// cursorOf returns the text of a place, which is only for the parameter after.
func cursorOf(p org.KeyPlace) string { return strconv.FormatInt(p.CreatedAt, 10) + "." + p.ID }

func keyQuery(values url.Values) (after org.KeyPlace, limit int, err error) {
	if err := surface.CheckQuery(values, "after", "limit"); err != nil {
		return after, 0, err
	}
	if text := values.Get("after"); values.Has("after") { // an empty one would be the first page again
		at, id, ok := strings.Cut(text, ".")
		if after.CreatedAt, err = strconv.ParseInt(at, 10, 64); err != nil || !ok || id == "" || after.CreatedAt < 0 {
			return after, 0, surface.InvalidValue("after", "after must be next of the page before")
		}
		after.ID = id
	}
	limit, err = surface.QueryNumber(values, "limit", maxKeys, 1, maxKeys)
	return after, limit, err
}

// Create answers POST /api/keys.
func (h *keys) Create() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		asked, err := h.read(r, caller)
		if err != nil {
			return 0, nil, err
		}
		if err := mayGive(caller.Principal, asked); err != nil {
			return 0, nil, err
		}
		asked.Access.Makers = org.MadeBy(caller.Principal, caller.Org.Runtime.Hooks)
		return h.create(r, caller.Org.ID, asked, caller.Author(h.now()))
	})
}

func (h *keys) create(r *http.Request, orgID string, k org.Key, by org.Author) (int, any, error) {
	secret := h.newKey()
	k.Org, k.ID, k.CreatedAt = orgID, id.New(org.KeyPrefix), h.now()
	k.Hash, k.Hint = sha256.Sum256([]byte(secret)), hintOf(secret)
	if err := h.freeName(orgID, k.Name); err != nil {
		return 0, nil, err
	}
	if err := h.inFuture(k); err != nil {
		return 0, nil, err
	}
	if err := h.store.CreateKey(r.Context(), k, by); err != nil {
		return 0, nil, keyError(err, k.Name, "org", orgID)
	}
	out := h.wire(k, false)
	out.Key = secret
	return http.StatusCreated, out, h.directory.Reload(r.Context(), orgID)
}

// Revoke answers DELETE /api/keys/{id}. The path may have the name of the key, too.
func (h *keys) Revoke() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		stored, err := h.stored(r, caller)
		if err != nil {
			return 0, nil, err
		}
		keyID := stored.ID
		if err := h.store.RevokeKey(r.Context(), caller.Org.ID, keyID, h.now().UnixMilli(), caller.Author(h.now())); err != nil {
			return 0, nil, surface.Refused(err, surface.Thing{Kind: "key", Name: keyID})
		}
		return http.StatusOK, surface.Deleted(keyID, ""), h.directory.Reload(r.Context(), caller.Org.ID)
	})
}

// Patch answers PATCH /api/keys/{id}: all settings. The secret stays as it is. The
// change holds for the next request, and for the next call of a run.
func (h *keys) Patch() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		was, err := h.stored(r, caller)
		if err != nil {
			return 0, nil, err
		}
		if !was.RevokedAt.IsZero() {
			return 0, nil, fault.New(fault.Conflict, "revoked", "the key %q is revoked and cannot be changed", was.ID)
		}
		_, patch, err := surface.ReadBody(r, caller.Account)
		if err != nil {
			return 0, nil, err
		}
		merged, err := merge(patch, map[string]any{
			"name": was.Name, "role": was.Role, "requests_per_minute": was.Rate.PerMinute, "burst": was.Rate.Burst,
			"servers": wireList(was.Access.Servers), "tools": wireList(was.Access.Tools), "models": wireList(was.Access.Models),
			"end_users": was.Access.EndUsers, "read_only": was.Access.ReadOnly, "budgets": wireBudgets(was.Access.Budgets), "context": surface.Given(was.Access.Context), "expires_at": surface.Seconds.Time(was.ExpiresAt),
		})
		if err != nil {
			return 0, nil, err
		}
		asked, err := h.reader.Key(merged, true)
		if err != nil {
			return 0, nil, err
		}
		k := was
		k.Name, k.Role, k.Rate, k.Access, k.ExpiresAt = asked.Name, asked.Role, asked.Rate, asked.Access, asked.ExpiresAt
		k.Access.Makers = was.Access.Makers
		if err := mayGive(caller.Principal, k); err != nil {
			return 0, nil, err
		}
		if !k.ExpiresAt.Equal(was.ExpiresAt) {
			if err := h.inFuture(k); err != nil {
				return 0, nil, err
			}
		}
		if k.Name != was.Name {
			if err := h.freeName(k.Org, k.Name); err != nil {
				return 0, nil, err
			}
		}
		if err := h.store.UpdateKey(r.Context(), was, k, caller.Author(h.now())); err != nil {
			return 0, nil, keyError(err, k.Name, "key", k.ID)
		}
		return http.StatusOK, h.wire(k, false), h.directory.Reload(r.Context(), k.Org)
	})
}

// maxOverlap is the longest time for which both secrets of a rotated key work.
const maxOverlap = 90 * 24 * time.Hour

// Rotate answers POST /api/keys/{id}/rotate: the key gets a new secret, and the one before
// works for the time overlap.
func (h *keys) Rotate() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		was, err := h.stored(r, caller)
		if err != nil {
			return 0, nil, err
		}
		overlap, err := readOverlap(r, caller)
		if err != nil {
			return 0, nil, err
		}
		now := h.now()
		switch {
		case !was.RevokedAt.IsZero():
			return 0, nil, fault.New(fault.Conflict, "revoked", "the key %q is revoked and cannot be rotated", was.ID)
		case was.Expired(now):
			return 0, nil, fault.New(fault.Conflict, "key_expired", "the key %q has expired; set expires_at to a later time before you rotate it", was.ID)
		case overlap > 0 && was.Previous.Until.After(now):
			return 0, nil, fault.New(fault.Conflict, "rotation_overlaps", "the secret before the last rotation of the key %q works until %s, and a key has at most two secrets; "+
				"wait until then, or end both old secrets now with an overlap of 0s", was.ID, surface.Seconds.Text(was.Previous.Until))
		}
		if err := mayGive(caller.Principal, was); err != nil {
			return 0, nil, err
		}
		if err := mayTake(caller, was); err != nil {
			return 0, nil, err
		}
		secret, k := h.newKey(), was
		k.Hash, k.Hint, k.Previous = sha256.Sum256([]byte(secret)), hintOf(secret), org.PreviousSecret{}
		if overlap > 0 {
			k.Previous = org.PreviousSecret{Hash: was.Hash, Hint: was.Hint, Until: now.Add(overlap)}
		}
		if err := h.store.RotateKey(r.Context(), was, k, caller.Author(h.now())); err != nil {
			return 0, nil, surface.Refused(err, surface.Thing{Kind: "key", Name: k.ID})
		}
		out := h.wire(k, false)
		out.Key = secret
		return http.StatusOK, out, h.directory.Reload(r.Context(), k.Org)
	})
}

func hintOf(secret string) string { return secret[:min(len(secret), 7)] + "…" }

// readOverlap reads the body of a rotation.
func readOverlap(r *http.Request, caller caller.Caller) (time.Duration, error) {
	f, err := surface.ReadFields(r, caller.Account)
	if err != nil {
		return 0, err
	}
	var text string
	f.Text("overlap", &text)
	if err := f.Done(); err != nil {
		return 0, err
	}
	if text == "" {
		return 0, surface.InvalidValue("overlap", `send {"overlap": "24h"}: how long the secret that it has now still works; "0s" ends it at once`)
	}
	overlap, err := time.ParseDuration(text)
	if err != nil || overlap < 0 || overlap > maxOverlap || overlap%time.Second != 0 {
		return 0, fault.New(fault.Invalid, "invalid_value", "overlap is %.40q; want whole seconds as in \"24h\", from 0s to %s", text, maxOverlap).In("overlap")
	}
	return overlap, nil
}

// inFuture refuses a key that would not work.
func (h *keys) inFuture(k org.Key) error {
	if !k.Expired(h.now()) {
		return nil
	}
	return fault.New(fault.Invalid, "invalid_value", "expires_at is in the past; DELETE /api/keys/ID revokes a key at once").In("expires_at")
}

// freeName refuses the name of a key of the configuration file.
func (h *keys) freeName(orgID, name string) error {
	if slices.ContainsFunc(h.directory.FromFile(orgID).Keys, func(k org.Key) bool { return k.Name == name }) {
		return nameTaken(name)
	}
	return nil
}

func keyError(err error, name, kind, id string) error {
	if errors.Is(err, org.ErrNameTaken) {
		return nameTaken(name)
	}
	return surface.Refused(err, surface.Thing{Kind: kind, Name: id})
}

func nameTaken(name string) error {
	return fault.New(fault.Conflict, "exists", "the org has a key called %q already; choose another name, or revoke that key", name).In("name")
}

// stored returns the key whose id or name the path has, if the role of the caller may
// change it. Of the keys with a name, only the one that is not revoked is meant.
func (h *keys) stored(r *http.Request, caller caller.Caller) (org.Key, error) {
	keyID := r.PathValue("id")
	isIt := func(k org.Key) bool { return k.ID == keyID }
	if slices.ContainsFunc(h.directory.FromFile(caller.Org.ID).Keys, isIt) {
		return org.Key{}, surface.Declared("key", keyID)
	}
	stored, err := h.store.Key(r.Context(), caller.Org.ID, keyID)
	if errors.Is(err, org.ErrNotFound) {
		stored, err = h.named(r, caller.Org.ID, keyID)
	}
	if err != nil {
		return org.Key{}, err
	}
	return stored, mayHandle(caller.Principal.Role, stored.Role)
}

// named returns the active key with the name.
func (h *keys) named(r *http.Request, orgID, name string) (org.Key, error) {
	all, err := h.store.Keys(r.Context(), orgID)
	if err != nil {
		return org.Key{}, err
	}
	i := slices.IndexFunc(all, func(k org.Key) bool { return k.Name == name && k.RevokedAt.IsZero() })
	if i < 0 {
		return org.Key{}, fault.New(fault.NotFound, "not_found", "there is no key with the id or the name %q; GET /api/keys and \"turnpike keys list\" show the keys", name)
	}
	return all[i], nil
}

func (h *keys) read(r *http.Request, caller caller.Caller) (org.Key, error) {
	body, _, err := surface.ReadBody(r, caller.Account)
	if err != nil {
		return org.Key{}, err
	}
	return h.reader.Key(body, false)
}

// mayGive returns an error if a key would be able to do more than the caller, who creates,
// changes or rotates it.
func mayGive(caller org.Principal, k org.Key) error {
	if err := mayHandle(caller.Role, k.Role); err != nil {
		return err
	}
	if setting, limit := k.Grant().Exceeds(caller.Grant()); setting != "" {
		return fault.New(fault.Forbidden, "exceeds_own_key", "%s: a key cannot be given more than the key that gives it, which is limited to %s; "+
			"set %s within that, or use another key", setting, limit, setting).In(setting)
	}
	return nil
}

// mayTake returns an error if a limited caller would get the secret of a key that has not its limits.
func mayTake(caller caller.Caller, k org.Key) error {
	makers := org.MadeBy(caller.Principal, caller.Org.Runtime.Hooks)
	own := func(m org.Maker) bool { return m.Key == caller.Principal.ID }
	if makers == nil || k.ID == caller.Principal.ID || slices.ContainsFunc(k.Access.Makers, own) {
		return nil
	}
	return fault.New(fault.Forbidden, "exceeds_own_key", "the key %q was not made by this key, whose budgets and hooks would not hold for its new secret; "+
		"rotate it with another key", k.ID)
}

// mayHandle keeps an admin from making itself an owner.
func mayHandle(who, role org.Role) error {
	if role == org.Owner && who != org.Owner {
		return fault.New(fault.Forbidden, "role_not_allowed", "only a key with the role owner can create, change or revoke a key with the role owner")
	}
	return nil
}

// keyBudget is a budget of a key.
type keyBudget struct {
	Period string      `json:"period"`
	USD    surface.USD `json:"usd,omitzero"`
	Tokens int64       `json:"tokens,omitempty"`
}

func wireBudgets(all []org.Budget) []keyBudget {
	return surface.Each(all, func(b org.Budget) keyBudget { return keyBudget{b.Period, surface.USD(b.NanoUSD), b.Tokens} })
}
