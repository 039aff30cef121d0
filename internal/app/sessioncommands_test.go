package app_test

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/internal/cli"
)

// An agent is run on the command line, in a session that is continued, listed, shown and deleted. // A12 J11
func TestAgentsRunOnTheCommandLine(t *testing.T) {
	NoLeaks(t)
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	up := NewUpstream(t, Script(Asks(Use("mcp__tools__echo", `{"n":1}`)).Saying("Looking."), Says("Done."), Says("Again."), Says("Plain.")))
	d := Manage(MustRun(t, Site{Upstream: up.URL}.Yaml()))
	d.NewAgent(fmt.Sprintf(`,"mcp_servers":[{"name":"tools","url":%q}]`, tools.URL+"/mcp"))
	run := func(args ...string) (string, int) {
		var out bytes.Buffer
		env := func(name string) (string, bool) {
			v, ok := map[string]string{"TURNPIKE_URL": d.URL, "TURNPIKE_KEY": "owner-key"}[name]
			return v, ok
		}
		code := cli.Main(t.Context(), cli.Process{Args: args, Env: env, Stdout: &out, Stderr: &out})
		return out.String(), code
	}
	printed, code := run("agents", "run", "helper", "go")
	session := regexp.MustCompile(`sess_[a-z0-9]+`).FindString(printed)
	if _, rest, _ := strings.Cut(printed, "\n"); code != 0 || rest != "Looking.\n→ mcp__tools__echo {\"n\":1}\n← mcp__tools__echo {\"n\":1}\nDone.\n" {
		t.Errorf("%d %q", code, printed)
	}
	if printed, code := run("agents", "run", "helper", "more", "--session", session, "--json"); code != 0 || !strings.Contains(printed, `"event":"complete"`) || !strings.Contains(printed, session) {
		t.Errorf("%d %q", code, printed)
	}
	if printed, code := run("agents", "run", "helper", "more", "--session", "sess_0"); code != 1 || !strings.Contains(printed, "sess_0") {
		t.Errorf("%d %q", code, printed)
	}
	d.AsOwner("POST", "/api/agents", `{"name":"plain","model":"m"}`, 201)
	printed, code = run("agents", "run", "plain", "hi")
	if _, rest, _ := strings.Cut(printed, "\n"); code != 0 || rest != "Plain.\n" {
		t.Errorf("%d %q", code, printed)
	}
	if printed, _ := run("sessions", "list", "helper"); !strings.Contains(printed, session) || !strings.Contains(printed, "idle (answer)") {
		t.Errorf("%q", printed)
	}
	if printed, _ := run("sessions", "get", session); !strings.Contains(printed, `"run_count": 2`) {
		t.Errorf("%q", printed)
	}
	if printed, _ := run("sessions", "messages", session); !strings.HasPrefix(printed, "user: go\nassistant: Looking.\n") || !strings.HasSuffix(printed, "user: more\nassistant: Again.\n") {
		t.Errorf("%q", printed)
	}
	if printed, code := run("sessions", "rm", session); code != 0 || printed != session+" is deleted\n" {
		t.Errorf("%d %q", code, printed)
	}
	if printed, code := run("sessions", "get", session); code != 1 || !strings.Contains(printed, session) {
		t.Errorf("%d %q", code, printed)
	}
}
