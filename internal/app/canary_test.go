package app_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/internal/cli"
	"github.com/turnpike-gateway/turnpike/internal/id"
)

// canaries are secrets of every kind, each of which would be recognised
// wherever it came out.
type canaries struct {
	*testing.T
	byKind map[string]string
	shown  map[string][]byte // what came out, by where
}

// of returns the secret of the kind.
func (c *canaries) of(kind string) string {
	if c.byKind[kind] == "" {
		c.byKind[kind] = id.New("CANARY-" + kind + "-")
	}
	return c.byKind[kind]
}

// look keeps what came out somewhere, for search.
func (c *canaries) look(where string, what []byte) { c.shown[where] = append(c.shown[where], what...) }

// search fails the test if a secret came out anywhere, in the clear or in one of
// the usual spellings.
func (c *canaries) search() {
	c.Helper()
	for kind, secret := range c.byKind {
		raw := []byte(secret)
		for spelling, text := range map[string]string{
			"the clear": secret, "URLs": url.QueryEscape(secret), "hexadecimal": hex.EncodeToString(raw),
			"base64": strings.TrimRight(base64.StdEncoding.EncodeToString(raw), "="),
		} {
			for where, what := range c.shown {
				if at := bytes.Index(what, []byte(text)); at >= 0 {
					c.Errorf("%s holds the secret of the kind %q in %s: …%.160q", where, kind, spelling, what[max(at-80, 0):])
				}
			}
		}
	}
}

const canaryFile = `
listen: 127.0.0.1:0
master_key: env:MASTER
operator_key: env:OPERATOR
providers:
  - {name: up, base_url: %q, api_key: env:PROVIDER, models: [m]}
outbound: {ssrf: {allowlist_cidrs: [127.0.0.0/8]}}
orgs:
  - id: default
    features: [mcp_outbound]
    keys: [{name: owner, key: env:ORGKEY, role: owner}, {name: literal, key: %s, role: member}]
    mcp_servers:
      - {name: filed, url: %q, headers: {X-Api-Key: %s, X-Env: "env:ENVIRONMENT", X-File: "file:%s", X-Vault: "secret:filed"}}
`

