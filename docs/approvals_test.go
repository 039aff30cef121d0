package docs_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/surface/approvals"
)

// The page says what each member of an approval is. // H02
func TestTheApprovalsPageSaysWhatEachMemberIs(t *testing.T) {
	_, section, _ := strings.Cut(read(t, "docs/approvals.md"), "\n## What a person who decides sees\n")
	section, _, _ = strings.Cut(section, "\n## ")
	named := map[string]bool{}
	for line := range strings.Lines(section) {
		if cells := strings.Split(line, "|"); len(cells) == 4 && strings.TrimSpace(cells[2]) != "" {
			for name := range strings.SplitSeq(cells[1], ",") {
				named[strings.Trim(name, " `")] = true
			}
		}
	}
	object := reflect.TypeFor[approvals.Object]()
	for i := range object.NumField() {
		if name := object.Field(i).Tag.Get("json"); !named[name] {
			t.Errorf("the page does not say what %s is", name)
		}
	}
	if len(named) < object.NumField() {
		t.Errorf("%d members on the page, and an approval has %d", len(named), object.NumField())
	}
}
