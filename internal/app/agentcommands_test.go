package app_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/internal/cli"
)

// What get prints can be applied, and what a file does not have gets its default.
func TestAgentsOnTheCommandLine(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, Script(Says("hi")))
	g := MustRun(t, Site{Upstream: up.URL}.WithVault())
	run := func(args ...string) string {
		var out bytes.Buffer
		env := func(name string) (string, bool) {
			v, ok := map[string]string{"TURNPIKE_URL": g.URL, "TURNPIKE_KEY": "owner-key"}[name]
			return v, ok
		}
		cli.Main(t.Context(), cli.Process{Args: append([]string{"agents"}, args...), Env: env, Stdout: &out, Stderr: &out})
		return out.String()
	}
	file := filepath.Join(t.TempDir(), "agents.yaml")
	apply := func(text string) string {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return run("apply", file)
	}
	const whole = "- {name: a, model: m, description: d, settings: {temperature: 0.5, max_steps: 3}, hooks: [{event: PreToolUse, type: approval}], mcp_servers: [{name: s, url: 'https://example.com/mcp'}]}\n- {name: b, model: m}\n"
	if got := apply(whole); got != "a is created\nb is created\n" {
		t.Errorf("%q", got)
	}
	printed := run("get", "a")
	if got := apply(printed); got != "a is unchanged at version 1\n" {
		t.Errorf("%q after applying what get prints: %s", got, printed)
	}
	if got := apply("{name: a, model: m, settings: {max_steps: 4}}"); got != "a is changed to version 2\n" {
		t.Errorf("%q", got)
	}
	if got := run("get", "a"); strings.Contains(got, "temperature") || strings.Contains(got, "approval") || strings.Contains(got, "example.com") || !strings.Contains(got, `"description": ""`) {
		t.Errorf("what the file does not have stayed: %s", got)
	}
	if got := run("get", "a", "--version", "1"); !strings.Contains(got, `"temperature": 0.5`) {
		t.Errorf("version 1: %s", got)
	}
	for text, want := range map[string]string{
		"{name: a, settings: {steps: 1}}": "settings.steps", "{model: m}": "has no name", "5": "must have an agent", "{name: a": "neither YAML nor JSON",
	} {
		if got := apply(text); !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
	misspelt := apply("{name: d, model: m, tools: [{name: storage_write}], " +
		"hooks: [{event: PreToolUse, type: approval, matcher: storage_wrte}]}")
	if misspelt != "d is created\nwarning: agent d: hooks[0]: matcher \"storage_wrte\" matches no tool of the agent, "+
		"so the hook runs for no call; did you mean storage_write?\n" {
		t.Errorf("a matcher without a tool: %q", misspelt)
	}
	if got := run("rm", "a", "b", "c"); got != "a is deleted\nb is deleted\n"+"turnpike: there is no agent with the id \"c\"; "+
		"GET /api/agents?name=NAME finds the id of an agent by its name\n" {
		t.Errorf("%q", got)
	}
}
