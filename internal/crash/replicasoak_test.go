//go:build unix

package crash_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/soak"
	"github.com/turnpike-gateway/turnpike/internal/store/postgres"
)

// disturbance is what a soak does to replicas and to their database.
type disturbance struct {
	*steady
	server *server
	cutter *commitCutter
	until  time.Time
	pace   int // how much faster than in a long soak, on a machine that answers enough meanwhile

	kills, pauses, fast, immediate, watched int
}

// between returns a random time, in seconds at the pace of a long soak.
func (d *disturbance) between(least, most float64) time.Duration {
	seconds := least + rand.Float64()*(most-least) //nolint:gosec // any time will do
	return time.Duration(seconds * float64(time.Second) / float64(d.pace))
}

// answersBetween is how many requests are answered between two disturbances of the same kind. Without it a busy machine would be
// disturbed again and again before anything can end.
const answersBetween = 4

// next waits for the next disturbance, and returns false when the soak is over: after its time, and not before enough was done.
func (d *disturbance) next(how time.Duration, enough bool) bool {
	if enough && !time.Now().Add(how).Before(d.until) {
		return false
	}
	before, began := d.answeredSoFar(), time.Now()
	for time.Since(began) < how || d.answeredSoFar() < before+answersBetween {
		if pause(d.Context(), 20*time.Millisecond) != nil {
			return false
		}
		if time.Since(began) > how+6*patience {
			d.Errorf("%d requests were answered in %v", d.answeredSoFar()-before, time.Since(began))
			return false
		}
	}
	return true
}

// disturbReplicas kills a replica now and then, and pauses one, at least once.
func (d *disturbance) disturbReplicas() {
	for i := 1; d.next(d.between(2, 10), d.pauses > 0); i++ {
		one := d.replicas[rand.N(len(d.replicas))] //nolint:gosec // any will do
		if i%5 == 0 {
			d.pauses++
			one.process.signal(syscall.SIGSTOP)
			_ = pause(d.Context(), d.between(5, 30))
			one.process.signal(syscall.SIGCONT)
			continue
		}
		d.kills++
		one.process.kill()
		_ = pause(d.Context(), d.between(0, 2))
		one.begin()
	}
}

// disturbDatabase stops the server now and then, at least once in each way, and cuts connections in a commit.
func (d *disturbance) disturbDatabase() {
	for i := 1; ; i++ {
		for range 1 + rand.N(4) { //nolint:gosec // any number will do
			d.cutter.armed.Add(int64(1 + i%2))
			if !d.next(d.between(2, 10), d.fast > 0 && d.immediate > 0) {
				return
			}
		}
		how := syscall.SIGINT
		if i%2 == 0 {
			how = syscall.SIGQUIT
			d.immediate++
		} else {
			d.fast++
		}
		err := d.server.stop(how)
		_ = pause(d.Context(), d.between(0, 2))
		if err == nil {
			err = d.server.start()
		}
		if err != nil {
			d.Error(err)
			return
		}
	}
}

// watchBudgets looks again and again whether more of a budget is used than it has.
func (d *disturbance) watchBudgets(over <-chan struct{}) {
	for {
		select {
		case <-over:
			return
		case <-time.After(200 * time.Millisecond):
		}
		var spent int
		err := d.db.QueryRowContext(d.Context(), overspentBudgets).Scan(&spent)
		if err != nil {
			continue // it is stopped
		}
		if d.watched++; spent > 0 {
			d.Errorf("%d budgets are overspent", spent)
		}
	}
}

