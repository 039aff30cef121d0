package main

import (
	"testing"

	"github.com/goccy/go-yaml"
)

func TestTheConfigurationIsYAML(t *testing.T) {
	type file struct {
		Listen    string
		Providers []struct {
			BaseURL string `yaml:"base_url"`
			Models  []string
		}
		Orgs []struct {
			Keys       []struct{ Key string }
			Features   []string
			MCPServers []struct {
				URL         string
				Concurrency int
			} `yaml:"mcp_servers"`
			Runtime struct {
				ToolParallelism string `yaml:"tool_parallelism"`
				Concurrency     int
			}
		}
	}
	for _, tt := range []struct {
		name    string
		config  gatewayConfig
		servers int
	}{
		{"of a relay case: no loop", gatewayConfig{provider: "127.0.0.1:1", parallelism: "parallel"}, 0},
		{"of the loop case: one server", gatewayConfig{provider: "127.0.0.1:1", mcp: "127.0.0.1:2", parallelism: "serial"}, 1},
		{"of runs that leave: room for all of them", gatewayConfig{provider: "127.0.0.1:1", mcp: "127.0.0.1:2", parallelism: "parallel", slots: 200, calls: 100}, 1},
		{"of two orgs", gatewayConfig{provider: "127.0.0.1:1", mcp: "127.0.0.1:2", parallelism: "parallel", neighbour: true}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text, err := tt.config.text("127.0.0.1:3", "/data dir")
			if err != nil {
				t.Fatal(err)
			}
			var got file
			if err := yaml.Unmarshal([]byte(text), &got); err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			org := got.Orgs[len(got.Orgs)-1]
			if (org.Keys[0].Key == "env:"+neighbourKeyVar) != tt.config.neighbour || got.Orgs[0].Keys[0].Key != "env:"+clientKeyVar {
				t.Errorf("keys of %+v", got.Orgs)
			}
			if slots := tt.config.slots; slots > 0 && (org.Runtime.Concurrency != slots || org.MCPServers[0].Concurrency != tt.config.calls) {
				t.Errorf("limits of %+v", org)
			}
			if got.Listen != "127.0.0.1:3" || got.Providers[0].BaseURL != "http://127.0.0.1:1/v1" || got.Providers[0].Models[0] != "*" {
				t.Errorf("configuration %+v", got)
			}
			if len(org.Features) != tt.servers || len(org.MCPServers) != tt.servers || org.Runtime.ToolParallelism != tt.config.parallelism {
				t.Errorf("org %+v", org)
			}
		})
	}
}
