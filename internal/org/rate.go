package org

// Rate is how many requests may be made: PerMinute of them, evenly, and up to
// Burst at once. The zero Rate is no limit. The JSON is what the stores keep.
type Rate struct {
	PerMinute int `json:"requests_per_minute,omitempty"` // 0 = no limit
	Burst     int `json:"burst,omitempty"`               // 0 = as many as PerMinute
}

// MaxRate is the most that either field of a [Rate] may be.
const MaxRate = 1_000_000

// IsLimit reports whether the rate limits anything.
func (r Rate) IsLimit() bool { return r.PerMinute > 0 }

// AtOnce returns how many requests may be made at once by who has made none.
func (r Rate) AtOnce() int {
	if r.Burst > 0 {
		return r.Burst
	}
	return r.PerMinute
}
