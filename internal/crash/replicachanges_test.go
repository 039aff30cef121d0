//go:build unix

package crash_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/soak"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// changing is an org whose keys, servers and settings are changed on one replica and used on the other.
type changing struct {
	*replicated
	owner string // key of the org's owner

	changes, stale int
	out            int             // requests that a replica refused because it could not confirm its settings; they were sent again
	took           []time.Duration // of each change
}

// newChanging makes the org.
func newChanging(t *testing.T) *changing {
	t.Helper()
	c := &changing{replicated: newReplicated(t, options{script: oneAnswer, tools: []turnpiketest.Tool{{Name: "look", Result: "seen"}}}, 2)}
	c.beginAll()
	a := c.replicas[0]
	c.must(a, http.MethodPost, "/api/orgs", operatorKey, `{"id":"acme","features":["mcp_outbound"]}`, http.StatusCreated)
	c.owner = between(c.must(a, http.MethodPost, "/api/orgs/acme/keys", operatorKey, `{"name":"first","role":"owner"}`,
		http.StatusCreated), `"key":"`, `"`)
	if c.owner == "" {
		t.Fatal("the org has no key")
	}
	c.must(a, http.MethodPost, "/api/mcp-servers", c.owner, fmt.Sprintf(`{"name":"tools","url":%q,"reads":["look"]}`, c.tools.URL),
		http.StatusCreated)
	return c
}

// must sends a request to a replica, fails the test unless it is answered with the status, and returns the answer.
func (c *changing) must(at *replica, method, path, key, body string, want int) string {
	c.Helper()
	status, text := c.sendUntil(at, method, path, key, body)
	if status != want {
		c.Fatalf("%s %s at %s: %d %s, want %d", method, path, at.id, status, text, want)
	}
	return text
}

// sendUntil sends a request again while the replica refuses all.
func (c *changing) sendUntil(at *replica, method, path, key, body string) (status int, text string) {
	for {
		status, text, _ = at.send(c.Context(), method, path, key, body)
		if status != http.StatusServiceUnavailable || pause(c.Context(), 25*time.Millisecond) != nil {
			return status, text
		}
		c.out++
	}
}

// change changes something on a replica.
func (c *changing) change(at *replica, method, path, body string, want int) string {
	c.Helper()
	began := time.Now()
	text := c.must(at, method, path, c.owner, body, want)
	c.took = append(c.took, time.Since(began))
	return text
}

// obeys counts a request after a change, and whether it was answered by the settings before.
func (c *changing) obeys(what string, ok bool, said string) {
	c.Helper()
	if c.changes++; !ok {
		if c.stale++; c.stale < 5 {
			c.Errorf("after change %d, %s: %s", c.changes, what, said)
		}
	}
}

const chatBody = `{"model":"m","stream":true,"max_tokens":100,"messages":[{"role":"user","content":"x"}]}`

// ask sends a chat request and returns the status, the answer, and whether the model was offered the tool.
func (c *changing) ask(at *replica, key string) (int, string, bool) {
	status, text := c.sendUntil(at, http.MethodPost, "/v1/chat/completions", key, chatBody)
	c.provider.mu.Lock()
	defer c.provider.mu.Unlock()
	return status, text, slices.ContainsFunc(c.provider.offered, func(name string) bool { return strings.Contains(name, "look") })
}

