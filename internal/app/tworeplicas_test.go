package app_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/app"
	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/internal/config"
	"github.com/turnpike-gateway/turnpike/internal/store/postgres/postgrestest"
)

// twoReplicas starts two replicas on one PostgreSQL database.
func twoReplicas(t *testing.T, s Site) (a, b *Gateway) {
	t.Helper()
	return twoReplicasOf(t, s.Yaml(), nil)
}

// twoReplicasOf is twoReplicas with a configuration, and the program that they start as their children.
func twoReplicasOf(t *testing.T, yaml string, program []string) (a, b *Gateway) {
	t.Helper()
	o := postgrestest.New(t)
	variables := Environment()
	variables["DATABASE"], variables["MASTER"] = o.URL, MasterKey
	yaml += fmt.Sprintf(`
database: env:DATABASE
postgres: {schema: %q, pool: 6}
master_key: env:MASTER
replica: {linger: 0s}
`, o.Schema)
	boot := func() *Gateway {
		g := MustRunWith(t, t.TempDir(), yaml, variables, app.Options{Program: program})
		g.Client.Transport = patient{g.Client.Transport}
		if a := g.Send("GET", "/readyz", nil); a.Status != 200 {
			t.Fatalf("/readyz is %d: %s", a.Status, a.Body)
		}
		return g
	}
	return boot(), boot()
}

// patient sends requests again that a replica has refused because it could not confirm its settings in time, as clients do. On a
// busy machine a beat can take more than a second.
type patient struct{ http.RoundTripper }

func (p patient) RoundTrip(r *http.Request) (*http.Response, error) {
	for {
		answer, err := p.RoundTripper.RoundTrip(r)
		if err != nil || answer.StatusCode != http.StatusServiceUnavailable || r.Body != nil && r.GetBody == nil {
			return answer, err
		}
		text, err := io.ReadAll(answer.Body)
		if err != nil || !bytes.Contains(text, []byte("replica_out")) {
			answer.Body = io.NopCloser(bytes.NewReader(text))
			return answer, err
		}
		_ = answer.Body.Close() // it was read
		if r.GetBody != nil {
			if r.Body, err = r.GetBody(); err != nil {
				return nil, err
			}
		}
		PollPause()
	}
}

// A change on one replica holds for the next request on the other, every time. // A01 A07 K08
func TestAChangeOnOneReplicaHoldsOnTheOther(t *testing.T) {
	NoLeaks(t)
	tools := NewMCP(t, map[string]Handler{"look": Echo}, "look")
	a, b := twoReplicas(t, Site{Upstream: NewUpstream(t, SaysChat("hello")).URL})
	d := Manage(a)
	var took []time.Duration
	change := func(method, path, body string, want int) map[string]any {
		t.Helper()
		began := time.Now()
		made := d.Do(method, path, "owner-key", body, want)
		took = append(took, time.Since(began))
		return made
	}
	is := func(key string, want int) {
		t.Helper()
		if got := b.Send("GET", "/api/keys", nil, "Authorization", "Bearer "+key); got.Status != want {
			t.Errorf("the other replica answers %d, want %d: %s", got.Status, want, got.Body)
		}
	}
	for n := range 15 {
		made := change("POST", "/api/keys", fmt.Sprintf(`{"name":"k%d","role":"admin"}`, n), http.StatusCreated)
		key := made["key"].(string)
		is(key, 200)
		change("PATCH", "/api/keys/"+made["id"].(string), `{"role":"member"}`, http.StatusOK)
		is(key, 403)
		change("DELETE", "/api/keys/"+made["id"].(string), "", http.StatusOK)
		is(key, 401)

		model := fmt.Sprint("g-", n)
		change("PUT", "/api/settings/AGENT_DEFAULT_MODEL", fmt.Sprintf(`{"value":%q}`, model), http.StatusOK)
		other := b.Send("POST", "/api/agents", strings.NewReader(fmt.Sprintf(`{"name":%q}`, model)), "Authorization", "Bearer owner-key")
		if !strings.Contains(string(other.Body), `"model":"`+model+`"`) {
			t.Errorf("an agent of the other replica is %s, want the model %s", other.Body, model)
		}
	}
	change("POST", "/api/mcp-servers", fmt.Sprintf(`{"name":"tools","url":%q,"trust":true}`, tools.URL), http.StatusCreated)
	if got := b.Connect("member-key", "").Names(); !slices.Equal(got, []string{"look"}) {
		t.Errorf("the tools on the other replica are %v", got)
	}
	change("DELETE", "/api/mcp-servers/tools", "", http.StatusOK)
	if got := b.Connect("member-key", "").Names(); len(got) != 0 {
		t.Errorf("the tools on the other replica are %v", got)
	}
	slices.Sort(took)
	t.Logf("%d changes: median %v, nine of ten %v, longest %v", len(took), took[len(took)/2], took[len(took)*9/10], took[len(took)-1])
}

