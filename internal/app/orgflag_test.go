package app_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/internal/cli"
)

// Local commands find an id in whatever org has it, use the only org there is, and never
// show an empty table for an org that does not exist. (K07)
func TestLocalCommandsFindTheOrg(t *testing.T) {
	NoLeaks(t)
	g := RunGated(t, "")
	waits := g.Ask(GatedQuestion, "Idempotency-Key", "k")
	approval := g.Only()
	runID := g.Waiting()[0]["run_id"].(string)
	if err := g.Stop(); err != nil {
		t.Fatal(err)
	}
	Wait(t, waits, "the end")
	one := filepath.Join(t.TempDir(), "one.yaml")
	two := filepath.Join(t.TempDir(), "two.yaml")
	for file, yaml := range map[string]string{one: g.Yaml, two: g.Yaml + "  - id: second\n"} {
		if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(line string) (int, string) {
		t.Helper()
		var out strings.Builder
		status := cli.Main(t.Context(), cli.Process{
			Args: strings.Fields(line), Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out,
			Env: func(name string) (string, bool) { v, ok := Environment()[name]; return v, ok },
		})
		return status, out.String()
	}
	for _, from := range []string{"--data " + g.Data, "--data " + g.Data + " -c " + one} {
		for line, want := range map[string]string{
			"runs list":                               runID,
			"runs show " + runID:                      "delete",
			"approvals list":                          approval,
			"approvals show " + approval:              "delete",
			"audit list":                              "NUMBER",
			"audit export":                            `"org":"o"`,
			"audit verify":                            "org o: ",
			"audit verify --org o":                    "org o: ",
			"mcp list -c " + one:                      "tools",
			"runs list --org o":                       runID,
			"approvals list --org o":                  approval,
			"runs show --org o " + runID:              "delete",
			"mcp list --org o -c " + one:              "tools",
			"approvals list --url http://127.0.0.1:1": approval,
		} {
			if status, out := run(line + " " + from); status != 0 || !strings.Contains(out, want) {
				t.Errorf("%s %s: %d\n%s, want %s", line, from, status, out, want)
			}
		}
		for _, line := range []string{"runs list", "runs show " + runID, "runs follow " + runID, "approvals list", "approvals show " + approval, "audit list", "audit export", "audit verify", "mcp list -c " + one, "mcp check tools -c " + one} {
			status, out := run(line + " --org nope " + from)
			if status != 1 || !strings.Contains(out, "there is no org nope; the orgs are o") {
				t.Errorf("%s --org nope %s: %d\n%s", line, from, status, out)
			}
		}
		if status, out := run("runs show run_none " + from); status != 1 || !strings.Contains(out, "there is no run run_none in any org") {
			t.Errorf("%d %s", status, out)
		}
	}
	// Several orgs: a list needs to be told which, an id does not.
	for _, line := range []string{"runs list", "approvals list", "audit list", "audit export"} {
		if status, out := run(line + " --data " + g.Data + " -c " + two); status != 1 || !strings.Contains(out, "there are 2 orgs; name one with --org: o, second") {
			t.Errorf("%s: %d\n%s", line, status, out)
		}
	}
	if status, out := run("runs list --org second --data " + g.Data + " -c " + two); status != 0 || strings.Contains(out, runID) {
		t.Errorf("%d %s", status, out)
	}
	if status, out := run("approvals deny " + approval + " --data " + g.Data + " -c " + two + " --url http://127.0.0.1:1"); status != 0 || !strings.Contains(out, "is denied") {
		t.Errorf("%d %s", status, out)
	}
	if status, out := run("runs cancel " + runID + " --data " + g.Data + " -c " + two + " --url http://127.0.0.1:1"); status != 0 || !strings.Contains(out, "ends when the gateway starts") {
		t.Errorf("%d %s", status, out)
	}
	if status, out := run("audit verify --org nope --data " + g.Data + " -c " + two); status != 1 || !strings.Contains(out, "the orgs are o, second") {
		t.Errorf("%d %s", status, out)
	}
}
