package docs_test

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A link to a file leads to a file of the repository, and one to a heading to a
// heading. Links to other sites are not followed.
func TestEveryLinkLeadsSomewhere(t *testing.T) {
	for _, page := range append(pages(t), "CHANGELOG.md") {
		for _, m := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(prose(t, page), -1) {
			target, heading, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			file := page
			if target != "" {
				file = path.Join(path.Dir(page), target)
			}
			if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(file))); err != nil {
				t.Errorf("%s links to %s: %v", page, m[1], err)
				continue
			}
			if heading != "" && !headings(t, file)[heading] {
				t.Errorf("%s links to %s, and %s has no such heading", page, m[1], file)
			}
		}
	}
}

// prose returns a page without its fenced blocks.
func prose(t *testing.T, page string) string {
	t.Helper()
	return regexp.MustCompile("(?ms)^```.*?\n```$").ReplaceAllString(read(t, page), "")
}

// headings returns the anchors of a page's headings, as sites make them.
func headings(t *testing.T, page string) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(prose(t, page), -1) {
		anchor := regexp.MustCompile(`[^\p{L}\p{N}_ -]`).ReplaceAllString(strings.ToLower(m[1]), "")
		all[strings.ReplaceAll(anchor, " ", "-")] = true
	}
	return all
}