// round makes and unmakes one change of each kind on a replica, and asks the other one after each.
func (c *changing) round(at, other *replica, i int) {
	c.Helper()
	made := c.change(at, http.MethodPost, "/api/keys", fmt.Sprintf(`{"name":"k%d","role":"member"}`, i), http.StatusCreated)
	var key struct{ ID, Key string }
	if err := json.Unmarshal([]byte(made), &key); err != nil {
		c.Fatal(err)
	}
	status, text, _ := c.ask(other, key.Key)
	c.obeys("a new key", status == http.StatusOK, text)
	c.change(at, http.MethodDelete, "/api/keys/"+key.ID, "", http.StatusOK)
	status, text, _ = c.ask(other, key.Key)
	c.obeys("a revoked key", status == http.StatusUnauthorized, text)

	c.change(at, http.MethodPatch, "/api/mcp-servers/tools", `{"enabled":false}`, http.StatusOK)
	status, text, offered := c.ask(other, c.owner)
	c.obeys("a server that is off", status == http.StatusOK && !offered, text)
	c.change(at, http.MethodPatch, "/api/mcp-servers/tools", `{"enabled":true}`, http.StatusOK)
	status, text, offered = c.ask(other, c.owner)
	c.obeys("a server that is on", status == http.StatusOK && offered, text)

	c.change(at, http.MethodPatch, "/api/org/runtime", `{"budgets":[{"scope":"org","period":"total","usd":0.0000001}]}`, http.StatusOK)
	status, text, _ = c.ask(other, c.owner)
	c.obeys("a lower budget", status == http.StatusTooManyRequests && strings.Contains(text, "budget_exceeded"), text)
	c.change(at, http.MethodPatch, "/api/org/runtime", `{"budgets":[{"scope":"org","period":"total","usd":1000}]}`, http.StatusOK)
	status, text, _ = c.ask(other, c.owner)
	c.obeys("a higher budget", status == http.StatusOK, text)
}

// A key is revoked, a server is switched off, and a budget is lowered on one replica: the next request on the other obeys, and
// so it does when they are given back. // A01 A07 K07
func TestAChangeOnOneReplicaHoldsForTheNextRequestOnTheOther(t *testing.T) {
	t.Parallel()
	c := newChanging(t)
	rounds := soak.Value(t, 8, 20, 334) // three reductions and three increases each
	for i := range rounds {
		c.round(c.replicas[i%2], c.replicas[1-i%2], i)
	}
	slices.Sort(c.took)
	at := func(percent int) time.Duration { return c.took[len(c.took)*percent/100].Round(time.Millisecond) }
	t.Logf(
		"%d changes in both directions, half of them reductions: %d stale answers, %d requests refused by a replica "+
			"that could not confirm its settings; a change took p50 %v, p90 %v, p99 %v, at most %v",
		c.changes,
		c.stale,
		c.out,
		at(50),
		at(90),
		at(99),
		c.took[len(c.took)-1].Round(time.Millisecond),
	)
}

// A change while a replica is stopped is answered within about 2 seconds. The woken replica refuses requests until it has read what has
// changed. // A01
func TestAChangeDoesNotWaitForAReplicaThatIsStopped(t *testing.T) {
	t.Parallel()
	c := newChanging(t)
	a, b := c.replicas[0], c.replicas[1]
	out, obeyed, slowest := 0, 0, time.Duration(0)
	for i := range soak.Value(t, 2, 3, 20) {
		var key struct{ ID, Key string }
		if err := json.Unmarshal([]byte(c.must(a, http.MethodPost, "/api/keys", c.owner, fmt.Sprintf(`{"name":"p%d","role":"member"}`, i),
			http.StatusCreated)), &key); err != nil {
			t.Fatal(err)
		}
		if status, text, _ := c.ask(b, key.Key); status != http.StatusOK {
			t.Errorf("the new key: %d %s", status, text)
		}
		b.process.signal(syscall.SIGSTOP)
		status, text, took := a.send(t.Context(), http.MethodDelete, "/api/keys/"+key.ID, c.owner, "")
		slowest = max(slowest, took)
		if status != http.StatusOK || took > 3*time.Second {
			t.Errorf("the change took %v: %d %s", took, status, text)
		}
		b.process.signal(syscall.SIGCONT)
		for ready := false; !ready; {
			status, text, _ := b.send(t.Context(), http.MethodPost, "/v1/chat/completions", key.Key, chatBody)
			switch {
			case status == http.StatusServiceUnavailable && strings.Contains(text, "replica_out"):
				out++
			case status == http.StatusUnauthorized:
				obeyed++
				ready = true
			default:
				t.Fatalf("the woken replica answers the revoked key with %d %s", status, text)
			}
		}
		eventually(t, "the woken replica is ready", b.ready)
	}
	t.Logf("a change took %v at most while a replica was stopped; woken, it refused %d requests with replica_out and then %d with 401",
		slowest.Round(time.Millisecond), out, obeyed)
}
