package approvals_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/internal/cli"
	"github.com/turnpike-gateway/turnpike/internal/webhook"
)

// A webhook of the file replaces one of the same name that was added over the API, with its messages.
// Removed from the file, it is gone. // L10
func TestAWebhookOfTheFileReplacesOneOfTheAPI(t *testing.T) {
	NoLeaks(t)
	data := NewData(t)
	yaml := Site{Upstream: "http://127.0.0.1:9"}.WithVault()
	g := MustRunIn(t, data, yaml, Environment())
	d := Manage(g)
	for _, name := range []string{"ops", "other"} {
		d.Do("POST", "/api/webhooks", "owner-key", fmt.Sprintf(`{"name":%q,"url":"https://example.com/hooks","events":["*"]}`, name), 201)
	}
	if err := g.Stop(); err != nil {
		t.Fatal(err)
	}
	names := func(g *Gateway) (out string) {
		for _, w := range Objects(Manage(g).Do("GET", "/api/webhooks", "owner-key", "", 200)) {
			out += fmt.Sprintf("%v %v %v; ", w["name"], w["declared"], w["events"])
		}
		return out
	}
	declared := yaml + "    webhooks:\n      - {name: ops, url: 'https://example.com/other', events: [run.waiting], secret: " + webhook.NewSecret().Reveal() + "}\n"
	g = MustRunIn(t, data, declared, Environment())
	if got := names(g); got != "ops true [run.waiting]; other false [*]; " {
		t.Errorf("the webhooks are %s", got)
	}
	if !strings.Contains(g.Log.String(), "replaces one of the same name") {
		t.Error("the log does not say that a webhook was replaced")
	}
	if err := g.Stop(); err != nil {
		t.Fatal(err)
	}
	g = MustRunIn(t, data, yaml, Environment())
	if got := names(g); got != "other false [*]; " {
		t.Errorf("without it in the file, the webhooks are %s", got)
	}
}

// A secret that is not one of Standard Webhooks is a mistake of the file, and is not shown. // L10 K06
func TestASecretOfAWebhookMustBeOne(t *testing.T) {
	file := filepath.Join(t.TempDir(), "turnpike.yaml")
	yaml := Site{Upstream: "http://127.0.0.1:9"}.Yaml() + "    webhooks:\n      - {name: ops, url: 'https://example.com', secret: CANARY-not-a-secret}\n"
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	env := func(name string) (string, bool) { v, ok := Environment()[name]; return v, ok }
	status := cli.Main(t.Context(), cli.Process{Args: []string{"config", "check", file}, Env: env, Stdout: &out, Stderr: &out})
	if status != 1 || !strings.Contains(out.String(), "orgs[0].webhooks[0].secret: the webhook secret is not valid") || strings.Contains(out.String(), "CANARY") {
		t.Errorf("status %d: %s", status, out.String())
	}
}

// A test message goes out once, signed, and its command says what the receiver answered.
func TestAWebhookIsTried(t *testing.T) { // L10
	NoLeaks(t)
	secrets := map[string]string{"first": webhook.NewSecret().Reveal()}
	receiver := NewHooks(t, secrets)
	const section = "    webhooks:\n      - {name: ops, url: %q, events: [run.waiting], secret: %s}\n"
	yaml := Site{Upstream: "http://127.0.0.1:9"}.Yaml() + fmt.Sprintf(section, receiver.URL, secrets["first"])
	g := MustRun(t, yaml)
	env := func(name string) (string, bool) {
		v, ok := map[string]string{"TURNPIKE_URL": g.URL, "TURNPIKE_KEY": "owner-key"}[name]
		return v, ok
	}
	try := func(name string, status int, want string) {
		t.Helper()
		var out strings.Builder
		p := cli.Process{Args: []string{"webhooks", "test", name}, Env: env, Stdout: &out, Stderr: &out}
		if got := cli.Main(t.Context(), p); got != status || !strings.Contains(out.String(), want) {
			t.Errorf("status %d: %s, want %d: %s", got, out.String(), status, want)
		}
	}
	try("ops", 0, "with status 200")
	receiver.Answers(503)
	try("ops", 1, "was not accepted: the receiver has answered 503")
	receiver.Close()
	try("ops", 1, "was not accepted: ")
	try("other", 1, `there is no webhook called "other"`)
	if got := receiver.All(); got != "webhook.test first; webhook.test first" {
		t.Errorf("the receiver got %q", got)
	}
	if list := Manage(g).Do("GET", "/api/webhooks/ops/deliveries", "owner-key", "", 200)["data"].([]any); len(list) != 0 {
		t.Errorf("stored: %v", list)
	}
}
