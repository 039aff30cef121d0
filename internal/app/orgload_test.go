package app_test

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/app"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/store/database"
)

// sendAndLeave sends a request and closes the connection without reading the
// answer.
func (g *gateway) sendAndLeave(method, path, key, body string) {
	g.t.Helper()
	u, err := url.Parse(g.URL)
	if err != nil {
		g.t.Fatal(err)
	}
	conn, err := net.Dial("tcp", u.Host)
	if err != nil {
		g.t.Fatal(err)
	}
	fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s", method, path, u.Host, key, len(body), body)
	if err := conn.Close(); err != nil {
		g.t.Fatal(err)
	}
}

// works reports whether the model API takes the key.
func (g *gateway) works(key string) bool {
	g.t.Helper()
	return g.send("GET", "/v1/models", nil, "Authorization", "Bearer "+key).status != http.StatusUnauthorized
}

// stillWorking asks with the keys until none of them works, or time is up, and
// returns how many do.
func (g *gateway) stillWorking(keys []string) int {
	g.t.Helper()
	for end := time.Now().Add(patience); len(keys) > 0 && time.Now().Before(end); pollPause() {
		keys = slices.DeleteFunc(keys, func(key string) bool { return !g.works(key) })
	}
	return len(keys)
}

// tenant is an org with an owner's key and another one.
type tenant struct{ id, owner, keyID, key string }

// tenants creates orgs over the API.
func (d documented) tenants(n int) []tenant {
	d.t.Helper()
	all := make([]tenant, n)
	for i := range all {
		t := &all[i]
		t.id = fmt.Sprintf("tenant-%d", i)
		d.do("POST", "/api/orgs", "operator-key", fmt.Sprintf(`{"id":%q}`, t.id), 201)
		t.owner = d.do("POST", "/api/orgs/"+t.id+"/keys", "operator-key", `{"name":"owner","role":"owner"}`, 201)["key"].(string)
		victim := d.do("POST", "/api/keys", t.owner, `{"name":"victim","role":"member"}`, 201)
		t.keyID, t.key = victim["id"].(string), victim["key"].(string)
		if !d.works(t.key) {
			d.t.Fatalf("the new key of %s does not work", t.id)
		}
	}
	return all
}

// leavers is how many clients leave in the tests below.
const leavers = 40

func TestARevokedKeyIsRefusedAlsoWhenItsClientLeavesAtOnce(t *testing.T) { // A07
	noLeaks(t)
	d := manage(MustRun(t, "operator_key: operator-key\n"+site{upstream: "http://127.0.0.1:9"}.yaml()))
	all := d.tenants(leavers) // each in an org of its own: no other change makes up for a lost one
	var keys []string
	for _, one := range all {
		d.sendAndLeave("DELETE", "/api/keys/"+one.keyID, one.owner, "")
		keys = append(keys, one.key)
	}
	if n := d.stillWorking(keys); n > 0 {
		t.Errorf("%d of %d keys that were revoked still work", n, leavers)
	}
}

func TestTheKeysOfADeletedOrgAreRefusedAlsoWhenItsClientLeavesAtOnce(t *testing.T) { // A07
	noLeaks(t)
	d := manage(MustRun(t, "operator_key: operator-key\n"+site{upstream: "http://127.0.0.1:9"}.yaml()))
	var keys []string
	for _, one := range d.tenants(leavers) {
		d.sendAndLeave("DELETE", "/api/orgs/"+one.id, "operator-key", "")
		keys = append(keys, one.key, one.owner)
	}
	if n := d.stillWorking(keys); n > 0 {
		t.Errorf("%d of %d keys of deleted orgs still work", n, 2*leavers)
	}
}

// comesTrue waits until what is asked for again and again is true.
func comesTrue(t *testing.T, what string, ask func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ask(); pollPause() {
		if time.Now().After(end) {
			t.Errorf("in vain: %s", what)
			return
		}
	}
}

