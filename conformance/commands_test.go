package conformance

import (
	"regexp"
	"strings"
	"testing"
)

// storyScript is sumScript, which fails for the model gpt-400.
func storyScript(ask chatRequest) turn {
	if ask.Model == "gpt-400" {
		return failingScript(ask)
	}
	return sumScript(ask)
}

// testRuns reads the journal of runs with the program's own commands while the
// gateway that writes it serves.
func testRuns(t *testing.T, s *site) {
	r := s.newRig(t, storyScript)
	c := r.clients[1]
	answer(t, c, r.ask("gpt-test", sumQuestion, true))
	finished := r.latestRun(t)
	run(t, c, r.ask("gpt-400", sumQuestion, false))
	failed := r.latestRun(t)
	held := r.proxy.hold(t, "get-sum")
	e := c.start(t, r.ask("gpt-test", sumQuestion, false))
	await(t, "the call of the running run", held.arrived)
	running := r.latestRun(t)

	t.Run("list", func(t *testing.T) {
		wantLines(t, r.program.must(t, "runs", "list", "--org", "default"),
			`^`+running+`  .* dev  +gpt-test  .* running$`,
			`^`+failed+`  .*\d(ms|s) +dev  +gpt-400  +0  +0  +0  +model_error$`,
			`^`+finished+`  .*\d(ms|s) +dev  +gpt-test  +3  +2  +100  +complete$`)
	})
	t.Run("show a finished run", func(t *testing.T) {
		wantLines(t, r.program.must(t, "runs", "show", finished), append(firstTool(),
			`^ +1\.0 +get-sum\(\{"a":20,"b":22\}\)$`,
			`^ +1\.0 +ok: The sum of 20 and 22 is 42\. +\(everything, [0-9.]+ ms\)$`,
			`^round 2 +model +Twice checked: 42 .*\(\d+ ms, 41 \+ 13 tokens\)$`,
			`^finished +complete +\(\S+ after it was accepted\)$`,
			storyTotals)...)
	})
	t.Run("show a failed run", func(t *testing.T) {
		wantLines(t, r.program.must(t, "runs", "show", failed),
			`^input +user +Which sum `, `^.* model +.*failed.*\(status 400\).*\(\d+ ms\)$`, `^finished +model_error `, `, 0 tool calls, `)
	})
	t.Run("show a running run", func(t *testing.T) {
		wantLines(t, r.program.must(t, "runs", "show", running), append(firstTool(),
			`^ +1\.0 +get-sum\(\{"a":20,"b":22\}\)$`, `; running for \d\S*$`)...)
	})
	t.Run("show it again when it has ended", func(t *testing.T) {
		held.Open()
		wantEqual(t, "answer", sumAnswer, e.wait(t).Text)
		wantLines(t, r.program.must(t, "runs", "show", running), `^finished +complete `, storyTotals)
	})
	t.Run("show a run of another org", func(t *testing.T) {
		if output, err := r.program.command(t, "runs", "show", finished, "--org", "plain"); err == nil {
			t.Errorf("it was shown:\n%s", output)
		}
	})
}

// storyTotals is the last line of a story of sumScript.
const storyTotals = `^3 rounds, 2 tool calls, 100 tokens$`

// firstTool is what the story of a run tells up to the result of its first tool.
func firstTool() []string {
	return []string{
		`^accepted +model gpt-test, key dev, org default; chat`,
		`^input +user +Which sum do the numbers `,
		`^tools +everything +\d+ tools\b`,
		`^round 0 +model +I will ask the echo .*\(\d+ ms, 11 \+ 5 tokens\)$`,
		`^ +0\.0 +echo\(\{"message":"20 22"\}\)$`,
		`^ +0\.0 +ok: Echo: 20 22 +\(everything, [0-9.]+ ms\)$`,
	}
}

// latestRun is the id of the run that was accepted last.
func (r *rig) latestRun(t *testing.T) string {
	t.Helper()
	output := r.program.must(t, "runs", "list", "--org", "default", "--limit", "1")
	id := regexp.MustCompile(`(?m)^run_\S+`).FindString(output)
	if id == "" {
		t.Fatalf("no run is listed:\n%s", output)
	}
	return id
}

// testCheck connects to a server as "turnpike mcp check" does.
func testCheck(t *testing.T, s *site) {
	r := s.newRig(t, sumScript)
	wantLines(t, r.program.must(t, "mcp", "list", "--org", "default"), `^everything +true +http://127\.0\.0\.1:\d+/mcp +all +the file$`)
	wantLines(t, r.program.must(t, "mcp", "check", "everything", "--org", "default"),
		`^everything is up: \S+ .* over \S+.*, protocol 20\d\d-\d\d-\d\d$`, `^  offered   echo  \S`, `^  offered   get-sum  \S`, `^[1-9]\d* tools offered$`)
	if output, err := r.program.command(t, "mcp", "check", "nowhere", "--org", "default"); err == nil || !strings.Contains(output, `"nowhere"`) {
		t.Errorf("a server that is not there: %v\n%s", err, output)
	}
	r.wantToolCalls(t)
}

// wantLines fails the test unless patterns match lines of text in this order.
func wantLines(t *testing.T, text string, patterns ...string) {
	t.Helper()
	rest := text
	for _, pattern := range patterns {
		at := regexp.MustCompile(`(?m)` + pattern).FindStringIndex(rest)
		if at == nil {
			t.Fatalf("no line matches %s after what matched before:\n%s", pattern, text)
		}
		rest = rest[at[1]:]
	}
}
