package admin_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/app"
	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/internal/cli"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/secret"
	"github.com/turnpike-gateway/turnpike/internal/store/database"
)

func TestAChangedSecretIsUsedByTheVeryNextRequest(t *testing.T) { // K06 D18
	NoLeaks(t)
	var d Documented
	change := make(chan string, 1)
	tools := NewMCP(t, map[string]Handler{"echo": func(context.Context, string) (string, error) {
		select {
		case next := <-change: // in the middle of a run
			d.Do("PUT", "/api/secrets/gh", "admin-key", `{"value":"`+next+`"}`, 200)
		default:
		}
		return "ok", nil
	}})
	up := NewUpstream(t, Script(Asks(Use("echo", `{}`)), Says("one"), Asks(Use("echo", `{}`)), Asks(Use("echo", `{"n":2}`)), Says("two")))
	d = Manage(MustRun(t, Site{Upstream: up.URL}.WithVault()))
	d.Do("PUT", "/api/secrets/gh", "owner-key", `{"value":"first"}`, 200)
	addServer(d, "s", tools.URL, "owner-key")
	d.Post(Question).Completion(t)
	d.Do("PUT", "/api/secrets/gh", "owner-key", `{"value":"second"}`, 200)
	change <- "third"
	d.Post(Question).Completion(t)
	if got := tools.Bearers("tools/call"); fmt.Sprint(got) != "[first second third]" {
		t.Errorf("the calls came with %v", got)
	}
	for i, sent := range tools.Bearers("") {
		if sent == "" {
			t.Errorf("request %d came without a secret", i)
		}
	}
}

func TestAMissingSecretFailsTheDiscoveryAndIsNamed(t *testing.T) { // K06 D18
	NoLeaks(t)
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	up := NewUpstream(t, CallThenAnswer)
	d := Manage(MustRun(t, Site{Upstream: up.URL}.WithVault()))
	addServer(d, "s", tools.URL, "owner-key")
	run := func(calls int) {
		t.Helper()
		d.Post(ChatBody).Completion(t)
		if got := len(tools.Of("tools/call")); got != calls {
			t.Errorf("%d tool calls, want %d", got, calls)
		}
	}
	run(0)
	if state, why := statusOfServer(d, "s", "owner-key"); state != "failed" || why != "secret:gh: the org's vault has no such secret" {
		t.Errorf("%s, %q", state, why)
	}
	if !strings.Contains(d.Log.String(), "secret:gh: the org's vault has no such secret") {
		t.Error("the log does not name the reference")
	}
	if got := len(tools.Of("")); got != 0 {
		t.Errorf("the server was sent %d requests without its secret", got)
	}
	d.Do("PUT", "/api/secrets/gh", "owner-key", `{"value":"x"}`, 200)
	run(1)
	if state, why := statusOfServer(d, "s", "owner-key"); state != "connected" || why != "" {
		t.Errorf("%s, %q", state, why)
	}
	d.Do("DELETE", "/api/secrets/gh", "owner-key", "", 200)
	run(1)
	d.Do("DELETE", "/api/secrets/gh", "owner-key", "", 404)
}

func TestAnOrgHasAVaultOfItsOwn(t *testing.T) { // K06 K07
	NoLeaks(t)
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	up := NewUpstream(t, CallThenAnswer)
	d := Manage(MustRun(t, Site{Upstream: up.URL, Servers: []string{Server("s", tools.URL, `headers: {Authorization: "Bearer secret:gh"}`)}}.WithVault()))
	d.Do("POST", "/api/orgs", "operator-key", `{"id":"other","features":["mcp_outbound"]}`, 201)
	other := d.Do("POST", "/api/orgs/other/keys", "operator-key", `{"name":"first","role":"owner"}`, 201)["key"].(string)
	addServer(d, "s", tools.URL, other)
	d.Do("PUT", "/api/secrets/gh", "owner-key", `{"value":"ours"}`, 200)
	ask := func(key string) { d.Post(ChatBody, "Authorization", "Bearer "+key) }
	ask(other)
	if got := tools.Bearers(""); len(got) != 0 {
		t.Errorf("without a secret of its own, the org sent %q", got)
	}
	d.Do("DELETE", "/api/secrets/gh", other, "", 404)
	if list := d.Do("GET", "/api/secrets", other, "", 200)["data"].([]any); len(list) != 0 {
		t.Errorf("the other org sees %v", list)
	}
	d.Do("PUT", "/api/secrets/gh", other, `{"value":"theirs"}`, 200)
	ask("owner-key")
	ask(other)
	if got := tools.Bearers("tools/call"); fmt.Sprint(got) != "[ours theirs]" {
		t.Errorf("the calls came with %v", got)
	}
}

