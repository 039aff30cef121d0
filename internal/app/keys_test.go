package app_test

import (
	"bytes"
	"strings"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/internal/cli"
)

// A key is made, listed, changed and revoked by the commands alone. // I05
func TestTheKeyCommandsChangeRoleAndRate(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, Script(Says("hello"), Says("hello")))
	g := MustRun(t, Site{Upstream: up.URL}.Yaml())
	keys := func(want int, args ...string) (stdout, stderr string) {
		t.Helper()
		var out, errs bytes.Buffer
		env := func(name string) (string, bool) {
			v, ok := map[string]string{"TURNPIKE_URL": g.URL, "TURNPIKE_KEY": "owner-key"}[name]
			return v, ok
		}
		if status := cli.Main(t.Context(), cli.Process{Args: append([]string{"keys"}, args...), Env: env, Stdout: &out, Stderr: &errs}); status != want {
			t.Fatalf("keys %v: status %d, want %d: %s%s", args, status, want, out.String(), errs.String())
		}
		return out.String(), errs.String()
	}
	made, _ := keys(0, "create", "ci", "--requests-per-minute", "600", "--burst", "5")
	secret := strings.TrimSpace(made)
	row := func() []string {
		list, _ := keys(0, "list")
		for line := range strings.Lines(list) {
			if f := strings.Fields(line); len(f) > 1 && f[1] == "ci" {
				return f
			}
		}
		t.Fatalf("no key ci in\n%s", list)
		return nil
	}
	was := row()
	if got := strings.Join(was[2:9], " "); got != "member 600 a minute, 5 at once" {
		t.Errorf("the list says %q", got)
	}
	if a := g.Post(Question, "Authorization", "Bearer "+secret); a.Status != 200 {
		t.Fatalf("status %d: %s", a.Status, a.Body)
	}
	if out, _ := keys(0, "update", was[0], "--role", "reader"); out != "updated "+was[0]+": name ci, role reader, rate limit: 600 a minute, 5 at once, may use: all, expires: never\n" {
		t.Error(out)
	}
	if a := g.Post(Question, "Authorization", "Bearer "+secret); a.Status != 403 {
		t.Errorf("a reader may run: status %d", a.Status)
	}
	for _, tt := range [][2]string{
		{"--name other", "name other, role reader, rate limit: 600 a minute, 5 at once"},
		{"--role member --name ci --requests-per-minute 1 --burst 1", "name ci, role member, rate limit: 1 a minute, 1 at once"},
	} {
		if out, _ := keys(0, append([]string{"update", was[0]}, strings.Fields(tt[0])...)...); !strings.Contains(out, tt[1]) {
			t.Errorf("%s: %s, want %s", tt[0], out, tt[1])
		}
	}
	limited := 0
	for range 3 {
		if a := g.Post(Question, "Authorization", "Bearer "+secret); a.Status == 429 {
			limited++
		}
	}
	if limited == 0 {
		t.Error("the new rate limit has no effect")
	}
	if out, _ := keys(0, "update", was[0], "--requests-per-minute", "0"); !strings.Contains(out, "rate limit: no limit") {
		t.Error(out)
	}
	for args, want := range map[string]string{
		"":                   "nothing to change: use --role, --rate, --burst, --servers, --tools, --models, --end-users, --read-only, --budgets, --expires or --name",
		"--role king":        "owner, admin, member, approver, reader or tools",
		"--burst -1":         "out of range",
		"--burst 3":          "requests_per_minute",
		"--name " + "\x1b[m": "control characters",
	} {
		if _, errs := keys(1, append([]string{"update", was[0]}, strings.Fields(args)...)...); !strings.Contains(errs, want) {
			t.Errorf("update %s: %s, want %s", args, errs, want)
		}
	}
	for id, want := range map[string]string{"a": "configuration file", "key_none": "no key"} {
		if _, errs := keys(1, "update", id, "--role", "reader"); !strings.Contains(errs, want) {
			t.Errorf("update %s: %s, want %s", id, errs, want)
		}
	}
}
