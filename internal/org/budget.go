package org

// Budget limits what the model calls of a period cost together. The stores keep its JSON.
type Budget struct {
	// Scope says whose calls: "org" (all of the org), or "key" or "end_user" (of each key or
	// end user, which has a budget of its own).
	Scope   string `json:"scope"`
	Period  string `json:"period"`             // "day" or "month" in UTC, or "total"
	NanoUSD int64  `json:"nano_usd,omitempty"` // in 10⁻⁹ US dollars; 0 = no limit
	Tokens  int64  `json:"tokens,omitempty"`   // input and output; 0 = no limit
}
