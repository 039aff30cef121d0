package admin

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"

	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/surface"
)

// orgObject is the JSON of an org.
type orgObject struct {
	ID              string         `json:"id"`
	Features        []string       `json:"features"`
	Runtime         json.Marshaler `json:"runtime"` // the keys of the configuration file; null = the surface's own default
	Declared        bool           `json:"declared"`
	RuntimeDeclared bool           `json:"runtime_declared"`
}

func (h *Handler) orgObject(r org.Record) orgObject {
	d := h.o.Directory.FromFile(r.ID)
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
		ID: r.ID, Features: r.Features, Runtime: h.o.Reader.RuntimeSettings(r.Runtime), Declared: d.Org, RuntimeDeclared: d.Runtime,
	}
}

// record returns the org's stored record.
func (h *Handler) record(r *http.Request, orgID string) (org.Record, error) {
	record, err := h.o.Store.Org(r.Context(), orgID)
	return record, surface.Refused(err, surface.Thing{Kind: "org", ID: orgID})
}

// GetOrg answers GET /api/org: the caller's own.
func (h *Handler) GetOrg() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		record, err := h.record(r, caller.Org.ID)
		if err != nil {
			return 0, nil, err
		}
		return http.StatusOK, h.orgObject(record), nil
	})
}

// PatchRuntime answers PATCH /api/org/runtime; null gives a setting back to the
// surfaces.
func (h *Handler) PatchRuntime() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		if h.o.Directory.FromFile(caller.Org.ID).Runtime {
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
			merged, err := merge(patch, h.o.Reader.RuntimeSettings(was.Runtime))
			if err != nil {
				return 0, nil, err
			}
			if record.Runtime, err = h.o.Reader.Runtime(merged); err != nil {
				return 0, nil, err
			}
			record.Runtime.Agents = was.Runtime.Agents // /api/settings changes them
			if err := h.judgeChanged(was.Runtime, record.Runtime); err != nil {
				return 0, nil, err
			}
			if err := h.o.CheckDatabases(r.Context(), caller.Org.ID, changedDatabases(was.Runtime.Databases, record.Runtime.Databases)); err != nil {
				return 0, nil, err
			}
			return h.updateOrg(r, caller, was, record)
		})
	})
}

// updateOrg stores an org in place of what it was.
func (h *Handler) updateOrg(r *http.Request, caller caller.Caller, was, record org.Record) (int, any, error) {
	record.UpdatedAt = h.o.Now()
	if err := h.o.Store.UpdateOrg(r.Context(), was, record, caller.Author(h.o.Now())); err != nil {
		return 0, nil, surface.Refused(err, surface.Thing{Kind: "org", Name: record.ID})
	}
	return http.StatusOK, h.orgObject(record), h.o.Directory.Reload(r.Context(), record.ID)
}

// judgeChanged refuses URLs that the outbound policy refuses, except those that the settings had before.
func (h *Handler) judgeChanged(before, after org.Runtime) error {
	known := before.Addresses()
	for _, a := range after.Addresses() {
		if slices.ContainsFunc(known, func(k org.Address) bool { return k.URL == a.URL }) {
			continue // from before the policy was changed
		}
		var refused *fault.Error
		if err := h.o.Judge(a.URL); errors.As(err, &refused) {
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

// ListOrgs answers GET /api/orgs, for the operator.
func (h *Handler) ListOrgs() surface.Endpoint {
	return h.endpoint(func(r *http.Request, _ caller.Caller) (int, any, error) {
		all, err := h.o.Store.Orgs(r.Context())
		if err != nil {
			return 0, nil, err
		}
		out := surface.Each(all, h.orgObject)
		return http.StatusOK, list[orgObject]{out}, nil
	})
}

// CreateOrg answers POST /api/orgs, for the operator.
func (h *Handler) CreateOrg() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		body, _, err := surface.ReadBody(r, caller.Account)
		if err != nil {
			return 0, nil, err
		}
		record, err := h.o.Reader.Org(body)
		if err != nil {
			return 0, nil, err
		}
		if record.Runtime, err = h.o.Reader.Runtime([]byte("{}")); err != nil {
			return 0, nil, err
		}
		record.CreatedAt, record.UpdatedAt = h.o.Now(), h.o.Now()
		if err := h.o.Store.CreateOrg(r.Context(), record, caller.Author(h.o.Now())); err != nil {
			return 0, nil, surface.Refused(err, surface.Thing{Kind: "org", Name: record.ID})
		}
		return http.StatusCreated, h.orgObject(record), h.o.Directory.Reload(r.Context(), record.ID)
	})
}

// PatchOrg answers PATCH /api/orgs/{org}, for the operator: the plan flags.
func (h *Handler) PatchOrg() surface.Endpoint {
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
			if h.o.Directory.FromFile(was.ID).Org {
				return 0, nil, surface.Declared("org", was.ID)
			}
			record := was
			merged, err := merge(patch, map[string]any{"features": was.Features})
			if err != nil {
				return 0, nil, err
			}
			if record.Features, err = h.o.Reader.Features(merged); err != nil {
				return 0, nil, err
			}
			return h.updateOrg(r, caller, was, record)
		})
	})
}

// DeleteOrg answers DELETE /api/orgs/{org}, for the operator.
func (h *Handler) DeleteOrg() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		name := r.PathValue("org")
		if h.o.Directory.FromFile(name).Org {
			return 0, nil, surface.Declared("org", name)
		}
		if err := h.o.Store.DeleteOrg(r.Context(), name, caller.Author(h.o.Now())); err != nil {
			return 0, nil, surface.Refused(err, surface.Thing{Kind: "org", Name: name})
		}
		return http.StatusOK, surface.Deleted(name, ""), h.o.Directory.Reload(r.Context(), name)
	})
}

// CreateOrgKey answers POST /api/orgs/{org}/keys, for the operator: an org's
// first key cannot come from the org.
func (h *Handler) CreateOrgKey() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		record, err := h.record(r, r.PathValue("org"))
		if err != nil {
			return 0, nil, err
		}
		asked, err := h.readKey(r, caller)
		if err != nil {
			return 0, nil, err
		}
		return h.createKey(r, record.ID, asked, caller.Author(h.o.Now()))
	})
}
