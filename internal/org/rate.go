package org

// Rate is a request rate limit: PerMinute requests per minute, and up to Burst at
// once. The zero Rate is no limit. The stores keep its JSON.
type Rate struct {
	PerMinute int `json:"requests_per_minute,omitempty"` // 0 = no limit; at most MaxRate
	Burst     int `json:"burst,omitempty"`               // 0 means PerMinute; at most MaxRate
}

// MaxRate is the maximum of either field of a [Rate].
const MaxRate = 1_000_000

// IsLimit reports whether r is a limit.
func (r Rate) IsLimit() bool { return r.PerMinute > 0 }

// EffectiveBurst returns the burst: Burst, or PerMinute if that is 0.
func (r Rate) EffectiveBurst() int {
	if r.Burst > 0 {
		return r.Burst
	}
	return r.PerMinute
}
