package admin

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"

	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/surface"
)

// orgs answers requests for orgs and their settings.
type orgs struct {
	base
	store     orgStore
	directory orgDirectory
	reader    orgReader

	judge          func(url string) error
	checkDatabases func(ctx context.Context, orgID string, all []org.Database) error
	keys           *keys
}

// orgStore is the part of [org.Store] for orgs.
type orgStore interface {
	Orgs(ctx context.Context) ([]org.Record, error)
	Org(ctx context.Context, id string) (org.Record, error)
	CreateOrg(ctx context.Context, r org.Record, by org.Author) error
	UpdateOrg(ctx context.Context, was, r org.Record, by org.Author) error
	DeleteOrg(ctx context.Context, id string, by org.Author) error
}

// orgReader is the part of the Reader for orgs.
type orgReader interface {
	// Runtime reads an org's settings, patched.
	Runtime(json []byte) (org.Runtime, error)
	// Org reads the id and the features of a new org.
	Org(json []byte) (org.Record, error)
	// Features reads the features of an org, patched.
	Features(json []byte) ([]string, error)
	// RuntimeSettings returns an org's settings with the keys of the configuration
	// file. null is the default of each surface.
	RuntimeSettings(rt org.Runtime) json.Marshaler
}

// orgObject is the JSON of an org.
type orgObject struct {
	ID              string         `json:"id"`
	Features        []string       `json:"features"`
	Runtime         json.Marshaler `json:"runtime"` // the keys of the configuration file; null = the surface's own default
	Declared        bool           `json:"declared"`
	RuntimeDeclared bool           `json:"runtime_declared"`
}

func (h *orgs) wire(r org.Record) orgObject {
	d := h.directory.FromFile(r.ID)
	if d.Org {
		r.Features = d.Record.Features
	}
	if d.Runtime {
		r.Runtime = d.Record.Runtime
	}
	if r.Features == nil {
		r.Features = []string{}
	}
	return orgObject{
		ID: r.ID, Features: r.Features, Runtime: h.reader.RuntimeSettings(r.Runtime), Declared: d.Org, RuntimeDeclared: d.Runtime,
	}
}

// record returns the org's stored record.
func (h *orgs) record(r *http.Request, orgID string) (org.Record, error) {
	record, err := h.store.Org(r.Context(), orgID)
	return record, surface.Refused(err, surface.Thing{Kind: "org", ID: orgID})
}

// Get answers GET /api/org: the caller's own.
func (h *orgs) Get() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		record, err := h.record(r, caller.Org.ID)
		if err != nil {
			return 0, nil, err
		}
		return http.StatusOK, h.wire(record), nil
	})
}

// PatchRuntime answers PATCH /api/org/runtime; null gives a setting back to the
// surfaces.
func (h *orgs) PatchRuntime() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		if h.directory.FromFile(caller.Org.ID).Runtime {
			return 0, nil, surface.Declared("runtime of the org", caller.Org.ID)
		}
		_, patch, err := surface.ReadBody(r, caller.Account)
		if err != nil {
			return 0, nil, err
		}
		return surface.Repeat(func() (int, any, error) {
			was, err := h.record(r, caller.Org.ID)
			if err != nil {
				return 0, nil, err
			}
			record := was
			merged, err := merge(patch, h.reader.RuntimeSettings(was.Runtime))
			if err != nil {
				return 0, nil, err
			}
			if record.Runtime, err = h.reader.Runtime(merged); err != nil {
				return 0, nil, err
			}
			record.Runtime.Agents = was.Runtime.Agents // /api/settings changes them
			if err := h.judgeChanged(was.Runtime, record.Runtime); err != nil {
				return 0, nil, err
			}
			if err := h.checkDatabases(r.Context(), caller.Org.ID, changedDatabases(was.Runtime.Databases, record.Runtime.Databases)); err != nil {
				return 0, nil, err
			}
			return h.update(r, caller, was, record)
		})
	})
}

// update stores an org in place of what it was.
func (h *orgs) update(r *http.Request, caller caller.Caller, was, record org.Record) (int, any, error) {
	record.UpdatedAt = h.now()
	if err := h.store.UpdateOrg(r.Context(), was, record, caller.Author(h.now())); err != nil {
		return 0, nil, surface.Refused(err, surface.Thing{Kind: "org", Name: record.ID})
	}
	return http.StatusOK, h.wire(record), h.directory.Reload(r.Context(), record.ID)
}