// The second one would have its spool and its sessions of code in the directory of the first. // L05
func TestTwoReplicasDoNotStartWithOneDataDirectory(t *testing.T) {
	NoLeaks(t)
	o := postgrestest.New(t)
	variables := Environment()
	variables["DATABASE"], variables["MASTER"], variables["TURNPIKE_DATA"] = o.URL, MasterKey, t.TempDir()
	yaml := Site{Upstream: "http://127.0.0.1:1"}.Yaml() + fmt.Sprintf(`
database: env:DATABASE
postgres: {schema: %q, pool: 4}
master_key: env:MASTER
replica: {linger: 0s}
`, o.Schema)
	env := func(name string) (string, bool) {
		v, ok := variables[name]
		return v, ok
	}
	start := func() (*app.App, error) {
		c, err := config.Parse("test.yaml", []byte(yaml), env)
		if err != nil {
			t.Fatal(err)
		}
		return app.New(t.Context(), c, app.Options{Env: env, Log: slog.New(slog.DiscardHandler)})
	}
	first, err := start()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := start(); err == nil ||
		!strings.Contains(err.Error(), "data: another process uses the directory "+variables["TURNPIKE_DATA"]) {
		t.Errorf("the second starts with %v", err)
	}
	first.Close()
	again, err := start()
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}

// A client of /mcp cancels a call, or ends its session, on another replica than the one that performs the call: the call ends, and so
// does the session everywhere.
func TestAnMCPCallEndsFromAnotherReplica(t *testing.T) {
	NoLeaks(t)
	entered, left := make(chan struct{}), make(chan struct{})
	tools := NewMCP(t, map[string]Handler{"wait": func(ctx context.Context, _ string) (string, error) {
		entered <- struct{}{}
		<-ctx.Done()
		left <- struct{}{}
		return "", ctx.Err()
	}}, "wait")
	a, b := twoReplicas(t, Site{Upstream: NewUpstream(t, SaysChat("hello")).URL, Servers: []string{Server("tools", tools.URL, "trust: true")}})
	in := []string{"Authorization", "Bearer member-key", "Mcp-Session-Id", a.Initialize("member-key")}
	var calls sync.WaitGroup
	call := func(id string) {
		calls.Go(func() {
			a.RPC(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"wait","arguments":{}}}`, id), in...)
		})
		<-entered
	}
	for _, id := range []string{`7`, `"seven"`, `90071992547409931`} {
		call(id)
		cancelled := fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}`, id)
		if got, _ := b.RPC(cancelled, in...); got.Status != http.StatusAccepted {
			t.Errorf("a cancel is answered %d: %s", got.Status, got.Body)
		}
		<-left
	}
	call("8")
	if got := b.Send("DELETE", "/mcp", nil, in...); got.Status != http.StatusNoContent {
		t.Errorf("DELETE is answered %d: %s", got.Status, got.Body)
	}
	<-left
	calls.Wait()
	for _, g := range []*Gateway{a, b} {
		if got, _ := g.RPC(`{"jsonrpc":"2.0","id":9,"method":"tools/list"}`, in...); got.Status != http.StatusNotFound {
			t.Errorf("a session that has ended is answered %d: %s", got.Status, got.Body)
		}
	}
}
