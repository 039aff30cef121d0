package app_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/cli"
)

// command runs "turnpike approvals" and returns its exit status and output.
func (g *gated) command(env map[string]string, args ...string) (int, string) {
	var out bytes.Buffer
	status := cli.Main(g.t.Context(), cli.Process{
		Args:  append([]string{"approvals"}, append(args, "--data", g.data, "--org", "o")...),
		Env:   func(name string) (string, bool) { v, ok := env[name]; return v, ok },
		Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out,
	})
	return status, out.String()
}

// H02 H12: a person lists, reads and decides on the command line, with a gateway and without.
func TestApprovalsOnTheCommandLine(t *testing.T) {
	noLeaks(t)
	g := runGated(t, "tool_arg_validation: none")
	hidden := "a\u202eb\u200bc\x1b]8;;http://x\x07"
	g.upstream.answer = askGated(call{"delete", fmt.Sprintf(`{"n":1,"path":%s}`, quote(hidden))})
	env := map[string]string{"TURNPIKE_URL": g.URL, "TURNPIKE_KEY": "approver-key"}
	open := g.ask(gatedQuestion)
	id := g.only()
	for _, env := range []map[string]string{env, {"TURNPIKE_URL": g.URL}} { // the latter reads the store
		if status, out := g.command(env, "list"); status != 0 || !strings.Contains(out, id) || !strings.Contains(out, "delete") || !strings.Contains(out, "  in ") {
			t.Errorf("%d %s", status, out)
		}
		status, out := g.command(env, "show", id)
		for _, want := range []string{id, "tools", "delete", "waiting", `"n": 1`, `a\u202eb\u200bc\u001b]8;;http://x\u0007`} {
			if status != 0 || !strings.Contains(out, want) {
				t.Errorf("%d, without %s:\n%s", status, want, out)
			}
		}
		if status, out := g.command(env, "list", "--json"); status != 0 || !strings.HasPrefix(out, `{"id":"`+id) || strings.Count(out, "\n") != 1 {
			t.Errorf("%d %s", status, out)
		}
		if status, out := g.command(env, "show", id, "--json"); status != 0 || !strings.Contains(out, `"arguments_omitted":false`) {
			t.Errorf("%d %s", status, out)
		}
		if status, out := g.command(env, "show", "appr_none"); status == 0 || !strings.Contains(out, "no approval") {
			t.Errorf("%d %s", status, out)
		}
	}
	if status, out := g.command(map[string]string{"TURNPIKE_URL": g.URL}, "approve", id); status == 0 || !strings.Contains(out, "TURNPIKE_KEY") {
		t.Errorf("%d %s", status, out)
	}
	if status, out := g.command(env, "list", "--status", "open"); status == 0 || !strings.Contains(out, "unknown status") {
		t.Errorf("%d %s", status, out)
	}
	if status, out := g.command(env, "approve", id, "--reason", "fine"); status != 0 || out != id+" is approved\n" {
		t.Errorf("%d %s", status, out)
	}
	if status, out := g.command(env, "deny", id); status == 0 || !strings.Contains(out, "is approved already") {
		t.Errorf("%d %s", status, out)
	}
	if text, _ := wait(t, open, "the answer").completion(t); text != "done" {
		t.Errorf("%q", text)
	}
	if status, out := g.command(env, "list", "--status", "approved"); status != 0 || !strings.Contains(out, id) {
		t.Errorf("%d %s", status, out)
	}

	left := g.ask(gatedQuestion, "Idempotency-Key", "k")
	id, runID := g.only(), g.waiting()[0]["run_id"].(string)
	if err := g.stop(); err != nil {
		t.Fatal(err)
	}
	wait(t, left, "the end")
	status, out := g.command(env, "deny", id, "--reason", "too late")
	if status != 0 || !strings.Contains(out, "no gateway is running: "+id+" is denied") {
		t.Fatalf("%d %s", status, out)
	}
	if status, out = g.command(env, "show", id); status != 0 || !strings.Contains(out, "by command line") || !strings.Contains(out, "too late") {
		t.Errorf("%d %s", status, out)
	}
	g.documented = manage(mustRunIn(t, g.data, g.yaml, environment()))
	if text, _ := g.again(gatedQuestion, "k").completion(t); text != "done" || !strings.Contains(g.told(), "too late") || g.executed() != 1 {
		t.Errorf("%q after %d calls; the model was told %q", text, g.executed(), g.told())
	}
	status, out, errs := runMain(t, "runs", "follow", runID, "--data", g.data, "--org", "o")
	for _, want := range []string{"waits for a human: " + id, id + " is denied by command line: too late", "finished"} {
		if status != 0 || !strings.Contains(out, want) {
			t.Errorf("runs follow without %q: %d %s%s", want, status, out, errs)
		}
	}
}
