package app_test

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/internal/cli"
)

// echoes is a hostile neighbour: it answers with the credentials that it was sent.
type echoes struct {
	*httptest.Server
	mu   sync.Mutex
	seen map[string]bool // values of headers
}

func newEchoes(t *testing.T) *echoes {
	e := &echoes{seen: map[string]bool{}}
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var b bytes.Buffer
		_ = r.Header.Write(&b)
		e.mu.Lock()
		for _, name := range []string{"Authorization", "X-Api-Key"} {
			e.seen[strings.TrimPrefix(r.Header.Get(name), "Bearer ")] = true
		}
		if r.Header.Get("Webhook-Signature") != "" {
			e.seen["signed"] = true
		}
		e.mu.Unlock()
		switch {
		case strings.HasSuffix(r.URL.Path, "/401"):
			w.Header().Set("WWW-Authenticate", `Bearer realm="`+strings.ReplaceAll(r.Header.Get("Authorization"), `"`, "")+`"`)
			w.WriteHeader(http.StatusUnauthorized)
		case strings.HasSuffix(r.URL.Path, "/500"):
			w.WriteHeader(http.StatusInternalServerError)
		case strings.HasSuffix(r.URL.Path, "/302"):
			w.Header().Set("Location", "http://127.0.0.1:1/?key="+r.Header.Get("X-Api-Key")+"&token="+strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
			w.WriteHeader(http.StatusFound)
		}
		fmt.Fprintf(w, "%s %s", b.Bytes(), body)
	}))
	t.Cleanup(e.Close)
	return e
}

