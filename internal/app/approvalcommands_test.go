package app_test

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

// A person lists, reads and decides on the command line, with a gateway and without. // H02 H12
func TestApprovalsOnTheCommandLine(t *testing.T) {
	NoLeaks(t)
	g := RunGated(t, "tool_arg_validation: none")
	hidden := "a\u202eb\u200bc\x1b]8;;http://x\x07"
	g.Upstream.Answer = AskGated(Use("delete", fmt.Sprintf(`{"n":1,"path":%s}`, Quote(hidden))))
	env := map[string]string{"TURNPIKE_KEY": "approver-key"}
	open := g.Ask(GatedQuestion)
	id := g.Only()
	for _, env := range []map[string]string{env, nil} { // the latter reads the store
		if status, out := g.Command(env, "list"); status != 0 || !strings.Contains(out, id) || !strings.Contains(out, "delete") || !strings.Contains(out, "  in ") {
			t.Errorf("%d %s", status, out)
		}
		status, out := g.Command(env, "show", id)
		for _, want := range []string{id, "tools", "delete", "waiting", `"n": 1`, `a\u202eb\u200bc\u001b]8;;http://x\u0007`} {
			if status != 0 || !strings.Contains(out, want) {
				t.Errorf("%d, without %s:\n%s", status, want, out)
			}
		}
		if status, out := g.Command(env, "list", "--json"); status != 0 || !strings.HasPrefix(out, `{"id":"`+id) || strings.Count(out, "\n") != 1 {
			t.Errorf("%d %s", status, out)
		}
		if status, out := g.Command(env, "show", id, "--json"); status != 0 || !strings.Contains(out, `"arguments_omitted":false`) {
			t.Errorf("%d %s", status, out)
		}
		if status, out := g.Command(env, "show", "appr_none"); status == 0 || !strings.Contains(out, "no approval") {
			t.Errorf("%d %s", status, out)
		}
	}
	if status, out := g.Command(nil, "approve", id); status == 0 || !strings.Contains(out, "TURNPIKE_KEY") {
		t.Errorf("%d %s", status, out)
	}
	if status, out := g.Command(env, "list", "--status", "open"); status == 0 || !strings.Contains(out, "unknown status") {
		t.Errorf("%d %s", status, out)
	}
	if status, out := g.Command(env, "approve", id, "--reason", "fine"); status != 0 || out != id+" is approved\n" {
		t.Errorf("%d %s", status, out)
	}
	if status, out := g.Command(env, "deny", id); status == 0 || !strings.Contains(out, "is approved already") {
		t.Errorf("%d %s", status, out)
	}
	if text, _ := Wait(t, open, "the answer").Completion(t); text != "done" {
		t.Errorf("%q", text)
	}
	if status, out := g.Command(env, "list", "--status", "approved"); status != 0 || !strings.Contains(out, id) {
		t.Errorf("%d %s", status, out)
	}

	left := g.Ask(GatedQuestion, "Idempotency-Key", "k")
	id, runID := g.Only(), g.Waiting()[0]["run_id"].(string)
	if err := g.Stop(); err != nil {
		t.Fatal(err)
	}
	Wait(t, left, "the end")
	status, out := g.Command(env, "deny", id, "--reason", "too late")
	if status != 0 || !strings.Contains(out, "no gateway is running: "+id+" is denied") {
		t.Fatalf("%d %s", status, out)
	}
	if status, out = g.Command(env, "show", id); status != 0 || !strings.Contains(out, "by command line") || !strings.Contains(out, "too late") {
		t.Errorf("%d %s", status, out)
	}
	g.Documented = Manage(MustRunIn(t, g.Data, g.Yaml, Environment()))
	if text, _ := g.Again(GatedQuestion, "k").Completion(t); text != "done" || !strings.Contains(g.Told(), "too late") || g.Executed() != 1 {
		t.Errorf("%q after %d calls; the model was told %q", text, g.Executed(), g.Told())
	}
	status, out, errs := RunMain(t, "runs", "follow", runID, "--data", g.Data, "--org", "o")
	for _, want := range []string{"waits for a human: " + id, id + " is denied by command line: too late", "finished"} {
		if status != 0 || !strings.Contains(out, want) {
			t.Errorf("runs follow without %q: %d %s%s", want, status, out, errs)
		}
	}
}

// No local command does something else than its flags say, whether a gateway runs or
// not. --org is the org of the key, --url alone is that gateway, --data alone that directory. // H02 K07
func TestLocalCommandsObeyTheirFlagsBesideAGateway(t *testing.T) {
	NoLeaks(t)
	g := RunGated(t, "")
	open := g.Ask(GatedQuestion)
	id, runID := g.Only(), g.Waiting()[0]["run_id"].(string)
	empty, closed := t.TempDir(), ClosedURL
	key := func(role string) map[string]string {
		return map[string]string{"TURNPIKE_URL": g.URL, "TURNPIKE_KEY": role + "-key"}
	}
	for _, tt := range []struct {
		name string
		env  map[string]string
		args string
		want string
	}{
		{"the org of another key", key("owner"), "--org other", "--org: TURNPIKE_KEY belongs to the org o, not to other"},
		{"a role that cannot be checked", key("approver"), "--org o", "leave out --org: a running gateway uses the org of the key"},
		{"an unknown key", key("none"), "--org o", "unknown API key"},
		{"--data alone", key("owner"), "--data " + empty, "Turnpike data "},
		{"--url alone, without a key", map[string]string{"TURNPIKE_DATA": g.Data}, "--url " + g.URL, "no key: set TURNPIKE_KEY"},
		{"--url alone, and no gateway", map[string]string{"TURNPIKE_DATA": g.Data, "TURNPIKE_KEY": "owner-key"}, "--url " + closed, "cannot reach a gateway at " + closed},
	} {
		for _, command := range []string{"approvals list", "approvals show " + id, "approvals approve " + id, "approvals deny " + id, "runs cancel " + runID} {
			status, out := g.Local(tt.env, strings.Fields(command+" "+tt.args)...)
			if status != 1 || !strings.Contains(out, tt.want) {
				t.Errorf("%s: %s %s: %d %s, want %s", tt.name, command, tt.args, status, out, tt.want)
			}
		}
	}
	for _, command := range []string{"approvals deny " + id, "runs cancel " + runID} {
		status, out := g.Local(key("owner"), strings.Fields(command+" --data "+g.Data)...)
		if status != 1 || !strings.Contains(out, "another process uses "+g.Data) || !strings.Contains(out, "--url") {
			t.Errorf("%s on the data of a gateway: %d %s", command, status, out)
		}
	}
	if status, out := g.Local(key("owner"), "audit", "key", "--org", "other", "--data", g.Data); status != 1 || !strings.Contains(out, "leave out --org") {
		t.Errorf("audit key --org: %d %s", status, out)
	}
	if got := g.Only(); got != id {
		t.Fatalf("%s waits, want still %s", got, id)
	}
	if status, out := g.Local(key("owner"), "approvals", "list", "--org", "o"); status != 0 || !strings.Contains(out, id) {
		t.Errorf("%d %s", status, out)
	}
	if status, out := g.Local(key("owner"), "approvals", "approve", id, "--org", "o"); status != 0 || out != id+" is approved\n" {
		t.Errorf("%d %s", status, out)
	}
	if text, _ := Wait(t, open, "the answer").Completion(t); text != "done" {
		t.Errorf("%q", text)
	}
	if status, out := g.Local(key("owner"), "runs", "cancel", runID, "--org", "o"); status != 1 || !strings.Contains(out, "has already ended") {
		t.Errorf("%d %s", status, out)
	}
}
