package docs_test

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The gateway's OpenAPI document is checked against its answers elsewhere; here,
// the page against the document.
func TestTheManagingPageListsEveryOperation(t *testing.T) {
	var document struct {
		Paths map[string]map[string]json.RawMessage
	}
	if err := json.Unmarshal([]byte(read(t, "internal/surface/admin/openapi.json")), &document); err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{}
	for path, operations := range document.Paths {
		for method := range maps.Keys(operations) {
			if method != "parameters" && strings.HasPrefix(path, "/api/") {
				want[path] = append(want[path], strings.ToUpper(method))
			}
		}
		slices.Sort(want[path])
	}
	got := map[string][]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| ((?:`[A-Z]+` ?)+) \\| `(/api/\\S+)` \\|").FindAllStringSubmatch(read(t, "docs/managing.md"), -1) {
		got[row[2]] = append(got[row[2]], strings.Fields(strings.ReplaceAll(row[1], "`", ""))...)
		slices.Sort(got[row[2]])
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("openapi.json and the table of docs/managing.md differ (-document +page):\n%s", diff)
	}
}
