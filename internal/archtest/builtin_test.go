package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/builtin"
)

// Words of other lists that are spelt as a built-in tool is.
func otherWords() map[string]string {
	return map[string]string{
		"internal/config/sandbox.go":     builtin.Shell, // the setting sandbox.shell
		"internal/provider/demo/pick.go": builtin.Shell, // a verb in names of tools
	}
}

func TestBuiltinToolsAreNamedByTheTableAlone(t *testing.T) {
	names := slices.Concat(builtin.Names(), builtin.HostedTypes(), []string{builtin.HostedShell})
	for _, row := range builtin.All() {
		for _, form := range row.Forms {
			names = append(names, form.Names()...)
		}
	}
	for _, p := range listPackages(t) {
		testKit := p.name() == "internal/upstreamtest" || strings.HasPrefix(p.name(), "turnpiketest")
		if p.name() == "internal/builtin" || testKit || matches(outside(), p.name()) {
			continue
		}
		for _, file := range p.GoFiles {
			path := filepath.Join(p.Dir, file)
			parsed, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(parsed, func(n ast.Node) bool {
				lit, ok := n.(*ast.BasicLit)
				if !ok || lit.Kind != token.STRING {
					return true
				}
				word, err := strconv.Unquote(lit.Value)
				if at := p.name() + "/" + file; err == nil && slices.Contains(names, word) && otherWords()[at] != word {
					t.Errorf("%s names %s by a string: use the constant of internal/builtin, or its table", at, word)
				}
				return true
			})
		}
	}
}
