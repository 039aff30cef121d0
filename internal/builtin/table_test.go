package builtin_test

import (
	"slices"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/agent"
	"github.com/turnpike-gateway/turnpike/internal/builtin"
	"github.com/turnpike-gateway/turnpike/internal/codetool"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/sqltool"
	"github.com/turnpike-gateway/turnpike/internal/storagetool"
	"github.com/turnpike-gateway/turnpike/internal/webtool"
)

// The table says what the places say that decide without it.
func TestTheTableAgreesWithThePlacesThatDecideToday(t *testing.T) {
	for name, c := range map[string]struct{ got, want []string }{
		"names":         {builtin.Names(), org.BuiltinNames()},
		"search":        {builtin.SwitchedBy(builtin.EnableSearch), org.SearchTools()},
		"code":          {builtin.SwitchedBy(builtin.EnableCode), org.CodeTools()},
		"agents":        {builtin.OfAgents(), agent.Builtins()},
		"hosted by MCP": {builtin.HostedTypes(), org.HostedTypes()},
		"names of code": {
			[]string{builtin.CodeExecute, builtin.Shell, builtin.HostedCode, builtin.HostedShell},
			[]string{codetool.Name, org.Shell, codetool.Hosted, codetool.HostedShell},
		},
		"other names": {
			[]string{
				builtin.DatabaseQuery, builtin.DatabaseWrite, builtin.HTTPRequest, builtin.StorageRead, builtin.StorageWrite,
				builtin.WebSearch, builtin.WebScrape,
			},
			[]string{
				sqltool.QueryName, sqltool.WriteName, webtool.RequestName, storagetool.Read, storagetool.Write,
				webtool.SearchName, webtool.ScrapeName,
			},
		},
		"forms": {
			[]string{
				builtin.ExecutePython, builtin.ExecuteJavaScript, builtin.SurfaceOutputs, builtin.ListFiles, builtin.ReadFile, builtin.FetchPage,
				builtin.MistralRSPrefix,
			},
			[]string{org.ExecutePython, org.ExecuteJavaScript, org.SurfaceOutputs, org.ListFiles, org.ReadFile, org.FetchPage, org.MistralRSPrefix},
		},
	} {
		if !slices.Equal(c.got, c.want) {
			t.Errorf("%s: the table says %q, and the product %q", name, c.got, c.want)
		}
	}
}

func TestFormsSelectAndRunWhatTheyDidBefore(t *testing.T) {
	for _, pattern := range []string{"*", "code_*", "execute_*", "mistralrs_*", "list_files", "web_*", "fetch_page", "shell", "["} {
		if got, want := builtin.AlsoSelected(pattern), org.SelectedToo(pattern); !slices.Equal(got, want) {
			t.Errorf("%s also selects %q, and before %q", pattern, got, want)
		}
	}
	for _, name := range []string{"execute_python", "mistralrs_execute_python", "execute_javascript", "list_files", "web_search", "shell"} {
		got, runs := builtin.RunsCode(name)
		if want, ran := org.CodeLanguage(name); got != want || runs != ran {
			t.Errorf("%s runs %q %v, and before %q %v", name, got, runs, want, ran)
		}
	}
}
