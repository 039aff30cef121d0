package org

// Budget limits what the model calls of a period cost together. The stores keep its JSON.
type Budget struct {
	// Scope says whose calls, for a budget of an org: "org" (all of the org), or "key" or "end_user" (of each key or
	// end user, which has a budget of its own).
	Scope   string `json:"scope"`
	Period  string `json:"period"`             // "day" or "month" in UTC, or "total"
	NanoUSD int64  `json:"nano_usd,omitempty"` // in 10⁻⁹ US dollars; 0 = no limit
	Tokens  int64  `json:"tokens,omitempty"`   // input and output; 0 = no limit
}

// within reports whether the budget limits all that the other one limits, and not to more.
func (b Budget) within(other Budget) bool {
	least := func(own, most int64) bool { return most == 0 || own > 0 && own <= most }
	return least(b.NanoUSD, other.NanoUSD) && least(b.Tokens, other.Tokens)
}
