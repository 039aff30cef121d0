package org

import "time"

// Hook is what an org lets happen at a point of its runs: see [Runtime].Hooks. It has no secrets.
type Hook struct {
	ID       string   `json:"id"`    // unique in the org
	Event    string   `json:"event"` // such as PreToolUse
	Type     string   `json:"type"`  // rule, http or approval
	Matcher  string   `json:"matcher,omitempty"`
	Keys     []string `json:"keys,omitzero"` // ids of the keys whose runs have it; nil = all
	Agent    bool     `json:"-"`             // it belongs to the agent of the run; it runs after those of the org
	Offered  bool     `json:"-"`             // Matcher selects only by the name that the model sees
	Disabled bool     `json:"disabled,omitempty"`
	Position int      `json:"position,omitempty"` // hooks run in its order, and then in that of the list

	Config HookConfig `json:"config"`
}

// HookConfig are the settings of a hook that belong to its type.
type HookConfig struct {
	Condition string     `json:"condition,omitempty"` // rule
	Rules     []HookRule `json:"rules,omitempty"`     // rule, in place of Condition
	Message   string     `json:"message,omitempty"`   // rule: for the model or the caller; approval: for the person

	URL     string        `json:"url,omitempty"`        // http
	Secret  string        `json:"secret,omitempty"`     // http: a reference to the vault; "" = requests are not signed
	OnError string        `json:"on_error,omitempty"`   // http: allow or deny; "" = allow
	Context bool          `json:"run_context,omitzero"` // http: requests name the run
	Timeout time.Duration `json:"timeout_ns,omitempty"` // http: of a request; approval: how long it waits; 0 = the default of the type
}

// HookRule is one of several conditions of a hook.
type HookRule struct {
	Condition string `json:"condition"`
	Message   string `json:"message,omitempty"`
}

// Hook returns the hook with the id, or false.
func (r Runtime) Hook(id string) (Hook, bool) {
	for _, h := range r.Hooks {
		if h.ID == id {
			return h, true
		}
	}
	return Hook{}, false
}
