package admin

import (
	"net/http"
	"net/url"
	"strconv"

	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/surface"
)

// auditLog answers requests for the audit log, and for the usage that it adds up.
type auditLog struct {
	base
	audit audit.Sums
}

// The most rows that an answer has, and how many it has unless told.
const (
	maxAudit     = 200
	defaultAudit = 50
)

// List answers GET /api/audit.
func (h *auditLog) List() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		q, err := auditQuery(r.URL.Query(), "after", "limit")
		if err != nil {
			return 0, nil, err
		}
		rows, next, err := audit.Page(r.Context(), caller.Org.ID, h.audit, q)
		if err != nil {
			return 0, nil, err
		}
		page := surface.NextPage[audit.RowView, int64]{Data: []audit.RowView{}}
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

// Export answers GET /api/audit/export.
func (h *auditLog) Export() surface.Endpoint {
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
		if _, err := audit.Export(r.Context(), w, caller.Org.ID, h.audit, q); err != nil {
			h.log.Error("audit export aborted", "org", caller.Org.ID, "error", err)
			panic(http.ErrAbortHandler) // half an export must not look like a whole one
		}
		return nil
	}
}

// auditQuery reads the parameters. Unknown and repeated parameters, and unknown
// kinds, are rejected: ignoring one would return other rows than were asked for.
func auditQuery(values url.Values, more ...string) (q audit.Query, err error) {
	if err := surface.CheckQuery(values, append([]string{"run_id", "request_id", "key_id", "kind", "from", "to"}, more...)...); err != nil {
		return q, err
	}
	q = audit.Query{
		RunID: audit.StoredRunID(values.Get("run_id")), RequestIDs: audit.StoredRequestIDs(values.Get("request_id")), Principal: values.Get("key_id"),
	}
	if q.Kind, err = audit.ParseKind(values.Get("kind")); err != nil {
		return q, surface.InvalidValue("kind", "kind: %v", err)
	}
	if q.From, err = auditTime(values, "from"); err != nil {
		return q, err
	}
	if q.To, err = auditTime(values, "to"); err != nil {
		return q, err
	}
	if text := values.Get("after"); text != "" {
		if q.After, err = strconv.ParseInt(text, 10, 64); err != nil || q.After < 0 {
			return q, surface.InvalidValue("after", "after must be the number of a row, for example 200")
		}
	}
	q.Limit, err = surface.QueryNumber(values, "limit", defaultAudit, 1, maxAudit)
	return q, err
}

func auditTime(values url.Values, name string) (int64, error) {
	at, err := surface.QueryTime(values, name)
	if err != nil || at.IsZero() {
		return 0, err
	}
	return at.UnixMilli(), nil
}