func TestTheVaultTakesWhatAHeaderCanCarry(t *testing.T) { // K06
	NoLeaks(t)
	d := Manage(MustRun(t, Site{Upstream: "http://127.0.0.1:9"}.WithVault()))
	put := func(name, value string, want int) {
		t.Helper()
		d.Do("PUT", "/api/secrets/"+name, "owner-key", `{"value":`+Quote(value)+`}`, want)
	}
	put("a", strings.Repeat("x", secret.MaxSize), 200)
	put("A.b_c-9", "x", 200)
	put("a", strings.Repeat("x", secret.MaxSize+1), 422)
	for _, bad := range []string{"", "a\nb", "a\r\nX-Other: 1", "a\x00b", "a\tb", "\x7f"} {
		put("a", bad, 422)
	}
	d.Do("PUT", "/api/secrets/a", "owner-key", `{"value":null}`, 422)
	for _, bad := range []string{"-a", "a%20b", "a%2Fb", "%C3%BC", strings.Repeat("a", 65)} {
		put(bad, "x", 400)
	}
	for _, body := range []string{"", "{", "{}", `"x"`, `[]`, `{"value":7}`, `{"value":{"a":1}}`, `{"value":"x","more":1}`} {
		d.Do("PUT", "/api/secrets/a", "owner-key", body, 400)
	}
	d.Do("PUT", "/api/secrets/a", "owner-key", `{"value":"`+strings.Repeat("x", 2<<20)+`"}`, 413)
	before := d.Do("GET", "/api/secrets", "admin-key", "", 200)
	if list := before["data"].([]any); len(list) != 2 || list[0].(map[string]any)["name"] != "A.b_c-9" || list[1].(map[string]any)["name"] != "a" {
		t.Errorf("the list is %v", list)
	}
	for _, key := range []string{"member-key", "approver-key", "reader-key"} {
		d.Do("GET", "/api/secrets", key, "", 403)
		d.Do("PUT", "/api/secrets/a", key, `{"value":"x"}`, 403)
		d.Do("DELETE", "/api/secrets/a", key, "", 403)
	}
	if a := d.Send("GET", "/api/secrets/a", nil); a.Status != 405 || a.Header.Get("Allow") != "PUT, DELETE" {
		t.Errorf("reading one: %d, %q", a.Status, a.Header.Get("Allow"))
	}
}

