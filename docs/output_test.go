package docs_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// compare compares an output block with what was printed.
func compare(t *testing.T, want block, printed string) {
	t.Helper()
	if want.lang == "json" {
		compareJSON(t, want, printed)
		return
	}
	pattern := regexp.QuoteMeta(strings.TrimSpace(want.text))
	pattern = regexp.MustCompile(`(?m)^…$`).ReplaceAllString(pattern, `(?s:.*)`) // a line of its own: any lines
	pattern = strings.ReplaceAll(pattern, "…", `[^\n]*`)
	pattern = regexp.MustCompile(` {2,}`).ReplaceAllString(pattern, ` +`) // columns are as wide as what is in them
	if !regexp.MustCompile(`^` + pattern + `$`).MatchString(strings.TrimSpace(printed)) {
		t.Errorf("line %d: the page says\n%s\nand this was printed:\n%s", want.line, want.text, printed)
	}
}

func compareJSON(t *testing.T, want block, printed string) {
	t.Helper()
	var said, got any
	if err := json.Unmarshal([]byte(want.text), &said); err != nil {
		t.Errorf("line %d: %v", want.line, err)
		return
	}
	if err := json.Unmarshal([]byte(printed), &got); err != nil {
		t.Errorf("line %d: what was printed is no JSON: %v\n%s", want.line, err, printed)
		return
	}
	if diff := cmp.Diff(said, relax(said, got)); diff != "" {
		t.Errorf("line %d: the page and what was printed differ (-page +printed):\n%s", want.line, diff)
	}
}

// relax returns got with "…" wherever the page says so, and texts that fit a
// text with … in it replaced by that.
func relax(said, got any) any {
	switch want := said.(type) {
	case string:
		text, isText := got.(string)
		pattern := strings.ReplaceAll(regexp.QuoteMeta(want), "…", `[\s\S]*`)
		if want == "…" || isText && regexp.MustCompile(`^`+pattern+`$`).MatchString(text) {
			return want
		}
	case map[string]any:
		if object, ok := got.(map[string]any); ok {
			for name := range want {
				if value, ok := object[name]; ok {
					object[name] = relax(want[name], value)
				}
			}
		}
	case []any:
		if list, ok := got.([]any); ok && len(list) == len(want) {
			for i := range want {
				list[i] = relax(want[i], list[i])
			}
		}
	}
	return got
}
