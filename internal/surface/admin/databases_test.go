package admin_test

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/app"
	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/internal/cli"
	"github.com/turnpike-gateway/turnpike/internal/sandbox/sandboxtest"
)

// Databases of an org over the management API. What only the operator may name is refused, and a dangerous role
// when it is configured.
func TestDatabasesAreManaged(t *testing.T) {
	NoLeaks(t)
	d := Manage(MustRun(t, strings.Replace(Site{Upstream: NewUpstream(t, Script()).URL}.Yaml(), "    runtime: {}\n", "", 1)))
	set := func(body string, status int, want string) {
		t.Helper()
		got, err := json.Marshal(d.Do("PATCH", "/api/org/runtime", "owner-key", `{"databases":`+body+`}`, status))
		if err != nil || !strings.Contains(string(got), want) || strings.Contains(string(got), "CANARY") {
			t.Errorf("%s: %s; want %s", body, got, want)
		}
	}
	set(`[{"name":"shop","url":"secret:shop_db","schemas":["public.orders"]}]`, 200, `"databases":[{"name":"shop","schemas":["public.orders"],"statement_timeout":"10s","url":"secret:shop_db"}]`)
	set(`[{"name":"shop","url":"sqlite:/etc/x.db"}]`, 422, "only the configuration file may name a file of SQLite")
	set(`[{"name":"shop","url":"env:SHOP"}]`, 422, "cannot refer to the gateway's environment or files")
	set(`[{"name":"shop","url":"secret:a","write_url":"file:/etc/passwd"}]`, 422, "databases[0].write_url: cannot refer")
	set(`[{"name":"shop","url":"postgres://u:CANARY@h/d"}]`, 422, "contains a password")
	set(`[{"name":"shop","url":"postgres://u@169.254.169.254/d"}]`, 422, "outbound_ssrf_blocked")
	if text := os.Getenv("TURNPIKE_TEST_POSTGRES_URL"); text != "" {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		u.User = url.User(u.User.Username()) // a superuser
		set(`[{"name":"shop","url":"`+u.String()+`"}]`, 422, "dangerous_role")
	}
	set(`null`, 200, `"databases":[]`)
}

// An agent reads only the schemas and tables of its assignment, whether it is added over the API or declared in the file.
// E02
func TestTheSchemasOfAnAgent(t *testing.T) {
	NoLeaks(t)
	path := filepath.Join(t.TempDir(), "shop.db")
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), "CREATE TABLE orders (id); INSERT INTO orders VALUES (41); CREATE TABLE salaries (amount); INSERT INTO salaries VALUES (100000)"); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, got Received) {
		if len(got.Results(t)) > 0 {
			Says("done").Write(w)
			return
		}
		Asks(Use("database_query", `{"query":"SELECT id FROM orders"}`), Use("database_query", `{"query":"SELECT amount FROM salaries"}`)).Write(w)
	})
	const tools = `[{"name":"database_query","config_override":{"schemas":%s}}]`
	yaml := Site{Upstream: up.URL}.WithBuiltins(`{databases: [{name: shop, url: "sqlite:`+path+`"}]}`) + "    agents:\n"
	assigned := map[string]string{"tables": `{"main":["orders"]}`, "whole": `{"main":[]}`, "other": `{"shop":["orders"]}`, "none": `{}`}
	for name, schemas := range assigned {
		yaml += fmt.Sprintf("      - {name: %s, model: m, tools: "+tools+"}\n", name, schemas)
	}
	d := Manage(MustRunWith(t, NewData(t), yaml, Environment(), app.Options{Program: sandboxtest.Program(t)}))
	for name, schemas := range assigned {
		added := d.AsOwner("POST", "/api/agents", fmt.Sprintf(`{"name":"added-%s","model":"m","tools":`+tools+`}`, name, schemas), 201)["id"].(string)
		for _, id := range []string{name, added} {
			if a := d.StreamAgent(id, `{"message":"go"}`); !strings.Contains(string(a.Body), "done") {
				t.Fatalf("%s: %s", id, a.Body)
			}
			all := up.Requests()
			results := all[len(all)-1].Results(t)
			orders, salaries := strings.Contains(results[0], "41"), strings.Contains(results[1], "100000")
			if orders != (name != "other") || salaries != (name == "whole" || name == "none") {
				t.Errorf("%s with the schemas %s: the model was told %q", id, schemas, results)
			}
		}
	}
}

