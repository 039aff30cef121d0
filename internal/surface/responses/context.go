package responses

import (
	"encoding/json"

	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/surface"
	"github.com/turnpike-gateway/turnpike/model"
)

// decodeTruncation reads whether old results of tools are left out of prompts that are too long. A
// provider of this dialect does what auto says itself.
func (d *decoder) decodeTruncation(value json.RawMessage) error {
	const name = "truncation"
	t := &d.echo.Truncation
	if err := into(name, value, t); err != nil {
		return err
	}
	mode := org.ContextOff
	switch *t {
	case "disabled":
	case "auto":
		mode = org.ContextPrune
		d.req.OwnContext = true
	default:
		return fault.New(fault.Invalid, "invalid_value", "truncation must be auto or disabled").In(name)
	}
	if d.context.Mode == "" { // context_management says more
		d.context.Mode = mode
	}
	d.req.Params = append(d.req.Params, model.Param{Name: name, Value: value, Typed: mode == org.ContextOff || !d.relayed()})
	return nil
}

// decodeContext reads how prompts that are too long are shortened. A provider of this dialect does it
// itself, and its compaction is an item of the response.
func (d *decoder) decodeContext(value json.RawMessage) error {
	c, err := surface.ReadContext(d.req, value)
	if err != nil {
		return err
	}
	d.context = c
	if !c.Listed {
		return nil
	}
	d.req.OwnContext = true
	if !d.relays() {
		d.dropped = append(d.dropped, c.Dropped...)
	}
	d.req.Params = append(d.req.Params, model.Param{Name: surface.ContextMember, Value: value, Typed: !d.relayed()})
	return nil
}
