//go:build unix

package crash_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/store/database"
	"github.com/turnpike-gateway/turnpike/internal/upstreamtest"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// The keys of the gateway's only caller, and its own to the provider.
const (
	ownKey      = "sk-crash-owner-5b0e7a1f93c64d28"
	providerKey = "sk-crash-provider-c2d94e60b7a81f35"
)

// configFile has holes for the data directory, the provider's kind and URL, the
// org's runtime and the MCP server's URL. Every start takes a port of its own.
const configFile = `
listen: 127.0.0.1:0
data: %q
min_free_disk_mib: %d
providers:
  - {name: up, kind: %s, base_url: %q, models: [m, "g-*"]}
outbound: {ssrf: {allowlist_cidrs: [127.0.0.0/8]}}
orgs:
  - id: default
    features: [mcp_outbound]
    keys: [{name: owner, key: env:OWNER_KEY, role: owner}]
    runtime: {%s}
    mcp_servers:
      - {name: tools, url: %q, reads: [look], keyed: [order]}
`

// world is what outlives a gateway's process: its provider, the MCP server that
// remembers every call, its configuration, its data and its callers.
//
//	client ──► gateway (killed, and started again) ──► provider
//	                │                              └─► tools
//	                └── data directory ◄── runs list, archive
type world struct {
	*testing.T
	provider *provider
	tools    *turnpiketest.MCPServer
	http     *http.Client
	data     string
	model    string   // that requests name
	config   string   // path of the configuration
	pause    string   // path of the file while which the gateway waits at its point; empty = it is killed
	clock    string   // path of the file that says how far the gateway's wall clock is ahead
	held     string   // what the errand waits for
	program  string   // the gateway; empty = the one that was built for the tests
	flags    []string // of serve; nil = none
	env      []string // further environment of serve; nil = none
	prefix   []string // command line that the gateway's is added to; nil = none
	inside   []string // command line that those of other commands are added to; nil = none

	supervised bool // start returns a gateway that has ended while it started

	server *database.Reader // of a database on a server; nil = the file in data

	mu  sync.Mutex
	url string // of the process that serves; guarded by mu
}

// options are what differs between worlds.
type options struct {
	script  script
	tools   []turnpiketest.Tool
	runtime string // settings of the org, as YAML without braces
	more    string // further members of the configuration, as YAML
	floor   int    // MiB that must be free on the disk
	data    string // data directory; empty = one of the world's own

	// kind and providerURL are those of a provider that the test has made; empty = one
	// that plays script.
	kind, providerURL string
	model             string // that requests name; "" = m
}

