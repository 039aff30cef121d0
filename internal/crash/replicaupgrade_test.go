//go:build unix

package crash_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A migration of a later build that only adds to the schema is applied while two replicas of this build run under load: they go
// on, and can be started anew. One that excludes this build ends their service, and keeps it from starting. // P09
func TestReplicasOfAnOldBuildDuringAnUpgrade(t *testing.T) {
	t.Parallel()
	r := newReplicated(t, options{script: numbered, runtime: "concurrency: 64, budgets: [{scope: org, period: total, usd: 1000}]",
		tools: toolsOfAll()}, 2)
	r.beginAll()
	s := newSteady(t, r)
	s.begin(8)
	progress := func(n int) {
		t.Helper()
		before := s.answeredSoFar()
		waitFor(t, patience, "requests are answered", func() bool { return s.answeredSoFar() >= before+n })
	}
	progress(20)
	own := r.one(`SELECT max(version_id) FROM goose_db_version`)
	later := fmt.Sprint(own + 1)
	began := time.Now()
	for _, statement := range []string{ // as a migration does it: in one transaction, under a short timeout
		`SET lock_timeout = '3s'`,
		`BEGIN; ALTER TABLE runs ADD COLUMN made_up text COLLATE "C" NOT NULL DEFAULT ''; ALTER TABLE run_facts ADD COLUMN made_up bigint;
		CREATE TABLE made_up (id bigint PRIMARY KEY); INSERT INTO goose_db_version (version_id, is_applied) VALUES (` + later + `, true); COMMIT`,
		`CREATE INDEX CONCURRENTLY made_up_runs ON runs (org, made_up)`,
	} {
		r.exec(statement)
	}
	took := time.Since(began)
	progress(40)
	one := r.replicas[0]
	one.stop()
	one.begin() // the old build, on the new schema
	r.awaitReady(2)
	progress(20)
	r.exec(`UPDATE schema_oldest SET oldest = ` + later)
	r.awaitReady(0) // those that run answer nothing more
	one.stop()
	refused := one.startRefused()
	if !strings.Contains(refused, later) || !strings.Contains(refused, fmt.Sprint(own)) {
		t.Errorf("an old build on a schema that excludes it says: %s", refused)
	}
	r.exec(`UPDATE schema_oldest SET oldest = ` + fmt.Sprint(own))
	r.awaitReady(1)
	progress(20) // the other one
	s.finish()
	s.judgeAll("the additive migration took " + took.Round(time.Millisecond).String())
	t.Logf("an old build says of a schema that excludes it: %s", refused)
}

// stop asks the replica to stop, and waits until it has.
func (r *replica) stop() {
	r.Helper()
	r.process.signal(syscall.SIGTERM)
	await(r.T, "the end of the replica", r.process.ended)
	if !r.process.cmd.ProcessState.Success() {
		r.Errorf("the replica ended with %v", r.process.cmd.ProcessState)
	}
}

// startRefused starts a gateway that must end by itself, and returns the last line that it wrote.
func (r *replica) startRefused() string {
	r.Helper()
	env := append(baseEnv(), "OWNER_KEY="+ownKey, "PROVIDER_KEY="+providerKey)
	p := begin(r.T, append(env, r.env...), r.binary(), "serve", "--config", r.config)
	await(r.T, "the end of a gateway that should refuse to start", p.ended)
	if status := p.cmd.ProcessState.ExitCode(); status != 1 {
		r.Fatalf("the gateway ended with %v, want status 1:\n%s", p.cmd.ProcessState, p.output)
	}
	lines := strings.Split(strings.TrimSpace(p.output.String()), "\n")
	return lines[len(lines)-1]
}