// Secrets of the vault that MCP servers, hooks, tools and settings of agents use are in no log, row,
// event, answer, webhook, audit row or backup, also when the servers and the receivers of hooks fail, and answer
// with what they were sent. // K06 K13
func TestNoSecretOfAnAgentComesOut(t *testing.T) {
	NoLeaks(t)
	c := &canaries{t, map[string]string{}, map[string][]byte{}}
	tools, hostile, webhooks := NewMCP(t, map[string]Handler{"pay": Echo, "look": Echo}), newEchoes(t), newEchoes(t)
	up := NewUpstream(t, func(w http.ResponseWriter, r *http.Request, got Received) {
		switch LastSaid(got.Body) {
		case "GATE":
			Asks(Use("mcp__shop__pay", `{"amount":1}`)).Write(w)
		case "LOOK":
			Asks(Use("mcp__shop__look", `{"amount":1}`)).Write(w)
		case "LEAD":
			w.Header().Set("Location", "http://127.0.0.1:1/?key="+strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
			w.WriteHeader(http.StatusFound)
		case "FAIL":
			http.Error(w, `{"error":{"message":"wrong key `+r.Header.Get("Authorization")+`"}}`, http.StatusUnauthorized)
		default:
			Says("Done.").Write(w)
		}
	})
	variables := Environment()
	c.byKind["master"], c.byKind["provider"] = MasterKey, c.of("provider")
	variables["UPSTREAM_KEY"] = c.of("provider")
	data := t.TempDir()
	d := Manage(MustRunIn(t, data, Site{Upstream: up.URL}.WithVault(), variables))
	c.agentSecrets(d)
	id := c.agentOf(d, tools.URL, hostile.URL, webhooks.URL)
	c.agentRuns(d, id)
	for _, r := range up.Requests() {
		c.look("what the model was sent", r.Body)
	}
	c.disk("the disk of a running gateway", data)
	archive := filepath.Join(t.TempDir(), "backup.tar")
	var out bytes.Buffer
	if got := cli.Main(t.Context(), cli.Process{Args: []string{"backup", "--data", data, archive}, Env: NoEnvironment, Stdout: &out, Stderr: &out}); got != 0 {
		t.Errorf("backup: %d %s", got, out.String())
	}
	for name, text := range entries(t, archive) {
		c.look("the backup, "+name, []byte(text))
	}
	if err := d.Stop(); err != nil {
		t.Error(err)
	}
	c.look("the log", []byte(d.Log.String()))
	c.disk("the disk", data)
	c.search()
	hostile.mu.Lock()
	defer hostile.mu.Unlock()
	for _, kind := range []string{"failingserver", "hookheader"} {
		if !hostile.seen[c.of(kind)] {
			t.Errorf("nobody was sent the secret of the kind %q", kind)
		}
	}
	if got := tools.Bearers("tools/call"); !hostile.seen["signed"] || !slices.Contains(got, c.of("agentserver")) {
		t.Errorf("signed: %v; the calls came with %q", hostile.seen["signed"], got)
	}
}

// agentSecrets stores secrets, and makes mistakes with others.
func (c *canaries) agentSecrets(d Documented) {
	do := func(method, path, body string, want int) {
		c.Helper()
		a := d.Send(method, path, strings.NewReader(body))
		if a.Status != want {
			c.Errorf("%s %s answered %d, want %d: %s", method, path, a.Status, want, a.Body)
		}
		c.look(method+" "+path, a.Body)
	}
	key := make([]byte, 24)
	_, _ = rand.Read(key)
	c.byKind["hooksign"] = "whsec_" + base64.StdEncoding.EncodeToString(key)
	for _, kind := range []string{"agentserver", "failingserver", "hookheader", "hooksign", "toolheader"} {
		do("PUT", "/api/secrets/"+kind, fmt.Sprintf(`{"value":%q}`, c.of(kind)), 200)
	}
	do("PUT", "/api/settings", fmt.Sprintf(`{"settings":{"EXA_API_KEY":%q,"AGENT_MAX_STEPS":9}}`, c.of("exa")), 200)
	do("PUT", "/api/settings/FIRECRAWL_API_KEY", fmt.Sprintf(`{"value":%q}`, c.of("oldfirecrawl")), 200)
	do("PUT", "/api/settings/FIRECRAWL_API_KEY", fmt.Sprintf(`{"value":%q}`, c.of("firecrawl")), 200)
	do("PUT", "/api/settings/EXA_API_KEY", fmt.Sprintf(`{"value":"%s\n"}`, c.of("lines")), 400)
	do("PUT", "/api/settings/EXA_API_KEY", fmt.Sprintf(`{"value":{"a":%q}}`, c.of("object")), 400)
	do("PUT", "/api/settings/EXA_API_KEY", fmt.Sprintf(`{"value":%q`, c.of("broken")), 400)
	do("PUT", "/api/settings/EXA_API_KEY", fmt.Sprintf(`{"value":%q}`, c.of("large")+strings.Repeat("x", 1<<16)), 400)
	do("PUT", "/api/settings", fmt.Sprintf(`{"settings":{"EXA_API_KEY":%q,"VISION_MODEL":7}}`, c.of("refused")), 400)
	do("PUT", "/api/settings", fmt.Sprintf(`{"settings":{"EXA_API_KEY":[%q]}}`, c.of("list")), 400)
	do("POST", "/api/agents", fmt.Sprintf(`{"name":"open","mcp_servers":[{"name":"s","url":"https://example.com/mcp","headers":{"Authorization":"Bearer %s"}}]}`, c.of("openheader")), 422)
	do("POST", "/api/agents", fmt.Sprintf(`{"name":"open","hooks":[{"event":"OnRunStart","type":"http","config":{"url":"https://example.com/","headers":{"X-Api-Key":%q}}}]}`, c.of("openhook")), 422)
	do("POST", "/api/agents", fmt.Sprintf(`{"name":"open","hooks":[{"event":"OnRunStart","type":"http","config":{"url":"https://example.com/","secret":%q}}]}`, c.of("opensign")), 400)
	do("POST", "/api/agents", fmt.Sprintf(`{"name":"open","hooks":[{"event":"OnRunStart","type":"http","config":{"url":"https://user:%s@example.com/"}}]}`, c.of("userinfo")), 400)
	do("POST", "/api/tools", fmt.Sprintf(`{"name":"open","description":"d","config":{"endpoint":"https://example.com/","headers":{"Authorization":"Bearer %s"}}}`, c.of("opentool")), 422)
}

// agentOf creates an agent with everything that uses secrets, and a webhook, whose secret is shown once.
func (c *canaries) agentOf(d Documented, tools, hostile, webhooks string) string {
	hook := func(event, path string) string {
		return fmt.Sprintf(`{"event":%q,"type":"http","config":{"url":%q,"headers":{"X-Api-Key":"secret:hookheader"},"secret":"secret:hooksign","include_run_context":true}}`, event, hostile+path)
	}
	server := func(name, url, secret, more string) string {
		return fmt.Sprintf(`{"name":%q,"url":%q,"headers":{"Authorization":"Bearer secret:%s"}%s}`, name, url, secret, more)
	}
	made := d.AsOwner("POST", "/api/webhooks", fmt.Sprintf(`{"name":"ops","url":%q,"events":["*"]}`, webhooks+"/500"), 201)
	c.byKind["webhook"] = made["secret"].(string)
	d.AsOwner("POST", "/api/tools", `{"name":"kept","description":"d","config":{"endpoint":"https://example.com/","headers":{"Authorization":"Bearer secret:toolheader"}}}`, 201)
	return d.NewAgent(`,"mcp_servers":[` + strings.Join([]string{
		server("shop", tools+"/mcp", "agentserver", `,"config":{"require_approval":{"always":{"tool_names":["pay"]}}}`),
		server("refuses", hostile+"/401", "failingserver", ""), server("fails", hostile+"/500", "failingserver", ""), server("odd", hostile+"/200", "failingserver", ""), server("leads", hostile+"/302", "failingserver", ""),
	}, ",") + `],"hooks":[` + strings.Join([]string{
		hook("OnRunStart", "/500"), hook("PreToolUse", "/200"), hook("PostToolUse", "/302"), hook("PreResponse", "/401"),
		hook("OnRunComplete", "/302"), hook("OnRunComplete", "/500"),
	}, ",") + `]`)
}

// agentRuns runs the agent in all its ways, then asks for all that can be read.
func (c *canaries) agentRuns(d Documented, id string) {
	var runs, sessions []string
	for _, message := range []string{"END", "LOOK", "FAIL", "LEAD"} {
		a := d.StreamAgent(id, fmt.Sprintf(`{"message":%q}`, message))
		c.look("the stream of "+message, a.Body)
		start := AgentFrames(c.T, a.Body)[0]
		runs, sessions = append(runs, start["run_id"].(string)), append(sessions, start["session_id"].(string))
	}
	session, run := d.Leave("owner-key", id, `{"message":"GATE","detached":true}`)
	d.Becomes("owner-key", session, "waiting")
	ComesTrue(c.T, "the run shows its approval", func() bool {
		return len(Elements(d.AsOwner("GET", "/api/agents/runs/"+run, "", 200)["approvals"])) == 1
	})
	c.look("approvals", d.Send("GET", "/v1/approvals", nil).Body)
	d.AsOwner("POST", "/api/agents/runs/"+run+"/approve", `{"approved":true}`, 200)
	c.look("the stream of GATE", Wait(c.T, d.Follow("owner-key", run), "the end of a run").Body)
	if told := d.ToldOf("/api/agents/runs/" + run); strings.Count(told, "failed") != 2 {
		c.Errorf("the hooks after the run: %s", told)
	}
	a := d.Send("POST", "/api/agents/"+id+"/run", strings.NewReader(`{"message":"FAIL"}`))
	c.look("a run without tools", append(a.Body, fmt.Sprint(a.Header)...))
	paths := []string{
		"/api/agents", "/api/agents/" + id, "/api/agents/" + id + "/versions", "/api/agents/" + id + "/versions/1", "/api/agents/" + id + "/mcp-servers", "/api/agents/" + id + "/hooks",
		"/api/agents/" + id + "/sessions", "/api/settings", "/api/tools", "/api/secrets", "/api/webhooks", "/api/webhooks/ops/deliveries", "/api/audit?limit=100", "/api/audit/export", "/v1/runs",
	}
	for i := range runs {
		paths = append(paths, "/api/agents/runs/"+runs[i], "/api/agents/runs/"+runs[i]+"/events", "/v1/runs/"+runs[i], "/v1/runs/"+runs[i]+"/events", "/api/sessions/"+sessions[i], "/api/sessions/"+sessions[i]+"/messages", "/api/sessions/"+sessions[i]+"/runs")
	}
	for _, path := range paths {
		a := d.Send("GET", path, nil)
		if a.Status != 200 {
			c.Errorf("GET %s: %d %s", path, a.Status, a.Body)
		}
		c.look("GET "+path, append(a.Body, fmt.Sprint(a.Header)...))
	}
}
