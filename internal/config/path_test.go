package config

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/internal/secret"
)

const pathsFile = `
data: ./kept
audit: {checkpoints: ../elsewhere/points, key: "file:audit.seed"}
operator_key: file:/run/operator
master_key: "file:keys/master one"
providers: [{name: p, api_key: "file:p.key"}]
orgs:
  - id: o
    keys: [{name: k, key: "file:./k.key", role: owner}]
    mcp_servers:
      - {name: s, url: "http://h/", headers: {Authorization: "Bearer file:token", X-A: "env:A", X-B: "plain"}}
      - {name: c, command: [./program], env: {TOKEN: "file:token"}}
`

func located(t *testing.T, name, file string, env Environment) map[string]string {
	t.Helper()
	c, err := Parse(name, []byte(file), env)
	if err != nil {
		t.Fatal(err)
	}
	o := c.Orgs[0]
	return map[string]string{
		"data": c.Data, "checkpoints": c.Audit.Checkpoints, "audit": c.Audit.Key.String(), "operator": c.OperatorKey.String(),
		"master": c.MasterKey.String(), "provider": c.Providers[0].APIKey.String(), "key": o.Keys[0].Key.String(),
		"header": o.MCPServers[0].Headers["Authorization"], "variable": o.MCPServers[0].Headers["X-A"],
		"env": o.MCPServers[1].Env["TOKEN"], "command": o.MCPServers[1].Command[0],
	}
}

func TestRelativePathsOfTheFileAreRelativeToIt(t *testing.T) {
	none := func(string) (string, bool) { return "", false }
	want := map[string]string{
		"data": "/etc/tp/kept", "checkpoints": "/etc/elsewhere/points", "audit": "file:/etc/tp/audit.seed", "operator": "file:/run/operator",
		"master": "file:/etc/tp/keys/master one", "provider": "file:/etc/tp/p.key", "key": "file:/etc/tp/k.key",
		"header": "Bearer file:/etc/tp/token", "variable": "env:A", "env": "file:/etc/tp/token", "command": "./program",
	}
	if diff := cmp.Diff(want, located(t, "/etc/tp/t.yaml", pathsFile, none)); diff != "" {
		t.Errorf("an absolute file (-want +got):\n%s", diff)
	}
	want["data"], want["checkpoints"], want["key"] = "conf/kept", "elsewhere/points", "file:conf/k.key"
	got := located(t, "conf/t.yaml", pathsFile, none)
	for _, k := range []string{"data", "checkpoints", "key"} {
		if got[k] != want[k] {
			t.Errorf("a relative file: %s is %s, want %s", k, got[k], want[k])
		}
	}
	here := located(t, "t.yaml", pathsFile, none)
	if here["data"] != "./kept" || here["key"] != "file:./k.key" {
		t.Errorf("a file in the working directory: %v", here)
	}
	env := func(name string) (string, bool) {
		v, ok := map[string]string{"TURNPIKE_DATA": "mine", "TURNPIKE_OPERATOR_KEY": "file:op", "TURNPIKE_AUDIT_CHECKPOINTS": "points"}[name]
		return v, ok
	}
	if got := located(t, "/etc/tp/t.yaml", pathsFile, env); got["data"] != "mine" || got["operator"] != "file:op" || got["checkpoints"] != "points" {
		t.Errorf("variables: %v", got)
	}
}

// The default of a key is located like a value of the file; without a file it is
// relative to the working directory.
func TestADefaultPathIsRelativeToTheFile(t *testing.T) {
	none := func(string) (string, bool) { return "", false }
	c, err := Parse("/etc/tp/t.yaml", nil, none)
	if err != nil || c.Data != "/etc/tp/turnpike-data" || c.Audit.Checkpoints != "" {
		t.Errorf("%v: %+v", err, c)
	}
	if c, _, err = Default(none); err != nil || c.Data != "./turnpike-data" {
		t.Errorf("%v: %+v", err, c)
	}
}

// Every key that names a file or a directory is located: a new one cannot be
// forgotten.
func TestEveryPathOfTheTableIsAPathKey(t *testing.T) {
	var walk func(path string, keys []key)
	walk = func(path string, keys []key) {
		for _, k := range keys {
			_, isPath := k.value.(pathKey)
			typ := k.value.typeName()
			if (typ == "file" || typ == "directory") != isPath {
				t.Errorf("%s: %s, a pathKey %v", join(path, k.name), typ, isPath)
			}
			if p, ok := k.value.(interface{ children() (string, []key) }); ok {
				suffix, inside := p.children()
				walk(join(path, k.name)+suffix, inside)
			}
		}
	}
	walk("", new(Config).keys())
}

// A credential that is not at the new place is reported with that place.
func TestAMissingFileIsNamedWhereItIsExpected(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "t.yaml")
	if err := os.WriteFile(file, []byte("providers: [{name: p, api_key: 'file:p.key'}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	none := func(string) (string, bool) { return "", false }
	c, err := Load(file, none)
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Resolve(context.Background(), secret.NewResolver(none))
	want := file + ":1:32: providers[0].api_key: open " + filepath.Join(dir, "p.key") + ": no such file or directory"
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if err := os.WriteFile(filepath.Join(dir, "p.key"), []byte("CANARY\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err := c.Resolve(context.Background(), secret.NewResolver(none)); err != nil || s.Providers["p"].Reveal() != "CANARY" {
		t.Errorf("%v", err)
	}
}
