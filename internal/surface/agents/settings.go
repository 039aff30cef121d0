package agents

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/agent"
	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/secret"
	"github.com/turnpike-gateway/turnpike/internal/surface"
)

// orgSettings answers requests for the settings of an org that hold for its agents.
type orgSettings struct {
	base
	agents agent.Store
	stored Settings
	vault  *secret.Keyring
	kit    *surface.Handler
	orgs   Orgs
}

// settingObject is a setting on the wire. The value of a secret one is Mask, if it is set.
type settingObject struct {
	Key         string  `json:"key"`
	Category    string  `json:"category"`
	Description string  `json:"description"`
	Value       any     `json:"value"`   // what counts; nil = none
	Default     any     `json:"default"` // nil = none
	IsSet       bool    `json:"is_set"`
	IsSecret    bool    `json:"is_secret"`
	UpdatedAt   *string `json:"updated_at"` // nil unless it is set
}

// Mask is shown for secret settings that are set.
const Mask = "********"

func typed(k agent.SettingKey, text string) any {
	if text == "" {
		return nil
	}
	if n, err := strconv.Atoi(text); k.Number && err == nil {
		return n
	}
	return text
}

// Settings answers GET /api/settings.
func (h *orgSettings) Settings() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		record, err := h.stored.Org(r.Context(), caller.Org.ID)
		if err != nil {
			return 0, nil, err
		}
		secrets, err := h.stored.Secrets(r.Context(), caller.Org.ID)
		if err != nil {
			return 0, nil, err
		}
		plain := record.Runtime.Agents
		out := []settingObject{}
		for _, k := range agent.SettingKeys() {
			one := settingObject{Key: k.Key, Category: k.Category, Description: k.Doc, Default: typed(k, k.Default), IsSecret: k.Secret}
			one.Value = one.Default
			if i := slices.IndexFunc(secrets, func(s org.Secret) bool { return s.Name == k.Key }); k.Secret && i >= 0 {
				one.Value, one.IsSet, one.UpdatedAt = Mask, true, millis.Time(secrets[i].UpdatedAt)
			}
			if value := k.In(plain); value != "" {
				one.Value, one.IsSet, one.UpdatedAt = typed(k, value), true, millis.Time(time.UnixMilli(plain.SetAt[k.Key]).UTC())
			}
			out = append(out, one)
		}
		return http.StatusOK, struct {
			Settings []settingObject `json:"settings"`
		}{out}, nil
	})
}

// updated is the answer to a change of settings.
type updated struct {
	OK      bool     `json:"ok"`
	Updated []string `json:"updated"`
}

// newValue is a setting that a request sets; "" deletes it.
type newValue struct {
	key   agent.SettingKey
	value secret.Value // it may be secret, so that it is not printed
	at    string       // its path in the body
}

// readValue reads a value at a path of the body.
func readValue(key, path string, v json.RawMessage) (newValue, error) {
	k, ok := agent.FindSetting(key)
	if !ok {
		return newValue{}, unknownSetting(key)
	}
	var text string
	var number json.Number
	switch {
	case surface.IsNull(v):
	case json.Unmarshal(v, &text) == nil:
	case k.Number && json.Unmarshal(v, &number) == nil:
		text = number.String()
	default:
		return newValue{}, surface.InvalidValue(path, "%s must be a string", key)
	}
	if k.Secret && text == Mask {
		return newValue{}, surface.InvalidValue(path, "%s: %s is what is shown in place of the value; send the value, or leave the key out", key, Mask)
	}
	if text != "" {
		if err := k.Check(text); err != nil {
			return newValue{}, surface.InvalidValue(path, "%s %v", key, err)
		}
	}
	return newValue{k, secret.NewValue(text), path}, nil
}

func unknownSetting(key string) error {
	var known []string
	for _, k := range agent.SettingKeys() {
		known = append(known, k.Key)
	}
	return fault.New(fault.NotFound, "not_found", "there is no setting %.80q; the settings are %s", key, strings.Join(known, ", "))
}

// PutSettings answers PUT /api/settings with {"settings": {KEY: VALUE}}. All are checked before any is stored.
func (h *orgSettings) PutSettings() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		f, err := surface.ReadQuietFields(r, caller.Account)
		if err != nil {
			return 0, nil, err
		}
		v, ok := f.Take("settings")
		if err := f.Done(); err != nil {
			return 0, nil, err
		}
		if !ok {
			return 0, nil, surface.InvalidValue("settings", `settings is required: {"settings": {"KEY": "value"}}`)
		}
		inside := surface.FieldsOf("settings", v)
		if inside.Err != nil {
			return 0, nil, inside.Err
		}
		var all []newValue
		for _, k := range agent.SettingKeys() {
			value, given := inside.Take(k.Key)
			if !given {
				continue
			}
			one, err := readValue(k.Key, "settings."+k.Key, value)
			if err != nil {
				return 0, nil, err
			}
			all = append(all, one)
		}
		if err := inside.Done(); err != nil {
			return 0, nil, err
		}
		return h.store(r, caller, all)
	})
}

