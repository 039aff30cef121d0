package archtest

import (
	"slices"
	"strings"
	"testing"
)

// A program that has an agent links the loop, and nothing of a gateway: no HTTP API, no configuration file,
// no database, no telemetry, and no SDK of a provider that it does not use.
func TestTheLibraryLinksNothingOfAGateway(t *testing.T) {
	never := []string{
		"github.com/turnpike-gateway/turnpike/internal/httpd", "github.com/turnpike-gateway/turnpike/internal/surface", "github.com/turnpike-gateway/turnpike/internal/config",
		"github.com/turnpike-gateway/turnpike/internal/store/sqlite", "modernc.org", "go.opentelemetry.io", "github.com/spf13/cobra",
		"github.com/prometheus", "github.com/aws", "github.com/goccy/go-yaml",
	}
	for _, of := range []struct {
		packages []string
		may      []string
	}{
		{[]string{"."}, nil},
		{[]string{".", "./tool", "./provider/openai", "./provider/anthropic", "./provider/gemini", "./mcp"}, nil},
		{[]string{"./provider/bedrock"}, []string{"github.com/aws"}},
		{[]string{"./sqlite"}, []string{"github.com/turnpike-gateway/turnpike/internal/store/sqlite", "modernc.org"}},
	} {
		for _, p := range goList(t, append([]string{"-deps"}, of.packages...)...) {
			for _, path := range never {
				if (p.ImportPath == path || strings.HasPrefix(p.ImportPath, path+"/")) && !slices.Contains(of.may, path) {
					t.Errorf("%s links %s: go mod why, and go list -deps, say through what", strings.Join(of.packages, " "), p.ImportPath)
				}
			}
		}
	}
}