// follower follows background responses to their ends, from the event after the last one whenever its stream breaks.
func (d *disturbance) follower(streams, reconnects *int) {
	for n := 0; ; n++ {
		select {
		case <-d.stop:
			return
		default:
		}
		r := d.respondUntil(asked{input: fmt.Sprintf("Errand %d.", 1_000_000+n), background: true, key: fmt.Sprint("followed-", n)})
		if r.object.ID == "" {
			d.Errorf("a response to be followed: %d %s %s", r.status, r.code, r.said)
			return
		}
		var events []string
		for d.Context().Err() == nil && !slices.Contains(events, "data: [DONE]\n") {
			_ = d.streamResponse(d.Context(), r.object.ID, len(events)-1, func(e string) { events = append(events, e) })
			*reconnects++
			_ = pause(d.Context(), 25*time.Millisecond)
		}
		for i, e := range events[:max(0, len(events)-1)] {
			if !strings.Contains(e, fmt.Sprintf(`"sequence_number":%d,`, i)) && !strings.Contains(e, fmt.Sprintf(`"sequence_number":%d}`, i)) {
				d.Errorf("event %d of %s has another number: %s", i, r.object.ID, e)
				break
			}
		}
		if ends := terminal(events); !slices.Equal(ends, []string{"completed"}) {
			d.Errorf("%s has the ends %q, its events are %q", r.object.ID, ends, events)
		}
		*streams++
	}
}

// spender asks with a key whose budget is soon used up.
func (d *disturbance) spender(key string, statuses map[int]int) {
	for n := 0; ; n++ {
		select {
		case <-d.stop:
			return
		default:
		}
		status, _, _ := d.send(d.Context(), http.MethodPost, "/v1/chat/completions", key,
			fmt.Sprintf(`{"model":"m","max_tokens":100,"messages":[{"role":"user","content":"Errand %d."}]}`, 2_000_000+n))
		statuses[status]++
		_ = pause(d.Context(), 50*time.Millisecond)
	}
}

// Three replicas are killed and paused, their database is stopped and started, and connections are cut in commits: every run that was
// accepted ends, no call that must not be repeated takes effect twice, no budget is overspent, no slot leaks and no stream has
// a gap. // P01 P02 P03 P05 B07
func TestReplicasSurviveKillsAndAnUnreliableDatabase(t *testing.T) {
	soak.Require(t, soak.Job, "it disturbs three replicas and a database for a while") // alone: others compile programs meanwhile
	server := newServer(t)
	cutter := newCommitCutter(t, server.port, nil)
	r := newReplicatedOn(t, options{script: numbered, runtime: "concurrency: 64, budgets: [{scope: org, period: total, usd: 1000}]",
		tools: toolsOfAll()}, 3,
		postgres.Options{URL: server.url(server.port), Schema: "soak"}, server.url(cutter.port()))
	r.beginAll()
	long := soak.Value(t, 20*time.Second, 20*time.Second, 10*time.Minute)
	d := &disturbance{steady: newSteady(t, r), server: server, cutter: cutter, until: time.Now().Add(long), pace: soak.Value(t, 4, 4, 1)}
	d.mayBreak = true
	for _, one := range r.replicas {
		one.supervised = true
	}
	_, made, _ := r.send(t.Context(), http.MethodPost, "/api/keys", ownKey,
		`{"name":"spender","role":"member","budgets":[{"period":"total","usd":0.02}]}`)
	key := between(made, `"key":"`, `"`)
	if key == "" {
		t.Fatalf("the key of the spender: %s", made)
	}
	streams, reconnects, statuses := 0, 0, map[int]int{}
	d.begin(8)
	d.clients.Go(func() { d.follower(&streams, &reconnects) })
	d.clients.Go(func() { d.spender(key, statuses) })
	var others, watch sync.WaitGroup
	over := make(chan struct{})
	watch.Go(func() { d.watchBudgets(over) })
	others.Go(d.disturbDatabase)
	d.disturbReplicas()
	others.Wait()
	close(over)
	watch.Wait()
	cutter.armed.Store(0)
	d.finish()
	if cutter.before.Load() == 0 || cutter.after.Load() == 0 {
		t.Errorf("%d commits were cut before and %d after the server had them", cutter.before.Load(), cutter.after.Load())
	}
	d.judgeAll(fmt.Sprintf("%v with 3 replicas: %d kills, %d pauses; the database stopped %d times fast and "+
		"%d times at once, %d commits cut before and %d after; "+
		"%d streams followed with %d connections; budgets looked at %d times; a key with a small budget got %v",
		long, d.kills, d.pauses, d.fast, d.immediate, cutter.before.Load(), cutter.after.Load(), streams, reconnects, d.watched, statuses))
}