// The whole story of a gateway, with everything that it says to anybody: no
// secret is in any of it, nor in the file that it keeps. // K06 D18
func TestNoSecretComesOutAnywhere(t *testing.T) {
	NoLeaks(t)
	c := &canaries{t, map[string]string{}, map[string][]byte{}}
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	broken := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusUnauthorized) }))
	t.Cleanup(broken.Close)
	up := NewUpstream(t, func(w http.ResponseWriter, r *http.Request, got Received) {
		if bytes.Contains(got.Body, []byte("FAIL")) {
			http.Error(w, `{"error":{"message":"wrong key"}}`, http.StatusUnauthorized)
			return
		}
		CallThenAnswer(w, r, got)
	})
	data := t.TempDir()
	path := filepath.Join(data, "secret.txt")
	if err := os.WriteFile(path, []byte(c.of("file")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.byKind["master"] = MasterKey
	variables := map[string]string{
		"MASTER": MasterKey, "OPERATOR": c.of("operator"), "PROVIDER": c.of("provider"), "ORGKEY": c.of("orgkey"), "ENVIRONMENT": c.of("environment"),
		"TURNPIKE_DATA": data,
	}
	yaml := fmt.Sprintf(canaryFile, up.URL+"/v1", c.of("orgliteral"), tools.URL, c.of("literal"), path)
	g := MustRunIn(t, data, yaml, variables)
	c.manage(g, tools.URL, broken.URL)
	c.chat(g)
	c.commands(g, yaml, variables)
	c.look("the log", []byte(g.Log.String()))
	for _, r := range up.Requests() {
		c.look("what the model was sent", r.Body)
	}
	c.disk("the disk of a running gateway", data)
	if err := g.Stop(); err != nil {
		t.Error(err)
	}
	c.look("the log", []byte(g.Log.String()))
	c.disk("the disk", data)
	c.search()
	c.arrived(tools, up)
}

// manage has the org's owner and the operator set everything up, and make every
// mistake with a secret in it.
func (c *canaries) manage(g *Gateway, good, broken string) {
	say := func(key, method, path, body string, want int) []byte {
		c.Helper()
		a := g.Send(method, path, strings.NewReader(body), "Authorization", "Bearer "+key)
		if a.Status != want {
			c.Errorf("%s %s answered %d, want %d: %s", method, path, a.Status, want, a.Body)
		}
		return a.Body
	}
	owner := c.of("orgkey")
	do := func(method, path, body string, want int) {
		c.Helper()
		c.look(method+" "+path, say(owner, method, path, body, want))
	}
	server := func(name, url, header string) string {
		return fmt.Sprintf(`{"name":%q,"url":%q,"headers":{"Authorization":%q}}`, name, url, header)
	}
	do("PUT", "/api/secrets/gh", `{"value":"`+c.of("oldvault")+`"}`, 200)
	do("PUT", "/api/secrets/gh", `{"value":"`+c.of("vault")+`"}`, 200)
	do("PUT", "/api/secrets/filed", `{"value":"`+c.of("filedvault")+`"}`, 200)
	do("PUT", "/api/secrets/gone", `{"value":"`+c.of("gonevault")+`"}`, 200)
	do("DELETE", "/api/secrets/gone", "", 200)
	do("PUT", "/api/secrets/gh", `{"value":"`+c.of("lines")+`\n"}`, 422)
	do("PUT", "/api/secrets/gh", `{"value":"`+c.of("large")+strings.Repeat("x", 1<<16)+`"}`, 422)
	do("PUT", "/api/secrets/gh", `{"value":"`+c.of("broken")+`"`, 400)
	do("PUT", "/api/secrets/gh", `{"`+c.of("member")+`":"x"}`, 400)
	do("PUT", "/api/secrets/gh", `"`+c.of("bare")+`"`, 400)
	do("PUT", "/api/secrets/-"+c.of("misplaced"), `{"value":"x"}`, 400)
	do("POST", "/api/mcp-servers", server("kept", good, "Bearer secret:gh"), 201)
	do("POST", "/api/mcp-servers", server("refuses", broken+"/mcp", "Bearer secret:gh"), 201)
	do("POST", "/api/mcp-servers", server("lacks", good, "Bearer secret:gone"), 201)
	do("POST", "/api/mcp-servers", server("open", good, "Bearer "+c.of("openheader")), 422)
	do("POST", "/api/mcp-servers", server("mixed", good, c.of("before")+" secret:gh"), 422)
	do("POST", "/api/mcp-servers", server("slip", good, "Bearer secret:"+c.of("slip")+"!"), 422)
	do("POST", "/api/mcp-servers", server("query", good+"?x=1", "env:ENVIRONMENT"), 422)
	var made struct{ Key string }
	if err := json.Unmarshal(say(owner, "POST", "/api/keys", `{"name":"ci","role":"member"}`, 201), &made); err != nil { // shown once
		c.Fatal(err)
	}
	c.byKind["madekey"] = made.Key
	say(made.Key, "GET", "/v1/models", "", 200)
	c.look("orgs", say(c.of("operator"), "GET", "/api/orgs", "", 200))
	c.look("a wrong key", say(c.of("wrongkey"), "GET", "/api/secrets", "", 401))
	c.look("the operator's key, where it is none", say(c.of("operator"), "GET", "/api/secrets", "", 401))
}

// chat runs the loop in all its ways, then asks for all that can be read.
func (c *canaries) chat(g *Gateway) {
	ask := func(where, body, key string, want int) {
		c.Helper()
		a := g.Post(body, "Authorization", "Bearer "+key)
		if a.Status != want {
			c.Errorf("%s: status %d: %s", where, a.Status, a.Body)
		}
		c.look(where, append(a.Body, fmt.Sprint(a.Header)...))
	}
	owner := c.of("orgkey")
	ask("JSON", ChatBody, owner, 200)
	ask("a stream", strings.Replace(ChatBody, "{", `{"stream":true,`, 1), owner, 200)
	ask("a failure of the provider", strings.Replace(ChatBody, "echo this", "FAIL", 1), owner, 502)
	ask("a failed stream", strings.Replace(strings.Replace(ChatBody, "echo this", "FAIL", 1), "{", `{"stream":true,`, 1), owner, 502)
	ask("the key of the file", ChatBody, c.of("orgliteral"), 200)
	ask("the relay", ChatBody, c.byKind["madekey"], 200)
	ask("a wrong key", ChatBody, c.of("wrongkey"), 401)
	for _, path := range []string{
		"/api/org", "/api/keys", "/api/secrets", "/api/secrets/gh", "/api/mcp-servers", "/api/mcp-servers/kept", "/api/mcp-servers/filed",
		"/api/mcp-servers/lacks", "/api/mcp-servers/refuses", "/v1/models", "/openapi.json", "/healthz", "/readyz", "/debug/pprof/", "/metrics",
	} {
		a := g.Send("GET", path, nil, "Authorization", "Bearer "+owner)
		c.look("GET "+path, append(a.Body, fmt.Sprint(a.Header)...))
	}
}

// commands runs what an operator would type.
func (c *canaries) commands(g *Gateway, yaml string, variables map[string]string) {
	file := filepath.Join(c.TempDir(), "turnpike.yaml")
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
		c.Fatal(err)
	}
	env := func(name string) (string, bool) {
		v, ok := map[string]string{"TURNPIKE_URL": g.URL, "TURNPIKE_KEY": c.of("orgkey")}[name]
		if !ok {
			v, ok = variables[name]
		}
		return v, ok
	}
	run := func(in string, want int, args ...string) string {
		c.Helper()
		var out bytes.Buffer
		if got := cli.Main(c.Context(), cli.Process{Args: args, Env: env, Stdin: strings.NewReader(in), Stdout: &out, Stderr: &out}); got != want {
			c.Errorf("%q: exit status %d, want %d: %s", args, got, want, out.String())
		}
		c.look(strings.Join(args[:2], " "), out.Bytes())
		return out.String()
	}
	run("", 0, "config", "check", file)
	run(c.of("typed")+"\n", 0, "secrets", "set", "typed")
	run("", 0, "secrets", "list")
	run("", 0, "keys", "list")
	run("", 0, "mcp", "list", "-c", file)
	for name, want := range map[string]int{"filed": 0, "kept": 0, "lacks": 1, "refuses": 1} {
		run("", want, "mcp", "check", name, "-c", file)
	}
	runs := 0
	for line := range strings.Lines(run("", 0, "runs", "list", "-c", file)) {
		if name := strings.Fields(line)[0]; name != "RUN" {
			run("", 0, "runs", "show", name, "--full", "-c", file)
			runs++
		}
	}
	if runs < 4 {
		c.Errorf("%d runs were shown", runs)
	}
}

