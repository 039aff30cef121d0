package app_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/internal/webhook"
)

// Webhooks of the configuration file need no master key, cannot be changed over the API, and are added,
// changed and removed by a reload. Their secrets come out nowhere. // L10 C19 K06
func TestWebhooksOfTheFile(t *testing.T) {
	up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, _ Received) { Says("hi").Write(w) })
	secrets := map[string]string{"first": webhook.NewSecret().Reveal(), "second": webhook.NewSecret().Reveal()}
	receiver := NewHooks(t, secrets)
	dir := t.TempDir()
	file := filepath.Join(dir, "second")
	if err := os.WriteFile(file, []byte(secrets["second"]+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	without := strings.Replace(Site{Upstream: up.URL}.Yaml(), "runtime: {}", "runtime: {durable: always}", 1)
	with := func(more string) string {
		return without + fmt.Sprintf("    webhooks:\n      - {name: ops, url: %q, events: [response.*], %s}\n", receiver.URL+"/CANARY-path", more)
	}
	first := with("secret: " + secrets["first"])
	g := serve(t, first)
	ask := func(want string) {
		t.Helper()
		if a := g.Send("POST", "/v1/responses", strings.NewReader(`{"model":"m","input":"go"}`)); a.Status != 200 {
			t.Fatalf("status %d: %s", a.Status, a.Body)
		}
		ComesTrue(t, "the receiver gets "+want, func() bool { return receiver.All() == want })
	}
	want := "response.completed first"
	ask(want)

	d := Manage(g.Gateway)
	for _, one := range []struct {
		method, path, body, code string
		status                   int
	}{
		{"POST", "/api/webhooks", `{"name":"ops","url":"https://example.com","events":["*"]}`, "exists", 409},
		{"PATCH", "/api/webhooks/ops", `{"enabled":false}`, "declared", 409},
		{"POST", "/api/webhooks/ops/rotate", `{"overlap":"0s"}`, "declared", 409},
		{"DELETE", "/api/webhooks/ops", ``, "declared", 409},
	} {
		if got := d.Do(one.method, one.path, "owner-key", one.body, one.status)["error"].(map[string]any)["code"]; got != one.code {
			t.Errorf("%s %s: code %v, want %s", one.method, one.path, got, one.code)
		}
	}
	listed := Objects(d.Do("GET", "/api/webhooks", "owner-key", "", 200))
	if len(listed) != 1 || listed[0]["declared"] != true || listed[0]["enabled"] != true {
		t.Errorf("the list is %v", listed)
	}

	// A rotation: both secrets, then the new one.
	log := g.reload(t, with("secret: 'file:"+file+"', secret_previous: "+secrets["first"]), readAgain)
	want += "; response.completed first second"
	ask(want)
	log += g.reload(t, with("secret: 'file:"+file+"'"), readAgain)
	want += "; response.completed second"
	ask(want)

	// A receiver that answers 410 stops the webhook until the next reload.
	receiver.Answers(http.StatusGone)
	want += "; response.completed second"
	ask(want)
	ComesTrue(t, "the webhook is stopped", func() bool {
		return Objects(d.Do("GET", "/api/webhooks", "owner-key", "", 200))[0]["stopped"] == "gone"
	})
	receiver.Answers(http.StatusOK)
	log += g.reload(t, with("secret: 'file:"+file+"'"), readAgain)
	want += "; response.completed second"
	ask(want)

	// Disabled, and removed.
	log += g.reload(t, with("enabled: false, secret: 'file:"+file+"'"), readAgain)
	if listed := Objects(d.Do("GET", "/api/webhooks", "owner-key", "", 200)); listed[0]["stopped"] != "disabled" {
		t.Errorf("the list is %v", listed)
	}
	ask(want)
	log += g.reload(t, without, readAgain)
	if listed := Objects(d.Do("GET", "/api/webhooks", "owner-key", "", 200)); len(listed) != 0 {
		t.Errorf("the list is %v", listed)
	}
	ask(want)
	for _, change := range []string{
		"key=orgs[o].webhooks[ops].secret old=[redacted] new=file:" + file, "key=orgs[o].webhooks[ops].secret_previous", "key=orgs[o].webhooks[ops].enabled old=true new=false",
		"key=orgs[o].webhooks[ops] old=present new=absent",
	} {
		if !strings.Contains(log, change) {
			t.Errorf("the log does not have %q:\n%s", change, log)
		}
	}
	for name, text := range secrets {
		if strings.Contains(g.Log.String(), strings.TrimPrefix(text, "whsec_")) {
			t.Errorf("the log has the %s secret", name)
		}
	}
	if strings.Contains(g.Log.String(), "CANARY-path") {
		t.Error("the log has the path of the receiver, which can be a credential")
	}
}
