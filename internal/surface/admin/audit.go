package admin

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/run"
)

// The most rows that an answer has, and how many it has unless told.
const (
	maxAudit     = 200
	defaultAudit = 50
)

// auditPage is a piece of the audit. Next goes into after for the piece behind
// it.
type auditPage struct {
	Data []audit.Shown `json:"data"`
	Next *int64        `json:"next"` // nil at the end
}

// ListAudit answers GET /api/audit.
func (h *Handler) ListAudit() Endpoint {
	return h.endpoint(func(r *http.Request, caller run.Caller) (int, any, error) {
		q, err := auditQuery(r.URL.Query(), "after", "limit")
		if err != nil {
			return 0, nil, err
		}
		rows, err := h.o.Audit.AuditRows(r.Context(), caller.Org.ID, q)
		if err != nil {
			return 0, nil, err
		}
		page := auditPage{Data: []audit.Shown{}}
		for _, row := range rows {
			page.Data = append(page.Data, row.Show())
		}
		if n := len(rows); n == q.Limit {
			page.Next = &rows[n-1].Number
		}
		return http.StatusOK, page, nil
	})
}

// ExportAudit answers GET /api/audit/export.
func (h *Handler) ExportAudit() Endpoint {
	return func(w http.ResponseWriter, r *http.Request, caller run.Caller) {
		q, err := auditQuery(r.URL.Query())
		if err != nil {
			h.writeError(w, err)
			return
		}
		w.Header().Set("Content-Type", "application/x-ndjson")
		if _, err := audit.Export(r.Context(), w, caller.Org.ID, h.o.Audit, q); err != nil {
			h.o.Log.Error("an export of the audit was cut off", "org", caller.Org.ID, "error", err)
			panic(http.ErrAbortHandler) // half an export must not look like a whole one
		}
	}
}

// auditQuery reads what is asked for. A word that means nothing here is an error:
// without it, more would be shown than was asked for.
func auditQuery(values url.Values, more ...string) (q audit.Query, err error) {
	known := append([]string{"run_id", "request_id", "key_id", "kind", "from", "to"}, more...)
	for name := range values {
		if !slices.Contains(known, name) {
			return q, fault.New(fault.Invalid, "unknown_parameter", "there is no parameter %q here", name).In(name)
		}
	}
	q = audit.Query{
		RunID: audit.FindRun(values.Get("run_id")), RequestIDs: audit.FindRequest(values.Get("request_id")), Principal: values.Get("key_id"), Kind: audit.Kind(values.Get("kind")),
		Limit: defaultAudit,
	}
	if q.From, err = auditTime(values, "from"); err != nil {
		return q, err
	}
	if q.To, err = auditTime(values, "to"); err != nil {
		return q, err
	}
	if text := values.Get("after"); text != "" {
		if q.After, err = strconv.ParseInt(text, 10, 64); err != nil || q.After < 0 {
			return q, fault.New(fault.Invalid, "invalid_value", "after is the number of a row").In("after")
		}
	}
	if text := values.Get("limit"); text != "" {
		if q.Limit, err = strconv.Atoi(text); err != nil || q.Limit < 1 || q.Limit > maxAudit {
			return q, fault.New(fault.Invalid, "invalid_value", "limit is a number from 1 to %d", maxAudit).In("limit")
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
		return 0, fault.New(fault.Invalid, "invalid_value", "%s is a time such as 2026-01-31T12:00:00Z", name).In(name)
	}
	return at.UnixMilli(), nil
}
