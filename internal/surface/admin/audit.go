package admin

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/surface"
)

// The most rows that an answer has, and how many it has unless told.
const (
	maxAudit     = 200
	defaultAudit = 50
)

// auditPage is a piece of the audit. Next goes into after for the piece behind
// it.
type auditPage struct {
	Data []audit.RowView `json:"data"`
	Next *int64          `json:"next"` // nil at the end
}

// ListAudit answers GET /api/audit.
func (h *Handler) ListAudit() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		q, err := auditQuery(r.URL.Query(), "after", "limit")
		if err != nil {
			return 0, nil, err
		}
		rows, next, err := audit.Page(r.Context(), caller.Org.ID, h.o.Audit, q)
		if err != nil {
			return 0, nil, err
		}
		page := auditPage{Data: []audit.RowView{}}
		for _, row := range rows {
			page.Data = append(page.Data, row.View())
		}
		if next > 0 {
			page.Next = &next
		}
		return http.StatusOK, page, nil
	})
}

// exportBytes is what an export holds while its client reads: some rows, and a line.
const exportBytes = 128 << 10

// ExportAudit answers GET /api/audit/export.
func (h *Handler) ExportAudit() surface.Endpoint {
	return func(w http.ResponseWriter, r *http.Request, caller caller.Caller) error {
		q, err := auditQuery(r.URL.Query())
		if err != nil {
			return err
		}
		if err := caller.Account.Acquire(exportBytes); err != nil {
			return err
		}
		defer caller.Account.Release(exportBytes)
		w.Header().Set("Content-Type", "application/x-ndjson")
		if _, err := audit.Export(r.Context(), w, caller.Org.ID, h.o.Audit, q); err != nil {
			h.o.Log.Error("audit export aborted", "org", caller.Org.ID, "error", err)
			panic(http.ErrAbortHandler) // half an export must not look like a whole one
		}
		return nil
	}
}

// auditQuery reads the parameters. Unknown and repeated parameters, and unknown
// kinds, are rejected: ignoring one would return other rows than were asked for.
func auditQuery(values url.Values, more ...string) (q audit.Query, err error) {
	known := append([]string{"run_id", "request_id", "key_id", "kind", "from", "to"}, more...)
	for name, given := range values {
		if len(given) > 1 {
			return q, fault.New(fault.Invalid, "invalid_value", "the parameter %s is given %d times; give it once", name, len(given)).In(name)
		}
		if !slices.Contains(known, name) {
			return q, fault.New(fault.Invalid, "unknown_parameter", "unknown parameter %q; known parameters are %s", name, strings.Join(known, ", ")).In(name)
		}
	}
	q = audit.Query{
		RunID: audit.StoredRunID(values.Get("run_id")), RequestIDs: audit.StoredRequestIDs(values.Get("request_id")), Principal: values.Get("key_id"), Limit: defaultAudit,
	}
	if q.Kind, err = audit.ParseKind(values.Get("kind")); err != nil {
		return q, fault.New(fault.Invalid, "invalid_value", "kind: %v", err).In("kind")
	}
	if q.From, err = auditTime(values, "from"); err != nil {
		return q, err
	}
	if q.To, err = auditTime(values, "to"); err != nil {
		return q, err
	}
	if text := values.Get("after"); text != "" {
		if q.After, err = strconv.ParseInt(text, 10, 64); err != nil || q.After < 0 {
			return q, fault.New(fault.Invalid, "invalid_value", "after must be the number of a row, for example 200").In("after")
		}
	}
	if text := values.Get("limit"); text != "" {
		if q.Limit, err = strconv.Atoi(text); err != nil || q.Limit < 1 || q.Limit > maxAudit {
			return q, fault.New(fault.Invalid, "invalid_value", "limit must be a whole number from 1 to %d", maxAudit).In("limit")
		}
	}
	return q, nil
}

func auditTime(values url.Values, name string) (int64, error) {
	text := values.Get(name)
	if text == "" {
		return 0, nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return 0, fault.New(fault.Invalid, "invalid_value", "%s must be a time in RFC 3339 format, for example 2026-01-31T12:00:00Z", name).In(name)
	}
	return at.UnixMilli(), nil
}
