package admin_test

import (
	"database/sql"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/app"
	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

// alter changes what is stored, as somebody does who can write the database.
func alter(t *testing.T, data string, statements ...string) {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(data, app.DatabaseFile)+"?_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, s := range statements {
		result, err := db.ExecContext(t.Context(), s)
		if err != nil {
			t.Fatalf("%s: %v", s, err)
		}
		if n, err := result.RowsAffected(); err != nil || n != 1 {
			t.Fatalf("%s changed %d rows: %v", s, n, err)
		}
	}
}

func TestAStoredHeaderNeverRevealsTheOperatorsVariablesAndFiles(t *testing.T) { // K06 D18
	NoLeaks(t)
	for name, reference := range map[string]string{
		"a variable": "env:TOKEN", "a file": "file:%s", "a variable behind a scheme": "Bearer env:TOKEN",
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "secret.txt")
			if err := os.WriteFile(file, []byte("CANARY-file"), 0o600); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(reference, "%s") {
				reference = fmt.Sprintf(reference, file)
			}
			up := NewUpstream(t, CallThenAnswer)
			tools := NewMCP(t, map[string]Handler{"echo": Echo})
			data, yaml := NewData(t), Site{Upstream: up.URL}.Yaml()
			d := Manage(MustRunIn(t, data, yaml, Environment()))
			d.Do("POST", "/api/mcp-servers", "owner-key", fmt.Sprintf(`{"name":"s","url":%q,"headers":{"X-Plain":"plain"}}`, tools.URL), 201)
			if err := d.Stop(); err != nil {
				t.Fatal(err)
			}
			// created_at 0 is what a server of the file has
			alter(t, data, `UPDATE mcp_outbound_servers SET created_at = 0, settings = json_set(settings, '$.headers', json('{"X-Plain":"plain","X-Taken":"`+reference+`"}'))`)
			d = Manage(MustRunIn(t, data, yaml, Environment()))
			d.Post(ChatBody)
			for _, r := range tools.Of("") {
				if strings.Contains(fmt.Sprint(r.Header), "CANARY") {
					t.Fatalf("the server was told %v", r.Header)
				}
			}
			if n := len(tools.Of("")); n != 0 {
				t.Errorf("the server got %d requests, want none", n)
			}
			status := d.Do("GET", "/api/mcp-servers/s", "owner-key", "", 200)["status"].(map[string]any)
			if text := fmt.Sprint(status["error"]); status["state"] != "failed" || !strings.Contains(text, "headers.X-Taken: a header cannot refer") {
				t.Errorf("status %v", status)
			}
			if !strings.Contains(d.Log.String(), "a stored MCP server is not used") {
				t.Error("the log does not say that the server is not used")
			}
			d.Do("PATCH", "/api/mcp-servers/s", "owner-key", `{"headers":{"X-Plain":"still"}}`, 200)
			if d.Post(ChatBody); len(tools.Of("tools/call")) != 1 {
				t.Error("a server whose headers were put right is not used")
			}
			for _, r := range tools.Of("tools/call") {
				if r.Header.Get("X-Plain") != "still" {
					t.Errorf("header %v", r.Header)
				}
			}
		})
	}
}

// A stored max_rounds that cannot be set is replaced by the nearest value that can. // B02
func TestAStoredMaxRoundsIsClamped(t *testing.T) {
	NoLeaks(t)
	for stored, rounds := range map[string]int{"500": 50, "0": 1} {
		t.Run(stored, func(t *testing.T) {
			up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, got Received) {
				Asks(Use("echo", fmt.Sprintf(`{"n":%d}`, got.Number))).Write(w)
			})
			tools := NewMCP(t, map[string]Handler{"echo": Echo})
			data, yaml := NewData(t), strings.Replace(Site{Upstream: up.URL}.Yaml(), "    runtime: {}\n", "", 1)
			d := Manage(MustRunIn(t, data, yaml, Environment()))
			d.Do("POST", "/api/mcp-servers", "owner-key", fmt.Sprintf(`{"name":"s","url":%q}`, tools.URL), 201)
			if err := d.Stop(); err != nil {
				t.Fatal(err)
			}
			alter(t, data, "UPDATE orgs SET runtime = json_set(runtime, '$.max_rounds', "+stored+", '$.doom_loop', 'off')")
			d = Manage(MustRunIn(t, data, yaml, Environment()))
			if a := d.Post(ChatBody); a.Status != 200 || len(up.Requests()) != rounds {
				t.Errorf("%d after %d rounds, want 200 after %d: %s", a.Status, len(up.Requests()), rounds, a.Body)
			}
			if !strings.Contains(d.Log.String(), "out of range; the nearest allowed value is used\" org=o setting=max_rounds stored="+stored) {
				t.Errorf("the log does not name it:\n%s", d.Log)
			}
			d.Do("PATCH", "/api/org/runtime", "owner-key", `{"max_rounds":500}`, 422)
		})
	}
}

