package audit_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/audit"
)

// someRows has rows in the order of their numbers.
type someRows []audit.Row

func (s someRows) AuditRows(_ context.Context, _ string, q audit.Query) (out []audit.Row, err error) {
	size := 0
	for _, r := range s {
		if q.Matches(r) && !q.Full(len(out), size) {
			out, size = append(out, r), size+r.Size()
		}
	}
	return out, nil
}

func (s *someRows) add(t *testing.T, at int64, key string, body audit.Request) {
	t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	*s = append(*s, audit.Row{Org: "o", Number: int64(len(*s)) + 1, Kind: audit.KindRequest, At: at, Principal: key, Body: text})
}

const aDay = 24 * 60 * 60 * 1000 // in milliseconds

// The sums of all groups are those of the rows, over several pages of them. // P57
func TestUsageAddsUpTheRowsOfAGroup(t *testing.T) {
	var rows someRows
	for i := range 3000 {
		rows.add(t, int64(i%2)*aDay, []string{"k", "l"}[i%2], audit.Request{
			Model: "m", EndUser: fmt.Sprint("u", i%3), Attempts: 1, InputTokens: 10, CachedTokens: 4, OutputTokens: 2, ToolCalls: 3, GPUMS: 5, CostNanoUSD: 7,
		})
	}
	rows.add(t, 0, "k", audit.Request{Model: "m", Status: audit.OK}) // refused before it was sent
	rows = append(rows, audit.Row{Number: 3002, Kind: audit.KindManagement, Body: json.RawMessage(`{}`)})
	held := 0
	all, err := audit.SumUsage(t.Context(), "o", rows, audit.UsageQuery{Grow: func(n int) error { held += n; return nil }})
	if err != nil || len(all) != 1 || all[0] != (audit.Usage{UsageCounts: audit.UsageCounts{
		Requests: 3000, InputTokens: 30000, CachedTokens: 12000, OutputTokens: 6000, ToolCalls: 9000, GPUMS: 15000, CostNanoUSD: 21000,
	}}) || held == 0 {
		t.Errorf("%v %v, %d bytes", all, err, held)
	}
	by, err := audit.ParseUsageBy("key,model,end_user,day")
	if err != nil {
		t.Fatal(err)
	}
	all, err = audit.SumUsage(t.Context(), "o", rows, audit.UsageQuery{From: aDay, By: by})
	if err != nil || len(all) != 3 || all[1].UsageKey != (audit.UsageKey{Principal: "l", Model: "m", EndUser: "u1", Day: 1}) || all[1].Name("day") != "1970-01-02" || all[1].Requests != 500 {
		t.Errorf("%+v %v", all, err)
	}
	for _, wrong := range []string{"keys", "key,", "key,key", " key"} {
		if _, err := audit.ParseUsageBy(wrong); err == nil {
			t.Errorf("%q is accepted", wrong)
		}
	}
}

// Too many groups or rows are an error rather than a part of the sum, and memory is asked for first. // P57
func TestUsageIsBounded(t *testing.T) {
	var rows someRows
	for i := range audit.MaxUsageGroups + 1 {
		rows.add(t, 1, "k", audit.Request{EndUser: fmt.Sprint(i), Attempts: 1})
	}
	users := []string{audit.ByEndUser}
	full := errors.New("full")
	for want, q := range map[error]audit.UsageQuery{
		audit.ErrUsageGroups: {By: users},
		audit.ErrUsageRows:   {Rows: audit.MaxUsageGroups},
		full:                 {By: users, Grow: func(int) error { return full }},
	} {
		if all, err := audit.SumUsage(t.Context(), "o", rows, q); !errors.Is(err, want) || all != nil {
			t.Errorf("%v: %d groups, %v", want, len(all), err)
		}
	}
}
