package make

import (
	"log/slog"
	"net/http"
	"slices"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/agent"
	"github.com/turnpike-gateway/turnpike/internal/builtin"
	"github.com/turnpike-gateway/turnpike/internal/codetool"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/sandbox"
)

// Each row of the table has a maker, which makes a tool with its name. The forms of a tool have the names of its row.
func TestEveryBuiltinToolHasAMaker(t *testing.T) {
	b := New(Options{
		Log: slog.New(slog.DiscardHandler), Client: http.DefaultClient, Runtime: func(string) org.Runtime { return org.Runtime{} },
	})
	for _, row := range builtin.All() {
		if made := b.find("acme", agent.SnapshotBuiltin{Name: row.Name}); made.Definition().Name != row.Name {
			t.Errorf("the maker of %s makes %s", row.Name, made.Definition().Name)
		}
		if row.Hosted != "" {
			if _, err := b.hostedOptions("acme")(row.Hosted, []byte("{}")); err != nil {
				t.Errorf("the options of the hosted tool that %s answers: %v", row.Name, err)
			}
		}
	}
	o := b.codeOptions("acme")
	var made, listed []string
	for _, f := range codetool.Forms(o, []sandbox.Language{sandbox.Python, sandbox.JavaScript}, org.ToolNamesStandard) {
		made = append(made, f.As)
	}
	row, _ := builtin.Find(builtin.CodeExecute)
	for _, f := range row.Forms {
		listed = append(listed, f.Names()...)
	}
	for _, name := range made {
		if !slices.Contains(listed, name) {
			t.Errorf("the form %s is not in the table", name)
		}
	}
}