func TestStoredSettingsThatAreNotBuiltAreNotServed(t *testing.T) { // C19
	NoLeaks(t)
	for name, c := range map[string]struct{ change, words, patch string }{
		"a word that nobody knows":   {`json_set(runtime, '$.tool_arg_validation', 'perhaps')`, `tool_arg_validation: "perhaps" is not allowed`, `{"tool_arg_validation":"strict"}`},
		"a setting of a newer build": {`json_set(runtime, '$.extensions', json('["later"]'))`, `extensions[0]: "later" is not allowed`, `{"extensions":[]}`},
	} {
		t.Run(name, func(t *testing.T) {
			up := NewUpstream(t, CallThenAnswer)
			tools := NewMCP(t, map[string]Handler{"echo": Echo})
			data, yaml := NewData(t), strings.Replace(Site{Upstream: up.URL}.Yaml(), "    runtime: {}\n", "", 1)
			d := Manage(MustRunIn(t, data, yaml, Environment()))
			d.Do("POST", "/api/mcp-servers", "owner-key", fmt.Sprintf(`{"name":"s","url":%q}`, tools.URL), 201)
			if err := d.Stop(); err != nil {
				t.Fatal(err)
			}
			alter(t, data, "UPDATE orgs SET runtime = "+c.change)
			d = Manage(MustRunIn(t, data, yaml, Environment()))
			if a := d.Post(ChatBody); a.Status != 503 || !strings.Contains(string(a.Body), "settings_not_supported") || len(up.Requests()) != 0 {
				t.Errorf("the org got %d: %s", a.Status, a.Body)
			}
			if !strings.Contains(strings.ReplaceAll(d.Log.String(), `\"`, `"`), c.words) {
				t.Errorf("the log does not say %q:\n%s", c.words, d.Log)
			}
			d.Do("PATCH", "/api/org/runtime", "owner-key", c.patch, 200)
			if a := d.Post(ChatBody); a.Status != 200 || len(tools.Of("tools/call")) != 1 {
				t.Errorf("put right, the org got %d: %s", a.Status, a.Body)
			}
		})
	}
}

func TestAStoredServerThatIsNotBuiltIsNotUsed(t *testing.T) { // C19
	NoLeaks(t)
	up := NewUpstream(t, CallThenAnswer)
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	data, yaml := NewData(t), Site{Upstream: up.URL}.Yaml()
	d := Manage(MustRunIn(t, data, yaml, Environment()))
	d.Do("POST", "/api/mcp-servers", "owner-key", fmt.Sprintf(`{"name":"s","url":%q}`, tools.URL), 201)
	if err := d.Stop(); err != nil {
		t.Fatal(err)
	}
	alter(t, data, "UPDATE mcp_outbound_servers SET settings = json_set(settings, '$.naming', 'sealed')")
	d = Manage(MustRunIn(t, data, yaml, Environment()))
	if a := d.Post(ChatBody); a.Status != 200 || len(tools.Of("")) != 0 {
		t.Errorf("the org got %d, and the server %d requests: %s", a.Status, len(tools.Of("")), a.Body)
	}
	d.Do("PATCH", "/api/mcp-servers/s", "owner-key", `{"naming":"bare"}`, 200)
	if d.Post(ChatBody); len(tools.Of("tools/call")) != 1 {
		t.Error("the server that was put right is not used")
	}
}

// A stored setting that is zero or missing has its default.
func TestStoredSettingsWithoutAValueHaveTheirDefaults(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, CallThenAnswer)
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	data, yaml := NewData(t), strings.Replace(Site{Upstream: up.URL}.Yaml(), "    runtime: {}\n", "", 1)
	d := Manage(MustRunIn(t, data, yaml, Environment()))
	d.Do("POST", "/api/mcp-servers", "owner-key", fmt.Sprintf(`{"name":"s","url":%q}`, tools.URL), 201)
	if err := d.Stop(); err != nil {
		t.Fatal(err)
	}
	alter(t, data, `UPDATE orgs SET runtime = '{"deadline_ns":0,"concurrency":0,"stream_mode":"","max_rounds":50}'`)
	d = Manage(MustRunIn(t, data, "max_rounds_cap: 5\n"+yaml, Environment()))
	if a := d.Post(ChatBody); a.Status != 200 || len(tools.Of("tools/call")) != 1 {
		t.Errorf("the org got %d: %s", a.Status, a.Body)
	}
}

// A name that is stored and then declared is the file's, and one client is kept
// for it.
func TestADeclaredServerTakesTheNameOfAStoredOne(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, CallThenAnswer)
	stored, declared := NewMCP(t, map[string]Handler{"echo": Echo}), NewMCP(t, map[string]Handler{"echo": Echo})
	data := NewData(t)
	d := Manage(MustRunIn(t, data, Site{Upstream: up.URL}.Yaml(), Environment()))
	d.Do("POST", "/api/mcp-servers", "owner-key", fmt.Sprintf(`{"name":"s","url":%q}`, stored.URL), 201)
	if err := d.Stop(); err != nil {
		t.Fatal(err)
	}
	d = Manage(MustRunIn(t, data, Site{Upstream: up.URL, Servers: []string{Server("s", declared.URL)}}.Yaml(), Environment()))
	d.Post(ChatBody)
	d.Do("POST", "/api/keys", "owner-key", `{"name":"more","role":"member"}`, 201) // reads the org again
	d.Post(ChatBody)
	if a, b := len(stored.Of("")), len(declared.Of("tools/call")); a != 0 || b != 2 {
		t.Errorf("the stored server got %d requests, the declared one %d calls", a, b)
	}
	if n := len(declared.Of("initialize")) + len(declared.Of("server/discover")); n > 2 {
		t.Errorf("the declared server was connected to again: %d handshakes", n)
	}
}
