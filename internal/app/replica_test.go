package app_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/app"
	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/replica"
	"github.com/turnpike-gateway/turnpike/internal/store/database"
)

// installation is what the replicas of an installation see of each other. The test is the other one.
type installation struct {
	mu        sync.Mutex
	broken    error
	epoch     int64
	changed   []string // the orgs of the last change
	made      int64
	others    int
	confirmed bool // the other replica has applied everything
	asked     chan int64
	beats     []replica.Beat
	left      []string
	bell      chan struct{}
}

func newInstallation() *installation {
	return &installation{confirmed: true, others: 1, asked: make(chan int64, 100), bell: make(chan struct{}, 1)}
}

func (i *installation) set(do func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	do()
}

func (i *installation) Epoch(context.Context) (int64, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.epoch, i.broken
}

func (i *installation) Beat(_ context.Context, b replica.Beat) (replica.State, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.beats = append(i.beats, b)
	return replica.State{Epoch: i.epoch, Living: 1 + i.others}, i.broken
}

func (i *installation) Changed(context.Context, int64) ([]string, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.changed, i.broken
}

func (i *installation) Made() int64 {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.made
}

func (i *installation) Confirmed(_ context.Context, epoch int64) (bool, error) {
	select {
	case i.asked <- epoch:
	default:
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.confirmed, i.broken
}

func (i *installation) Bell() <-chan struct{} { return i.bell }

func (i *installation) Leave(_ context.Context, id string) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.left = append(i.left, id)
	return nil
}

// beat returns the last beat.
func (i *installation) beat() replica.Beat {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.beats[len(i.beats)-1]
}

// change is a change that another replica has made of an org. It returns when the gateway has confirmed it.
func (i *installation) change(orgID string) {
	var epoch int64
	i.set(func() {
		i.epoch++
		epoch, i.changed = i.epoch, []string{orgID}
	})
	i.bell <- struct{}{}
	for i.beat().Applied != epoch {
		PollPause()
	}
}

// replicaAt starts a gateway that is one of several replicas. The store is that of the others, too.
func replicaAt(t *testing.T, o app.Options) (*Gateway, *installation, *database.Store) {
	t.Helper()
	up := NewUpstream(t, Script(Says("fine")))
	i := newInstallation()
	var store *database.Store
	o.Beats = i
	o.Watch = func(j journal.Journal) journal.Journal {
		store = j.(*database.Store)
		return j
	}
	g := MustRunWith(t, t.TempDir(), Site{Upstream: up.URL}.Yaml(), Environment(), o)
	if a := g.Send("GET", "/readyz", nil); a.Status != 200 {
		t.Fatalf("/readyz is %d: %s", a.Status, a.Body)
	}
	return g, i, store
}

// A change by another replica holds for the next request after this one has confirmed it. // A01 A07 K08
func TestAChangeByAnotherReplicaHolds(t *testing.T) {
	NoLeaks(t)
	g, i, store := replicaAt(t, app.Options{})
	k := org.Key{Org: "o", ID: "key_x", Name: "x", Role: org.Member, Hash: sha256.Sum256([]byte("other-key"))}
	if err := store.CreateKey(t.Context(), k, org.Author{}); err != nil {
		t.Fatal(err)
	}
	ask := func(want int) {
		t.Helper()
		if a := g.Send("GET", "/v1/models", nil, "Authorization", "Bearer other-key"); a.Status != want {
			t.Errorf("the key is answered %d, want %d: %s", a.Status, want, a.Body)
		}
	}
	ask(200) // looked up: it is not confirmed
	if a := g.Send("GET", "/v1/models", nil, "Authorization", "Bearer unknown-key"); a.Status != 401 {
		t.Errorf("an unknown key is answered %d", a.Status)
	}
	if err := store.RevokeKey(t.Context(), "o", "key_x", 1, org.Author{}); err != nil {
		t.Fatal(err)
	}
	ask(200) // it is not answered yet
	i.change("o")
	ask(401)
}

// A change is answered when the other replicas have confirmed it, and a request that changes nothing waits
// for nobody. // A01
func TestAChangeWaitsForTheOtherReplicas(t *testing.T) {
	NoLeaks(t)
	g, i, _ := replicaAt(t, app.Options{})
	i.set(func() { i.made, i.confirmed = 1, false })
	answered := make(chan Answer, 1)
	go func() { answered <- g.Send("POST", "/api/keys", strings.NewReader(`{"name":"n","role":"member"}`)) }()
	for range 3 {
		if epoch := Wait(t, i.asked, "the gateway to ask whether the change holds"); epoch != 1 {
			t.Errorf("it asks for %d", epoch)
		}
	}
	select {
	case a := <-answered:
		t.Errorf("the change is answered before the others have confirmed it: %d", a.Status)
	default:
	}
	if a := g.Send("GET", "/api/keys", nil); a.Status != 200 {
		t.Errorf("a list is answered %d", a.Status)
	}
	i.set(func() { i.confirmed = true })
	if a := Wait(t, answered, "the answer"); a.Status != 201 {
		t.Errorf("the change is answered %d: %s", a.Status, a.Body)
	}
	for len(i.asked) > 0 {
		<-i.asked
	}
	g.Send("PATCH", "/api/org/runtime", strings.NewReader(`{"max_rounds":3}`))
	if len(i.asked) > 0 {
		t.Error("a change that is confirmed is asked for again")
	}
}