func TestAServerOfAnOrgRefersToItsVaultAndToNothingElse(t *testing.T) { // K06
	NoLeaks(t)
	d := Manage(MustRun(t, Site{Upstream: "http://127.0.0.1:9"}.WithVault()))
	for header, want := range map[string]int{
		`"Authorization":"Bearer secret:gh"`:            201,
		`"X-Api-Key":"secret:gh"`:                       201,
		`"X-Team":"blue secret:gh"`:                     201,
		`"Authorization":"Bearer abc"`:                  422,
		`"Authorization":"Bearer abc secret:gh"`:        422,
		`"X-Api-Key":"sk-1234567890 secret:gh"`:         422,
		`"X-Api-Key":"Bearersecret:gh"`:                 422,
		`"Authorization":"Bearer env:TOKEN"`:            422,
		`"Authorization":"Bearer file:/etc/passwd"`:     422,
		`"Authorization":"Bearer secret:gh env:TOKEN"`:  422,
		`"Authorization":"Bearer file:/x secret:gh"`:    422,
		`"X-Team":"env:TOKEN"`:                          422,
		`"Authorization":"Bearer secret:not a name"`:    422,
		`"Authorization":"Bearer secret:../etc/passwd"`: 422,
	} {
		d.Do("POST", "/api/mcp-servers", "owner-key", `{"name":"s","url":"https://example.com/mcp","headers":{`+header+`}}`, want)
		if want == 201 {
			d.Do("DELETE", "/api/mcp-servers/s", "owner-key", "", 200)
		}
	}
	a := d.Send("POST", "/api/mcp-servers", strings.NewReader(`{"name":"s","url":"https://example.com/mcp","headers":{"Authorization":"Bearer abc"}}`))
	if !bytes.Contains(a.Body, []byte("PUT /api/secrets/NAME")) || !bytes.Contains(a.Body, []byte("secret:NAME")) {
		t.Errorf("the refusal does not say what to do: %s", a.Body)
	}
}

