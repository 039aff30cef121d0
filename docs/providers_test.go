package docs_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/provider/providertest"
)

const (
	providersPage = "docs/providers.md"
	beginFeatures = "<!-- This table is generated from the tests of the providers: go test ./docs -run Providers -update -->\n"
	endFeatures   = "<!-- The end of the generated table. -->\n"
)

// The table of features is the one that the tests of every provider prove row by
// row.
func TestTheProvidersPageHasTheTableThatTheTestsProve(t *testing.T) {
	page := read(t, providersPage)
	before, rest, begins := strings.Cut(page, beginFeatures)
	table, after, ends := strings.Cut(rest, endFeatures)
	if !begins || !ends {
		t.Fatalf("%s has lost the line %q or %q", providersPage, beginFeatures, endFeatures)
	}
	want := "\n" + providertest.FeatureTable() + "\n"
	if updating() {
		if err := os.WriteFile(filepath.Join(root, providersPage), []byte(before+beginFeatures+want+endFeatures+after), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if table != want {
		t.Errorf("the table of %s is not that of the tests: run go test ./docs -run Providers -update", providersPage)
	}
}
