package admin

import (
	"errors"
	"net/http"
	"net/url"

	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/surface"
)

// maxUsageRows is the most audit rows that one answer adds up, for parts of days. It takes a few seconds,
// in which the org's other management requests wait.
const maxUsageRows = 250_000

// UsageView is the sum of the requests of a group as the API shows it. What the requests are not
// grouped by is left out.
type UsageView struct {
	Day          *string     `json:"day,omitempty"` // in UTC
	Key          *string     `json:"key_id,omitempty"`
	Model        *string     `json:"model,omitempty"`
	Provider     *string     `json:"provider,omitempty"` // "" = tool calls
	Target       *string     `json:"target,omitempty"`   // "" = tool calls
	Agent        *string     `json:"agent_id,omitempty"` // "" = no agent
	EndUser      *string     `json:"end_user,omitempty"` // "" = the requests name nobody
	Rest         []string    `json:"rest,omitempty"`     // what of it is "" because the day has too many
	Requests     int64       `json:"requests"`
	InputTokens  int64       `json:"input_tokens"`
	CachedTokens int64       `json:"cached_tokens"`
	OutputTokens int64       `json:"output_tokens"`
	ToolCalls    int64       `json:"tool_calls"`
	GPUMS        int64       `json:"gpu_ms"`
	CostUSD      surface.USD `json:"cost_usd"`
	ToolCostUSD  surface.USD `json:"tool_cost_usd"` // of cost_usd, what tool calls cost

	// Parts of the sums above that the gateway has estimated.
	EstimatedInput  int64       `json:"estimated_input_tokens"`
	EstimatedOutput int64       `json:"estimated_output_tokens"`
	EstimatedUSD    surface.USD `json:"estimated_cost_usd"`
}

// NewUsageView returns the sum as the API shows it, of requests that are grouped by the given.
func NewUsageView(u audit.Usage, by []string) UsageView {
	v := UsageView{
		Rest: u.Rest.Names(by), Requests: u.Requests, InputTokens: u.InputTokens, CachedTokens: u.CachedTokens, OutputTokens: u.OutputTokens,
		ToolCalls: u.ToolCalls, GPUMS: u.GPUMS, CostUSD: surface.USD(u.CostNanoUSD), ToolCostUSD: surface.USD(u.ToolNanoUSD),
		EstimatedInput: u.EstimatedInput, EstimatedOutput: u.EstimatedOutput, EstimatedUSD: surface.USD(u.EstimatedNanoUSD),
	}
	for _, one := range by {
		text := u.Name(one)
		switch one {
		case audit.ByDay:
			v.Day = &text
		case audit.ByKey:
			v.Key = &text
		case audit.ByModel:
			v.Model = &text
		case audit.ByProvider:
			v.Provider = &text
		case audit.ByTarget:
			v.Target = &text
		case audit.ByAgent:
			v.Agent = &text
		case audit.ByEndUser:
			v.EndUser = &text
		}
	}
	return v
}

type usageList struct {
	Data []UsageView `json:"data"`

	// EstimatedSince is since when the estimated parts are known; nil = since the first request.
	EstimatedSince *string `json:"estimated_since"`
}

// Usage answers GET /api/usage.
func (h *auditLog) Usage() surface.Endpoint {
	return func(w http.ResponseWriter, r *http.Request, sender caller.Caller) error {
		held := 0 // until the answer is written
		defer func() { sender.Account.Release(held) }()
		grow := func(bytes int) error {
			if err := sender.Account.Acquire(bytes); err != nil {
				return err
			}
			held += bytes
			return nil
		}
		return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
			q, err := usageQuery(r.URL.Query())
			if err != nil {
				return 0, nil, err
			}
			if err := grow(exportBytes); err != nil {
				return 0, nil, err
			}
			q.Grow = grow
			sums, err := audit.AddUsage(r.Context(), caller.Org.ID, h.audit, q)
			if err != nil {
				return 0, nil, usageError(err)
			}
			list := usageList{Data: []UsageView{}}
			since, err := h.audit.EstimatedSince(r.Context())
			if err != nil {
				return 0, nil, err
			}
			list.EstimatedSince = surface.Seconds.Unix(since)
			for _, u := range sums {
				list.Data = append(list.Data, NewUsageView(u, q.By))
			}
			return http.StatusOK, list, nil
		})(w, r, sender)
	}
}

// usageError returns the error of a request that cannot be answered as it is.
func usageError(err error) error {
	part, isPart := errors.AsType[*audit.UsagePartError](err)
	switch {
	case isPart:
		return fault.New(fault.Invalid, "usage_needs_days", "%v", part)
	case errors.Is(err, audit.ErrUsageGroups), errors.Is(err, audit.ErrUsageRows), errors.Is(err, audit.ErrUsageSums):
		return fault.New(fault.Invalid, "usage_too_large", "%v", err)
	}
	return err
}

func usageQuery(values url.Values) (q audit.UsageQuery, err error) {
	q.Rows = maxUsageRows
	if err := surface.CheckQuery(values, "by", "from", "to"); err != nil {
		return q, err
	}
	if q.By, err = audit.ParseUsageBy(values.Get("by")); err != nil {
		return q, surface.InvalidValue("by", "by: %v", err)
	}
	if q.From, err = auditTime(values, "from"); err != nil {
		return q, err
	}
	q.To, err = auditTime(values, "to")
	return q, err
}