// "turnpike doctor" says of each thing that the configuration names what is well and what is wrong.
func TestDoctor(t *testing.T) {
	NoLeaks(t)
	dir := t.TempDir()
	db, err := sql.Open("sqlite", filepath.Join(dir, "archive.db"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), "CREATE TABLE t (a)"); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "data"), 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "turnpike.yaml")
	doctor := func(configuration string, args ...string) (int, string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(configuration), 0o600); err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		env := func(name string) (string, bool) {
			v, ok := map[string]string{"FAR": "CANARY-of-the-provider", "KEY": "CANARY-of-the-caller", "SHOP": "postgres://u:CANARY@127.0.0.1:1/d?sslmode=disable"}[name]
			return v, ok
		}
		status := cli.Main(t.Context(), cli.Process{Args: append([]string{"doctor", "-c", file}, args...), Env: env, Stdout: &out, Stderr: &out})
		if strings.Contains(out.String(), "CANARY") {
			t.Errorf("a secret is shown: %s", out.String())
		}
		return status, out.String()
	}
	begin := "data: " + filepath.Join(dir, "data") + "\noutbound: {ssrf: {allowlist_cidrs: [127.0.0.1/32]}}\n"
	status, out := doctor(begin + `
providers: [{name: demo, kind: demo, models: [demo]}]
orgs:
  - id: o
    keys: [{name: k, key: env:KEY, role: owner}]
    webhooks: [{name: off, url: "https://example.com/x", secret: "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=", enabled: false}]
    runtime: {databases: [{name: archive, url: "sqlite:` + filepath.Join(dir, "archive.db") + `"}]}
`)
	for _, want := range []string{"well       data ", "well       provider demo: answers with its list of models", "well       database o/archive: the file was opened, and its tables were listed; without write_url nothing can be changed", "not tried  webhook o/off: is not enabled", "5 checks, 0 wrong"} {
		if status != 0 || !strings.Contains(out, want) {
			t.Errorf("status %d:\n%s\nwant %q", status, out, want)
		}
	}
	if strings.Contains(out, "role") {
		t.Errorf("a file of SQLite has no roles:\n%s", out)
	}
	status, out = doctor(begin+`
providers: [{name: far, kind: openai, base_url: "http://127.0.0.1:1/v1", api_key: env:FAR}]
orgs:
  - id: o
    features: [mcp_outbound]
    keys: [{name: k, key: env:KEY, role: owner}]
    mcp_servers: [{name: gone, url: "http://127.0.0.1:2000/mcp"}, {name: off, url: "http://127.0.0.1:2000/mcp", enabled: false}]
    webhooks: [{name: ops, url: "http://127.0.0.1:2000/x", secret: "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="}]
    runtime:
      databases:
        - {name: missing, url: "sqlite:`+filepath.Join(dir, "missing.db")+`"}
        - {name: shop, url: env:SHOP}
        - {name: vault, url: secret:nothing}
`, "--json")
	var report struct {
		Checks []struct{ Kind, Org, Name, Status, Detail, Remedy string }
		Wrong  int
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	got := map[string]string{}
	for _, c := range report.Checks {
		if got[c.Kind+" "+c.Name] = c.Status; c.Status == "wrong" && (c.Detail == "" || c.Remedy == "") {
			t.Errorf("%+v says too little", c)
		}
	}
	for name, want := range map[string]string{
		"provider far": "wrong", "mcp server gone": "wrong", "mcp server off": "not tried", "webhook ops": "wrong",
		"database missing": "wrong", "database shop": "wrong", "database vault": "wrong",
	} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
	if status != 1 || report.Wrong != 6 {
		t.Errorf("status %d, %d wrong:\n%s", status, report.Wrong, out)
	}
	if status, out := doctor("orgs: nonsense"); status != 1 || !strings.Contains(out, "wrong      configuration") || !strings.Contains(out, "2 checks, 2 wrong") {
		t.Errorf("status %d: %s", status, out)
	}
}
