package event

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

// In JSON, amounts are nano-USD, some points in time Unix milliseconds, and some durations milliseconds. The types below
// are the JSON of events with such fields. Each repeats these and all fields after them, because the order of the
// members must not change; those before them are embedded.
type (
	plainWaiting Waiting
	waitingJSON  struct {
		plainWaiting
		Cost      *int64     `json:"cost_nano_usd,omitempty"`
		Approvals []Approval `json:"approvals,omitempty"`
	}

	plainPaused Paused
	pausedJSON  struct {
		plainPaused
		Active      int64     `json:"active_ms"`
		SideEffects bool      `json:"side_effects,omitempty"`
		Cost        *int64    `json:"cost_nano_usd,omitempty"`
		At          time.Time `json:"at"`
		ExpiresAt   time.Time `json:"expires_at,omitzero"`
	}

	plainLimitsRaised LimitsRaised
	limitsRaisedJSON  struct {
		plainLimitsRaised
		USD    int64     `json:"nano_usd,omitempty"`
		Active int64     `json:"active_ms,omitempty"`
		At     time.Time `json:"at"`
	}

	plainFinished Finished
	finishedJSON  struct {
		plainFinished
		Cost        *int64   `json:"cost_nano_usd,omitempty"`
		SideEffects bool     `json:"side_effects,omitempty"`
		Repeated    string   `json:"repeated,omitempty"`
		GaveUp      bool     `json:"gave_up,omitempty"`
		Failure     *Failure `json:"failure,omitempty"`
	}

	plainFailure Failure
	failureJSON  struct {
		plainFailure
		RetryAt  int64        `json:"retry_at,omitempty"`
		Upstream *model.Error `json:"upstream,omitempty"`
	}
)

// MarshalJSON implements [json.Marshaler]: Cost is cost_nano_usd.
func (e Waiting) MarshalJSON() ([]byte, error) {
	return encode(waitingJSON{plainWaiting(e), nano(e.Cost), e.Approvals})
}

// UnmarshalJSON implements [json.Unmarshaler].
func (e *Waiting) UnmarshalJSON(data []byte) error {
	var in waitingJSON
	err := json.Unmarshal(data, &in)
	*e = Waiting(in.plainWaiting)
	e.Cost, e.Approvals = amount(in.Cost), in.Approvals
	return err
}

// MarshalJSON implements [json.Marshaler]: Active is active_ms, and Cost cost_nano_usd.
func (e Paused) MarshalJSON() ([]byte, error) {
	return encode(pausedJSON{plainPaused(e), e.Active.Milliseconds(), e.SideEffects, nano(e.Cost), e.At, e.ExpiresAt})
}

// UnmarshalJSON implements [json.Unmarshaler].
func (e *Paused) UnmarshalJSON(data []byte) error {
	var in pausedJSON
	err := json.Unmarshal(data, &in)
	*e = Paused(in.plainPaused)
	e.Active, e.SideEffects, e.Cost, e.At, e.ExpiresAt = milliseconds(in.Active), in.SideEffects, amount(in.Cost), in.At, in.ExpiresAt
	return err
}

// MarshalJSON implements [json.Marshaler]: USD is nano_usd, and Active active_ms.
func (e LimitsRaised) MarshalJSON() ([]byte, error) {
	return encode(limitsRaisedJSON{plainLimitsRaised(e), e.USD.Nano(), e.Active.Milliseconds(), e.At})
}

// UnmarshalJSON implements [json.Unmarshaler].
func (e *LimitsRaised) UnmarshalJSON(data []byte) error {
	var in limitsRaisedJSON
	err := json.Unmarshal(data, &in)
	*e = LimitsRaised(in.plainLimitsRaised)
	if e.Active, e.At = milliseconds(in.Active), in.At; in.USD > 0 {
		e.USD = tool.NanoUSD(in.USD)
	}
	return err
}

// MarshalJSON implements [json.Marshaler]: Cost is cost_nano_usd.
func (e Finished) MarshalJSON() ([]byte, error) {
	return encode(finishedJSON{plainFinished(e), nano(e.Cost), e.SideEffects, e.Repeated, e.GaveUp, e.Failure})
}

// UnmarshalJSON implements [json.Unmarshaler].
func (e *Finished) UnmarshalJSON(data []byte) error {
	var in finishedJSON
	err := json.Unmarshal(data, &in)
	*e = Finished(in.plainFinished)
	e.Cost, e.SideEffects, e.Repeated, e.GaveUp, e.Failure = amount(in.Cost), in.SideEffects, in.Repeated, in.GaveUp, in.Failure
	return err
}

// MarshalJSON implements [json.Marshaler]: RetryAt is retry_at, in Unix milliseconds.
func (f Failure) MarshalJSON() ([]byte, error) {
	out := failureJSON{plainFailure: plainFailure(f), Upstream: f.Upstream}
	if !f.RetryAt.IsZero() {
		out.RetryAt = f.RetryAt.UnixMilli()
	}
	return encode(out)
}

// UnmarshalJSON implements [json.Unmarshaler].
func (f *Failure) UnmarshalJSON(data []byte) error {
	var in failureJSON
	err := json.Unmarshal(data, &in)
	*f = Failure(in.plainFailure)
	if f.Upstream = in.Upstream; in.RetryAt != 0 {
		f.RetryAt = time.UnixMilli(in.RetryAt).UTC()
	}
	return err
}

func milliseconds(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }

// nano returns the amount in nano-USD; nil = no amount.
func nano(m tool.Money) *int64 {
	if m.IsZero() {
		return nil
	}
	return new(m.Nano())
}

// amount is the reverse of nano.
func amount(n *int64) tool.Money {
	if n == nil {
		return tool.Money{}
	}
	return tool.NanoUSD(max(*n, 0))
}

// encode returns the JSON of v without HTML escapes, and with a newline.
func encode(v any) ([]byte, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return out.Bytes(), err
}
