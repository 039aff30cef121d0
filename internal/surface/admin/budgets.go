package admin

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/surface"
)

// The most budgets that an answer has, and how many it has unless told.
const (
	maxBudgets     = 200
	defaultBudgets = 50
)

// Budgets reads what budgets were charged with. Implemented by the stores.
type Budgets interface {
	UsedAll(ctx context.Context, org, prefix, after string, limit int) ([]journal.Used, error)
}

// budgets answers requests for what budgets were charged with.
type budgets struct {
	base
	budgets Budgets
}

// BudgetView is a budget as the API shows it. Money is in US dollars.
type BudgetView struct {
	ID             string       `json:"id"` // also where the next page begins
	Scope          string       `json:"scope"`
	Whose          string       `json:"whose,omitempty"` // id of the key or of the end user
	Period         string       `json:"period"`
	Window         string       `json:"window,omitempty"`
	ResetsAt       *string      `json:"resets_at"` // nil = never
	LimitUSD       *surface.USD `json:"limit_usd"` // nil = no limit
	SpentUSD       surface.USD  `json:"spent_usd"`
	ReservedUSD    surface.USD  `json:"reserved_usd"`
	OverrunUSD     surface.USD  `json:"overrun_usd"`
	LimitTokens    *int64       `json:"limit_tokens"` // nil = no limit
	SpentTokens    int64        `json:"spent_tokens"`
	ReservedTokens int64        `json:"reserved_tokens"`
	OverrunTokens  int64        `json:"overrun_tokens"`
}

// List answers GET /api/budgets.
func (h *budgets) List() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		q, err := budgetQueryOf(r.URL.Query())
		if err != nil {
			return 0, nil, err
		}
		now := h.now().UnixMilli()
		page := surface.NextPage[BudgetView, string]{Data: []BudgetView{}}
		for len(page.Data) < q.limit {
			used, err := h.budgets.UsedAll(r.Context(), caller.Org.ID, q.prefix, q.after, q.limit)
			if err != nil {
				return 0, nil, err
			}
			for _, u := range used {
				q.after = u.Budget.Scope
				if u.Budget.EndsAt > 0 && u.Budget.EndsAt <= now && !q.ended {
					continue
				}
				if page.Data = append(page.Data, NewBudgetView(u)); len(page.Data) == q.limit {
					page.Next = &u.Budget.Scope
					break
				}
			}
			if len(used) < q.limit {
				break
			}
		}
		if page.Next != nil {
			return http.StatusOK, page, nil
		}
		for _, b := range caller.Org.Runtime.Budgets { // those of which nothing was spent yet, too
			w := journal.WindowAt(budget.Shared{Scope: budget.ScopeOf(budget.ScopeOrg, ""), Period: budget.Period(b.Period), Limit: budget.Amount{Tokens: b.Tokens, NanoUSD: b.NanoUSD}}, now)
			if b.Scope != budget.ScopeOrg || !strings.HasPrefix(w.Scope, q.prefix) {
				continue
			}
			used, err := h.budgets.UsedAll(r.Context(), caller.Org.ID, w.Scope, "", 1)
			if err != nil {
				return 0, nil, err
			}
			if len(used) == 0 || used[0].Budget.Scope != w.Scope {
				page.Data = append(page.Data, NewBudgetView(journal.Used{Budget: w}))
			}
		}
		return http.StatusOK, page, nil
	})
}

// NewBudgetView returns a budget as the API shows it.
func NewBudgetView(u journal.Used) BudgetView {
	kind, id, period, window, _ := budget.ParseWindow(u.Budget.Scope)
	v := BudgetView{
		ID: u.Budget.Scope, Scope: kind, Whose: id, Period: string(period), Window: window,
		ResetsAt: surface.Seconds.Unix(u.Budget.EndsAt),
		SpentUSD: surface.USD(u.Spent.NanoUSD), ReservedUSD: surface.USD(u.Reserved.NanoUSD), OverrunUSD: surface.USD(u.Overrun.NanoUSD),
		SpentTokens: u.Spent.Tokens, ReservedTokens: u.Reserved.Tokens, OverrunTokens: u.Overrun.Tokens,
	}
	if limit := surface.USD(u.Budget.Limit.NanoUSD); limit > 0 {
		v.LimitUSD = &limit
	}
	if u.Budget.Limit.Tokens > 0 {
		v.LimitTokens = &u.Budget.Limit.Tokens
	}
	return v
}

type budgetQuery struct {
	prefix, after string
	ended         bool
	limit         int
}

func budgetQueryOf(values url.Values) (q budgetQuery, err error) {
	if err := surface.CheckQuery(values, "scope", "ended", "after", "limit"); err != nil {
		return q, err
	}
	switch scope := values.Get("scope"); { // an empty one is refused: all of them are other budgets than those asked for
	case !values.Has("scope"):
	case slices.Contains([]string{budget.ScopeOrg, budget.ScopeKey, budget.ScopeEndUser}, scope):
		q.prefix = scope + "/"
	default:
		return q, surface.InvalidValue("scope", "scope must be org, key or end_user")
	}
	if values.Has("ended") {
		if q.ended, err = strconv.ParseBool(values.Get("ended")); err != nil {
			return q, surface.InvalidValue("ended", "ended must be true or false")
		}
	}
	q.after = values.Get("after")
	q.limit, err = surface.QueryNumber(values, "limit", defaultBudgets, 1, maxBudgets)
	return q, err
}
