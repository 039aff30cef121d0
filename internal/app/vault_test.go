package app_test

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
	"github.com/turnpike-gateway/turnpike/internal/cli"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/secret"
	"github.com/turnpike-gateway/turnpike/internal/store/database"
)

// Two master keys, as openssl rand -base64 32 makes them.
const (
	masterKey = "q2pV0S0j5m7J4O0w1hYk3XrT9bZcUeNfGdLa8iQxRzs="
	otherKey  = "n8vK1uYw3cRtB6mZ0sQeXaJ5hLfGdPoI9rTyUiWq2E4="
)

// withVault is a site's file with a master key.
func (s site) withVault() string {
	return "master_key: " + masterKey + "\noperator_key: operator-key\n" + s.yaml()
}

// bearers returns the Authorization headers that came with the method.
func (r *recorder) bearers(method string) (out []string) {
	for _, m := range r.of(method) {
		out = append(out, strings.TrimPrefix(m.header.Get("Authorization"), "Bearer "))
	}
	return out
}

// keep adds a server over the API that gets the secret gh as a bearer token.
func (d documented) keep(name, url, key string) {
	d.t.Helper()
	d.do("POST", "/api/mcp-servers", key, fmt.Sprintf(`{"name":%q,"url":%q,"headers":{"Authorization":"Bearer secret:gh"}}`, name, url), 201)
}

func (d documented) status(server, key string) (state, why string) {
	d.t.Helper()
	s := d.do("GET", "/api/mcp-servers/"+server, key, "", 200)["status"].(map[string]any)
	why, _ = s["error"].(string)
	return s["state"].(string), why
}

func TestAChangedSecretIsUsedByTheVeryNextRequest(t *testing.T) { // K06 D18
	noLeaks(t)
	var d documented
	change := make(chan string, 1)
	tools := newMCP(t, map[string]handler{"echo": func(context.Context, string) (string, error) {
		select {
		case next := <-change: // in the middle of a run
			d.do("PUT", "/api/secrets/gh", "admin-key", `{"value":"`+next+`"}`, 200)
		default:
		}
		return "ok", nil
	}})
	up := newUpstream(t, script(asks(call{"echo", `{}`}), says("one"), asks(call{"echo", `{}`}), asks(call{"echo", `{"n":2}`}), says("two")))
	d = manage(MustRun(t, site{upstream: up.URL}.withVault()))
	d.do("PUT", "/api/secrets/gh", "owner-key", `{"value":"first"}`, 200)
	d.keep("s", tools.URL, "owner-key")
	d.post(question).completion(t)
	d.do("PUT", "/api/secrets/gh", "owner-key", `{"value":"second"}`, 200)
	change <- "third"
	d.post(question).completion(t)
	if got := tools.bearers("tools/call"); fmt.Sprint(got) != "[first second third]" {
		t.Errorf("the calls came with %v", got)
	}
	for i, sent := range tools.bearers("") {
		if sent == "" {
			t.Errorf("request %d came without a secret", i)
		}
	}
}

func TestAMissingSecretFailsTheDiscoveryAndIsNamed(t *testing.T) { // K06 D18
	noLeaks(t)
	tools := newMCP(t, map[string]handler{"echo": echo})
	up := newUpstream(t, callThenAnswer)
	d := manage(MustRun(t, site{upstream: up.URL}.withVault()))
	d.keep("s", tools.URL, "owner-key")
	run := func(calls int) {
		t.Helper()
		d.post(chatBody).completion(t)
		if got := len(tools.of("tools/call")); got != calls {
			t.Errorf("%d tool calls, want %d", got, calls)
		}
	}
	run(0)
	if state, why := d.status("s", "owner-key"); state != "failed" || why != "secret:gh: the org's vault has no such secret" {
		t.Errorf("%s, %q", state, why)
	}
	if !strings.Contains(d.log.String(), "secret:gh: the org's vault has no such secret") {
		t.Error("the log does not name the reference")
	}
	if got := len(tools.of("")); got != 0 {
		t.Errorf("the server was sent %d requests without its secret", got)
	}
	d.do("PUT", "/api/secrets/gh", "owner-key", `{"value":"x"}`, 200)
	run(1)
	if state, why := d.status("s", "owner-key"); state != "connected" || why != "" {
		t.Errorf("%s, %q", state, why)
	}
	d.do("DELETE", "/api/secrets/gh", "owner-key", "", 200)
	run(1)
	d.do("DELETE", "/api/secrets/gh", "owner-key", "", 404)
}

