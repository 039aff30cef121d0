package budget

import "strings"

// Period is how long a budget of several runs lasts before it begins anew, in UTC.
type Period string

// The periods.
const (
	Total Period = "total" // it never begins anew; also the empty Period
	Day   Period = "day"
	Month Period = "month"
)

// Whose budgets are.
const (
	ScopeOrg     = "org"
	ScopeKey     = "key"
	ScopeEndUser = "end_user"
)

// Shared is a budget of several runs. Each model call reserves its maximum cost before
// it is sent, so concurrent calls cannot overspend it.
type Shared struct {
	Scope  string `json:"scope"`            // whose it is in the org, see [ScopeOf]
	Period Period `json:"period,omitempty"` // "" = Total
	Limit  Amount `json:"limit"`            // a field of 0 = no limit
}

// ScopeOf returns the scope of the budget of an object: "org", "key/ID", "end_user/ID". The id is
// escaped, because clients choose those of end users.
func ScopeOf(kind, id string) string {
	if kind == ScopeOrg {
		return kind
	}
	return kind + "/" + escape(id)
}

// escape returns an id without slashes.
func escape(id string) string { return strings.NewReplacer("%", "%25", "/", "%2F").Replace(id) }

func unescape(id string) string { return strings.NewReplacer("%25", "%", "%2F", "/").Replace(id) }

// Window is a budget in one of its periods. What is spent in one is nothing to the next.
type Window struct {
	Scope  string // unique in the org: that of the budget, its period, and the day or month
	Limit  Amount // a field of 0 = no limit
	EndsAt int64  // in Unix milliseconds; 0 = never
}

// ParseWindow returns the parts of the scope of a [Window]: the kind (org, key or end_user), the
// id, which an org has not, the period, and the day or month, which Total has not. ok is false if
// no Window has this scope.
func ParseWindow(scope string) (kind, id string, period Period, window string, ok bool) {
	parts := strings.Split(scope, "/")
	kind, parts = parts[0], parts[1:]
	if kind != ScopeOrg {
		if len(parts) == 0 {
			return "", "", "", "", false
		}
		id, parts = unescape(parts[0]), parts[1:]
	}
	if len(parts) == 0 || len(parts) > 2 {
		return "", "", "", "", false
	}
	if len(parts) == 2 {
		window = parts[1]
	}
	return kind, id, Period(parts[0]), window, true
}

// Fits reports whether amount can be reserved. used is the sum of what is spent and
// what is reserved.
func (w Window) Fits(used, amount Amount) bool {
	return fits(used.Tokens, amount.Tokens, w.Limit.Tokens) && fits(used.NanoUSD, amount.NanoUSD, w.Limit.NanoUSD)
}

// Limited returns the amount without the fields that the window does not limit.
func (w Window) Limited(a Amount) Amount {
	return Amount{Tokens: ifLimited(w.Limit.Tokens, a.Tokens), NanoUSD: ifLimited(w.Limit.NanoUSD, a.NanoUSD)}
}

func ifLimited(limit, v int64) int64 {
	if limit == 0 {
		return 0
	}
	return v
}

// Reached returns how many percent of its limit are spent, in the field where it is more: 0 if
// that is less than 80, else 80, or 100.
func (w Window) Reached(spent Amount) int {
	reached := func(spent, limit int64) int {
		switch {
		case limit <= 0 || spent < limit-limit/5:
			return 0
		case spent < limit:
			return 80
		}
		return 100
	}
	return max(reached(spent.Tokens, w.Limit.Tokens), reached(spent.NanoUSD, w.Limit.NanoUSD))
}

// Draw returns how much a process takes of a window at once for model calls that do not reserve
// their cost one by one: in each limited field the larger of least and the smaller of want and
// 1 % of what is left. Where less than ten times least is left, it is least. ok is false if least
// does not fit.
func (w Window) Draw(used, least, want Amount) (drawn Amount, ok bool) {
	if !w.Fits(used, least) {
		return Amount{}, false
	}
	draw := func(limit, used, least, want int64) int64 {
		left := limit - used
		if left < 10*least {
			return least
		}
		return max(least, min(left/100, want))
	}
	return w.Limited(Amount{
		Tokens:  draw(w.Limit.Tokens, used.Tokens, least.Tokens, want.Tokens),
		NanoUSD: draw(w.Limit.NanoUSD, used.NanoUSD, least.NanoUSD, want.NanoUSD),
	}), true
}

// Min returns the smaller of both in each field.
func (a Amount) Min(b Amount) Amount {
	return Amount{min(a.Tokens, b.Tokens), min(a.NanoUSD, b.NanoUSD)}
}

// Max returns the larger of both in each field.
func (a Amount) Max(b Amount) Amount {
	return Amount{max(a.Tokens, b.Tokens), max(a.NanoUSD, b.NanoUSD)}
}

// Covers reports whether a is at least b in both fields.
func (a Amount) Covers(b Amount) bool { return a.Tokens >= b.Tokens && a.NanoUSD >= b.NanoUSD }
