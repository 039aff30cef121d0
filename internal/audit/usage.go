package audit

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// What [SumUsage] groups requests by.
const (
	ByKey     = "key"
	ByModel   = "model"
	ByEndUser = "end_user"
	ByDay     = "day" // in UTC
)

// MaxUsageGroups is the most groups that [SumUsage] returns.
const MaxUsageGroups = 10_000

// Errors of [SumUsage].
var (
	ErrUsageGroups = fmt.Errorf("the requests have more than %d groups; choose a shorter time, or group them by less", MaxUsageGroups)
	ErrUsageRows   = errors.New("there are too many requests to add up at once; choose a shorter time")
)

// UsageQuery selects requests that were sent to a provider: rounds of runs, and relayed requests.
type UsageQuery struct {
	From, To int64    // Unix milliseconds: From <= At < To; To 0 = no end
	By       []string // see [ParseUsageBy]; empty = one group
	Rows     int      // the most rows to read; 0 = no limit

	// Grow is called before memory is used that SumUsage keeps, with its size in bytes. An
	// error of it ends SumUsage. nil = no limit
	Grow func(bytes int) error
}

// UsageGroup is what the requests of a group have in common. What they are not grouped by is "".
type UsageGroup struct{ Key, Model, EndUser, Day string }

// Usage is the sum of the requests of a group.
type Usage struct {
	UsageGroup
	Requests     int64
	InputTokens  int64 // with CachedTokens
	CachedTokens int64
	OutputTokens int64
	ToolCalls    int64 // that the models asked for; of relayed requests only if they were translated
	GPUMS        int64 // time that providers bill, in milliseconds
	CostNanoUSD  int64 // in 10⁻⁹ US dollars, of the requests whose model has a price, and of tool calls
	ToolNanoUSD  int64 // of CostNanoUSD, what the tool calls cost
}

// ParseUsageBy returns the parts of a list such as "key,day"; "" is the empty list.
func ParseUsageBy(text string) ([]string, error) {
	known := []string{ByKey, ByModel, ByEndUser, ByDay}
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

// SumUsage adds up the requests that q selects, and returns the groups in the order of their keys,
// models, end users and days. It returns an error rather than a part of the requests.
func SumUsage(ctx context.Context, org string, rows Rows, q UsageQuery) ([]Usage, error) {
	sums, read := map[UsageGroup]*Usage{}, 0
	for _, kind := range []Kind{KindRequest, KindToolCall, KindMCPCall} {
		for page := (Query{Kind: kind, From: q.From, To: q.To, Limit: MaxRows, Bytes: exportBytes}); ; {
			some, err := rows.AuditRows(ctx, org, page)
			if err != nil {
				return nil, err
			}
			if read += len(some); q.Rows > 0 && read > q.Rows {
				return nil, ErrUsageRows
			}
			size := 0
			for _, row := range some {
				size += row.Size()
				if err := q.add(sums, row); err != nil {
					return nil, err
				}
			}
			if !page.Full(len(some), size) {
				break
			}
			page.After = some[len(some)-1].Number
		}
	}
	all := make([]Usage, 0, len(sums))
	for _, u := range sums {
		all = append(all, *u)
	}
	slices.SortFunc(all, func(a, b Usage) int {
		return cmp.Or(strings.Compare(a.Key, b.Key), strings.Compare(a.Model, b.Model), strings.Compare(a.EndUser, b.EndUser), strings.Compare(a.Day, b.Day))
	})
	return all, nil
}

// usageBytes is about what a group needs beside its texts, with its copy in the result and in an
// answer.
const usageBytes = 1024

// add adds a row to the sum of its group.
func (q UsageQuery) add(sums map[UsageGroup]*Usage, row Row) error {
	var request Request
	var call ToolCall
	var err error
	if row.Kind != KindRequest { // a call over /mcp has no model and no end user
		err = json.Unmarshal(row.Body, &call)
		request.Model, request.EndUser = call.Model, call.EndUser
	} else {
		err = json.Unmarshal(row.Body, &request)
	}
	switch {
	case err != nil:
		return fmt.Errorf("row %d: %w", row.Number, err)
	case request.Attempts == 0 && call.CostNanoUSD == 0: // it was refused before it was sent, or is a call that costs nothing
		return nil
	}
	sum, err := q.sumOf(sums, q.groupOf(row, request))
	if err != nil {
		return err
	}
	if row.Kind != KindRequest {
		sum.ToolNanoUSD += call.CostNanoUSD
		sum.CostNanoUSD += call.CostNanoUSD
		return nil
	}
	sum.Requests++
	sum.InputTokens += request.InputTokens
	sum.CachedTokens += request.CachedTokens
	sum.OutputTokens += request.OutputTokens
	sum.ToolCalls += int64(request.ToolCalls)
	sum.GPUMS += request.GPUMS
	sum.CostNanoUSD += request.CostNanoUSD
	return nil
}

// sumOf returns the sum of a group, which may be a new one.
func (q UsageQuery) sumOf(sums map[UsageGroup]*Usage, group UsageGroup) (*Usage, error) {
	if sum := sums[group]; sum != nil {
		return sum, nil
	}
	if len(sums) == MaxUsageGroups {
		return nil, ErrUsageGroups
	}
	if q.Grow != nil {
		if err := q.Grow(usageBytes + 4*(len(group.Key)+len(group.Model)+len(group.EndUser))); err != nil {
			return nil, err
		}
	}
	sum := &Usage{UsageGroup: group}
	sums[group] = sum
	return sum, nil
}

func (q UsageQuery) groupOf(row Row, body Request) (g UsageGroup) {
	for _, by := range q.By {
		switch by {
		case ByKey:
			g.Key = row.Principal
		case ByModel:
			g.Model = body.Model
		case ByEndUser:
			g.EndUser = body.EndUser
		case ByDay:
			g.Day = time.UnixMilli(row.At).UTC().Format(time.DateOnly)
		}
	}
	return g
}
