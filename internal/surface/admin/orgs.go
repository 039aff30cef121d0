package admin

import (
	"cmp"
	"errors"
	"net/http"

	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/policy"
	"github.com/turnpike-gateway/turnpike/internal/run"
)

// orgObject is an org on the wire.
type orgObject struct {
	ID              string   `json:"id"`
	Features        []string `json:"features"`
	Runtime         runtime  `json:"runtime"`
	Declared        bool     `json:"declared"`
	RuntimeDeclared bool     `json:"runtime_declared"`
}

// runtime is an org's runtime settings on the wire, with the configuration
// file's keys. What is null is left to each surface.
type runtime struct {
	MaxRounds          *int    `json:"max_rounds"`
	MaxCalls           *int    `json:"max_calls"`
	Deadline           string  `json:"deadline"`
	Concurrency        int     `json:"concurrency"`
	StreamMode         string  `json:"stream_mode"`
	ToolParallelism    string  `json:"tool_parallelism"`
	CatalogTTL         string  `json:"catalog_ttl"`
	ToolCacheTTL       int     `json:"tool_cache_ttl_seconds"`
	ToolResultMaxBytes *int    `json:"tool_result_max_bytes"`
	ToolArgValidation  string  `json:"tool_arg_validation"`
	ToolErrorMode      string  `json:"tool_error_mode"`
	OnLimit            *string `json:"on_limit"`
	DoomLoop           *string `json:"doom_loop"`
	DoomThreshold      int     `json:"doom_threshold"`
	DroppedParams      string  `json:"dropped_params"`
	MaxRunTokens       *int    `json:"max_run_tokens"`
	Durable            string  `json:"durable"`
	RequestsPerMinute  int     `json:"requests_per_minute"`
	Burst              int     `json:"burst"`
}

// RuntimeSettings returns an org's settings as they stand on the wire, with the
// configuration file's keys.
func RuntimeSettings(rt org.Runtime) any { return wireRuntime(rt) }