// A replica that cannot confirm its settings refuses requests, and says so to load balancers. // A01 L09
func TestAReplicaThatIsOutRefusesRequests(t *testing.T) {
	NoLeaks(t)
	g, i, _ := replicaAt(t, app.Options{})
	i.set(func() { i.broken = errors.New("no route to host") })
	var a Answer
	for a.Status != 503 {
		PollPause()
		a = g.Send("GET", "/v1/models", nil)
	}
	if f := a.Fault(t); *f.Error.Code != "replica_out" || a.Header.Get("Retry-After") != "1" {
		t.Errorf("a request is answered %s, Retry-After %q", a.Body, a.Header.Get("Retry-After"))
	}
	if a := g.Send("GET", "/readyz", nil); a.Status != 503 || !strings.Contains(string(a.Body), "could not confirm its settings") {
		t.Errorf("/readyz is %d: %s", a.Status, a.Body)
	}
	if a := g.Send("GET", "/healthz", nil); a.Status != 200 {
		t.Errorf("/healthz is %d", a.Status)
	}
	i.set(func() { i.broken = nil })
	for a.Status != 200 {
		PollPause()
		a = g.Send("GET", "/v1/models", nil)
	}
}

// A replica that stops tells the others first, and is gone when it has stopped. // L02
func TestAReplicaThatStopsLeaves(t *testing.T) {
	NoLeaks(t)
	g, i, _ := replicaAt(t, app.Options{})
	first := i.beat()
	if !strings.HasPrefix(first.ID, "replica_") || first.Draining || first.Version == "" {
		t.Errorf("the replica is %+v", first)
	}
	if err := g.Stop(); err != nil {
		t.Fatal(err)
	}
	if len(i.left) != 1 || i.left[0] != first.ID {
		t.Errorf("%q have left, want %s", i.left, first.ID)
	}
}

// A session of /mcp that began on one replica goes on on another, for its key alone, until its client ends it. // D26 K07
func TestAnMCPSessionGoesOnOnAnotherReplica(t *testing.T) {
	NoLeaks(t)
	tools := NewMCP(t, map[string]Handler{"look": Echo}, "look")
	yaml := Site{Upstream: NewUpstream(t, SaysChat("hello")).URL, Servers: []string{Server("tools", tools.URL, "trust: true")}}.Yaml()
	data, in := t.TempDir(), []string{"Authorization", "Bearer member-key", "Mcp-Session-Id", ""}
	boot := func() *Gateway {
		return MustRunWith(t, data, yaml, Environment(), app.Options{Beats: newInstallation()})
	}
	first := boot()
	in[3] = first.Initialize("member-key")
	list := `{"jsonrpc":"2.0","id":7,"method":"tools/list"}`
	if a, _ := first.RPC(list, in...); a.Status != 200 || !strings.Contains(string(a.Body), `"look"`) {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	second := boot()
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			message := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/list"}`, n)
			if a, _ := second.RPC(message, in...); a.Status != 200 || !strings.Contains(string(a.Body), `"look"`) {
				t.Errorf("the list is answered %d %s", a.Status, a.Body)
			}
		})
	}
	all.Wait()
	call := `{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":"look","arguments":{"n":1}}}`
	if a, _ := second.RPC(call, in...); a.Status != 200 {
		t.Errorf("a call is answered %d %s", a.Status, a.Body)
	}
	for name, fields := range map[string][]string{
		"another key": {"Authorization", "Bearer admin-key", "Mcp-Session-Id", in[3]},
		"another id":  {"Authorization", "Bearer member-key", "Mcp-Session-Id", in[3][:len(in[3])-2] + "xx"},
	} {
		if a, _ := second.RPC(list, fields...); a.Status != 404 {
			t.Errorf("%s is answered %d %s", name, a.Status, a.Body)
		}
	}
	if a := second.Send("DELETE", "/mcp", nil, in...); a.Status != 204 {
		t.Errorf("DELETE is answered %d %s", a.Status, a.Body)
	}
	if a, _ := second.RPC(list, in...); a.Status != 404 {
		t.Errorf("a session that has ended is answered %d %s", a.Status, a.Body)
	}
}

// A stream of a session that began on another replica hears that the list of tools has changed. // D28
func TestAStreamOnAnotherReplicaHearsOfChanges(t *testing.T) {
	NoLeaks(t)
	tools := NewMCP(t, map[string]Handler{"look": Echo}, "look")
	yaml := Site{Upstream: NewUpstream(t, SaysChat("hello")).URL, Servers: []string{Server("tools", tools.URL, "trust: true")}}.Yaml()
	data := t.TempDir()
	boot := func() *Gateway {
		return MustRunWith(t, data, yaml, Environment(), app.Options{Beats: newInstallation()})
	}
	first := boot()
	session := first.Initialize("member-key")
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	second := boot()
	in := []string{"Authorization", "Bearer member-key", "Mcp-Session-Id", session, "Accept", "text/event-stream"}
	resp, err := second.Client.Do(second.Request(t.Context(), "GET", "/mcp", nil, in...))
	if err != nil || resp.StatusCode != 200 {
		t.Fatal(resp, err)
	}
	defer resp.Body.Close()
	tools.Add("grown", Echo, false)
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if strings.Contains(lines.Text(), "notifications/tools/list_changed") {
			return
		}
	}
	t.Error("the stream ends without the change")
}