// PutSetting answers PUT /api/settings/{key} with {"value": VALUE}.
func (h *orgSettings) PutSetting() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		key := r.PathValue("key")
		if _, ok := agent.FindSetting(key); !ok {
			return 0, nil, unknownSetting(key)
		}
		f, err := surface.ReadQuietFields(r, caller.Account)
		if err != nil {
			return 0, nil, err
		}
		v, ok := f.Take("value")
		if err := f.Done(); err != nil {
			return 0, nil, err
		}
		if !ok {
			return 0, nil, surface.InvalidValue("value", `value is required: {"value": "…"}`)
		}
		one, err := readValue(key, "value", v)
		if err != nil {
			return 0, nil, err
		}
		return h.store(r, caller, []newValue{one})
	})
}

// DeleteSetting answers DELETE /api/settings/{key}: the setting has its default again.
func (h *orgSettings) DeleteSetting() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		k, ok := agent.FindSetting(r.PathValue("key"))
		if !ok {
			return 0, nil, unknownSetting(r.PathValue("key"))
		}
		return h.store(r, caller, []newValue{{key: k}})
	})
}

// ResetCategory answers POST /api/settings/reset-category with {"category": …}: the settings of the category
// have their defaults again.
func (h *orgSettings) ResetCategory() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		f, err := surface.ReadFields(r, caller.Account)
		if err != nil {
			return 0, nil, err
		}
		var category string
		f.Text("category", &category)
		if err := f.Done(); err != nil {
			return 0, nil, err
		}
		var all []newValue
		for _, k := range agent.SettingKeys() {
			if k.Category == category {
				all = append(all, newValue{key: k})
			}
		}
		if len(all) == 0 {
			return 0, nil, surface.InvalidValue("category", "category must be agents or tools")
		}
		return h.store(r, caller, all)
	})
}

// store stores settings: secret ones in the vault, one by one, and then the others together.
func (h *orgSettings) store(r *http.Request, caller caller.Caller, all []newValue) (int, any, error) {
	for _, one := range all {
		if one.key.Key == agent.CompactionModelKey && !one.value.IsZero() && !h.kit.Serves(one.value.Reveal()) {
			return 0, nil, surface.InvalidValue(one.at, "%s: no provider of this gateway serves the model %q; GET /v1/models lists all names", one.key.Key, one.value.Reveal())
		}
	}
	out := updated{true, []string{}}
	var plain []newValue
	for _, one := range all {
		if out.Updated = append(out.Updated, one.key.Key); one.key.Secret {
			if err := h.storeSecret(r, caller, one); err != nil {
				return 0, nil, surface.Refused(err, surface.Thing{Kind: "setting", Name: one.key.Key})
			}
			continue
		}
		plain = append(plain, one)
	}
	if len(plain) == 0 {
		return http.StatusOK, out, nil
	}
	now := h.now()
	err := h.agents.ChangeSettings(r.Context(), caller.Org.ID, func(a *org.Agents) {
		for _, one := range plain {
			one.key.Set(a, one.value.Reveal(), now)
		}
	}, caller.Author(now))
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, out, h.orgs.Reload(r.Context(), caller.Org.ID)
}

func (h *orgSettings) storeSecret(r *http.Request, caller caller.Caller, one newValue) error {
	name := one.key.Key
	if one.value.IsZero() {
		all, err := h.stored.Secrets(r.Context(), caller.Org.ID)
		if err != nil || !slices.ContainsFunc(all, func(s org.Secret) bool { return s.Name == name }) {
			return err
		}
		if err := h.stored.DeleteSecret(r.Context(), caller.Org.ID, name, caller.Author(h.now())); err != nil {
			return err
		}
		return h.orgs.SecretChanged(r.Context(), caller.Org.ID, name)
	}
	if h.vault == nil {
		return surface.NoVault("secret settings")
	}
	s := org.Secret{Org: caller.Org.ID, Name: name, CreatedAt: h.now(), UpdatedAt: h.now()}
	var err error
	if s.Sealed, err = h.vault.Seal(s.Org, s.Name, one.value); err != nil {
		return err
	}
	if err := h.stored.PutSecret(r.Context(), s, caller.Author(h.now())); err != nil {
		return err
	}
	return h.orgs.SecretChanged(r.Context(), caller.Org.ID, name)
}