// judgeChanged refuses URLs that the outbound policy refuses, except those that the settings had before.
func (h *orgs) judgeChanged(before, after org.Runtime) error {
	known := before.Addresses()
	for _, a := range after.Addresses() {
		if slices.ContainsFunc(known, func(k org.Address) bool { return k.URL == a.URL }) {
			continue // from before the policy was changed
		}
		var refused *fault.Error
		if err := h.judge(a.URL); errors.As(err, &refused) {
			at := *refused
			at.Message = a.Path + ": " + refused.Message
			return at.In(a.Path)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// changedDatabases returns those that lead to another place than before.
func changedDatabases(before, after []org.Database) []org.Database {
	return slices.DeleteFunc(slices.Clone(after), func(d org.Database) bool {
		return slices.ContainsFunc(before, func(was org.Database) bool { return was.URL == d.URL && was.WriteURL == d.WriteURL })
	})
}

// List answers GET /api/orgs, for the operator.
func (h *orgs) List() surface.Endpoint {
	return h.endpoint(func(r *http.Request, _ caller.Caller) (int, any, error) {
		all, err := h.store.Orgs(r.Context())
		if err != nil {
			return 0, nil, err
		}
		out := surface.Each(all, h.wire)
		return http.StatusOK, list[orgObject]{out}, nil
	})
}

// Create answers POST /api/orgs, for the operator.
func (h *orgs) Create() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		body, _, err := surface.ReadBody(r, caller.Account)
		if err != nil {
			return 0, nil, err
		}
		record, err := h.reader.Org(body)
		if err != nil {
			return 0, nil, err
		}
		if record.Runtime, err = h.reader.Runtime([]byte("{}")); err != nil {
			return 0, nil, err
		}
		record.CreatedAt, record.UpdatedAt = h.now(), h.now()
		if err := h.store.CreateOrg(r.Context(), record, caller.Author(h.now())); err != nil {
			return 0, nil, surface.Refused(err, surface.Thing{Kind: "org", Name: record.ID})
		}
		return http.StatusCreated, h.wire(record), h.directory.Reload(r.Context(), record.ID)
	})
}

// Patch answers PATCH /api/orgs/{org}, for the operator: the plan flags.
func (h *orgs) Patch() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		_, patch, err := surface.ReadBody(r, caller.Account)
		if err != nil {
			return 0, nil, err
		}
		return surface.Repeat(func() (int, any, error) {
			was, err := h.record(r, r.PathValue("org"))
			if err != nil {
				return 0, nil, err
			}
			if h.directory.FromFile(was.ID).Org {
				return 0, nil, surface.Declared("org", was.ID)
			}
			record := was
			merged, err := merge(patch, map[string]any{"features": was.Features})
			if err != nil {
				return 0, nil, err
			}
			if record.Features, err = h.reader.Features(merged); err != nil {
				return 0, nil, err
			}
			return h.update(r, caller, was, record)
		})
	})
}

// Delete answers DELETE /api/orgs/{org}, for the operator.
func (h *orgs) Delete() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		name := r.PathValue("org")
		if h.directory.FromFile(name).Org {
			return 0, nil, surface.Declared("org", name)
		}
		if err := h.store.DeleteOrg(r.Context(), name, caller.Author(h.now())); err != nil {
			return 0, nil, surface.Refused(err, surface.Thing{Kind: "org", Name: name})
		}
		return http.StatusOK, surface.Deleted(name, ""), h.directory.Reload(r.Context(), name)
	})
}

// CreateKey answers POST /api/orgs/{org}/keys, for the operator: an org's
// first key cannot come from the org.
func (h *orgs) CreateKey() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		record, err := h.record(r, r.PathValue("org"))
		if err != nil {
			return 0, nil, err
		}
		asked, err := h.keys.read(r, caller)
		if err != nil {
			return 0, nil, err
		}
		return h.keys.create(r, record.ID, asked, caller.Author(h.now()))
	})
}