// A gateway that was given no master key makes one at its first start, and uses it again.
func TestAMasterKeyIsMadeInTheDataDirectory(t *testing.T) { // K06
	NoLeaks(t)
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	up := NewUpstream(t, CallThenAnswer)
	data := t.TempDir()
	boot := func() Documented { return Manage(MustRunIn(t, data, Site{Upstream: up.URL}.Yaml(), Environment())) }
	path := filepath.Join(data, "master.key")

	d := boot()
	d.Do("PUT", "/api/secrets/gh", "owner-key", `{"value":"x"}`, 200)
	addServer(d, "s", tools.URL, "owner-key")
	if !strings.Contains(d.Log.String(), "keep a copy in another place") {
		t.Errorf("the log does not say where the key is: %s", d.Log.String())
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	_ = d.Stop()

	d = boot()
	d.Post(ChatBody).Completion(t)
	if got := tools.Bearers("tools/call"); fmt.Sprint(got) != "[x]" || strings.Contains(d.Log.String(), "master key") {
		t.Errorf("the calls came with %v; %s", got, d.Log.String())
	}
	_ = d.Stop()

	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	d = boot()
	refusal := d.Do("PUT", "/api/secrets/b", "owner-key", `{"value":"x"}`, 409)["error"].(map[string]any)
	if !strings.Contains(refusal["message"].(string), "master.key") {
		t.Errorf("the refusal is %v", refusal)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(d.Log.String(), "the master key is missing") {
		t.Errorf("%v, %s", err, d.Log.String())
	}
	d.Do("PUT", "/api/settings/EXA_API_KEY", "owner-key", `{"value":"x"}`, 409) // nothing secret is stored
	d.Do("POST", "/api/agents", "owner-key", `{"name":"x","hooks":[{"event":"OnRunStart","type":"http",`+
		`"config":{"url":"https://example.com","secret":"secret:s"}}]}`, 409)
}

func TestWithoutItsMasterKeyTheVaultIsOff(t *testing.T) { // K06
	NoLeaks(t)
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	up := NewUpstream(t, CallThenAnswer)
	data := t.TempDir()
	d := Manage(MustRunIn(t, data, Site{Upstream: up.URL}.WithVault(), Environment()))
	d.Do("PUT", "/api/secrets/gh", "owner-key", `{"value":"x"}`, 200)
	addServer(d, "s", tools.URL, "owner-key")
	_ = d.Stop()

	d = Manage(MustRunIn(t, data, Site{Upstream: up.URL}.Yaml(), Environment()))
	refusal := d.Do("PUT", "/api/secrets/gh", "owner-key", `{"value":"x"}`, 409)["error"].(map[string]any)
	if text := refusal["message"].(string); !strings.Contains(text, "master.key") || !strings.Contains(text, "master_key") || refusal["code"] != "vault_off" {
		t.Errorf("the refusal is %v", refusal)
	}
	d.Do("POST", "/api/mcp-servers", "owner-key", `{"name":"t","url":"https://example.com/mcp","headers":{"X-Api-Key":"secret:gh"}}`, 422)
	d.Post(ChatBody).Completion(t)
	if state, why := statusOfServer(d, "s", "owner-key"); state != "failed" || why != "secret:gh: "+secret.ErrNoVault.Error() {
		t.Errorf("%s, %q", state, why)
	}
	if list := d.Do("GET", "/api/secrets", "owner-key", "", 200)["data"].([]any); len(list) != 1 {
		t.Errorf("the list is %v", list)
	}
	d.Do("DELETE", "/api/secrets/gh", "owner-key", "", 200)
}

func TestAMasterKeyThatWasChangedSaysWhatToDo(t *testing.T) { // K06
	NoLeaks(t)
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	up := NewUpstream(t, CallThenAnswer)
	data := t.TempDir()
	boot := func(keys ...string) Documented {
		yaml := Site{Upstream: up.URL}.Yaml()
		for i, name := range []string{"master_key", "master_key_previous"}[:len(keys)] {
			yaml = name + ": " + keys[i] + "\n" + yaml
		}
		return Manage(MustRunIn(t, data, yaml, Environment()))
	}
	d := boot(MasterKey)
	d.Do("PUT", "/api/secrets/gh", "owner-key", `{"value":"token"}`, 200)
	addServer(d, "s", tools.URL, "owner-key")
	_ = d.Stop()

	d = boot(otherKey)
	d.Post(ChatBody).Completion(t)
	const why = "sealed under another master key: set master_key_previous to that key, or store the secret again"
	if state, got := statusOfServer(d, "s", "owner-key"); state != "failed" || got != "secret:gh: "+why {
		t.Errorf("%s, %q", state, got)
	}
	if !strings.Contains(d.Log.String(), why) || len(tools.Of("")) != 0 {
		t.Error("the log does not say why, or the server was asked")
	}
	_ = d.Stop()

	d = boot(otherKey, MasterKey)
	d.Post(ChatBody).Completion(t)
	if !strings.Contains(d.Log.String(), "remove master_key_previous") {
		t.Error("nobody is told that the previous key has done its work")
	}
	_ = d.Stop()

	d = boot(otherKey)
	d.Post(ChatBody).Completion(t)
	if got := tools.Bearers("tools/call"); fmt.Sprint(got) != "[token token]" {
		t.Errorf("the calls came with %v", got)
	}
}

func TestASecretThatWasMovedInTheStoreDoesNotOpen(t *testing.T) { // K06 K07
	NoLeaks(t)
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	up := NewUpstream(t, CallThenAnswer)
	data := t.TempDir()
	yaml := Site{Upstream: up.URL}.WithVault()
	d := Manage(MustRunIn(t, data, yaml, Environment()))
	d.Do("POST", "/api/orgs", "operator-key", `{"id":"victim"}`, 201)
	victim := d.Do("POST", "/api/orgs/victim/keys", "operator-key", `{"name":"first","role":"owner"}`, 201)["key"].(string)
	d.Do("PUT", "/api/secrets/gh", victim, `{"value":"stolen"}`, 200)
	addServer(d, "s", tools.URL, "owner-key")
	_ = d.Stop()

	store, err := database.Open(t.Context(), database.Options{Path: filepath.Join(data, app.DatabaseFile)})
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Secret(t.Context(), "victim", "gh")
	if err != nil {
		t.Fatal(err)
	}
	s.Org = "o"
	if err := store.PutSecret(t.Context(), s, org.Author{}); err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}

	d = Manage(MustRunIn(t, data, yaml, Environment()))
	d.Post(ChatBody).Completion(t)
	if state, why := statusOfServer(d, "s", "owner-key"); state != "failed" || !strings.Contains(why, "was sealed for another org or name") {
		t.Errorf("%s, %q", state, why)
	}
	if got := tools.Of(""); len(got) != 0 {
		t.Errorf("the server was sent %d requests", len(got))
	}
}

func TestSecretsCommands(t *testing.T) { // K06
	NoLeaks(t)
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	data := t.TempDir()
	d := Manage(MustRunIn(t, data, Site{Upstream: "http://127.0.0.1:9"}.WithVault(), Environment()))
	addServer(d, "s", tools.URL, "owner-key")
	run := func(in string, want int, args ...string) string {
		t.Helper()
		env := func(name string) (string, bool) {
			v, ok := map[string]string{
				"TURNPIKE_URL": d.URL, "TURNPIKE_KEY": "owner-key", "TURNPIKE_DATA": data,
				"TURNPIKE_MASTER_KEY": MasterKey, "TURNPIKE_OUTBOUND_SSRF_ALLOWLIST_CIDRS": "127.0.0.0/8",
			}[name]
			return v, ok
		}
		var out bytes.Buffer
		if got := cli.Main(t.Context(), cli.Process{Args: args, Env: env, Stdin: strings.NewReader(in), Stdout: &out, Stderr: &out}); got != want {
			t.Errorf("%q: exit status %d: %s", args, got, out.String())
		}
		if strings.Contains(out.String(), "CANARY") {
			t.Errorf("%q shows the secret: %s", args, out.String())
		}
		return out.String()
	}
	for in, want := range map[string]string{
		"CANARY\nline\n":           "the secret on standard input has a control character",
		"\n":                       "the secret on standard input is empty",
		strings.Repeat("x", 1<<17): "the secret on standard input is larger than 65536 bytes",
	} {
		if got := run(in, 1, "secrets", "set", "gh"); !strings.Contains(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	run(strings.Repeat("x", secret.MaxSize)+"\r\n", 0, "secrets", "set", "large")
	if got := run("", 1, "mcp", "check", "s", "--org", "o"); !strings.Contains(got, "secret:gh: the org's vault has no such secret") {
		t.Errorf("check of a server without its secret: %s", got)
	}
	if got := run("CANARY-token\n", 0, "secrets", "set", "gh"); !strings.Contains(got, "secret:gh") {
		t.Errorf("set: %s", got)
	}
	if got := run("", 0, "mcp", "check", "s", "--org", "o"); !strings.Contains(got, "1 tools offered") {
		t.Errorf("check: %s", got)
	}
	if got := tools.Bearers(""); len(got) == 0 || got[0] != "CANARY-token" {
		t.Errorf("the server was sent %q", got)
	}
	if got := run("", 0, "secrets", "list"); !strings.Contains(got, "NAME") || !strings.Contains(got, "gh ") {
		t.Errorf("list: %s", got)
	}
	run("", 0, "secrets", "delete", "gh")
	if got := run("", 1, "secrets", "delete", "gh"); !strings.Contains(got, `there is no secret called "gh"`) {
		t.Errorf("delete: %s", got)
	}
	run("x", 1, "secrets", "set", "gh", "on-the-command-line")
	if a := d.Send(http.MethodGet, "/api/secrets", nil); bytes.Contains(a.Body, []byte("CANARY")) {
		t.Errorf("the list is %s", a.Body)
	}
}

// addServer adds a server over the API that gets the secret gh as a bearer token.
func addServer(d Documented, name, url, key string) {
	d.T.Helper()
	d.Do("POST", "/api/mcp-servers", key, fmt.Sprintf(`{"name":%q,"url":%q,"headers":{"Authorization":"Bearer secret:gh"}}`, name, url), 201)
}

func statusOfServer(d Documented, server, key string) (state, why string) {
	d.T.Helper()
	s := d.Do("GET", "/api/mcp-servers/"+server, key, "", 200)["status"].(map[string]any)
	why, _ = s["error"].(string)
	return s["state"].(string), why
}

// otherKey is another master key than that of the harness.
const otherKey = "n8vK1uYw3cRtB6mZ0sQeXaJ5hLfGdPoI9rTyUiWq2E4="
