package audit

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Limits of usage.
const (
	MaxUsageGroups = 10_000    // the most groups that [AddUsage] returns
	MaxUsageSums   = 1_000_000 // the most stored sums that [AddUsage] reads
	MaxUsageUsers  = 10_000    // the most end users of an org and a day that have sums of their own
	MaxUsageModels = 1_000     // the most model names of an org and a day that have sums of their own
)

// usageDay is the length of a day, in Unix milliseconds.
const usageDay = 24 * 60 * 60 * 1000

// Errors of [AddUsage] and [SumUsage].
var (
	ErrUsageGroups = fmt.Errorf("the requests have more than %d groups; choose a shorter time, or group them by less", MaxUsageGroups)
	ErrUsageRows   = errors.New("there are too many requests to add up at once; choose a shorter time, or begin and end at midnight UTC")
	ErrUsageSums   = fmt.Errorf("the time has more than %d sums; choose a shorter time", MaxUsageSums)
)

// UsagePartError reports that a part of a day cannot be added up.
type UsagePartError struct{ Day, Why string }

// Error implements error.
func (e *UsagePartError) Error() string {
	return "a part of " + e.Day + " cannot be added up, because " + e.Why + "; begin and end at midnight UTC"
}

// UsageQuery selects requests that were sent to a provider: rounds of runs, and relayed requests.
type UsageQuery struct {
	From, To int64    // Unix milliseconds: From <= At < To; To 0 = no end
	By       []string // see [ParseUsageBy]; empty = one group
	Rows     int      // the most audit rows to read; 0 = no limit

	// Grow is called before memory is used that the groups need, with its size in bytes. An error of it
	// ends the query. nil = no limit
	Grow func(bytes int) error
}

// UsageRest says which names a sum does not tell apart, because the org has too many of them on the day.
type UsageRest uint8

// Names that are added up under the empty name. Their values are stored.
const (
	RestUsers  UsageRest = 1 // end users after the first [MaxUsageUsers]
	RestModels UsageRest = 2 // models, with their targets, after the first [MaxUsageModels]
)

// UsageKey is what the requests of a sum have in common. In a group, what the requests are not grouped by
// has the zero value.
type UsageKey struct {
	Day       int64 // since 1970-01-01, in UTC
	EndUser   string
	Rest      UsageRest
	Principal string
	Model     string // the client's name
	Provider  string
	Target    string // the provider's name of the model
	Surface   string
	Agent     string // id of the agent whose run it is
}

// Compare orders keys.
func (k UsageKey) Compare(l UsageKey) int {
	return cmp.Or(cmp.Compare(k.Day, l.Day), strings.Compare(k.EndUser, l.EndUser), cmp.Compare(k.Rest, l.Rest), strings.Compare(k.Principal, l.Principal),
		strings.Compare(k.Model, l.Model), strings.Compare(k.Provider, l.Provider), strings.Compare(k.Target, l.Target),
		strings.Compare(k.Surface, l.Surface), strings.Compare(k.Agent, l.Agent))
}

// DayText returns the day, such as 2026-11-25.
func (k UsageKey) DayText() string {
	return time.UnixMilli(k.Day * usageDay).UTC().Format(time.DateOnly)
}

// UsageCounts are what is added up.
type UsageCounts struct {
	Requests         int64
	ToolCalls        int64 // that the models asked for; of relayed requests only if they were translated
	GPUMS            int64 // time that providers bill, in milliseconds
	InputTokens      int64 // with CachedTokens and CacheWriteTokens
	CachedTokens     int64
	CacheWriteTokens int64
	OutputTokens     int64 // with ReasoningTokens
	ReasoningTokens  int64
	CostNanoUSD      int64 // in 10⁻⁹ US dollars, of the requests whose model has a price, and of tool calls
	ToolNanoUSD      int64 // of CostNanoUSD, what the tool calls cost

	// What of the sums above the gateway has estimated.
	EstimatedInput, EstimatedOutput, EstimatedNanoUSD int64
}

