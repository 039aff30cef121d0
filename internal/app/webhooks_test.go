package app_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/cli"
	"github.com/turnpike-gateway/turnpike/internal/secret"
	"github.com/turnpike-gateway/turnpike/internal/webhook"
)

// hooks is a receiver of webhooks. It remembers which secrets have signed each message.
type hooks struct {
	*httptest.Server
	mu     sync.Mutex
	status int
	got    []string // event, and the names of the secrets
}

func newHooks(t *testing.T, secrets map[string]string) *hooks {
	t.Helper()
	h := &hooks{status: 200}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var message struct{ Type string }
		_ = json.Unmarshal(body, &message)
		line := message.Type
		for _, name := range []string{"first", "second", "api"} {
			if signedWith(secrets[name], r.Header, body) {
				line += " " + name
			}
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.got = append(h.got, line)
		w.WriteHeader(h.status)
	}))
	t.Cleanup(h.Close)
	return h
}

// signedWith reports whether one of the signatures is of the secret.
func signedWith(text string, header http.Header, body []byte) bool {
	key, err := webhook.ParseSecret(secret.NewValue(text))
	if err != nil {
		return false
	}
	var seconds int64
	_, _ = fmt.Sscan(header.Get("Webhook-Timestamp"), &seconds)
	want := http.Header{}
	if err := webhook.Sign(want, header.Get("Webhook-Id"), time.Unix(seconds, 0), body, key); err != nil {
		return false
	}
	return strings.Contains(" "+header.Get("Webhook-Signature")+" ", " "+want.Get("Webhook-Signature")+" ")
}

func (h *hooks) all() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.got, "; ")
}

func (h *hooks) answers(status int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.status = status
}

