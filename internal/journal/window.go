package journal

import (
	"cmp"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/budget"
)

// WindowAt returns the window of a budget at a time in Unix milliseconds, in UTC.
func WindowAt(b budget.Shared, ms int64) budget.Window {
	t := time.UnixMilli(ms).UTC()
	w := budget.Window{Scope: b.Scope + "/" + string(cmp.Or(b.Period, budget.Total)), Limit: b.Limit}
	switch b.Period {
	case budget.Day:
		w.Scope += "/" + t.Format("2006-01-02")
		w.EndsAt = time.Date(t.Year(), t.Month(), t.Day()+1, 0, 0, 0, 0, time.UTC).UnixMilli()
	case budget.Month:
		w.Scope += "/" + t.Format("2006-01")
		w.EndsAt = time.Date(t.Year(), t.Month()+1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()
	case budget.Total:
	}
	return w
}
