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
			Features   []string
			MCPServers []struct{ URL string } `yaml:"mcp_servers"`
			Runtime    struct {
				ToolParallelism string `yaml:"tool_parallelism"`
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
			org := got.Orgs[0]
			if got.Listen != "127.0.0.1:3" || got.Providers[0].BaseURL != "http://127.0.0.1:1/v1" || got.Providers[0].Models[0] != "*" {
				t.Errorf("configuration %+v", got)
			}
			if len(org.Features) != tt.servers || len(org.MCPServers) != tt.servers || org.Runtime.ToolParallelism != tt.config.parallelism {
				t.Errorf("org %+v", org)
			}
		})
	}
}
