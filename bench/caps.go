package main

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// What budgets and routes may cost: the rate of small relayed requests with them, divided by the rate without,
// and the writes to the store for budgets in each 100 requests.
const (
	capsGate   = 0.8
	writesGate = 1
)

// budgetWrites is the metric of the gateway that counts its writes for budgets.
const budgetWrites = "turnpike_budget_writes_total"

// caps makes pairs of passes: a gateway without budgets and routes, then one whose org has a budget for itself and
// one for each key, and whose model is a route with a price.
func caps(ctx context.Context, r *rig) ([]row, error) {
	upstream, err := r.child(ctx, roleUpstream)
	if err != nil {
		return nil, err
	}
	plain, err := r.startGateway(ctx, gatewayConfig{provider: upstream.addr})
	if err != nil {
		return nil, err
	}
	metrics, err := freeAddr()
	if err != nil {
		return nil, err
	}
	capped, err := r.startGateway(ctx, gatewayConfig{provider: upstream.addr, caps: true, metrics: metrics})
	if err != nil {
		return nil, err
	}
	c := relay{unit: "requests/s"}
	p, err := c.measurePairs(ctx, r, plain, capped)
	if err != nil {
		return nil, err
	}
	without, with := p.first, p.second
	if without.Wrong()+with.Wrong() > 0 {
		return nil, fmt.Errorf("wrong answers: without %s; with %s", without.Describe(), with.Describe())
	}
	writes, err := metric(ctx, metrics, budgetWrites)
	if err != nil {
		return nil, err
	}
	requests := float64(with.Answers + with.Warm + p.warm)
	return []row{
		{
			what: "requests/s, with / without", digits: 3, seen: summarize(p.ratios), gate: r.opt.gate(atLeast(capsGate)),
			note: fmt.Sprintf("without %s; with %s", without.describe(c.unit), with.describe(c.unit)),
		},
		{
			what: "writes for budgets in 100 requests", digits: 3, seen: exactly(100 * writes / requests), gate: atMost(writesGate),
			note: fmt.Sprintf("%.0f writes for %.0f requests", writes, requests),
		},
	}, nil
}

// metric returns the value of a metric without labels. A metric that is missing is an error.
func metric(ctx context.Context, addr, name string) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		if value, found := strings.CutPrefix(lines.Text(), name+" "); found {
			return strconv.ParseFloat(value, 64)
		}
	}
	if err := lines.Err(); err != nil {
		return 0, err
	}
	return 0, fmt.Errorf("no metric %s at http://%s/metrics", name, addr)
}
