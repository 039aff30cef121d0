package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// llms.txt has the pages of docs/README.md, in the form that readers of llms.txt expect.
func TestTheListOfPagesForModels(t *testing.T) {
	want := llmsText(read(t, "docs/README.md"))
	if strings.Count(want, "\n- ") < 40 {
		t.Fatalf("few pages were found in docs/README.md: has its form changed?\n%s", want)
	}
	if updating() {
		if err := os.WriteFile(filepath.Join(root, "llms.txt"), []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if read(t, "llms.txt") != want {
		t.Error("llms.txt is not what docs/README.md says: run go test ./docs -run ListOfPages -update")
	}
}

func llmsText(page string) string {
	text := `# Turnpike

> Turnpike is an agent gateway: one Go binary between OpenAI-compatible clients and model providers. It runs the agent loop on
> the server: it calls the model, executes the tools that an org allows, waits for approvals, and returns one ordinary answer.
> A running gateway describes its HTTP API at /openapi.json.
`
	heading, row := regexp.MustCompile(`^## (.+)$`), regexp.MustCompile(`^\| \[([^\]]+)\]\(([^)]+)\) \| (.+) \|$`)
	for line := range strings.Lines(page) {
		line = strings.TrimSuffix(line, "\n")
		if m := heading.FindStringSubmatch(line); m != nil {
			text += "\n## " + m[1] + "\n\n"
		}
		if m := row.FindStringSubmatch(line); m != nil {
			text += "- [" + m[1] + "](docs/" + m[2] + "): " + m[3] + "\n"
		}
	}
	return text
}
