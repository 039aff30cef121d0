package run

import (
	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/loop"
)

// park records that the calls wait for a human and lets go of the run: no
// goroutine, lease or slot is held while it waits. A light run becomes durable
// here: what goes on with it needs the request and the tools as they were.
func (d *drive) park(a loop.Interrupt) error {
	var bodies []loop.Body
	for _, key := range a.Calls {
		if c, _ := d.state.Call(key); c.WaitID == "" {
			bodies = append(bodies, loop.CallWaiting{Key: key, WaitID: d.o.NewID("wait_")})
		}
	}
	active := d.now() - d.state.ActiveSince
	var rows []Row
	if d.state.Grade != loop.Durable {
		rows = append(d.requestRows(), d.catalogRow())
	}
	if err := d.append(rows, append(bodies, loop.Parked{ActiveMS: active})...); err != nil {
		return err
	}
	d.emit(event.Finished{Reason: event.Waiting, Usage: d.state.Usage, Rounds: d.state.Spent.Rounds, SideEffects: d.state.SideEffects})
	return nil
}
