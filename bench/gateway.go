package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"text/template"
	"time"

	"github.com/turnpike-gateway/turnpike/bench/proc"
)

// readyTime is how long the gateway may take until it says that it is ready.
const readyTime = 30 * time.Second

// gatewayConfig is what the cases change in the gateway's configuration.
type gatewayConfig struct {
	provider    string // host:port
	mcp         string // host:port of the MCP server; "" = no loop
	parallelism string // runtime.tool_parallelism
}

// configFile is the gateway's configuration: the defaults, with the loopback
// allowed because the MCP server is there.
const configFile = `listen: {{.Listen}}
data: {{.Data}}
providers:
  - {name: up, kind: openai, base_url: "http://{{.Provider}}/v1", api_key: "env:{{.ProviderKey}}", models: ["*"]}
outbound: {ssrf: {allowlist_cidrs: [127.0.0.0/8]}}
orgs:
  - id: default
    features: [{{if .MCP}}mcp_outbound{{end}}]
    keys: [{name: bench, key: "env:{{.ClientKey}}", role: owner}]
    runtime: {tool_parallelism: {{.Parallelism}}}
    mcp_servers: [{{if .MCP}}{name: bench, url: "http://{{.MCP}}/mcp", enabled: true, trust: true}{{end}}]
`

func (c gatewayConfig) text(listen, data string) (string, error) {
	t, err := template.New("config").Parse(configFile)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	err = t.Execute(&b, map[string]string{
		"Listen": listen, "Data": data, "Provider": c.provider, "MCP": c.mcp, "Parallelism": c.parallelism,
		"ProviderKey": providerKeyVar, "ClientKey": clientKeyVar,
	})
	return b.String(), err
}

// startGateway starts the gateway and waits until it is ready.
func (r *rig) startGateway(ctx context.Context, c gatewayConfig) (target, error) {
	addr, err := freeAddr()
	if err != nil {
		return target{}, err
	}
	text, err := c.text(addr, r.file("data"))
	if err != nil {
		return target{}, err
	}
	file := r.file("turnpike.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return target{}, err
	}
	p, err := r.group.Start(proc.Command{
		Name: "gateway", Path: r.gateway, Args: []string{"serve", "--config", file},
		Env: r.environment(), Log: r.file("gateway.log"),
	})
	if err != nil {
		return target{}, err
	}
	if err := ready(ctx, addr, p); err != nil {
		return target{}, fmt.Errorf("gateway is not ready: %w\n%s", err, p.Tail())
	}
	return target{addr, p}, nil
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
	ctx, cancel := context.WithTimeoutCause(ctx, readyTime, fmt.Errorf("no 200 from /readyz within %v", readyTime))
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-p.Exited():
			return errors.New("it ended by itself")
		case <-tick.C:
		}
		if isReady(ctx, &http.Client{Transport: transport, Timeout: time.Second}, addr) {
			return nil
		}
	}
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
