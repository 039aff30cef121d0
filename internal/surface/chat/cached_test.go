package chat_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/app"
	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

// asksFor answers with a call of the tool, and repeats what the tool says.
func asksFor(t *testing.T, calls *atomic.Pointer[Call]) func(http.ResponseWriter, *http.Request, Received) {
	return func(w http.ResponseWriter, _ *http.Request, got Received) {
		if told := got.Results(t); len(told) > 0 {
			Says(told[len(told)-1]).Write(w)
			return
		}
		Asks(*calls.Load()).Write(w)
	}
}

// cachedSite is a gateway with a result cache between a model that makes one call
// and a server whose every answer is another.
type cachedSite struct {
	*testing.T
	*Gateway
	ask   atomic.Pointer[Call]
	tools *MCPServer
	data  string
	yaml  string
}

// newCachedSite has the runtime and the settings of its server in YAML. The tool
// count, and nothing else, says that it only reads.
func newCachedSite(t *testing.T, runtime string, settings ...string) *cachedSite {
	NoLeaks(t)
	c := &cachedSite{T: t, data: NewData(t)}
	var n atomic.Int64
	count := func(context.Context, string) (string, error) { return fmt.Sprint("answer ", n.Add(1)), nil }
	flaky := func(context.Context, string) (string, error) {
		if n.Add(1) == 1 {
			return "", errors.New("not now")
		}
		return fmt.Sprint("answer ", n.Load()), nil
	}
	c.tools = NewMCP(t, map[string]Handler{"count": count, "flaky": flaky, "write": count}, "count", "flaky")
	c.calls("count", `{"n":1,"m":12345678901234567890}`)
	up := NewUpstream(t, asksFor(t, &c.ask))
	servers := []string{Server("s", c.tools.URL, settings...)}
	c.yaml = Site{Upstream: up.URL, Runtime: runtime, Servers: servers}.Yaml()
	_, other, _ := strings.Cut(c.yaml, "  - id: o\n")
	other = "  - id: o\n" + other
	c.yaml += strings.NewReplacer("id: o\n", "id: other\n", "key: ", "key: other-").Replace(other)
	return c
}

func (c *cachedSite) calls(name, arguments string) {
	c.ask.Store(&Call{Name: name, Arguments: arguments})
}

// boot starts the gateway, or starts it again.
func (c *cachedSite) boot(pepper string) {
	c.Helper()
	if c.Gateway != nil {
		_ = c.Stop()
	}
	env := Environment()
	env["TURNPIKE_AGENT_CACHE_PEPPER"] = pepper
	c.Gateway = MustRunIn(c.T, c.data, c.yaml, env)
}

// says fails the test unless a run says text.
func (c *cachedSite) says(want string, fields ...string) {
	c.Helper()
	if got, _ := c.Post(Question, fields...).Completion(c.T); got != want {
		c.Errorf("the run said %q, want %q", got, want)
	}
}

// meddle changes what the gateway, which is not running, has kept.
func (c *cachedSite) meddle(statements ...string) {
	c.Helper()
	_ = c.Stop()
	db, err := sql.Open("sqlite", filepath.Join(c.data, app.DatabaseFile)+"?_pragma=busy_timeout(10000)")
	if err != nil {
		c.Fatal(err)
	}
	defer db.Close()
	for _, s := range statements {
		r, err := db.ExecContext(c.Context(), s)
		if err != nil {
			c.Fatal(err)
		}
		if n, err := r.RowsAffected(); err != nil || n == 0 {
			c.Fatalf("%s changed nothing: %v", s, err)
		}
	}
}

// F01
func TestACallThatWasMadeIsNotMadeAgain(t *testing.T) {
	c := newCachedSite(t, "tool_cache_ttl_seconds: 300")
	c.boot("pepper")
	c.says("answer 1")
	c.calls("count", `{ "m": 12345678901234567890, "n": 1.0e0 }`)
	c.says("answer 1")
	c.says("answer 1", "Authorization", "Bearer member-key")
	c.calls("count", `{"n":1,"m":12345678901234567891}`) // the same as a float
	c.says("answer 2")
	c.says("answer 3", "Authorization", "Bearer other-owner-key")
	if got := len(c.tools.Of("tools/call")); got != 3 {
		t.Errorf("the server was called %d times, want 3", got)
	}
}