func TestEveryChangeTakesEffectAlsoWhenItsClientLeavesAtOnce(t *testing.T) { // A07
	noLeaks(t)
	up := newUpstream(t, callThenAnswer)
	tools := newMCP(t, map[string]handler{"echo": echo})
	d := manage(MustRun(t, strings.Replace(site{upstream: up.URL}.withVault(), "    runtime: {}\n", "", 1)))
	offered := func() bool {
		d.post(chatBody)
		return strings.Contains(up.last(), `"echo"`)
	}
	bearer := func() string {
		d.post(chatBody)
		all := tools.bearers("tools/list")
		return all[len(all)-1]
	}
	leave := func(method, path, body string) { d.sendAndLeave(method, path, "owner-key", body) }

	leave("PUT", "/api/secrets/gh", `{"value":"first"}`)
	comesTrue(t, "the secret is stored", func() bool { return len(d.do("GET", "/api/secrets", "owner-key", "", 200)["data"].([]any)) == 1 })
	leave("POST", "/api/mcp-servers", fmt.Sprintf(`{"name":"s","url":%q,"headers":{"Authorization":"Bearer secret:gh"}}`, tools.URL))
	comesTrue(t, "the new server is used", offered)
	leave("PUT", "/api/secrets/gh", `{"value":"second"}`)
	comesTrue(t, "the changed secret is used", func() bool { return bearer() == "second" })
	leave("PATCH", "/api/mcp-servers/s", `{"enabled":false}`)
	comesTrue(t, "the server is switched off", func() bool { return !offered() })
	leave("PATCH", "/api/mcp-servers/s", `{"enabled":true}`)
	comesTrue(t, "the server is switched on", offered)
	leave("DELETE", "/api/mcp-servers/s", "")
	comesTrue(t, "the server is gone", func() bool { return !offered() })
	leave("PATCH", "/api/org/runtime", `{"requests_per_minute":1000000}`)
	comesTrue(t, "the new rate holds", func() bool {
		return d.send("GET", "/v1/models", nil).header.Get("X-Ratelimit-Limit-Requests") == "1000000"
	})
	d.sendAndLeave("POST", "/api/orgs", "operator-key", `{"id":"new","features":["mcp_outbound"]}`)
	comesTrue(t, "the new org is there", func() bool { return len(d.do("GET", "/api/orgs", "operator-key", "", 200)["data"].([]any)) == 2 })
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

// beside returns how many answers the clients of the org large get, which ask again and again,
// while the org o makes one change: the median of several changes.
func (d documented) beside(clients int, method, path, body string) int {
	d.t.Helper()
	var stop atomic.Bool
	var answered atomic.Int64
	var group sync.WaitGroup
	for range clients {
		group.Go(func() {
			for !stop.Load() {
				resp, err := d.client.Do(d.request(d.t.Context(), method, path, strings.NewReader(body), "Authorization", "Bearer large-key-1"))
				if err != nil {
					d.t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
				answered.Add(1)
			}
		})
	}
	for answered.Load() < int64(clients) { // all of them have begun
		runtime.Gosched()
	}
	const asked = 15
	var between []int
	for i := range asked {
		before := answered.Load()
		d.send("POST", "/api/mcp-servers", strings.NewReader(fmt.Sprintf(`{"name":"s%d","url":"https://example.com/mcp","enabled":false}`, i)))
		between = append(between, int(answered.Load()-before))
		d.send("DELETE", fmt.Sprintf("/api/mcp-servers/s%d", i), nil)
	}
	stop.Store(true)
	group.Wait()
	slices.Sort(between)
	d.t.Logf("answers to %d clients that %s %s, during one change of another org: %v", clients, method, path, between)
	return between[asked/2]
}

func TestTheManagementOfOneOrgDoesNotStallThatOfAnother(t *testing.T) { // A07
	alone(t)
	data := t.TempDir()
	fillKeys(t, data, "large", 2000)
	d := manage(mustRunIn(t, data, "org_caps: {keys: 100000}\n"+site{upstream: "http://127.0.0.1:9"}.yaml(), environment()))
	for _, c := range []struct {
		clients            int
		method, path, body string
	}{
		{100, "POST", "/api/keys", `{"name":"more","role":"member"}`},
		{100, "GET", "/api/keys", ""},
	} {
		// Without turns, the change waits for all clients that came before it.
		if n := d.beside(c.clients, c.method, c.path, c.body); n > c.clients/2 {
			t.Errorf("%d clients that %s %s: a change of another org waits for %d of them", c.clients, c.method, c.path, n)
		}
	}
}

func TestANewKeyDoesNotMakeTheServersBeAskedAgain(t *testing.T) {
	noLeaks(t)
	up := newUpstream(t, callThenAnswer)
	tools := newMCP(t, map[string]handler{"echo": echo})
	d := manage(MustRun(t, site{upstream: up.URL, servers: []string{server("tools", tools.URL)}}.yaml()))
	d.post(chatBody)
	listed := len(tools.of("tools/list"))
	d.do("POST", "/api/keys", "owner-key", `{"name":"k","role":"member"}`, 201)
	d.post(chatBody)
	if now := len(tools.of("tools/list")); listed == 0 || now != listed {
		t.Errorf("the server was asked for its tools %d times before the key was made, and %d times after", listed, now)
	}
}
