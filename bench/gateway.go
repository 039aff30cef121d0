package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"text/template"
	"time"

	"github.com/turnpike-gateway/turnpike/bench/fake"
	"github.com/turnpike-gateway/turnpike/bench/proc"
)

// readyTime is how long the gateway may take to become ready.
const readyTime = 30 * time.Second

// defaultSlots is the default of the gateway for concurrent runs of an org.
const defaultSlots = 16

// gatewayConfig is what differs between the cases.
type gatewayConfig struct {
	program     string // the gateway binary; "" = that of the rig
	provider    string // host:port
	kind        string // of the provider; "" = openai
	mcp         string // host:port of the MCP server; "" = no loop
	parallelism string // runtime.tool_parallelism; "" = parallel
	slots       int    // runtime.concurrency; 0 = the default, 16
	calls       int    // max_concurrent_calls of the MCP server; 0 = the default, 256
	secondOrg   bool   // add an org with the same settings and another key
	caps        bool   // the model is a route and has a price, and the org has budgets
	metrics     string // host:port of the metrics; "" = none
}

// configFile has the defaults, except that loopback addresses are allowed: the MCP
// server listens on one.
const configFile = `listen: {{.Listen}}
data: {{.Data}}
providers:
  - {name: up, kind: {{.Kind}}, base_url: "http://{{.Provider}}/v1", api_key: "env:{{.ProviderKey}}", models: ["*"]}
{{- if .Metrics}}
telemetry: {metrics_listen: {{.Metrics}}}
{{- end}}
{{- if .Caps}}
rates: {{.Rates}}
routes: [{model: {{.Model}}, targets: [{provider: up, model: {{.Model}}}]}]
{{- end}}
outbound: {ssrf: {allowlist_cidrs: [127.0.0.0/8]}}
orgs:
{{- range .Orgs}}
  - id: {{.ID}}
    features: [{{if $.MCP}}mcp_outbound{{end}}]
    keys: [{name: bench, key: "env:{{.Key}}", role: owner}]
    runtime: {tool_parallelism: {{$.Parallelism}}, concurrency: {{$.Slots}}{{if $.Caps}}, budgets: [{scope: org, period: month, usd: 100000}, {scope: key, period: day, usd: 50000}]{{end}}}
    mcp_servers: [{{if $.MCP}}{name: bench, url: "http://{{$.MCP}}/mcp", enabled: true, trust: true{{if $.Calls}}, max_concurrent_calls: {{$.Calls}}{{end}}}{{end}}]
{{- end}}
`

// ratesFile has a price for every model.
const ratesFile = `- {model: "*", provider: openai, from: 2026-01-01, input: 1, output: 10}
`

// configOrg is an org of the configuration file.
type configOrg struct {
	ID  string
	Key string // environment variable that has it
}

func (c gatewayConfig) text(listen, data, rates string) (string, error) {
	t, err := template.New("config").Parse(configFile)
	if err != nil {
		return "", err
	}
	orgs := []configOrg{{"default", clientKeyVar}}
	if c.secondOrg {
		orgs = append(orgs, configOrg{"second", secondKeyVar})
	}
	var b strings.Builder
	err = t.Execute(&b, map[string]any{
		"Listen": listen, "Data": data, "Provider": c.provider, "Kind": cmp.Or(c.kind, "openai"), "MCP": c.mcp, "ProviderKey": providerKeyVar, "Orgs": orgs,
		"Parallelism": cmp.Or(c.parallelism, "parallel"), "Slots": cmp.Or(c.slots, defaultSlots), "Calls": c.calls,
		"Caps": c.caps, "Metrics": c.metrics, "Rates": rates, "Model": fake.ModelName,
	})
	return b.String(), err
}

// startGateway starts the gateway and waits until it is ready.
func (r *rig) startGateway(ctx context.Context, c gatewayConfig) (target, error) {
	addr, err := freeAddr()
	if err != nil {
		return target{}, err
	}
	data, profile := r.file("data"), r.profilePrefix()
	rates := r.file("rates.yaml")
	text, err := c.text(addr, data, rates)
	if err != nil {
		return target{}, err
	}
	if err := os.WriteFile(rates, []byte(ratesFile), 0o600); err != nil {
		return target{}, err
	}
	file := r.file("turnpike.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return target{}, err
	}
	p, err := r.group.Start(proc.Command{
		Name: "gateway", Path: cmp.Or(c.program, r.gateway), Args: []string{"serve", "--config", file},
		Env: r.environment(profileVar + "=" + profile), Log: r.file("gateway.log"),
	})
	if err != nil {
		return target{}, err
	}
	if err := ready(ctx, addr, p); err != nil {
		return target{}, fmt.Errorf("gateway is not ready: %w\n%s", err, p.Tail())
	}
	return target{addr: addr, proc: p, data: data, profile: profile}, nil
}

// freeAddr returns an address of 127.0.0.1 that was free a moment ago.
func freeAddr() (string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return ln.Addr().String(), ln.Close()
}

// ready waits for GET /readyz to answer 200.
func ready(ctx context.Context, addr string, p *proc.Process) error {
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: time.Second}
	return until(ctx, readyTime, "no 200 from /readyz", func() (bool, error) {
		select {
		case <-p.Exited():
			return false, errors.New("it ended by itself")
		default:
			return isReady(ctx, client, addr), nil
		}
	})
}

func isReady(ctx context.Context, c *http.Client, addr string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/readyz", nil)
	if err != nil {
		return false
	}
	resp, err := c.Do(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}