// F02
func TestWithoutATimeNothingIsKept(t *testing.T) {
	c := newCachedSite(t, "tool_cache_ttl_seconds: 0", "cache: all")
	c.boot("pepper")
	c.says("answer 1")
	c.says("answer 2")
}

// F02
func TestAResultIsNotUsedWhenItsTimeIsOver(t *testing.T) {
	c := newCachedSite(t, "tool_cache_ttl_seconds: 1")
	c.boot("pepper")
	c.says("answer 1")
	for end := time.Now().Add(Patience); time.Now().Before(end); {
		if got, _ := c.Post(Question).Completion(t); got == "answer 2" {
			return
		}
	}
	t.Error("the result is used still")
}

// F03
func TestAKeptResultThatWasChangedIsNotUsed(t *testing.T) {
	const move = `INSERT INTO tool_cache (org, name, kept_at, expires_at, mac, bytes, value) SELECT 'other', name, kept_at, expires_at, mac, bytes, value FROM tool_cache WHERE org = 'o'`
	c := newCachedSite(t, "tool_cache_ttl_seconds: 300")
	c.boot("pepper")
	c.says("answer 1")
	c.boot("pepper") // it outlives the gateway
	c.says("answer 1")
	c.meddle(`UPDATE tool_cache SET value = CAST('answer 0' AS BLOB)`)
	c.boot("pepper")
	c.says("answer 2")
	c.says("answer 2")
	c.meddle(`UPDATE tool_cache SET expires_at = expires_at + 1000000`)
	c.boot("pepper")
	c.says("answer 3")
	c.meddle(move)
	c.boot("pepper")
	c.says("answer 4", "Authorization", "Bearer other-owner-key")
	c.says("answer 3")
	c.calls("count", `{"n":2}`)
	c.says("answer 5")
	c.meddle( // the two results of the org change places
		`UPDATE tool_cache SET name = x'00' WHERE org = 'o' AND value = CAST('answer 3' AS BLOB)`,
		`UPDATE tool_cache SET (value, mac, kept_at, expires_at) = (SELECT value, mac, kept_at, expires_at FROM tool_cache WHERE name = x'00') WHERE org = 'o' AND value = CAST('answer 5' AS BLOB)`)
	c.boot("pepper")
	c.says("answer 6")
}

// F04
func TestAnotherPepperMakesEverythingUnknown(t *testing.T) {
	c := newCachedSite(t, "tool_cache_ttl_seconds: 300")
	c.boot("one")
	c.says("answer 1")
	c.boot("two")
	c.says("answer 2")
	c.boot("two")
	c.says("answer 2")
	c.boot("") // one that nobody knows
	c.says("answer 3")
	c.says("answer 3")
	c.boot("")
	c.says("answer 4")
}

// F05
func TestWhatIsNotKept(t *testing.T) {
	for _, tt := range []struct {
		name, settings, tool string
		first, second, third string
	}{
		{"an error", "", "flaky", "Error: not now", "answer 2", "answer 2"},
		{"an error where everything is kept", "cache: all", "flaky", "Error: not now", "answer 2", "answer 2"},
		{"what may write", "", "write", "answer 1", "answer 2", "answer 3"},
		{"unless the org says so", "cache: all", "write", "answer 1", "answer 1", "answer 1"},
		{"or names it", "cache: [write]", "write", "answer 1", "answer 1", "answer 1"},
		{"what is not named", "cache: [write]", "count", "answer 1", "answer 2", "answer 3"},
		{"what is polled", "polling: [count]", "count", "answer 1", "answer 2", "answer 3"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			settings := []string{tt.settings}
			if tt.settings == "" {
				settings = nil
			}
			c := newCachedSite(t, "tool_cache_ttl_seconds: 300", settings...)
			c.calls(tt.tool, `{"n":1}`)
			c.boot("pepper")
			c.says(tt.first)
			c.says(tt.second)
			c.says(tt.third)
		})
	}
}

