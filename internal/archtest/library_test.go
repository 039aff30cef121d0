package archtest

import (
	"slices"
	"strings"
	"testing"
)

// mayUseSQL are the packages with statements of SQL: the stores, and the tools whose work it is.
func mayUseSQL() map[string]string {
	return map[string]string{
		"internal/store/database":  "it is the store",
		"internal/store/postgres":  "it is what the store needs of PostgreSQL",
		"internal/storecopy":       "it copies the tables of one store to another, whatever they are",
		"internal/store/storetest": "it records the statements of a store",
		"internal/sqltool":         "database_query and database_write execute statements on databases of orgs",
		"resource":                 "resource.Table makes tools of a table of the program's own database, over the driver that the program links",

		"internal/store/postgres/postgrestest": "it makes schemas for tests",
		"internal/app/apptest":                 "it looks into the database of a gateway under test",
	}
}

func TestSQLIsInTheStoresAndTheSQLToolsAlone(t *testing.T) {
	found := map[string]bool{}
	for _, p := range listPackages(t) {
		for _, path := range p.Imports {
			if path != "database/sql" && path != "database/sql/driver" {
				continue
			}
			found[p.name()] = true
			if mayUseSQL()[p.name()] == "" {
				t.Errorf("%s imports %s: statements belong in a store; ask it through an interface", p.name(), path)
			}
		}
	}
	for name := range mayUseSQL() {
		if !found[name] {
			t.Errorf("%s is listed in mayUseSQL and has no SQL any more: strike it", name)
		}
	}
}

// The root and the tools on tables link no driver of a database: the program chooses it.
func TestTheLibraryLinksNoDriver(t *testing.T) {
	for _, p := range goList(t, "-deps", ".", "./resource") {
		for _, driver := range []string{"modernc.org", "github.com/jackc", "github.com/lib/pq", "github.com/mattn"} {
			if strings.HasPrefix(p.ImportPath, driver) {
				t.Errorf("the library links %s", p.ImportPath)
			}
		}
	}
	for _, p := range goList(t, "-deps", ".") {
		if p.ImportPath == "database/sql" {
			t.Error("the root links database/sql; only programs with resource.Table do")
		}
	}
}

// A program that has an agent links the loop, and nothing of a gateway: no HTTP API, no configuration file,
// no database, no telemetry, and no SDK of a provider that it does not use.
func TestTheLibraryLinksNothingOfAGateway(t *testing.T) {
	never := []string{
		"github.com/turnpike-gateway/turnpike/internal/httpd", "github.com/turnpike-gateway/turnpike/internal/surface", "github.com/turnpike-gateway/turnpike/internal/config",
		"github.com/turnpike-gateway/turnpike/internal/store/database", "modernc.org", "go.opentelemetry.io", "github.com/spf13/cobra",
		"github.com/prometheus", "github.com/aws", "github.com/goccy/go-yaml", "github.com/jackc",
	}
	for _, of := range []struct {
		packages []string
		may      []string
	}{
		{[]string{"."}, nil},
		{[]string{".", "./tool", "./provider/openai", "./provider/anthropic", "./provider/gemini", "./mcp"}, nil},
		{[]string{"./resource"}, nil},
		{[]string{"./provider/bedrock"}, []string{"github.com/aws"}},
		{[]string{"./sqlite"}, []string{"github.com/turnpike-gateway/turnpike/internal/store/database", "modernc.org"}},
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