// disk looks at every file of the data directory but the secret that stands
// there in the clear.
func (c *canaries) disk(where, data string) {
	entries, err := os.ReadDir(data)
	if err != nil {
		c.Fatal(err)
	}
	found := 0
	for _, e := range entries {
		if e.Name() == "secret.txt" {
			continue
		}
		if e.IsDir() { // of request bodies, while they are served: TestALargeBodyIsSpooled
			continue
		}
		content, err := os.ReadFile(filepath.Join(data, e.Name()))
		if err != nil {
			c.Fatal(err)
		}
		found += len(content)
		c.look(where+", "+e.Name(), content)
	}
	if found == 0 {
		c.Errorf("%s is empty", where)
	}
}

// arrived fails the test unless the secrets were used: what nobody has sent
// cannot come out.
func (c *canaries) arrived(tools *MCPServer, up *Upstream) {
	got := map[string]bool{}
	for _, m := range tools.Of("tools/call") {
		for _, name := range []string{"Authorization", "X-Api-Key", "X-Env", "X-File", "X-Vault"} {
			got[strings.TrimPrefix(m.Header.Get(name), "Bearer ")] = true
		}
	}
	for _, m := range tools.Of("tools/list") {
		got[strings.TrimPrefix(m.Header.Get("Authorization"), "Bearer ")] = true
	}
	for _, r := range up.Requests() {
		got[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")] = true
	}
	for _, kind := range []string{"vault", "literal", "environment", "file", "filedvault", "provider"} {
		if !got[c.of(kind)] {
			c.Errorf("nobody was sent the secret of the kind %q", kind)
		}
	}
	for kind := range c.byKind {
		if got[c.of(kind)] && !slices.Contains([]string{"vault", "literal", "environment", "file", "filedvault", "provider"}, kind) {
			c.Errorf("somebody was sent the secret of the kind %q", kind)
		}
	}
}