// Add adds other to c.
func (c *UsageCounts) Add(other UsageCounts) {
	from := other.All()
	for i, to := range c.All() {
		*to += *from[i]
	}
}

// All returns the counts in the order in which stores keep them.
func (c *UsageCounts) All() [13]*int64 {
	return [13]*int64{
		&c.Requests, &c.ToolCalls, &c.GPUMS, &c.InputTokens, &c.CachedTokens, &c.CacheWriteTokens, &c.OutputTokens, &c.ReasoningTokens,
		&c.CostNanoUSD, &c.ToolNanoUSD, &c.EstimatedInput, &c.EstimatedOutput, &c.EstimatedNanoUSD,
	}
}

// Usage is the sum of the requests of a group.
type Usage struct {
	UsageKey
	UsageCounts
}

// What requests are grouped by.
const (
	ByKey      = "key"
	ByModel    = "model"
	ByProvider = "provider"
	ByTarget   = "target"
	ByAgent    = "agent"
	ByEndUser  = "end_user"
	ByDay      = "day" // in UTC
)

// UsageGroups returns what requests can be grouped by.
func UsageGroups() []string {
	return []string{ByKey, ByModel, ByProvider, ByTarget, ByAgent, ByEndUser, ByDay}
}

// Name returns what the key has of one of [UsageGroups], as text.
func (k UsageKey) Name(by string) string {
	switch by {
	case ByKey:
		return k.Principal
	case ByModel:
		return k.Model
	case ByProvider:
		return k.Provider
	case ByTarget:
		return k.Target
	case ByAgent:
		return k.Agent
	case ByEndUser:
		return k.EndUser
	case ByDay:
		return k.DayText()
	}
	return ""
}

// Group returns the key of the group that a sum belongs to.
func (k UsageKey) Group(by []string) (group UsageKey) {
	for _, one := range by {
		switch one {
		case ByKey:
			group.Principal = k.Principal
		case ByModel:
			group.Model, group.Rest = k.Model, group.Rest|k.Rest&RestModels
		case ByProvider:
			group.Provider = k.Provider
		case ByTarget:
			group.Target, group.Rest = k.Target, group.Rest|k.Rest&RestModels
		case ByAgent:
			group.Agent = k.Agent
		case ByEndUser:
			group.EndUser, group.Rest = k.EndUser, group.Rest|k.Rest&RestUsers
		case ByDay:
			group.Day = k.Day
		}
	}
	return group
}

// Names returns what of a group has several names.
func (r UsageRest) Names(by []string) (names []string) {
	for _, one := range by {
		if r&RestUsers != 0 && one == ByEndUser || r&RestModels != 0 && (one == ByModel || one == ByTarget) {
			names = append(names, one)
		}
	}
	return names
}

// ParseUsageBy returns the parts of a list such as "key,day"; "" is the empty list.
func ParseUsageBy(text string) ([]string, error) {
	known := UsageGroups()
	if text == "" {
		return nil, nil
	}
	by := strings.Split(text, ",")
	for i, one := range by {
		switch {
		case !slices.Contains(known, one):
			return nil, fmt.Errorf("unknown group %q; use a list of %s", one, strings.Join(known, ", "))
		case slices.Contains(by[:i], one):
			return nil, fmt.Errorf("%s is given twice", one)
		}
	}
	return by, nil
}