func TestAnOrgHasAVaultOfItsOwn(t *testing.T) { // K06 K07
	noLeaks(t)
	tools := newMCP(t, map[string]handler{"echo": echo})
	up := newUpstream(t, callThenAnswer)
	d := manage(MustRun(t, site{upstream: up.URL, servers: []string{server("s", tools.URL, `headers: {Authorization: "Bearer secret:gh"}`)}}.withVault()))
	d.do("POST", "/api/orgs", "operator-key", `{"id":"other","features":["mcp_outbound"]}`, 201)
	other := d.do("POST", "/api/orgs/other/keys", "operator-key", `{"name":"first","role":"owner"}`, 201)["key"].(string)
	d.keep("s", tools.URL, other)
	d.do("PUT", "/api/secrets/gh", "owner-key", `{"value":"ours"}`, 200)
	ask := func(key string) { d.post(chatBody, "Authorization", "Bearer "+key) }
	ask(other)
	if got := tools.bearers(""); len(got) != 0 {
		t.Errorf("without a secret of its own, the org sent %q", got)
	}
	d.do("DELETE", "/api/secrets/gh", other, "", 404)
	if list := d.do("GET", "/api/secrets", other, "", 200)["data"].([]any); len(list) != 0 {
		t.Errorf("the other org sees %v", list)
	}
	d.do("PUT", "/api/secrets/gh", other, `{"value":"theirs"}`, 200)
	ask("owner-key")
	ask(other)
	if got := tools.bearers("tools/call"); fmt.Sprint(got) != "[ours theirs]" {
		t.Errorf("the calls came with %v", got)
	}
}

func TestTheVaultTakesWhatAHeaderCanCarry(t *testing.T) { // K06
	noLeaks(t)
	d := manage(MustRun(t, site{upstream: "http://127.0.0.1:9"}.withVault()))
	put := func(name, value string, want int) {
		t.Helper()
		d.do("PUT", "/api/secrets/"+name, "owner-key", `{"value":`+quote(value)+`}`, want)
	}
	put("a", strings.Repeat("x", secret.MaxSize), 200)
	put("A.b_c-9", "x", 200)
	put("a", strings.Repeat("x", secret.MaxSize+1), 422)
	for _, bad := range []string{"", "a\nb", "a\r\nX-Other: 1", "a\x00b", "a\tb", "\x7f"} {
		put("a", bad, 422)
	}
	d.do("PUT", "/api/secrets/a", "owner-key", `{"value":null}`, 422)
	for _, bad := range []string{"-a", "a%20b", "a%2Fb", "%C3%BC", strings.Repeat("a", 65)} {
		put(bad, "x", 400)
	}
	for _, body := range []string{"", "{", "{}", `"x"`, `[]`, `{"value":7}`, `{"value":{"a":1}}`, `{"value":"x","more":1}`} {
		d.do("PUT", "/api/secrets/a", "owner-key", body, 400)
	}
	d.do("PUT", "/api/secrets/a", "owner-key", `{"value":"`+strings.Repeat("x", 2<<20)+`"}`, 413)
	before := d.do("GET", "/api/secrets", "admin-key", "", 200)
	if list := before["data"].([]any); len(list) != 2 || list[0].(map[string]any)["name"] != "A.b_c-9" || list[1].(map[string]any)["name"] != "a" {
		t.Errorf("the list is %v", list)
	}
	for _, key := range []string{"member-key", "approver-key", "reader-key"} {
		d.do("GET", "/api/secrets", key, "", 403)
		d.do("PUT", "/api/secrets/a", key, `{"value":"x"}`, 403)
		d.do("DELETE", "/api/secrets/a", key, "", 403)
	}
	if a := d.send("GET", "/api/secrets/a", nil); a.status != 405 || a.header.Get("Allow") != "PUT, DELETE" {
		t.Errorf("reading one: %d, %q", a.status, a.header.Get("Allow"))
	}
}

