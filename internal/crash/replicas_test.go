//go:build unix

package crash_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/base64"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/store/database"
	"github.com/turnpike-gateway/turnpike/internal/store/postgres"
	"github.com/turnpike-gateway/turnpike/internal/store/postgres/postgrestest"
)

var quiet = log.New(io.Discard, "", 0)

// operatorKey creates orgs.
const operatorKey = "sk-crash-operator-7f10c3b8a25e9d46"

// onServer are further members of the configuration of a replica.
const onServer = `
database: env:DATABASE_URL
postgres: {schema: %s, pool: 5}
replica: {id: REPLICA, linger: 1s, drain: 20s}
master_key: env:MASTER_KEY
operator_key: env:OPERATOR_KEY
rates: %s
`

// worlds has a place for each world that uses the server of the tests at the same time: its connections are few.
var worlds = make(chan struct{}, 3)

// price is 1 USD per million tokens of input and 10 of output.
const price = "- {model: m, provider: up, from: 2020-01-01, input: 1, output: 10}\n"

// replicated is a world with several gateways on one schema.
//
//	clients ──► balancer ──► replicas ──► provider, tools
//	                            └──► PostgreSQL
type replicated struct {
	*world   // its URL is that of the balancer
	balancer *balancer
	replicas []*replica
	db       *sql.DB // in the schema
}

// replica is one of the gateways. Its URL is its own.
type replica struct {
	*world
	id       string
	process  *process
	balancer *balancer
}

// newReplicated makes a world with n replicas that are not started, on a schema that ends with the test.
func newReplicated(t *testing.T, o options, n int) *replicated {
	t.Helper()
	schema := postgrestest.New(t)
	worlds <- struct{}{}
	t.Cleanup(func() { <-worlds })
	return newReplicatedOn(t, o, n, schema, "")
}

// newReplicatedOn is newReplicated on a given schema. The gateways reach it at another URL unless that is empty.
func newReplicatedOn(t *testing.T, o options, n int, schema postgres.Options, url string) *replicated {
	t.Helper()
	rates := filepath.Join(t.TempDir(), "rates.yaml")
	if err := os.WriteFile(rates, []byte(price), 0o600); err != nil {
		t.Fatal(err)
	}
	if url == "" {
		url = schema.URL
	}
	o.more += fmt.Sprintf(onServer, schema.Schema, rates)
	r := &replicated{world: newWorld(t, o), balancer: newBalancer(t)}
	r.url = r.balancer.URL
	connector, err := schema.Connector()
	if err != nil {
		t.Fatal(err)
	}
	translated := sql.OpenDB(database.Translated(connector))
	r.db = sql.OpenDB(connector)
	t.Cleanup(func() { _ = translated.Close(); _ = r.db.Close() })
	r.server = database.ReadServer(translated)
	var key [32]byte
	_, _ = rand.Read(key[:])
	env := []string{
		"DATABASE_URL=" + url, "MASTER_KEY=" + base64.StdEncoding.EncodeToString(key[:]), "OPERATOR_KEY=" + operatorKey, followersOfRun,
	}
	text, err := os.ReadFile(r.config)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		r.replicas = append(r.replicas, r.newReplica(string(rune('a'+i)), string(text), env))
	}
	return r
}

func (r *replicated) newReplica(id, config string, env []string) *replica {
	dir := r.TempDir()
	w := &world{
		T: r.T, provider: r.provider, tools: r.tools, http: r.http, data: filepath.Join(dir, "data"), model: r.model,
		config: filepath.Join(dir, "turnpike.yaml"), clock: filepath.Join(dir, "clock"), env: env, server: r.server,
	}
	config = strings.ReplaceAll(config, fmt.Sprintf("%q", r.data), fmt.Sprintf("%q", w.data))
	config = strings.Replace(config, "{id: REPLICA,", "{id: "+id+",", 1)
	if err := os.WriteFile(w.config, []byte(config), 0o600); err != nil {
		r.Fatal(err)
	}
	return &replica{world: w, id: id, balancer: r.balancer}
}

// begin starts the replica, or starts it again, and returns when it takes work.
func (r *replica) begin() {
	r.Helper()
	for began := time.Now(); ; {
		old := r.base()
		r.process = r.start("")
		r.balancer.add(r.base(), old)
		restarts := r.supervised && time.Since(began) < 3*patience
		waitFor(r.T, 3*patience, "the replica takes work", func() bool { // the database may be away
			return restarts && r.process.over() || r.ready()
		})
		if !restarts || !r.process.over() {
			return
		} // else it is started again, as a supervisor does
	}
}

// over reports whether the process has ended.
func (p *process) over() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// beginAll starts all replicas, and returns when each of them has seen the others.
func (r *replicated) beginAll() {
	r.Helper()
	for _, one := range r.replicas {
		one.begin()
	}
	r.awaitReady(len(r.replicas))
}

// awaitReady waits until the balancer has n replicas that are ready.
func (r *replicated) awaitReady(n int) {
	r.Helper()
	eventually(r.T, fmt.Sprint(n, " replicas are ready"), func() bool {
		r.balancer.mu.Lock()
		defer r.balancer.mu.Unlock()
		ready := 0
		for _, u := range r.balancer.urls {
			if r.balancer.ready[u] {
				ready++
			}
		}
		return ready == n
	})
}