// Counted returns what the entry adds to the sums of its org, or false if it adds nothing: the entry is
// about something else, was refused before it was sent, or is a call that costs nothing.
func (e Entry) Counted() (Usage, bool) {
	body := e.typed
	if body == nil {
		body = e.Body
	}
	var u Usage
	switch b := body.(type) {
	case Request:
		if b.Attempts == 0 {
			return u, false
		}
		u.UsageKey = UsageKey{
			EndUser: b.EndUser, Model: b.Model, Provider: b.Provider, Target: b.Target, Surface: cmp.Or(b.Via, b.Surface), Agent: b.Agent,
		}
		u.UsageCounts = UsageCounts{
			Requests: 1, ToolCalls: int64(b.ToolCalls), GPUMS: b.GPUMS, InputTokens: b.InputTokens, CachedTokens: b.CachedTokens,
			CacheWriteTokens: b.CacheWriteTokens, OutputTokens: b.OutputTokens, ReasoningTokens: b.ReasoningTokens, CostNanoUSD: b.CostNanoUSD,
			EstimatedInput: b.EstimatedInput, EstimatedOutput: b.EstimatedOutput, EstimatedNanoUSD: b.EstimatedNanoUSD,
		}
	case ToolCall:
		u.UsageKey = UsageKey{EndUser: b.EndUser, Model: b.Model, Agent: b.Agent}
		u.CostNanoUSD, u.ToolNanoUSD = b.CostNanoUSD, b.CostNanoUSD
	case MCPCall: // has no model and no end user
		u.CostNanoUSD, u.ToolNanoUSD = b.CostNanoUSD, b.CostNanoUSD
	}
	u.Day, u.Principal = DayOf(e.At), e.Principal
	return u, u.Requests > 0 || u.ToolNanoUSD > 0
}

// DayOf returns the day of a time in Unix milliseconds: see [UsageKey].
func DayOf(at int64) int64 { return at / usageDay }

// Sums reads what a store has added up of the rows of its orgs. [Log] includes it.
type Sums interface {
	Rows

	// UsageSums calls each with the sums of the days from q.From to before q.To, grouped by q.By: several
	// times with the same group, if it likes. It returns [ErrUsageSums] if there are more than
	// [MaxUsageSums] of them, and otherwise the first error of each.
	UsageSums(ctx context.Context, org string, q UsageDays, each func(Usage) error) error

	// UsageSpan returns the lowest and the highest number of the rows that the sums of a day count; 0 = none.
	UsageSpan(ctx context.Context, org string, day int64) (first, last int64, err error)

	// EstimatedSince returns since when the estimated parts of the sums are known, in Unix milliseconds; 0 = since
	// the first sum.
	EstimatedSince(ctx context.Context) (int64, error)
}

// UsageDays selects sums of whole days.
type UsageDays struct {
	From, To int64 // From <= Day < To
	By       []string
}

// AddUsage adds up the requests that q selects, and returns their groups in the order of their keys. It
// adds whole days up from the stored sums, and parts of the first and the last day from audit rows.
// It returns an error rather than a part of the requests.
func AddUsage(ctx context.Context, org string, log Sums, q UsageQuery) ([]Usage, error) {
	groups := usageSums{q: q, sums: map[UsageKey]*UsageCounts{}}
	days, parts := q.split()
	if days.From < days.To {
		if err := log.UsageSums(ctx, org, days, groups.add); err != nil {
			return nil, err
		}
	}
	for _, part := range parts {
		if err := addPart(ctx, org, log, part, &groups); err != nil {
			return nil, err
		}
	}
	return groups.sorted(), nil
}

// split returns the whole days of the query, and queries for the rest of it.
func (q UsageQuery) split() (days UsageDays, parts []UsageQuery) {
	days = UsageDays{From: math.MinInt64, To: math.MaxInt64, By: q.By}
	first, last := DayOf(q.From), DayOf(q.To)
	startsWithin, endsWithin := q.From > first*usageDay, q.To > last*usageDay
	if q.From > 0 {
		days.From = first
	}
	if q.To > 0 {
		days.To = last
	}
	if startsWithin && endsWithin && first == last {
		return UsageDays{}, []UsageQuery{q}
	}
	if startsWithin {
		days.From++
		part := q
		part.To = days.From * usageDay
		parts = append(parts, part)
	}
	if endsWithin {
		part := q
		part.From = last * usageDay
		parts = append(parts, part)
	}
	return days, parts
}

