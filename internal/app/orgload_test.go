package app_test

import (
	"crypto/sha256"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/app"
	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/store/database"
)

// leavers is how many clients leave in the tests below.
const leavers = 40

func TestARevokedKeyIsRefusedAlsoWhenItsClientLeavesAtOnce(t *testing.T) { // A07
	NoLeaks(t)
	d := Manage(MustRun(t, "operator_key: operator-key\n"+Site{Upstream: "http://127.0.0.1:9"}.Yaml()))
	all := d.Tenants(leavers) // each in an org of its own: no other change makes up for a lost one
	var keys []string
	for _, one := range all {
		d.SendAndLeave("DELETE", "/api/keys/"+one.KeyID, one.Owner, "")
		keys = append(keys, one.Key)
	}
	if n := d.StillWorking(keys); n > 0 {
		t.Errorf("%d of %d keys that were revoked still work", n, leavers)
	}
}

func TestTheKeysOfADeletedOrgAreRefusedAlsoWhenItsClientLeavesAtOnce(t *testing.T) { // A07
	NoLeaks(t)
	d := Manage(MustRun(t, "operator_key: operator-key\n"+Site{Upstream: "http://127.0.0.1:9"}.Yaml()))
	var keys []string
	for _, one := range d.Tenants(leavers) {
		d.SendAndLeave("DELETE", "/api/orgs/"+one.ID, "operator-key", "")
		keys = append(keys, one.Key, one.Owner)
	}
	if n := d.StillWorking(keys); n > 0 {
		t.Errorf("%d of %d keys of deleted orgs still work", n, 2*leavers)
	}
}

func TestEveryChangeTakesEffectAlsoWhenItsClientLeavesAtOnce(t *testing.T) { // A07
	NoLeaks(t)
	up := NewUpstream(t, CallThenAnswer)
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	d := Manage(MustRun(t, strings.Replace(Site{Upstream: up.URL}.WithVault(), "    runtime: {}\n", "", 1)))
	offered := func() bool {
		d.Post(ChatBody)
		return strings.Contains(up.Last(), `"echo"`)
	}
	bearer := func() string {
		d.Post(ChatBody)
		all := tools.Bearers("tools/list")
		return all[len(all)-1]
	}
	leave := func(method, path, body string) { d.SendAndLeave(method, path, "owner-key", body) }

	leave("PUT", "/api/secrets/gh", `{"value":"first"}`)
	ComesTrue(t, "the secret is stored", func() bool { return len(d.Do("GET", "/api/secrets", "owner-key", "", 200)["data"].([]any)) == 1 })
	leave("POST", "/api/mcp-servers", fmt.Sprintf(`{"name":"s","url":%q,"headers":{"Authorization":"Bearer secret:gh"}}`, tools.URL))
	ComesTrue(t, "the new server is used", offered)
	leave("PUT", "/api/secrets/gh", `{"value":"second"}`)
	ComesTrue(t, "the changed secret is used", func() bool { return bearer() == "second" })
	leave("PATCH", "/api/mcp-servers/s", `{"enabled":false}`)
	ComesTrue(t, "the server is switched off", func() bool { return !offered() })
	leave("PATCH", "/api/mcp-servers/s", `{"enabled":true}`)
	ComesTrue(t, "the server is switched on", offered)
	leave("DELETE", "/api/mcp-servers/s", "")
	ComesTrue(t, "the server is gone", func() bool { return !offered() })
	leave("PATCH", "/api/org/runtime", `{"requests_per_minute":1000000}`)
	ComesTrue(t, "the new rate holds", func() bool {
		return d.Send("GET", "/v1/models", nil).Header.Get("X-Ratelimit-Limit-Requests") == "1000000"
	})
	d.SendAndLeave("POST", "/api/orgs", "operator-key", `{"id":"new","features":["mcp_outbound"]}`)
	ComesTrue(t, "the new org is there", func() bool { return len(d.Do("GET", "/api/orgs", "operator-key", "", 200)["data"].([]any)) == 2 })
}

// fillKeys puts keys of an org into the store of a gateway that does not run.
func fillKeys(t *testing.T, data, orgID string, n int) {
	t.Helper()
	store, err := database.Open(t.Context(), database.Options{Path: filepath.Join(data, app.DatabaseFile)})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.CreateOrg(t.Context(), org.Record{ID: orgID, CreatedAt: time.Now(), UpdatedAt: time.Now()}, org.Author{}); err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for part := range 50 {
		group.Go(func() {
			for i := part; i < n; i += 50 {
				key := fmt.Sprintf("%s-key-%d", orgID, i)
				k := org.Key{Org: orgID, ID: fmt.Sprintf("key_%d", i), Name: fmt.Sprintf("filler%d", i), Role: org.Owner, Hash: sha256.Sum256([]byte(key)), CreatedAt: time.Now()}
				if err := store.CreateKey(t.Context(), k, org.Author{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestTheManagementOfOneOrgDoesNotStallThatOfAnother(t *testing.T) { // A07
	Alone(t)
	data := t.TempDir()
	fillKeys(t, data, "large", 2000)
	d := Manage(MustRunIn(t, data, "org_caps: {keys: 100000}\n"+Site{Upstream: "http://127.0.0.1:9"}.Yaml(), Environment()))
	for _, c := range []struct {
		clients            int
		method, path, body string
	}{
		{100, "POST", "/api/keys", `{"name":"more","role":"member"}`},
		{100, "GET", "/api/keys", ""},
	} {
		// Without turns, the change waits for all clients that came before it.
		if n := d.Beside(c.clients, c.method, c.path, c.body); n > c.clients/2 {
			t.Errorf("%d clients that %s %s: a change of another org waits for %d of them", c.clients, c.method, c.path, n)
		}
	}
}

func TestANewKeyDoesNotMakeTheServersBeAskedAgain(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, CallThenAnswer)
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	d := Manage(MustRun(t, Site{Upstream: up.URL, Servers: []string{Server("tools", tools.URL)}}.Yaml()))
	d.Post(ChatBody)
	listed := len(tools.Of("tools/list"))
	d.Do("POST", "/api/keys", "owner-key", `{"name":"k","role":"member"}`, 201)
	d.Post(ChatBody)
	if now := len(tools.Of("tools/list")); listed == 0 || now != listed {
		t.Errorf("the server was asked for its tools %d times before the key was made, and %d times after", listed, now)
	}
}
