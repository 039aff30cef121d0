package runs

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"

	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/money"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/surface"
)

// Raise answers POST /v1/runs/{id}/limits. When the answer is sent, the raise is on disk. It is carried
// out even if the client has left.
func (h *Handler) Raise(w http.ResponseWriter, r *http.Request, caller caller.Caller) error {
	if err := surface.CheckQuery(r.URL.Query()); err != nil {
		return err
	}
	body, err := surface.ReadObject(r, caller.Account)
	if err != nil {
		return h.failed(err)
	}
	limits, err := newLimits(body)
	if err != nil {
		return err
	}
	ctx, cancel := surface.Detached(r)
	defer cancel()
	s, err := h.find(ctx, caller, r.PathValue("id"))
	if err != nil {
		return h.failed(err)
	}
	by := caller.Author(h.o.Now())
	now, err := h.o.Runner.Raise(ctx, caller.Org.ID, s.RunID, limits, by, caller.Account)
	if err != nil {
		return h.failed(err)
	}
	return h.failed(surface.WriteJSON(w, http.StatusOK, raised{s.RunID, "running", now}))
}

// newLimits returns the limits that a request asks for.
func newLimits(body map[string]json.RawMessage) (n run.NewLimits, err error) {
	members := map[string]**int64{"rounds": &n.Rounds, "calls": &n.Calls, "tokens": &n.Tokens, "usd": &n.NanoUSD, "active_ms": &n.ActiveMS}
	if err := surface.OnlyMembers(body, "rounds", "calls", "tokens", "usd", "active_ms"); err != nil {
		return n, err
	}
	for _, name := range slices.Sorted(maps.Keys(body)) {
		value, err := limitOf(name, body[name])
		if err != nil {
			return n, err
		}
		*members[name] = &value
	}
	return n, nil
}

// limitOf returns the value of a member: a whole number, or US dollars as a number or a string.
func limitOf(name string, raw json.RawMessage) (value int64, err error) {
	if name != "usd" {
		if err := json.Unmarshal(raw, &value); err != nil || string(raw) == "null" {
			return 0, fault.New(fault.Invalid, "invalid_type", "%s is not a whole number below 2^63", name).In(name)
		}
		return value, nil
	}
	text := string(raw)
	if len(raw) > 0 && raw[0] == '"' {
		if err := json.Unmarshal(raw, &text); err != nil {
			return 0, fault.New(fault.Invalid, "invalid_type", "usd is not an amount of US dollars such as 2.50").In(name)
		}
	}
	usd, err := money.ParseUSD(text)
	if err != nil {
		return 0, surface.InvalidValue(name, "usd is not an amount of US dollars such as 2.50: %v", err)
	}
	return int64(usd), nil
}