// addPart adds up audit rows of one day.
func addPart(ctx context.Context, org string, log Sums, q UsageQuery, groups *usageSums) error {
	day := UsageKey{Day: DayOf(q.From)}
	if slices.Contains(q.By, ByAgent) {
		return &UsagePartError{day.DayText(), "audit rows do not have the agent"}
	}
	first, last, err := log.UsageSpan(ctx, org, day.Day)
	if err != nil || first == 0 {
		return err
	}
	oldest, err := log.AuditRows(ctx, org, Query{Limit: 1})
	if err != nil {
		return err
	}
	if len(oldest) == 0 || oldest[0].Number > first && oldest[0].At > q.From {
		return &UsagePartError{day.DayText(), "its audit rows were deleted"}
	}
	return groups.addRows(ctx, org, log, Query{From: q.From, To: q.To, After: first - 1, Before: last + 1})
}

// SumUsage is [AddUsage] for a store without sums: it reads all audit rows that q selects. They do not have
// the agent, nor what was written to caches.
func SumUsage(ctx context.Context, org string, rows Rows, q UsageQuery) ([]Usage, error) {
	groups := usageSums{q: q, sums: map[UsageKey]*UsageCounts{}}
	if err := groups.addRows(ctx, org, rows, Query{From: q.From, To: q.To}); err != nil {
		return nil, err
	}
	return groups.sorted(), nil
}

// usageSums are the groups of a query.
type usageSums struct {
	q    UsageQuery
	read int // audit rows
	sums map[UsageKey]*UsageCounts
}

// addRows adds up the audit rows of a query.
func (s *usageSums) addRows(ctx context.Context, org string, rows Rows, page Query) error {
	after := page.After
	for _, kind := range []Kind{KindRequest, KindToolCall, KindMCPCall} {
		for page.Kind, page.After, page.Limit, page.Bytes = kind, after, MaxRows, exportBytes; ; {
			some, err := rows.AuditRows(ctx, org, page)
			if err != nil {
				return err
			}
			if s.read += len(some); s.q.Rows > 0 && s.read > s.q.Rows {
				return ErrUsageRows
			}
			size := 0
			for _, row := range some {
				size += row.Size()
				if err := s.addRow(row); err != nil {
					return err
				}
			}
			if !page.Full(len(some), size) {
				break
			}
			page.After = some[len(some)-1].Number
		}
	}
	return nil
}

// addRow adds a row to the sum of its group.
func (s *usageSums) addRow(row Row) (err error) {
	e := Entry{Kind: row.Kind, At: row.At, Principal: row.Principal}
	switch row.Kind {
	case KindRequest:
		e.Body, err = decodeBody[Request](row)
	case KindMCPCall:
		e.Body, err = decodeBody[MCPCall](row)
	default:
		e.Body, err = decodeBody[ToolCall](row)
	}
	if err != nil {
		return fmt.Errorf("row %d: %w", row.Number, err)
	}
	if u, counts := e.Counted(); counts {
		return s.add(u)
	}
	return nil
}

func decodeBody[T any](row Row) (body T, err error) {
	err = json.Unmarshal(row.Body, &body)
	return body, err
}

// usageBytes is about what a group needs beside its texts, with its copy in the result and in an
// answer.
const usageBytes = 1024

// add adds u to the sum of its group, which may be a new one.
func (s *usageSums) add(u Usage) error {
	group := u.Group(s.q.By)
	if sum := s.sums[group]; sum != nil {
		sum.Add(u.UsageCounts)
		return nil
	}
	if len(s.sums) == MaxUsageGroups {
		return ErrUsageGroups
	}
	if s.q.Grow != nil {
		if err := s.q.Grow(usageBytes + 4*(len(group.Principal)+len(group.Model)+len(group.Target)+len(group.EndUser))); err != nil {
			return err
		}
	}
	s.sums[group] = &u.UsageCounts
	return nil
}

// sorted returns the groups in the order of their keys, models, end users and days.
func (s *usageSums) sorted() []Usage {
	all := make([]Usage, 0, len(s.sums))
	for group, counts := range s.sums {
		all = append(all, Usage{group, *counts})
	}
	slices.SortFunc(all, func(a, b Usage) int {
		return cmp.Or(strings.Compare(a.Principal, b.Principal), strings.Compare(a.Model, b.Model), strings.Compare(a.EndUser, b.EndUser),
			cmp.Compare(a.Day, b.Day), a.UsageKey.Compare(b.UsageKey))
	})
	return all
}