// Webhooks of the configuration file need no master key, cannot be changed over the API, and are added,
// changed and removed by a reload. Their secrets come out nowhere. // L10 C19 K06
func TestWebhooksOfTheFile(t *testing.T) {
	up := newUpstream(t, func(w http.ResponseWriter, _ *http.Request, _ received) { says("hi").write(w) })
	secrets := map[string]string{"first": webhook.NewSecret().Reveal(), "second": webhook.NewSecret().Reveal()}
	receiver := newHooks(t, secrets)
	dir := t.TempDir()
	file := filepath.Join(dir, "second")
	if err := os.WriteFile(file, []byte(secrets["second"]+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	without := strings.Replace(site{upstream: up.URL}.yaml(), "runtime: {}", "runtime: {durable: always}", 1)
	with := func(more string) string {
		return without + fmt.Sprintf("    webhooks:\n      - {name: ops, url: %q, events: [response.*], %s}\n", receiver.URL+"/CANARY-path", more)
	}
	first := with("secret: " + secrets["first"])
	g := serve(t, first)
	ask := func(want string) {
		t.Helper()
		if a := g.send("POST", "/v1/responses", strings.NewReader(`{"model":"m","input":"go"}`)); a.status != 200 {
			t.Fatalf("status %d: %s", a.status, a.body)
		}
		comesTrue(t, "the receiver gets "+want, func() bool { return receiver.all() == want })
	}
	want := "response.completed first"
	ask(want)

	d := manage(g.gateway)
	for _, one := range []struct {
		method, path, body, code string
		status                   int
	}{
		{"POST", "/api/webhooks", `{"name":"ops","url":"https://example.com","events":["*"]}`, "exists", 409},
		{"PATCH", "/api/webhooks/ops", `{"enabled":false}`, "declared", 409},
		{"POST", "/api/webhooks/ops/rotate", `{"overlap":"0s"}`, "declared", 409},
		{"DELETE", "/api/webhooks/ops", ``, "declared", 409},
	} {
		if got := d.do(one.method, one.path, "owner-key", one.body, one.status)["error"].(map[string]any)["code"]; got != one.code {
			t.Errorf("%s %s: code %v, want %s", one.method, one.path, got, one.code)
		}
	}
	listed := objects(d.do("GET", "/api/webhooks", "owner-key", "", 200))
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
	receiver.answers(http.StatusGone)
	want += "; response.completed second"
	ask(want)
	comesTrue(t, "the webhook is stopped", func() bool {
		return objects(d.do("GET", "/api/webhooks", "owner-key", "", 200))[0]["stopped"] == "gone"
	})
	receiver.answers(http.StatusOK)
	log += g.reload(t, with("secret: 'file:"+file+"'"), readAgain)
	want += "; response.completed second"
	ask(want)

	// Disabled, and removed.
	log += g.reload(t, with("enabled: false, secret: 'file:"+file+"'"), readAgain)
	if listed := objects(d.do("GET", "/api/webhooks", "owner-key", "", 200)); listed[0]["stopped"] != "disabled" {
		t.Errorf("the list is %v", listed)
	}
	ask(want)
	log += g.reload(t, without, readAgain)
	if listed := objects(d.do("GET", "/api/webhooks", "owner-key", "", 200)); len(listed) != 0 {
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
		if strings.Contains(g.log.String(), strings.TrimPrefix(text, "whsec_")) {
			t.Errorf("the log has the %s secret", name)
		}
	}
	if strings.Contains(g.log.String(), "CANARY-path") {
		t.Error("the log has the path of the receiver, which can be a credential")
	}
}

// A webhook of the file replaces one of the same name that was added over the API, with its messages.
// Removed from the file, it is gone. // L10
func TestAWebhookOfTheFileReplacesOneOfTheAPI(t *testing.T) {
	noLeaks(t)
	data := t.TempDir()
	yaml := site{upstream: "http://127.0.0.1:9"}.withVault()
	g := mustRunIn(t, data, yaml, environment())
	d := manage(g)
	for _, name := range []string{"ops", "other"} {
		d.do("POST", "/api/webhooks", "owner-key", fmt.Sprintf(`{"name":%q,"url":"https://example.com/hooks","events":["*"]}`, name), 201)
	}
	if err := g.stop(); err != nil {
		t.Fatal(err)
	}
	names := func(g *gateway) (out string) {
		for _, w := range objects(manage(g).do("GET", "/api/webhooks", "owner-key", "", 200)) {
			out += fmt.Sprintf("%v %v %v; ", w["name"], w["declared"], w["events"])
		}
		return out
	}
	declared := yaml + "    webhooks:\n      - {name: ops, url: 'https://example.com/other', events: [run.waiting], secret: " + webhook.NewSecret().Reveal() + "}\n"
	g = mustRunIn(t, data, declared, environment())
	if got := names(g); got != "ops true [run.waiting]; other false [*]; " {
		t.Errorf("the webhooks are %s", got)
	}
	if !strings.Contains(g.log.String(), "replaces one of the same name") {
		t.Error("the log does not say that a webhook was replaced")
	}
	if err := g.stop(); err != nil {
		t.Fatal(err)
	}
	g = mustRunIn(t, data, yaml, environment())
	if got := names(g); got != "other false [*]; " {
		t.Errorf("without it in the file, the webhooks are %s", got)
	}
}

// A secret that is not one of Standard Webhooks is a mistake of the file, and is not shown. // L10 K06
func TestASecretOfAWebhookMustBeOne(t *testing.T) {
	file := filepath.Join(t.TempDir(), "turnpike.yaml")
	yaml := site{upstream: "http://127.0.0.1:9"}.yaml() + "    webhooks:\n      - {name: ops, url: 'https://example.com', secret: CANARY-not-a-secret}\n"
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	env := func(name string) (string, bool) { v, ok := environment()[name]; return v, ok }
	status := cli.Main(t.Context(), cli.Process{Args: []string{"config", "check", file}, Env: env, Stdout: &out, Stderr: &out})
	if status != 1 || !strings.Contains(out.String(), "orgs[0].webhooks[0].secret: the webhook secret is not valid") || strings.Contains(out.String(), "CANARY") {
		t.Errorf("status %d: %s", status, out.String())
	}
}

// A test message goes out once, signed, and its command says what the receiver answered.
func TestAWebhookIsTried(t *testing.T) { // L10
	noLeaks(t)
	secrets := map[string]string{"first": webhook.NewSecret().Reveal()}
	receiver := newHooks(t, secrets)
	const section = "    webhooks:\n      - {name: ops, url: %q, events: [run.waiting], secret: %s}\n"
	yaml := site{upstream: "http://127.0.0.1:9"}.yaml() + fmt.Sprintf(section, receiver.URL, secrets["first"])
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
	receiver.answers(503)
	try("ops", 1, "was not accepted: the receiver has answered 503")
	receiver.Close()
	try("ops", 1, "was not accepted: ")
	try("other", 1, `there is no webhook called "other"`)
	if got := receiver.all(); got != "webhook.test first; webhook.test first" {
		t.Errorf("the receiver got %q", got)
	}
	if list := manage(g).do("GET", "/api/webhooks/ops/deliveries", "owner-key", "", 200)["data"].([]any); len(list) != 0 {
		t.Errorf("stored: %v", list)
	}
}