// newWorld makes a world without a gateway.
func newWorld(t *testing.T, o options) *world {
	t.Helper()
	dir := t.TempDir()
	if o.data == "" {
		o.data = filepath.Join(dir, "data")
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	w := &world{
		T: t, provider: newProvider(t, o.script), tools: turnpiketest.NewMCPServer(turnpiketest.MCPOptions{}, o.tools...),
		http: &http.Client{Transport: transport}, data: o.data, config: filepath.Join(dir, "turnpike.yaml"), clock: filepath.Join(dir, "clock"),
	}
	t.Cleanup(w.tools.Close)
	if w.model = o.model; w.model == "" {
		w.model = "m"
	}
	if o.kind == "" {
		o.kind, o.providerURL = "openai", w.provider.URL+"/v1"
	}
	if o.kind != "bedrock" {
		o.kind += ", api_key: env:PROVIDER_KEY"
	} else {
		o.kind += ", region: " + upstreamtest.AWSRegion + ", access_key_id: " + upstreamtest.AWSAccessKeyID + ", secret_access_key: env:AWS_KEY"
	}
	text := fmt.Sprintf(configFile, o.data, o.floor, o.kind, o.providerURL, o.runtime, w.tools.URL) + o.more
	if err := os.WriteFile(w.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return w
}

// start begins a gateway that kills itself at the point, which is POINT:N, or
// lives on if there is none. It returns when the gateway listens, which is
// before it takes work.
func (w *world) start(point string) *process {
	w.Helper()
	env := append(baseEnv(), "OWNER_KEY="+ownKey, "PROVIDER_KEY="+providerKey, "AWS_KEY="+upstreamtest.AWSSecretAccessKey, "TURNPIKE_CLOCK="+w.clock)
	env = append(env, w.env...)
	if point != "" {
		env = append(env, "TURNPIKE_CRASH="+point, "TURNPIKE_PAUSE="+w.pause)
	}
	line := slices.Concat(w.prefix, []string{w.binary(), "serve", "--config", w.config}, w.flags)
	p := begin(w.T, env, line[0], line[1:]...)
	eventually(w.T, "the gateway listens", func() bool {
		url, ok := p.output.after("turnpike listens on ")
		if ok {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.url = url
			return true
		}
		select {
		case <-p.ended:
			if w.supervised {
				return true
			}
			w.Fatalf("the gateway ended before it listened: %v", p.cmd.ProcessState)
		default:
		}
		return false
	})
	return p
}

// setClock sets the wall clock of the gateway, also of one that is running, to this
// much ahead of the true time. Negative is behind.
func (w *world) setClock(ahead time.Duration) {
	w.Helper()
	next := w.clock + ".next"
	err := os.WriteFile(next, []byte(ahead.String()), 0o600)
	if err == nil {
		err = os.Rename(next, w.clock)
	}
	if err != nil {
		w.Fatal(err)
	}
}

// serve starts a gateway that lives on and returns when it takes work.
func (w *world) serve() *process {
	w.Helper()
	p := w.start("")
	eventually(w.T, "the gateway takes work", w.ready)
	return p
}

func (w *world) ready() bool { return w.get("/readyz") == http.StatusOK }

// get returns the status of an answer, or 0.
func (w *world) get(path string) int {
	ctx, cancel := context.WithTimeout(w.Context(), time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.base()+path, nil)
	if err != nil {
		w.Fatal(err)
	}
	resp, err := w.http.Do(req)
	if err != nil {
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// cancelRun asks for the end of a run. There may be nobody who answers.
func (w *world) cancelRun(id string) {
	req, err := http.NewRequestWithContext(w.Context(), http.MethodPost, w.base()+"/api/runs/"+id+"/cancel", nil)
	if err != nil {
		w.Error(err)
		return
	}
	req.Header.Set("Authorization", "Bearer "+ownKey)
	if resp, err := w.http.Do(req); err == nil {
		_ = resp.Body.Close()
	}
}

func (w *world) base() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.url
}

func (w *world) binary() string {
	if w.program != "" {
		return w.program
	}
	return os.Getenv(binaryVariable)
}

// command runs another command of the gateway's program on its data and returns
// what it printed.
func (w *world) command(args ...string) string {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	line := slices.Concat(w.inside, []string{w.binary()}, args, []string{"--data", w.data})
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	cmd.Env = baseEnv()
	text, err := cmd.CombinedOutput()
	if err != nil {
		w.Fatalf("turnpike %v: %v\n%s", args, err, text)
	}
	return string(text)
}

// reader returns what reads the store, and what closes it.
func (w *world) reader() (r *database.Reader, done func()) {
	w.Helper()
	if w.server != nil {
		return w.server, func() {}
	}
	r, err := database.OpenReader(w.Context(), filepath.Join(w.data, "turnpike.db"))
	if err != nil {
		w.Fatal(err)
	}
	return r, func() { _ = r.Close() }
}

// runs returns how each run of the org stands, by id. Where another build or another user has made the store, its command says it:
// that is a process each time.
func (w *world) runs() map[string]string {
	w.Helper()
	if w.program == "" && w.inside == nil {
		r, done := w.reader()
		defer done()
		return w.storedRuns(r)
	}
	states := map[string]string{}
	const page = 1000
	for before := ""; ; {
		lines := strings.Split(strings.TrimSpace(w.command("runs", "list", "--limit", fmt.Sprint(page), "--before", before)), "\n")
		for _, line := range lines[1:] { // after the head
			words := strings.Fields(line)
			states[words[0]] = words[len(words)-1]
			before = words[0]
		}
		if len(lines) <= page {
			return states
		}
	}
}

// onlyRun returns the id of the only run.
func (w *world) onlyRun() string {
	w.Helper()
	var ids []string
	for id := range w.runs() {
		ids = append(ids, id)
	}
	if len(ids) != 1 {
		w.Fatalf("the store has the runs %v, want one", ids)
	}
	return ids[0]
}

// stateCounts returns how many runs stand how.
func (w *world) stateCounts() map[string]int {
	w.Helper()
	counts := map[string]int{}
	for _, state := range w.runs() {
		counts[state]++
	}
	return counts
}

// load reads the journal of a run and its rows for auditors from the file.
func (w *world) load(id string) (*journal.Story, []audit.Row) {
	w.Helper()
	r, done := w.reader()
	defer done()
	story, err := r.Load(w.Context(), "default", id)
	if err != nil {
		w.Fatal(err)
	}
	rows, err := r.AuditRows(w.Context(), "default", audit.Query{RunID: id})
	if err != nil {
		w.Fatal(err)
	}
	return story, rows
}

// textOf returns the text of a tool's result.
func textOf(story *journal.Story, ref string) string {
	var items item.List
	if json.Unmarshal(story.Rows[ref], &items) != nil || len(items) != 1 {
		return ""
	}
	return items[0].Text()
}