// one returns a number that a query in the schema returns.
func (r *replicated) one(query string, args ...any) (n int) {
	r.Helper()
	if err := r.db.QueryRowContext(r.Context(), query, args...).Scan(&n); err != nil {
		r.Fatalf("%s: %v", query, err)
	}
	return n
}

// exec executes a statement in the schema.
func (r *replicated) exec(statement string, args ...any) {
	r.Helper()
	if _, err := r.db.ExecContext(r.Context(), statement, args...); err != nil {
		r.Fatalf("%s: %v", statement, err)
	}
}

// storedRuns is runs of a store of this build.
func (w *world) storedRuns(r *database.Reader) map[string]string {
	w.Helper()
	rows, err := r.DB().QueryContext(w.Context(),
		`SELECT run_id, CASE WHEN status = 'done' THEN finish_reason ELSE status END FROM runs WHERE org = 'default'`)
	if err != nil {
		w.Fatal(err)
	}
	defer rows.Close()
	states := map[string]string{}
	for rows.Next() {
		var id, state string
		if err := rows.Scan(&id, &state); err != nil {
			w.Fatal(err)
		}
		states[id] = state
	}
	if err := rows.Err(); err != nil {
		w.Fatal(err)
	}
	return states
}

// owners returns the runs that each replica holds, by the name of the replica.
func (r *replicated) owners() map[string][]string {
	r.Helper()
	rows, err := r.db.QueryContext(r.Context(), `SELECT owner, run_id FROM runs WHERE status = 'running'`)
	if err != nil {
		r.Fatal(err)
	}
	defer rows.Close()
	of := map[string][]string{}
	for rows.Next() {
		var owner, id string
		if err := rows.Scan(&owner, &id); err != nil {
			r.Fatal(err)
		}
		name, _, _ := strings.Cut(owner, "_")
		of[name] = append(of[name], id)
	}
	if err := rows.Err(); err != nil {
		r.Fatal(err)
	}
	return of
}

// ownerOf returns the replica that holds the run, and one that does not.
func (r *replicated) ownerOf(run string) (owner, other *replica) {
	r.Helper()
	of := r.owners()
	for _, one := range r.replicas {
		if slices.Contains(of[one.id], run) {
			owner = one
		} else {
			other = one
		}
	}
	if owner == nil || other == nil {
		r.Fatalf("nobody holds the run %s: %v", run, of)
	}
	return owner, other
}

// wantNothingHeld fails the test unless no run holds a slot, and nothing is reserved of a budget.
func (r *replicated) wantNothingHeld() {
	r.Helper()
	if n := r.one(`SELECT count(*) FROM runs WHERE status IN ('running', 'queued')`); n > 0 {
		r.Errorf("%d runs hold a slot or wait for one after the end: %v", n, r.stateCounts())
	}
	eventually(r.T, "nothing is reserved", func() bool {
		return r.one(`SELECT count(*) FROM reservations`) == 0
	})
	// Living replicas have slices of budgets, which they give back when they stop.
	if n := r.one(`SELECT count(*) FROM budgets b WHERE reserved_nano_usd <>
		(SELECT coalesce(sum(drawn_nano_usd), 0) FROM slices s WHERE s.org = b.org AND s.scope = b.scope)`); n > 0 {
		r.Errorf("%d budgets have something reserved after the end that is in no slice", n)
	}
}

// overspentBudgets counts the budgets of which more is spent and reserved than their limit and what calls have cost beyond
// their reservation.
const overspentBudgets = `SELECT count(*) FROM budgets WHERE limit_nano_usd > 0
	AND spent_nano_usd + reserved_nano_usd > limit_nano_usd + overrun_nano_usd`

// overspent returns how many budgets are overspent.
func (r *replicated) overspent() int {
	r.Helper()
	return r.one(overspentBudgets)
}

// wantOneHistory fails the test unless each fact of a run is one that the rules allow in its place, and returns the fates of its calls.
func (r *replicated) wantOneHistory(run string) (fates []*fate, resumed []loop.Fact) {
	r.Helper()
	story, _ := r.load(run)
	fates = r.fates(story)
	for i, f := range story.Facts {
		if f.Seq != int64(i+1) {
			r.Errorf("run %s: fact %d has the number %d", run, i+1, f.Seq)
		}
		if f.Epoch > 1 && f.Body.Kind() == loop.KindResumed { // the first one is that of a run that waited for a slot
			resumed = append(resumed, f)
		}
	}
	return fates, resumed
}

// send sends a request with a key, and returns the status, the body and how long it took; status 0 = there was no answer.
func (w *world) send(ctx context.Context, method, path, key, body string) (status int, text string, took time.Duration) {
	began := time.Now()
	req, err := http.NewRequestWithContext(ctx, method, w.base()+path, strings.NewReader(body))
	if err != nil {
		return 0, err.Error(), 0
	}
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := w.http.Do(req)
	if err != nil {
		return 0, err.Error(), time.Since(began)
	}
	defer resp.Body.Close()
	data, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(data), time.Since(began)
}