func TestAServerOfAnOrgRefersToItsVaultAndToNothingElse(t *testing.T) { // K06
	noLeaks(t)
	d := manage(MustRun(t, site{upstream: "http://127.0.0.1:9"}.withVault()))
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
		d.do("POST", "/api/mcp-servers", "owner-key", `{"name":"s","url":"https://example.com/mcp","headers":{`+header+`}}`, want)
		if want == 201 {
			d.do("DELETE", "/api/mcp-servers/s", "owner-key", "", 200)
		}
	}
	a := d.send("POST", "/api/mcp-servers", strings.NewReader(`{"name":"s","url":"https://example.com/mcp","headers":{"Authorization":"Bearer abc"}}`))
	if !bytes.Contains(a.body, []byte("PUT /api/secrets/NAME")) || !bytes.Contains(a.body, []byte("secret:NAME")) {
		t.Errorf("the refusal does not say what to do: %s", a.body)
	}
}

// A gateway that was given no master key makes one at its first start, and uses it again.
func TestAMasterKeyIsMadeInTheDataDirectory(t *testing.T) { // K06
	noLeaks(t)
	tools := newMCP(t, map[string]handler{"echo": echo})
	up := newUpstream(t, callThenAnswer)
	data := t.TempDir()
	boot := func() documented { return manage(mustRunIn(t, data, site{upstream: up.URL}.yaml(), environment())) }
	path := filepath.Join(data, "master.key")

	d := boot()
	d.do("PUT", "/api/secrets/gh", "owner-key", `{"value":"x"}`, 200)
	d.keep("s", tools.URL, "owner-key")
	if !strings.Contains(d.log.String(), "keep a copy in another place") {
		t.Errorf("the log does not say where the key is: %s", d.log.String())
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	_ = d.stop()

	d = boot()
	d.post(chatBody).completion(t)
	if got := tools.bearers("tools/call"); fmt.Sprint(got) != "[x]" || strings.Contains(d.log.String(), "master key") {
		t.Errorf("the calls came with %v; %s", got, d.log.String())
	}
	_ = d.stop()

	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	d = boot()
	refusal := d.do("PUT", "/api/secrets/b", "owner-key", `{"value":"x"}`, 409)["error"].(map[string]any)
	if !strings.Contains(refusal["message"].(string), "master.key") {
		t.Errorf("the refusal is %v", refusal)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(d.log.String(), "the master key is missing") {
		t.Errorf("%v, %s", err, d.log.String())
	}
	d.do("PUT", "/api/settings/EXA_API_KEY", "owner-key", `{"value":"x"}`, 409) // nothing secret is stored
	d.do("POST", "/api/agents", "owner-key", `{"name":"x","hooks":[{"event":"OnRunStart","type":"http",`+
		`"config":{"url":"https://example.com","secret":"secret:s"}}]}`, 409)
}

func TestWithoutItsMasterKeyTheVaultIsOff(t *testing.T) { // K06
	noLeaks(t)
	tools := newMCP(t, map[string]handler{"echo": echo})
	up := newUpstream(t, callThenAnswer)
	data := t.TempDir()
	d := manage(mustRunIn(t, data, site{upstream: up.URL}.withVault(), environment()))
	d.do("PUT", "/api/secrets/gh", "owner-key", `{"value":"x"}`, 200)
	d.keep("s", tools.URL, "owner-key")
	_ = d.stop()

	d = manage(mustRunIn(t, data, site{upstream: up.URL}.yaml(), environment()))
	refusal := d.do("PUT", "/api/secrets/gh", "owner-key", `{"value":"x"}`, 409)["error"].(map[string]any)
	if text := refusal["message"].(string); !strings.Contains(text, "master.key") || !strings.Contains(text, "master_key") || refusal["code"] != "vault_off" {
		t.Errorf("the refusal is %v", refusal)
	}
	d.do("POST", "/api/mcp-servers", "owner-key", `{"name":"t","url":"https://example.com/mcp","headers":{"X-Api-Key":"secret:gh"}}`, 422)
	d.post(chatBody).completion(t)
	if state, why := d.status("s", "owner-key"); state != "failed" || why != "secret:gh: "+secret.ErrNoVault.Error() {
		t.Errorf("%s, %q", state, why)
	}
	if list := d.do("GET", "/api/secrets", "owner-key", "", 200)["data"].([]any); len(list) != 1 {
		t.Errorf("the list is %v", list)
	}
	d.do("DELETE", "/api/secrets/gh", "owner-key", "", 200)
}

func TestAMasterKeyThatWasChangedSaysWhatToDo(t *testing.T) { // K06
	noLeaks(t)
	tools := newMCP(t, map[string]handler{"echo": echo})
	up := newUpstream(t, callThenAnswer)
	data := t.TempDir()
	boot := func(keys ...string) documented {
		yaml := site{upstream: up.URL}.yaml()
		for i, name := range []string{"master_key", "master_key_previous"}[:len(keys)] {
			yaml = name + ": " + keys[i] + "\n" + yaml
		}
		return manage(mustRunIn(t, data, yaml, environment()))
	}
	d := boot(masterKey)
	d.do("PUT", "/api/secrets/gh", "owner-key", `{"value":"token"}`, 200)
	d.keep("s", tools.URL, "owner-key")
	_ = d.stop()

	d = boot(otherKey)
	d.post(chatBody).completion(t)
	const why = "sealed under another master key: set master_key_previous to that key, or store the secret again"
	if state, got := d.status("s", "owner-key"); state != "failed" || got != "secret:gh: "+why {
		t.Errorf("%s, %q", state, got)
	}
	if !strings.Contains(d.log.String(), why) || len(tools.of("")) != 0 {
		t.Error("the log does not say why, or the server was asked")
	}
	_ = d.stop()

	d = boot(otherKey, masterKey)
	d.post(chatBody).completion(t)
	if !strings.Contains(d.log.String(), "remove master_key_previous") {
		t.Error("nobody is told that the previous key has done its work")
	}
	_ = d.stop()

	d = boot(otherKey)
	d.post(chatBody).completion(t)
	if got := tools.bearers("tools/call"); fmt.Sprint(got) != "[token token]" {
		t.Errorf("the calls came with %v", got)
	}
}

func TestASecretThatWasMovedInTheStoreDoesNotOpen(t *testing.T) { // K06 K07
	noLeaks(t)
	tools := newMCP(t, map[string]handler{"echo": echo})
	up := newUpstream(t, callThenAnswer)
	data := t.TempDir()
	yaml := site{upstream: up.URL}.withVault()
	d := manage(mustRunIn(t, data, yaml, environment()))
	d.do("POST", "/api/orgs", "operator-key", `{"id":"victim"}`, 201)
	victim := d.do("POST", "/api/orgs/victim/keys", "operator-key", `{"name":"first","role":"owner"}`, 201)["key"].(string)
	d.do("PUT", "/api/secrets/gh", victim, `{"value":"stolen"}`, 200)
	d.keep("s", tools.URL, "owner-key")
	_ = d.stop()

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

	d = manage(mustRunIn(t, data, yaml, environment()))
	d.post(chatBody).completion(t)
	if state, why := d.status("s", "owner-key"); state != "failed" || !strings.Contains(why, "was sealed for another org or name") {
		t.Errorf("%s, %q", state, why)
	}
	if got := tools.of(""); len(got) != 0 {
		t.Errorf("the server was sent %d requests", len(got))
	}
}

func TestSecretsCommands(t *testing.T) { // K06
	noLeaks(t)
	tools := newMCP(t, map[string]handler{"echo": echo})
	data := t.TempDir()
	d := manage(mustRunIn(t, data, site{upstream: "http://127.0.0.1:9"}.withVault(), environment()))
	d.keep("s", tools.URL, "owner-key")
	run := func(in string, want int, args ...string) string {
		t.Helper()
		env := func(name string) (string, bool) {
			v, ok := map[string]string{
				"TURNPIKE_URL": d.URL, "TURNPIKE_KEY": "owner-key", "TURNPIKE_DATA": data,
				"TURNPIKE_MASTER_KEY": masterKey, "TURNPIKE_OUTBOUND_SSRF_ALLOWLIST_CIDRS": "127.0.0.0/8",
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
	if got := tools.bearers(""); len(got) == 0 || got[0] != "CANARY-token" {
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
	if a := d.send(http.MethodGet, "/api/secrets", nil); bytes.Contains(a.body, []byte("CANARY")) {
		t.Errorf("the list is %s", a.body)
	}
}