// Another address or credential makes it another server, under whatever name. // F01
func TestWhatAServerSaidIsNotUsedForAnotherOne(t *testing.T) {
	c := newCachedSite(t, "tool_cache_ttl_seconds: 300")
	c.boot("pepper")
	c.says("answer 1")
	c.yaml = strings.ReplaceAll(c.yaml, "name: s, ", `name: s, headers: {X-Team: blue}, `)
	c.boot("pepper")
	c.says("answer 2")
	c.yaml = strings.ReplaceAll(c.yaml, c.tools.URL, c.tools.URL+"/there")
	c.boot("pepper")
	c.says("answer 3")
	c.says("answer 3")
}

// So does another secret, by whatever reference. // F01 D18
func TestWhatAServerSaidToOneCredentialIsNotUsedForAnother(t *testing.T) {
	c := newCachedSite(t, "tool_cache_ttl_seconds: 300")
	c.yaml = "master_key: " + MasterKey + "\n" + strings.ReplaceAll(c.yaml, "name: s, ", `name: s, headers: {X-Vault: "secret:gh", X-Env: "env:TEAM"}, `)
	team := "blue"
	boot := func() {
		if c.Gateway != nil {
			_ = c.Stop()
		}
		env := Environment()
		env["TURNPIKE_AGENT_CACHE_PEPPER"], env["TEAM"] = "pepper", team
		c.Gateway = MustRunIn(c.T, c.data, c.yaml, env)
	}
	boot()
	d := Manage(c.Gateway)
	d.Do("PUT", "/api/secrets/gh", "admin-key", `{"value":"one"}`, 200)
	c.says("answer 1")
	c.says("answer 1")
	d.Do("PUT", "/api/secrets/gh", "admin-key", `{"value":"two"}`, 200)
	c.says("answer 2")
	boot()
	c.says("answer 2")
	team = "red"
	boot()
	c.says("answer 3")
	c.says("answer 3")
}

// F02
func TestTheCacheIsManagedOverTheAPI(t *testing.T) {
	NoLeaks(t)
	yaml := strings.Replace(Site{Upstream: "http://127.0.0.1:9"}.Yaml(), "    runtime: {}\n", "", 1)
	d := Manage(MustRun(t, yaml))
	shown := func(a map[string]any, key string) string { return fmt.Sprint(a[key]) }
	runtime := d.Do("GET", "/api/org", "owner-key", "", 200)["runtime"].(map[string]any)
	if got := shown(runtime, "tool_cache_ttl_seconds"); got != "0" {
		t.Errorf("an org that says nothing keeps results for %s", got)
	}
	runtime = d.Do("PATCH", "/api/org/runtime", "owner-key", `{"tool_cache_ttl_seconds":300}`, 200)["runtime"].(map[string]any)
	if got := shown(runtime, "tool_cache_ttl_seconds"); got != "300" {
		t.Errorf("results are kept for %s, want 300", got)
	}
	d.Do("PATCH", "/api/org/runtime", "owner-key", `{"tool_cache_ttl_seconds":86401}`, 422)
	if got := shown(d.Do("POST", "/api/mcp-servers", "owner-key", `{"name":"s","url":"https://example.com/mcp","enabled":false}`, 201), "cache"); got != "read_only" {
		t.Errorf("a server that says nothing has the cache %s", got)
	}
	for _, change := range []struct{ body, want string }{
		{`{"cache":"all"}`, "all"},
		{`{"trust":true}`, "all"},
		{`{"cache":["a","b"]}`, "[a b]"},
		{`{"trust":false}`, "[a b]"},
		{`{"cache":[]}`, "[]"},
		{`{"cache":"read_only"}`, "read_only"},
		{`{"cache":["a"]}`, "[a]"},
		{`{"cache":null}`, "read_only"},
	} {
		d.Do("PATCH", "/api/mcp-servers/s", "owner-key", change.body, 200)
		if got := shown(d.Do("GET", "/api/mcp-servers/s", "owner-key", "", 200), "cache"); got != change.want {
			t.Errorf("after %s the cache is %s, want %s", change.body, got, change.want)
		}
	}
	d.Do("PATCH", "/api/mcp-servers/s", "owner-key", `{"cache":"some"}`, 422)
}
