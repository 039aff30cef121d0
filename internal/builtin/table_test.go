package builtin_test

import (
	"slices"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/builtin"
)

func TestHooksSelectAllNamesOfATool(t *testing.T) {
	for pattern, want := range map[string][]string{
		"code_execute": {
			"execute_javascript", "execute_python", "list_files", "mistralrs_execute_python", "mistralrs_surface_outputs",
			"read_file", "surface_outputs",
		},
		"execute_python":           {"code_execute", "mistralrs_execute_python"},
		"mistralrs_execute_python": {"code_execute", "execute_python"},
		"execute_*":                {"code_execute", "mistralrs_execute_python"},
		"list_files":               {"code_execute"},
		"web_scrape":               {"fetch_page"},
		"fetch_page":               {"web_scrape"},
		"web_*":                    {"fetch_page"},
		"*":                        nil,
		"pay_*":                    nil,
		"shell":                    nil,
		"[":                        nil, // it selects everything
	} {
		if got := builtin.AlsoSelected(pattern); !slices.Equal(got, want) {
			t.Errorf("%s also selects %q, want %q", pattern, got, want)
		}
	}
}
