package surface

import (
	"cmp"
	"slices"

	"github.com/turnpike-gateway/turnpike/internal/money"
	"github.com/turnpike-gateway/turnpike/internal/route"
	"github.com/turnpike-gateway/turnpike/model"
)

// ModelInfo is what the gateway knows of a name that can be asked for. What it does not know is left
// out.
type ModelInfo struct {
	Targets []TargetInfo `json:"targets"` // in configuration order

	// CostLimit says whether requests may use the name while a limit on money applies to them: at
	// least one target has a price.
	CostLimit bool `json:"allowed_with_cost_limit"`
}

// TargetInfo is what the gateway knows of a provider's model.
type TargetInfo struct {
	Provider      string     `json:"provider"`
	Model         string     `json:"model"`                      // as the provider calls it
	Endpoints     []string   `json:"endpoints"`                  // whose requests the gateway sends to the provider
	ContextWindow int64      `json:"context_window,omitempty"`   // in tokens, as runs know it, or else as the provider lists it; 0 = not known
	MaxInput      int64      `json:"max_input_tokens,omitempty"` // of a prompt, where it is less than ContextWindow; 0 = it is not, or not known
	Tools         *bool      `json:"tools,omitempty"`            // whether it takes tools, as the provider lists it; nil = not known
	Price         *PriceInfo `json:"price,omitempty"`            // nil = it has none
}

// PriceInfo is a price of today, in US dollars per million tokens.
type PriceInfo struct {
	From money.Date `json:"from"` // the day from which it holds
	ratesInfo
	Above     *aboveInfo `json:"above,omitempty"`
	Flex      *ratesInfo `json:"flex,omitempty"`
	Priority  *ratesInfo `json:"priority,omitempty"`
	GPUSecond *USD       `json:"gpu_second,omitempty"` // US dollars for each second of a call
}

// ratesInfo has all rates: one that the rate card does not state is the one that is charged instead.
type ratesInfo struct {
	Input        money.Rate `json:"input"`
	CachedInput  money.Rate `json:"cached_input"`
	CacheWrite   money.Rate `json:"cache_write"`
	CacheWrite1h money.Rate `json:"cache_write_1h"`
	Output       money.Rate `json:"output"`
}

// aboveInfo has the rates of prompts with more tokens than these.
type aboveInfo struct {
	Tokens int64 `json:"tokens"`
	ratesInfo
}

// ModelInfo returns what the gateway knows of a name that [Handler.Models] or [Handler.Model] has
// returned.
func (h *Handler) ModelInfo(name string) ModelInfo {
	info := ModelInfo{Targets: []TargetInfo{}}
	for _, t := range h.o.Router.Resolve(name) {
		said := h.o.Models.Said(t)
		target := TargetInfo{
			Provider: t.Provider, Model: t.Model, Endpoints: h.endpointsOf(t),
			ContextWindow: cmp.Or(t.Window.Window, said.ContextWindow), Tools: said.Tools,
		}
		if t.Window.Input < t.Window.Window {
			target.MaxInput = t.Window.Input
		}
		if h.o.Price != nil {
			target.Price = newPriceInfo(h.o.Price(t.Target))
		}
		info.CostLimit = info.CostLimit || target.Price != nil
		info.Targets = append(info.Targets, target)
	}
	return info
}

// endpointsOf returns the paths of the endpoints whose requests the target gets. Chat and responses are
// translated for every provider.
func (h *Handler) endpointsOf(t route.Target) []string {
	paths := []string{"/v1/chat/completions", "/v1/responses"}
	if t.Relays(model.DialectEndpoints) {
		paths = slices.Concat(paths, h.o.Relayed)
	}
	return paths
}

// newPriceInfo returns nil for an unknown price.
func newPriceInfo(p money.Price) *PriceInfo {
	if !p.Known() {
		return nil
	}
	out := &PriceInfo{From: p.From, ratesInfo: ratesInfo(p.Rates), Flex: newRatesInfo(p.Flex), Priority: newRatesInfo(p.Priority)}
	if p.Above.Tokens > 0 {
		out.Above = &aboveInfo{p.Above.Tokens, ratesInfo(p.Above.Rates)}
	}
	if p.GPUSecond > 0 {
		out.GPUSecond = new(USD(p.GPUSecond))
	}
	return out
}

// newRatesInfo returns nil for rates that do not differ from those without a service tier.
func newRatesInfo(r money.Rates) *ratesInfo {
	if r == (money.Rates{}) {
		return nil
	}
	return new(ratesInfo(r))
}