func wireRuntime(rt org.Runtime) runtime {
	return runtime{
		MaxRounds: rt.MaxRounds, MaxCalls: rt.MaxCalls, Deadline: rt.Deadline.String(), Concurrency: rt.Concurrency,
		StreamMode: string(rt.StreamMode), ToolParallelism: rt.ToolParallelism, CatalogTTL: rt.CatalogTTL.String(),
		ToolCacheTTL:       int(rt.ToolCacheTTL.Seconds()),
		ToolResultMaxBytes: rt.ToolResultMaxBytes, ToolArgValidation: rt.ToolArgValidation,
		ToolErrorMode: rt.ToolErrorMode, OnLimit: optional(rt.OnLimit), DoomLoop: optional(rt.DoomLoop),
		DoomThreshold: cmp.Or(rt.DoomThreshold, policy.DefaultThreshold), DroppedParams: rt.DroppedParams,
		MaxRunTokens: rt.MaxRunTokens, Durable: cmp.Or(rt.Durable, "auto"), RequestsPerMinute: rt.Rate.PerMinute, Burst: rt.Rate.Burst,
	}
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func (h *Handler) orgObject(r org.Record) orgObject {
	d := h.o.Directory.Declared(r.ID)
	if d.Org {
		r.Features = d.Record.Features
	}
	if d.Runtime {
		r.Runtime = d.Record.Runtime
	}
	if r.Features == nil {
		r.Features = []string{}
	}
	return orgObject{ID: r.ID, Features: r.Features, Runtime: wireRuntime(r.Runtime), Declared: d.Org, RuntimeDeclared: d.Runtime}
}

// record returns the org's stored record.
func (h *Handler) record(r *http.Request, orgID string) (org.Record, error) {
	record, err := h.o.Store.Org(r.Context(), orgID)
	if errors.Is(err, org.ErrNotFound) {
		return org.Record{}, fault.New(fault.NotFound, "not_found", "there is no org with the id %q", orgID)
	}
	return record, err
}

// GetOrg answers GET /api/org: the caller's own.
func (h *Handler) GetOrg() Endpoint {
	return h.endpoint(func(r *http.Request, caller run.Caller) (int, any, error) {
		record, err := h.record(r, caller.Org.ID)
		if err != nil {
			return 0, nil, err
		}
		return http.StatusOK, h.orgObject(record), nil
	})
}

// PatchRuntime answers PATCH /api/org/runtime; null gives a setting back to the
// surfaces.
func (h *Handler) PatchRuntime() Endpoint {
	return h.endpoint(func(r *http.Request, caller run.Caller) (int, any, error) {
		if h.o.Directory.Declared(caller.Org.ID).Runtime {
			return 0, nil, isDeclared("runtime of the org", caller.Org.ID)
		}
		record, err := h.record(r, caller.Org.ID)
		if err != nil {
			return 0, nil, err
		}
		merged, err := mergePatch(r, wireRuntime(record.Runtime))
		if err != nil {
			return 0, nil, err
		}
		if record.Runtime, err = h.o.Reader.Runtime(merged); err != nil {
			return 0, nil, err
		}
		record.UpdatedAt = h.o.Now()
		if err := h.o.Store.UpdateOrg(r.Context(), record, h.author(caller)); err != nil {
			return 0, nil, named(err, "org", record.ID)
		}
		return http.StatusOK, h.orgObject(record), h.o.Directory.Reload(r.Context(), record.ID)
	})
}

// ListOrgs answers GET /api/orgs, for the operator.
func (h *Handler) ListOrgs() Endpoint {
	return h.endpoint(func(r *http.Request, _ run.Caller) (int, any, error) {
		all, err := h.o.Store.Orgs(r.Context())
		if err != nil {
			return 0, nil, err
		}
		out := []orgObject{}
		for _, record := range all {
			out = append(out, h.orgObject(record))
		}
		return http.StatusOK, list[orgObject]{out}, nil
	})
}

// CreateOrg answers POST /api/orgs, for the operator.
func (h *Handler) CreateOrg() Endpoint {
	return h.endpoint(func(r *http.Request, caller run.Caller) (int, any, error) {
		body, err := readBody(r)
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
		if err := h.o.Store.CreateOrg(r.Context(), record, h.author(caller)); err != nil {
			return 0, nil, named(err, "org", record.ID)
		}
		return http.StatusCreated, h.orgObject(record), h.o.Directory.Reload(r.Context(), record.ID)
	})
}

// PatchOrg answers PATCH /api/orgs/{org}, for the operator: the plan flags.
func (h *Handler) PatchOrg() Endpoint {
	return h.endpoint(func(r *http.Request, caller run.Caller) (int, any, error) {
		record, err := h.record(r, r.PathValue("org"))
		if err != nil {
			return 0, nil, err
		}
		if h.o.Directory.Declared(record.ID).Org {
			return 0, nil, isDeclared("org", record.ID)
		}
		merged, err := mergePatch(r, map[string]any{"features": record.Features})
		if err != nil {
			return 0, nil, err
		}
		if record.Features, err = h.o.Reader.Features(merged); err != nil {
			return 0, nil, err
		}
		record.UpdatedAt = h.o.Now()
		if err := h.o.Store.UpdateOrg(r.Context(), record, h.author(caller)); err != nil {
			return 0, nil, named(err, "org", record.ID)
		}
		return http.StatusOK, h.orgObject(record), h.o.Directory.Reload(r.Context(), record.ID)
	})
}

// DeleteOrg answers DELETE /api/orgs/{org}, for the operator.
func (h *Handler) DeleteOrg() Endpoint {
	return h.endpoint(func(r *http.Request, caller run.Caller) (int, any, error) {
		name := r.PathValue("org")
		if h.o.Directory.Declared(name).Org {
			return 0, nil, isDeclared("org", name)
		}
		if err := h.o.Store.DeleteOrg(r.Context(), name, h.author(caller)); err != nil {
			return 0, nil, named(err, "org", name)
		}
		return http.StatusOK, deleted{name, true}, h.o.Directory.Reload(r.Context(), name)
	})
}

// CreateOrgKey answers POST /api/orgs/{org}/keys, for the operator: an org's
// first key cannot come from the org.
func (h *Handler) CreateOrgKey() Endpoint {
	return h.endpoint(func(r *http.Request, caller run.Caller) (int, any, error) {
		record, err := h.record(r, r.PathValue("org"))
		if err != nil {
			return 0, nil, err
		}
		asked, err := h.readKey(r)
		if err != nil {
			return 0, nil, err
		}
		return h.createKey(r, record.ID, asked, h.author(caller))
	})
}
