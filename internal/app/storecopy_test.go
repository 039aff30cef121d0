package app_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/app"
	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/internal/cli"
	"github.com/turnpike-gateway/turnpike/internal/store/postgres/postgrestest"
)

// A gateway moves from SQLite to PostgreSQL and back: what it knew and had stored is there each time, and its signed URLs are good.
func TestAGatewayMovesToPostgreSQLAndBack(t *testing.T) {
	NoLeaks(t)
	o := postgrestest.New(t)
	variables := Environment()
	variables["DATABASE"], variables["MASTER"] = o.URL, MasterKey
	yaml := "operator_key: operator-key\nmaster_key: env:MASTER\n" +
		Site{
			Upstream: NewUpstream(t, Script(Says("one"), Says("two"), Says("three"), Says("four"))).URL, Runtime: "buckets: [{name: docs}]",
		}.Yaml()
	onPostgres := yaml + fmt.Sprintf("\ndatabase: env:DATABASE\npostgres: {schema: %q, pool: 6}\nreplica: {}\n", o.Schema)
	file := filepath.Join(t.TempDir(), "turnpike.yaml")
	if err := os.WriteFile(file, []byte(onPostgres), 0o600); err != nil {
		t.Fatal(err)
	}
	move := func(from, to string) {
		t.Helper()
		var out bytes.Buffer
		status := cli.Main(t.Context(), cli.Process{
			Args: []string{"store", "copy", "--config", file, "--from", from, "--to", to}, Stdout: &out, Stderr: &out,
			Env: func(name string) (string, bool) {
				v, ok := variables[name]
				return v, ok
			},
		})
		if status != 0 || !strings.Contains(out.String(), "the copy is complete") {
			t.Fatalf("status %d: %s", status, out.String())
		}
	}
	data, back := t.TempDir(), filepath.Join(t.TempDir(), "data")
	d := Manage(MustRunIn(t, data, yaml, variables))
	key := d.Do("POST", "/api/keys", "owner-key", `{"name":"k","role":"member"}`, 201)["key"].(string)
	d.Do("PUT", "/api/buckets/docs/files/a/x.txt", "owner-key", "hello", 200)
	d.Do("PUT", "/api/secrets/token", "owner-key", `{"value":"CANARY-secret"}`, 200)
	signed := d.SignedPath("a/x.txt")
	still := func(g *Gateway) {
		t.Helper()
		for path, want := range map[string]string{
			"/api/buckets/docs/files/a/x.txt": "hello", signed: "hello", "/api/secrets": `"token"`, "/api/keys": `"k"`,
			"/api/audit?limit=100": "audit_log.management",
		} {
			a := g.Send("GET", path, nil, "Authorization", "Bearer owner-key")
			if a.Status != 200 || !strings.Contains(string(a.Body), want) {
				t.Errorf("%s: %d %s", path, a.Status, a.Body)
			}
		}
		if a := g.Post(Question, "Authorization", "Bearer "+key); a.Status != 200 {
			t.Errorf("a key: %d %s", a.Status, a.Body)
		}
		if err := g.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	still(d.Gateway)
	move(data, "env:DATABASE")
	still(MustRunWith(t, t.TempDir(), onPostgres, variables, app.Options{}))
	move("env:DATABASE", back)
	still(MustRunIn(t, back, yaml, variables))
	if status, out := Turnpike(t, "audit", "verify", "--data", back); status != 0 {
		t.Errorf("status %d: %s", status, out)
	}
}
