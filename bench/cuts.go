package main

import (
	"context"
	"fmt"

	"github.com/turnpike-gateway/turnpike/bench/load"
	"github.com/turnpike-gateway/turnpike/bench/stats"
)

// cuts reads a fixed number of burst streams through the gateway and counts
// those that do not arrive exactly as they were sent. The client asks for the
// next one the moment a stream has ended, which is when a proxy that lets go of
// a request too early cuts it.
//
// Then it has many streams open at the same time, and lets them go on together.
func cuts(ctx context.Context, r *rig) ([]row, error) {
	_, gateway, err := r.relayTargets(ctx)
	if err != nil {
		return nil, err
	}
	c := relay{stream: true}
	got, err := r.load(ctx, gateway, load.Plan{Count: r.opt.streams, Lanes: c.lanes(gateway.addr, r)})
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, gateway.proc.Tail())
	}
	rows := []row{{
		what: fmt.Sprintf("cut or altered streams, of %d", got.Answers),
		seen: stats.Exactly(float64(got.Wrong())), gate: stats.AtMost(0),
		note: fmt.Sprintf("%s; %s", got.Describe(), got.describe("streams/s")),
	}}
	together, err := r.together(ctx)
	return append(rows, together...), err
}

// together opens streams through the gateway that all stop in the middle, and
// go on when the last of them has come so far.
func (r *rig) together(ctx context.Context) ([]row, error) {
	holder, err := r.child(ctx, roleHolder)
	if err != nil {
		return nil, err
	}
	_, gateway, err := r.proxies(ctx, holder)
	if err != nil {
		return nil, err
	}
	crowd, err := r.gather(ctx, gateway, r.opt.crowd, false)
	if err != nil {
		return nil, err
	}
	if err := holder.release(ctx); err != nil {
		crowd.Leave()
		return nil, err
	}
	got := crowd.Rest()
	return []row{{
		what: fmt.Sprintf("the same of %d at the same time", got.Answers),
		seen: stats.Exactly(float64(got.Wrong())), gate: stats.AtMost(0), note: got.Describe(),
	}}, nil
}
